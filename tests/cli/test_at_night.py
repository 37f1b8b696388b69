"""What somebody sees who was called at night: no traceback, no word that is cut in two, nothing
left out in silence.
"""

import json
import subprocess
import sys

import click
import pytest
from tests.cli.desk import Desk, environment
from tests.privileges import drop_for_good

from effectonce import Guard, InDoubt
from effectonce.cli import COMMANDS, main

LONG = "send_a_notification_to_the_customer_of_this_order"


@pytest.fixture
def long_names(tmp_path):
    """Two doubts of a tool and a conversation with long names."""
    desk = Desk(tmp_path, f"sqlite:///{tmp_path / 'effects.db'}")
    guard = Guard(desk.url)

    @guard.tool(kind="write", name=LONG)
    def notify() -> None:
        raise TimeoutError

    for number in range(2):
        with (
            guard.step(f"conversation/with/a/rather/long/name/{number}", "notify"),
            pytest.raises(InDoubt),
        ):
            notify()
    guard.close()
    return desk


@pytest.mark.parametrize(
    "command", [("status",), ("doctor",), ("effect", "show", "eff_b1af24c4f62c")]
)
def test_a_file_that_may_not_be_looked_at_is_told(tmp_path, command):
    # what a closed folder is to all but root
    desk = Desk(tmp_path, f"sqlite:///{tmp_path / ('x' * 300)}.db")

    done = desk.run(*command)

    assert done.returncode == 7
    assert "Traceback" not in done.stderr
    assert "File name too long" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("url", "package"),
    [("postgresql://app@localhost/effects", "postgres"), ("redis://localhost/0", "redis")],
)
@pytest.mark.parametrize("command", ["doctor", "status"])
def test_a_package_that_is_not_installed_is_told(tmp_path, command, url, package):
    driver = {"postgres": "psycopg", "redis": "hiredis"}[package]
    (tmp_path / f"{driver}.py").write_text("raise ModuleNotFoundError")
    desk = Desk(tmp_path, url)

    done = desk.run(command, PYTHONPATH=f"{tmp_path}:{environment()['PYTHONPATH']}")

    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")
    assert f"pip install 'effectonce[{package}]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "command",
    [("status",), ("doctor", "effects.db"), ("mcp", "--store", "effects.db", "--", "true")],
)
def test_a_url_that_is_none_is_wrong_usage(tmp_path, command):
    done = Desk(tmp_path, "effects.db").run(*command)

    assert done.returncode == 2
    assert "'effects.db' is not the URL of a store" in done.stderr


def test_what_keeps_from_the_store_is_told_to_a_person(tmp_path):
    (tmp_path / "effects.db").write_bytes(b"no database" * 100)

    done = Desk(tmp_path, f"sqlite:///{tmp_path / 'effects.db'}").run("status")

    assert done.returncode == 7
    assert "effects.db is not a SQLite database" in done.stderr
    assert done.stderr.endswith("or of one that effectonce has made.\n")


