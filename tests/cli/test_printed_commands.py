"""Every command that is printed runs as it is printed, wherever the store was named."""

import re
import shlex

import pytest
from tests.cli.desk import Desk

from effectonce import Guard, InDoubt
from effectonce.stores import open_store
from effectonce.stores._urls import as_option

COMMAND = re.compile(r"effectonce (?:[a-z]+ )+.*?(?=`|; effectonce|$)", re.MULTILINE)
REASON = ("--reason", "the bank says so", "--by", "ada", "--yes", "--dry-run")


class Stranger(Desk):
    """A desk that says nothing about the store: neither in the environment nor in a file."""

    def here(self):
        return {}


@pytest.fixture
def stranger(desk, tmp_path_factory):
    """In another folder than the store, whose path has a space in it."""
    folder = tmp_path_factory.mktemp("a folder")
    moved = folder / "my effects.db"
    (desk.folder / "effects.db").rename(moved)
    return Stranger(tmp_path_factory.mktemp("elsewhere"), f"sqlite:///{moved}")


def printed(text):
    return [command.strip() for command in COMMAND.findall(text)]


def give(desk, command):
    """As a person does who copies it, and fills in the words in capitals."""
    words = shlex.split(command)[1:]
    if "TEXT" in words:
        words[words.index("--reason") : words.index("TEXT") + 1] = REASON
    return desk.run(*("null" if word == "JSON" else word for word in words))


@pytest.mark.parametrize(
    "command", [("status",), ("effect", "list", "--tool", "none"), ("effect", "show", "eff_0000")]
)
def test_commands_name_the_store_that_was_given(stranger, command):
    done = stranger.run(*command, "--store", stranger.url)

    found = printed(done.stdout + done.stderr)
    for each in found:
        ran = give(stranger, each) if "demo" not in each else done
        assert "Which store?" not in ran.stderr
        assert ran.returncode in (0, done.returncode), (each, ran.stderr)
    assert any(shlex.quote(stranger.url) in each for each in found)


def test_the_commands_below_each_effect_run_as_they_are_printed(stranger):
    listed = stranger.json("effect", "list", "--store", stranger.url)["effects"]

    ran = []
    for effect in listed:
        shown = stranger.run(
            "effect", "show", effect["reference"], "--store", stranger.url, width=60
        )
        for each in printed(shown.stdout):
            if "MODULE:GUARD" not in each:
                done = give(stranger, each)
                assert done.returncode == 0, (each, done.stderr)
                ran.append(each)

    assert {"confirm", "refute"} <= {each.split()[2] for each in ran}


def test_a_command_that_needs_an_app_gets_the_one_that_was_given(desk):
    app = ("--app", "tests.cli.shop:guard")
    shown = [
        desk.run("effect", "show", effect["reference"], *app).stdout
        for effect in desk.json("effect", "list")["effects"]
    ]

    commands = [command for screen in shown for command in printed(screen)]
    assert commands
    assert all(command.endswith(" ".join(app)) for command in commands)


def test_what_the_environment_says_is_not_said_again(desk):
    shown = desk.run("status")

    assert printed(shown.stdout)
    assert "--store" not in shown.stdout


# ---------------------------------------------------------------- in errors


def doubtful(store):
    guard = Guard(store)

    @guard.tool(kind="write")
    def pay():
        raise TimeoutError("the bank said nothing")

    def call():
        with guard.step("chat-42", "pay"):
            return pay()

    return guard, call


def command_of(error):
    (command,) = printed("\n".join(error.__notes__))
    return command


@pytest.mark.parametrize("as_object", [False, True])
@pytest.mark.parametrize("again", [False, True])
def test_the_command_in_an_error_runs_as_it_is_printed(tmp_path, monkeypatch, as_object, again):
    folder = tmp_path / "my shop"
    folder.mkdir()
    monkeypatch.chdir(folder)
    url = "sqlite:///effects.db"
    guard, pay = doubtful(open_store(url) if as_object else url)
    with pytest.raises(InDoubt) as caught:
        pay()
    if again:
        with pytest.raises(InDoubt) as caught:
            pay()
    guard.close()

    done = give(Stranger(tmp_path, url), command_of(caught.value))

    assert done.returncode == 0, done.stderr
    assert "chat-42/pay" in done.stdout


def test_an_outcome_in_doubt_carries_the_same_command(tmp_path):
    guard = Guard(f"sqlite:///{tmp_path}/effects.db")

    @guard.tool(kind="write")
    def pay():
        raise TimeoutError("the bank said nothing")

    outcome = guard.call(pay, {}, key="inv_1")
    guard.close()

    assert give(Stranger(tmp_path, ""), command_of(outcome.error)).returncode == 0


def test_an_error_names_no_password():
    plain, secret = "postgresql://app@db/effects", "postgresql://app:hunter2@db/effects"
    in_the_environment = " (with the URL of its store in EFFECTONCE_STORE)"

    assert as_option(plain, {}) == f" --store {plain}"
    assert as_option(secret, {}) == as_option(f"{plain}?password=hunter2", {}) == in_the_environment
    assert as_option(secret, {"EFFECTONCE_STORE": secret}) == ""


def test_an_effect_that_is_nowhere_but_in_this_process_is_not_looked_for_elsewhere():
    _, pay = doubtful("memory://")
    with pytest.raises(InDoubt) as caught:
        pay()

    assert "effectonce effect show" not in "\n".join(caught.value.__notes__)
    assert "guard.in_doubt()" in "\n".join(caught.value.__notes__)
