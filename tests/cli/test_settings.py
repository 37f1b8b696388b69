"""Settings: the stronger wins, every bad one is named with its place, and no secret is an
option.
"""

import re
from pathlib import Path

import pytest
from tests.cli.desk import ROOT

from effectonce._environment import KNOWN
from effectonce.cli._settings import SETTINGS, BadSettings, here, resolve

STORE = "sqlite:///{}.db"


def written(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    return tmp_path


def test_the_stronger_wins(home):
    work = home / "project" / "deep" / "er"
    work.mkdir(parents=True)
    user = written(
        home / "home" / "effectonce" / "effectonce.toml",
        'store = "sqlite:///user.db"\ntenant = "user"\nlimit = 7\nby = "u"',
    )
    project = written(
        home / "project" / "pyproject.toml",
        '[tool.effectonce]\nstore = "sqlite:///py.db"\ntenant = "py"\nby = "py"',
    )
    own = written(
        home / "project" / "deep" / "effectonce.toml", 'store = "sqlite:///own.db"\ntenant = "own"'
    )
    found = resolve({"store": "sqlite:///flag.db"}, {"EFFECTONCE_TENANT": "env"}, work)

    assert {
        name: (found[name].value, found[name].origin)
        for name in ("store", "tenant", "by", "limit", "output")
    } == {
        "store": ("sqlite:///flag.db", "--store"),
        "tenant": ("env", "EFFECTONCE_TENANT"),
        "by": ("py", str(project)),
        "limit": (7, str(user)),
        "output": ("auto", "default"),
    }
    assert resolve({}, {}, work)["store"].origin == str(own)
    assert resolve({}, {}, home / "project")["store"].origin == str(project)
    assert resolve({}, {}, home)["store"].origin == str(user)


def test_a_file_that_is_named_stands_for_those_that_would_be_found(home):
    written(home / "effectonce.toml", 'tenant = "found"')
    named = written(home / "named.toml", 'store = "sqlite:///named.db"')
    found = resolve({}, {}, home, named)

    assert (found["store"].value, found["tenant"].value) == ("sqlite:///named.db", "")
    with pytest.raises(BadSettings, match="there is no settings file"):
        resolve({}, {}, home, home / "typo.toml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            'store = "x"\nstroe = "y"',
            r"effectonce.toml, line 2: there is no setting 'stroe'; did you mean 'store'\?",
        ),
        ("xyzzy = 1", r"line 1: there is no setting 'xyzzy'$"),
        (
            'tenant = "a"\n\noutput = "xml"',
            "line 3: output is one of auto, table, json, jsonl, not 'xml'",
        ),
        ('limit = "many"', "line 1: limit is a number from 1, not 'many'"),
        ("limit = 0", "limit is a number from 1"),
        ("no_input = 2", "no_input is true or false, not 2"),
        ("store = 1", "store is a text, not 1"),
        ("store = =", r"cannot be read: .*line 1"),
        ('[store]\nurl = "x"', "line 1: store is a text"),
        ('store = "postgresql://app:hunter2@db/effects"', "holds a password"),
        ('store = "redis://db?password=hunter2"', "holds a password"),
    ],
)
def test_a_bad_file_is_named_with_its_line(home, text, said):
    written(home / "effectonce.toml", text)

    with pytest.raises(BadSettings, match=said) as told:
        resolve({}, {}, home)
    assert "hunter2" not in str(told.value)


def test_a_bad_variable_is_named(home):
    with pytest.raises(
        BadSettings, match="EFFECTONCE_COLOR: color is one of auto, always, never, not 'blue'"
    ):
        resolve({}, {"EFFECTONCE_COLOR": "blue"}, home)


def test_a_bad_file_ends_a_command_with_wrong_usage(empty):
    written(empty.folder / "effectonce.toml", "store = ")
    done = empty.run("effect", "list")

    assert done.returncode == 2
    assert done.stderr.startswith("Error: ")
    assert "effectonce.toml" in done.stderr


@pytest.mark.parametrize("command", [("effect", "list", "--store"), ("doctor",)])
def test_a_password_is_never_an_option(empty, command):
    done = empty.run(*command, "postgresql://app:hunter2@127.0.0.1:1/x")

    assert done.returncode == 2
    assert "EFFECTONCE_STORE" in done.stderr
    assert "hunter2" not in done.stderr


def test_a_store_may_be_named_in_a_file_of_its_own(desk):
    written(desk.folder / "secret" / "url", f"{desk.url}\n")
    written(desk.folder / "effectonce.toml", 'store_file = "secret/url"')

    assert len(desk.json("effect", "list", EFFECTONCE_STORE="")["effects"]) == 6
    missing = desk.run("effect", "list", EFFECTONCE_STORE="", EFFECTONCE_STORE_FILE="nowhere")
    assert missing.returncode == 2
    assert "nowhere" in missing.stderr