@pytest.mark.parametrize(
    "command",
    [
        ("status",),
        ("effect", "list"),
        ("effect", "export"),
        ("indoubt", "list"),
        ("dlq", "list"),
        ("dlq", "groups"),
        ("workflow", "list"),
        ("approve", "list"),
        ("allowance", "list"),
        ("breaker", "list", "--app", "tests.cli.shop:guard"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("folder_mode", [0o755, 0o555])
@pytest.mark.cover(1)
def test_a_file_that_may_only_be_read_can_be_looked_at(desk, command, folder_mode):
    as_owner = desk.run(*command)
    for file in desk.folder.glob("effects.db*"):
        file.chmod(0o444)
    desk.folder.chmod(folder_mode)

    done = desk.run(*command, preexec_fn=drop_for_good)

    assert as_owner.returncode == done.returncode == 0, done.stderr
    assert done.stdout == as_owner.stdout


def test_effects_of_a_file_that_may_only_be_read_can_be_counted(desk):
    counts = desk.json("store", "stats")["counts"]
    (desk.folder / "effects.db").chmod(0o444)

    done = desk.run("store", "stats", "--json", preexec_fn=drop_for_good)

    assert json.loads(done.stdout)["counts"] == counts


def test_what_would_write_to_a_file_that_may_only_be_read_is_refused_with_what_to_do(desk):
    (desk.folder / "effects.db").chmod(0o444)

    done = desk.run("store", "gc", preexec_fn=drop_for_good)

    assert done.returncode == 7
    assert "may not be written by this user" in done.stderr
    assert "give this user the right to write there" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_store_that_is_not_made_yet_is_not_called_broken(tmp_path):
    done = Desk(tmp_path, f"sqlite:///{tmp_path / 'effects.db'}").run("doctor", width=200)

    assert "The first call makes it" in done.stdout
    assert "put right" not in done.stdout


def test_long_names_leave_one_line_to_each_effect_that_needs_somebody(long_names):
    code, screen = long_names.terminal("status", width=80)

    assert code == 0
    assert all(len(line) <= 80 for line in screen.splitlines())
    # what is left of a conversation's name
    assert sum(line.startswith(" " * 40) for line in screen.splitlines()) <= 4
    assert "  send_a_notification_t…  in doubt for " in screen


def test_a_wide_terminal_shows_whole_names(long_names):
    code, screen = long_names.terminal("effect", "list", width=160)

    assert code == 0
    assert f"{LONG}  in doubt  conversation/with/a/rather/long/name/1/notify" in screen
    assert "…" not in screen


def test_a_run_that_nobody_runs_any_more_says_so(tmp_path):
    desk = Desk(tmp_path, f"sqlite:///{tmp_path / 'effects.db'}")
    subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "effects.db")], env=environment(), check=False
    )
    [run] = desk.json("workflow", "list")["runs"]

    assert desk.terminal("workflow", "list")[1].endswith("its owner is gone\n")
    assert "stopped    its owner is gone\n" in desk.run("workflow", "show", run["reference"]).stdout


KILLED = """
import os, sys, time
from effectonce import Guard
from effectonce.stores.sqlite import SqliteStore

guard = Guard(SqliteStore(sys.argv[1], clock=lambda: time.time() - 9000))

@guard.workflow(identity=["order"])
def deliver(run, order: str):
    os._exit(9)

deliver("order_7")
"""


def test_whoever_leaves_a_question_unanswered_has_changed_nothing(long_names):
    [lost, _] = long_names.json("indoubt", "list", "--each")["effects"]

    # The end of the input; without a session of its own a terminal makes no signal of Ctrl-C,
    # which click takes for the same.
    code, screen = long_names.terminal(
        "indoubt", "refute", lost["reference"], dialogue=[("Reason: ", "\x04")]
    )

    assert code == 130
    assert screen.endswith("\nInterrupted.\n")
    assert len(long_names.json("indoubt", "list", "--each")["effects"]) == 2


def test_doubts_beyond_the_limit_are_not_left_out_in_silence(long_names):
    assert (
        long_names.run("indoubt", "list", "--each", "--limit", "1").stderr
        == "There are more: give a higher --limit.\n"
    )
    assert long_names.run("indoubt", "list", "--each", "--limit", "2").stderr == ""


@pytest.mark.parametrize(
    "command",
    [
        ("tool", "list"),
        ("effect", "show", "no reference"),
        ("effect", "list", "--since", "yesterday"),
    ],
)
def test_an_error_ends_its_lines_between_words(long_names, command):
    piped = long_names.run(*command).stderr

    _, screen = long_names.terminal(*command, width=60)

    shown = screen.partition("Error: ")[2]
    assert " ".join(shown.split()) == " ".join(piped.partition("Error: ")[2].split())
    assert all(len(line) <= 60 for line in f"Error: {shown}".splitlines())


@pytest.mark.parametrize("name", COMMANDS)
def test_no_line_about_a_command_is_cut(name):
    # a command keeps the options for help that it is first asked for
    context = click.Context(main, **main.context_settings)
    command = main.get_command(context, name)

    shown = command.get_help(
        click.Context(command, info_name=name, parent=context, terminal_width=80)
    )

    listed = shown.partition("\nCommands:\n")[2]
    assert "..." not in listed
