"""Settings that lie around: in a folder of another user, or in a repository that was cloned."""

import sys

import pytest

from effectonce.cli._settings import resolve
from tests.attacks.strangers import given_to_a_stranger
from tests.cli.desk import Desk

MARK = (
    "import pathlib\npathlib.Path(__file__).with_name('ran').touch()\nfrom effectonce import"
    " Guard\nguard = Guard('memory://')\n"
)


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def clone(project):
    """A repository whose settings name code of its own."""
    (project / "evil.py").write_text(MARK)
    return Desk(project, f"sqlite:///{project / 'effects.db'}")


@pytest.mark.parametrize("name", ["effectonce.toml", "pyproject.toml"])
def test_a_settings_file_of_another_user_is_not_obeyed(project, monkeypatch, name):
    file = project / name
    file.write_text(
        '[tool.effectonce]\ntenant = "his"' if name == "pyproject.toml" else 'tenant = "his"'
    )
    below = project / "below"
    below.mkdir()
    assert resolve({}, {}, below)["tenant"].value == "his"

    given_to_a_stranger(file, monkeypatch)

    assert resolve({}, {}, below)["tenant"].value == ""


def a_folder(project):
    """Another user may put there what they like, also a file that this user once wrote."""
    (project / "effectonce.toml").write_text('tenant = "his"')
    return project


def a_link(project):
    (project / "ours.toml").write_text('tenant = "his"')
    link = project / "effectonce.toml"
    link.symlink_to(project / "ours.toml")
    return link


@pytest.mark.parametrize("make", [a_folder, a_link])
def test_settings_in_a_folder_or_behind_a_link_of_another_user_are_not_obeyed(
    project, monkeypatch, make
):
    theirs = make(project)
    assert resolve({}, {}, project)["tenant"].value == "his"

    given_to_a_stranger(theirs, monkeypatch)

    assert resolve({}, {}, project)["tenant"].value == ""


def test_a_settings_file_of_another_user_is_obeyed_if_it_was_named(project, monkeypatch):
    file = project / "effectonce.toml"
    file.write_text('tenant = "his"')
    given_to_a_stranger(file, monkeypatch)

    assert resolve({}, {}, project, file)["tenant"].value == "his"


def test_whoever_runs_a_command_hears_which_file_was_not_read(clone, capfd, monkeypatch):
    file = clone.folder / "effectonce.toml"
    file.write_text('tenant = "his"')
    given_to_a_stranger(file, monkeypatch)
    monkeypatch.chdir(clone.folder)
    from effectonce.cli import main

    monkeypatch.setattr(sys, "argv", ["effectonce", "config", "show"])
    with pytest.raises(SystemExit):
        main()

    assert f"{file} is not read: it belongs to another user" in capfd.readouterr().err.replace(
        "\n", " "
    )


@pytest.mark.cover(1)
@pytest.mark.parametrize("name", ["effectonce.toml", "pyproject.toml"])
@pytest.mark.parametrize(
    "command", [("status",), ("effect", "list"), ("tool", "list"), ("doctor",)]
)
def test_a_cloned_repository_runs_no_code(clone, name, command):
    head = "[tool.effectonce]\n" if name == "pyproject.toml" else ""
    (clone.folder / name).write_text(f'{head}app = "evil:guard"')

    done = clone.run(*command, EFFECTONCE_STORE="")

    assert not (clone.folder / "ran").exists()
    assert done.returncode == 2
    assert "--app evil:guard" in done.stderr


@pytest.mark.parametrize("asked", ["option", "variable", "named", "own"])
def test_code_runs_when_it_was_asked_for(clone, asked, tmp_path):
    (clone.folder / "effectonce.toml").write_text('app = "evil:guard"')
    own = tmp_path / "home" / "effectonce" / "effectonce.toml"
    if asked == "own":
        own.parent.mkdir(parents=True)
        own.write_text('app = "evil:guard"')
    options = {"option": ("--app", "evil:guard"), "named": ("--config", "effectonce.toml")}.get(
        asked, ()
    )
    variables = {"EFFECTONCE_APP": "evil:guard"} if asked == "variable" else {}

    done = clone.run(
        "tool",
        "list",
        *options,
        EFFECTONCE_STORE="",
        XDG_CONFIG_HOME=str(tmp_path / "home"),
        **variables,
    )

    assert done.returncode == 0, done.stderr
    assert (clone.folder / "ran").exists()