def test_an_option_may_stand_before_or_after_the_command(desk):
    before = desk.run(
        "--store", desk.url, "--json", "effect", "list", EFFECTONCE_STORE="sqlite:///typo.db"
    )
    after = desk.run(
        "effect", "list", "--store", desk.url, "--json", EFFECTONCE_STORE="sqlite:///typo.db"
    )

    assert before.returncode == 0
    assert before.stdout.splitlines()[:2] == after.stdout.splitlines()[:2]
    assert (
        desk.run("-o", "json", "effect", "list", "-o", "jsonl", "--limit", "1").stdout.count("\n")
        == 1
    )


def test_settings_are_shown_with_their_origin_and_without_a_password(empty):
    done = empty.run(
        "config", "show", "--origin", EFFECTONCE_STORE="postgresql://app:hunter2@db/effects"
    )
    lines = [line.split("\t") for line in done.stdout.splitlines()]

    assert [line[0] for line in lines] == [setting.name for setting in SETTINGS]
    assert lines[0] == ["store", "postgresql://…@db/effects", "EFFECTONCE_STORE"]
    assert lines[-1] == ["no_input", "false", "default"]
    assert len(empty.run("config", "show").stdout.splitlines()[0].split("\t")) == 2


def test_the_settings_files_are_named_whether_they_are_there_or_not(empty):
    written(empty.folder / "effectonce.toml", 'tenant = "main"')
    lines = [line.split("\t") for line in empty.run("config", "path").stdout.splitlines()]

    assert lines == [
        [str(empty.folder / "effectonce.toml"), "read"],
        ["/nonexistent/effectonce/effectonce.toml", "not there"],
    ]


def test_a_setting_does_what_it_says(desk):
    written(
        desk.folder / "effectonce.toml",
        'output = "jsonl"\nlimit = 2\ntenant = "main"\ncolor = "always"',
    )

    assert len(desk.run("effect", "list").stdout.splitlines()) == 2
    assert "\x1b[" in desk.run("-o", "table", "effect", "list").stdout


def test_every_setting_is_in_the_reference():
    page = (ROOT / "docs" / "reference" / "settings.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| (.*?) \| (.*?) \| (.*?) \|$", page, re.MULTILINE)

    assert [row[0] for row in rows] == [setting.name for setting in SETTINGS]
    for row, setting in zip(rows, SETTINGS, strict=True):
        default = "" if setting.default == "" else f"`{str(setting.default).lower()}`"
        assert row[1:] == (
            setting.variable,
            f"`{setting.option}`" if setting.option else "",
            default,
            setting.about,
        )


def test_the_settings_file_of_this_repository_is_not_in_the_way():
    assert not [
        path
        for path in (
            ROOT / "effectonce.toml",
            Path.home() / ".config" / "effectonce" / "effectonce.toml",
        )
        if path.exists()
    ]


def test_a_folder_that_is_closed_to_this_user_or_gone_has_no_settings(home, monkeypatch):
    closed = home / ("x" * 300)  # what a closed folder is to all but root: it cannot be looked at
    gone = home / "gone"
    gone.mkdir()

    assert resolve({}, {}, closed)["store"].origin == "default"
    with pytest.raises(BadSettings, match="there is no settings file"):
        resolve({}, {}, home, closed)
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert resolve({}, {}, here())["store"].origin == "default"


@pytest.mark.parametrize(
    ("text", "said"),
    [("[tool]\neffectonce = 5", "line 2: .* is a table, not 5"), ("tool = 5", None)],
)
def test_a_pyproject_that_is_odd_is_told_or_left_alone(home, text, said):
    written(home / "pyproject.toml", text)

    if said is None:
        assert resolve({}, {}, home)["store"].origin == "default"
    else:
        with pytest.raises(BadSettings, match=said):
            resolve({}, {}, home)


@pytest.mark.parametrize("command", [("status",), ("config", "show")])
def test_a_variable_that_nothing_reads_is_reported_and_the_command_goes_on(empty, command):
    done = empty.run(*command, new_process=True, EFFECTONCE_TENNANT="acme", EFFECTONCE_SPEED="9")

    assert done.returncode == 0
    assert (
        done.stderr.count(
            "EFFECTONCE_TENNANT, which nothing reads: it has no effect. Did you mean"
            " EFFECTONCE_TENANT?"
        )
        == 1
    )
    assert (
        "EFFECTONCE_SPEED, which nothing reads: it has no effect. There are EFFECTONCE_APP, "
        in done.stderr
    )


def test_every_setting_is_a_variable_that_is_known():
    assert {setting.variable for setting in SETTINGS} <= KNOWN
