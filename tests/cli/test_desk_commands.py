"""`status`, `tail`, `tool`, `breaker`, `store` and `completion`, as people and scripts see them."""

import fcntl
import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.cli import shop
from tests.cli.desk import environment

from effectonce import Guard
from effectonce._core.breaker.votes import exchange
from effectonce._core.ops import Search
from effectonce._drivers import drive

APP = ("--app", "tests.cli.shop:guard")

# ---------------------------------------------------------------- status


STATUS = """\
effects    2 completed, 1 failed, 2 in doubt, 1 dispatched
needs you  2 in doubt, the oldest for 2 h; 1 sent and abandoned: `effectonce store gc` puts them in
           doubt

{refund}  refund  in doubt for 2 h   chat-4/refund
{mail}  mail    in doubt for 2 h   newsletter/ada
{book}  book    abandoned for 2 h  trip/seat

The story of one: effectonce effect show {refund}
"""


def test_one_screen_says_what_needs_you(desk):
    refs = {
        effect["tool"]: effect["reference"]
        for effect in reversed(desk.json("effect", "list")["effects"])
    }
    refs["refund"] = desk.json("indoubt", "list", "--each")["effects"][0]["reference"]

    assert desk.run("status").stdout == STATUS.format(**refs)


def test_status_is_an_exit_code_for_a_monitor(desk, empty):
    assert desk.run("status").returncode == 0
    assert desk.run("status", "--check").returncode == 3


def test_all_is_well_where_nothing_is_in_doubt(empty):
    done = empty.run("status", "--check")

    assert done.returncode == 0
    assert "none yet: they appear when a guarded tool is called" in done.stdout
    assert "needs you  nothing: all is well" in done.stdout


def test_status_for_programs(desk):
    status = desk.json("status")

    assert status["schema"] == "effectonce.status/1"
    assert status["counts"] == {
        "completed": 2,
        "failed": 1,
        "in_doubt": 2,
        "dispatched": 1,
        "claimed": 0,
        "tombstone": 0,
    }
    assert (status["in_doubt"], status["abandoned"]) == (2, 1)
    assert 2 * 3600 < status["in_doubt_oldest_s"] < 3 * 3600
    assert [need["why"] for need in status["needs_you"]] == ["in doubt", "in doubt", "abandoned"]
    assert desk.json("status", "--tenant", "other")["needs_you"] == []
    assert "1 dispatched (of all tenants)" in desk.run("status", "--tenant", "other").stdout


# ---------------------------------------------------------------- tail


def test_the_last_ones_are_shown_oldest_first(desk):
    lines = [
        line.split("\t") for line in desk.run("tail", "--once", "--lines", "2").stdout.splitlines()
    ]

    assert [(line[2], line[3]) for line in lines] == [("mail", "in_doubt"), ("book", "dispatched")]
    assert [
        json.loads(line)["tool"]
        for line in desk.run("tail", "--once", "--json", "--tool", "mail").stdout.splitlines()
    ] == ["mail"]


def test_new_effects_and_changes_of_open_ones_are_followed(desk, guard):
    command = [
        sys.executable,
        "-m",
        "effectonce.cli",
        "tail",
        "--json",
        "--interval",
        "0.02",
        "--lines",
        "1",
    ]
    environ = environment(EFFECTONCE_STORE=desk.url)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with (
        subprocess.Popen(command, **pipes, env=environ, cwd=desk.folder) as following,
        ExitStack() as at_the_end,
    ):
        at_the_end.callback(following.kill)  # it would follow for ever

        def line():
            effect = json.loads(following.stdout.readline())
            return effect["scope"], effect["state"]

        assert line() == ("trip", "dispatched")
        shop.call(guard, "chat-9", "refund", "refund", payment_id="pay_9", amount_minor=1)
        seen = line()
        if seen == ("chat-9", "dispatched"):  # it looked between the two writes
            seen = line()
        assert seen == ("chat-9", "completed")
        (record,) = guard.store.apply(Search(scope="chat-4"))
        guard.refute(record.request.key, by="ada", reason="seen")
        assert line() == ("chat-4", "failed")
        os.kill(following.pid, signal.SIGINT)
        _, told = following.communicate()

    assert (following.returncode, told) == (130, "Interrupted.\n")


# ---------------------------------------------------------------- tools


def test_the_contracts_of_ones_tools_are_listed(desk):
    shown = desk.run("-o", "table", "tool", "list", *APP).stdout.splitlines()

    assert shown == [
        "TOOL    KIND          DOWNSTREAM  KEY                       PROMISE",
        (
            "book    write         key         seat                      exactly once within W,"
            " then in doubt"
        ),
        (
            "mail    write         probe       to                        found: once; not found:"
            " re-run only und…"
        ),
        (
            "post    write         probe       to                        found: once; not found:"
            " re-run only und…"
        ),
        "refund  irreversible  none        payment_id, amount_minor  at most once + in doubt",
    ]


def test_one_contract_is_told_in_full(desk):
    shown = desk.run("tool", "show", "refund", *APP).stdout
    data = desk.json("tool", "show", "refund", *APP)

    assert "in the key    payment_id, amount_minor\n" in shown
    assert "ignored       reason\n" in shown
    assert "retries       1 attempt within 90 s\n" in shown
    assert (data["schema"], data["hashed"], data["stripped"]) == (
        "effectonce.tool/1",
        ["payment_id", "amount_minor"],
        ["reason"],
    )


ASKED_FIRST = """
from effectonce import Downstream, Guard, NotFound

guard = Guard("sqlite:///effects.db")

@guard.tool(kind="write", downstream=Downstream.probe(before_sending=True))
def pay(invoice: str) -> str: ...

@guard.tool(kind="write", downstream=Downstream.probe(before_sending=True))
def unprobed(invoice: str) -> str: ...

@pay.probe
def find(invoice: str): return NotFound()
"""


def test_a_probe_that_is_asked_before_the_first_send_is_told(desk):
    (Path(desk.folder) / "payments.py").write_text(ASKED_FIRST)

    shown = [
        desk.run("tool", "show", tool, "--app", "payments:guard").stdout
        for tool in ("pay", "unprobed")
    ]

    assert "probe         yes, asked before the first send, too\n" in shown[0]
    assert "probe         none, so nothing is sent\n" in shown[1]


def test_a_tool_that_is_not_there_has_a_guess(desk):
    done = desk.run("tool", "show", "refnud", *APP)

    assert done.returncode == 5
    assert "Did you mean 'refund'?" in done.stderr
    assert "It has: book, mail, post, refund" in desk.run("tool", "show", "xyz", *APP).stderr


def test_without_an_app_the_command_says_how_to_name_one(desk):
    done = desk.run("tool", "list")

    assert done.returncode == 2
    assert "--app MODULE:GUARD" in done.stderr


def test_what_an_app_prints_is_not_data_and_its_errors_are_told(desk, tmp_path):
    (tmp_path / "loud.py").write_text("print('hello')\nfrom tests.cli.shop import guard\n")
    (tmp_path / "broken.py").write_text("1 / 0\n")

    assert (
        len(json.loads(desk.run("tool", "list", "--json", "--app", "loud:guard").stdout)["tools"])
        == 4
    )
    broken = desk.run("tool", "list", "--app", "broken")
    assert broken.returncode == 2
    assert "ZeroDivisionError" in broken.stderr
    assert "Traceback" not in broken.stderr


# ---------------------------------------------------------------- breakers


def vote(desk, node, open_s):
    store = Guard(desk.url).store
    drive(exchange("breaker/mail", node, open_s, 60.0), store.apply)
    store.close()


def test_breakers_that_nobody_speaks_of_are_unknown(desk):
    (breaker,) = desk.json("breaker", "list", *APP)["breakers"]

    assert (breaker["name"], breaker["state"], breaker["tools"]) == ("mail", "unknown", ["mail"])


def test_what_processes_say_about_a_breaker_is_read_and_no_vote_is_cast(desk):
    vote(desk, "web-1", 120.0)
    vote(desk, "web-2", 0.0)

    (breaker,) = desk.json("breaker", "list", *APP)["breakers"]
    assert breaker["state"] == "open"
    assert breaker["why"].startswith("open in 1 of 2 processes; the next probe in 1 min")
    shown = desk.json("breaker", "show", "mail")  # the store is enough
    assert [(p["process"], p["state"]) for p in shown["processes"]] == [
        ("web-1", "open"),
        ("web-2", "closed"),
    ]
    assert "web-1  open    seen" in desk.run("breaker", "show", "mail", *APP).stdout


def test_a_breaker_that_is_closed_everywhere_says_so(desk):
    vote(desk, "web-1", 0.0)

    assert desk.run("breaker", "show", "mail").stdout.startswith(
        "closed  mail  closed in all 1 processes\n"
    )


def test_a_breaker_that_nobody_knows_is_not_found(desk):
    assert desk.run("breaker", "show", "stripe").returncode == 5
    assert "This app has: mail" in desk.run("breaker", "show", "stripe", *APP).stderr


def test_a_breaker_of_one_process_is_said_to_be(tmp_path, desk):
    (tmp_path / "alone.py").write_text(ALONE)
    shown = desk.json("breaker", "list", "--app", "alone")

    assert shown["breakers"][0]["state"] == "not_shared"
    assert desk.json("breaker", "show", "stripe", "--app", "alone")["state"] == "not_shared"


ALONE = """
import os
from effectonce import Guard, breaker
guard = Guard(os.environ["SHOP_STORE"])

@guard.tool(kind="write", breaker=breaker("stripe"))
def pay(n: int): ...
"""

# ---------------------------------------------------------------- stores


def test_what_is_due_is_swept_until_nothing_is(desk):
    assert desk.json("store", "gc", "--dry-run")["due"] == "1 records"
    assert desk.run("store", "gc").stdout.startswith(
        "1 put in doubt, 0 outcomes dropped, 0 keys forgotten"
    )
    assert desk.json("store", "gc") == {
        "schema": "effectonce.sweep/1",
        "doubted": 0,
        "buried": 0,
        "forgotten": 0,
        "cells": 0,
        "unreadable": [],
    }
    assert desk.json("status")["in_doubt"] == 3


def test_a_sweep_may_be_bounded(desk):
    guard = shop.tools(Guard(desk.url))
    for n in range(5):
        shop.call(guard, "trip", f"seat-{n}", "book", seat="12A")
    guard.close()

    assert desk.json("store", "gc", "--limit", "1")["doubted"] == 1


def test_counts_and_sizes_are_told(desk):
    stats = desk.json("store", "stats")
    shown = desk.run("store", "stats").stdout

    assert (stats["total"], stats["counts"]["completed"], stats["due"]) == (6, 2, "1 records")
    assert stats["size"].endswith("MB in its files")
    assert "completed   2\n" in shown
    assert "all         6\n" in shown


def test_a_schema_is_made_where_there_is_none(empty, tmp_path):
    url = f"sqlite:///{tmp_path / 'new.db'}"
    done = empty.run("store", "migrate", EFFECTONCE_STORE=url)

    assert done.returncode == 0
    assert "The schema is current: version 5." in done.stderr
    assert empty.json("store", "migrate")["schema_version"] == "version 5"
    assert empty.run("store", "check", EFFECTONCE_STORE=url).returncode == 0


@pytest.mark.parametrize("command", ["check", "gc", "stats"])
def test_a_store_that_is_not_there_has_its_own_exit_code(empty, tmp_path, command):
    assert (
        empty.run("store", command, EFFECTONCE_STORE=f"sqlite:///{tmp_path / 'typo.db'}").returncode
        == 7
    )
    assert not (tmp_path / "typo.db").exists()


def test_a_store_is_checked_like_the_doctor_does(desk):
    checked, doctor = desk.json("store", "check"), desk.json("doctor")

    assert checked["schema"] == "effectonce.health/1"
    assert {finding["subject"] for finding in checked["findings"]} == {
        f["subject"] for f in doctor["findings"]
    }
    # a look from outside has none
    assert "spool" not in {finding["subject"] for finding in checked["findings"]}
    assert "spool" in {
        finding["subject"] for finding in desk.json("doctor", *APP, EFFECTONCE_STORE="")["findings"]
    }


# ---------------------------------------------------------------- shells


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_gets_a_script(empty, shell):
    done = empty.run("completion", shell)

    assert done.returncode == 0
    assert "_EFFECTONCE_COMPLETE" in done.stdout


def test_commands_and_options_are_completed(empty):
    def completed(words, at):
        environ = {
            "_EFFECTONCE_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(at),
        }
        return [line.partition(",")[2] for line in empty.run(**environ).stdout.splitlines()]

    assert completed("effectonce in", 1) == ["indoubt"]
    assert completed("effectonce indoubt re", 2) == ["reconcile", "refute", "retry"]
    assert "--state" in completed("effectonce effect list --st", 3)
    assert completed("effectonce effect list --state in", 4) == ["in_doubt"]


def test_what_takes_long_says_so_on_a_terminal(desk):
    with Path(f"{desk.folder / 'effects.db'}-queue").open("r+b") as queue:
        fcntl.flock(queue, fcntl.LOCK_EX)  # another writer is at work

        def let_it_in():
            fcntl.flock(queue, fcntl.LOCK_UN)

        code, screen = desk.terminal("store", "gc", dialogue=(("Sweeping", ""),), between=let_it_in)

    assert code == 0
    assert "1 put in doubt" in screen
    assert "Sweeping" not in desk.run("store", "gc").stderr


# ---------------------------------------------------------------- status of a depot


def test_status_counts_letters_and_runs_that_wait(depot):
    status, told = depot.json("status"), depot.run("status").stdout

    assert (
        status["in_doubt"],
        status["given_up"],
        status["waiting_runs"],
        status["dead_letters"],
    ) == (2, 5, 3, 10)
    assert [need["why"] for need in status["needs_you"]] == ["in doubt"] * 2 + ["given up"] * 5 + [
        "a waiting run"
    ] * 3
    assert "5 given up: `effectonce dlq list`; 3 runs wait: `effectonce workflow list`" in " ".join(
        told.split()
    )
    assert "5 more: effectonce dlq list effectonce workflow list" in " ".join(told.split())
    assert depot.run("status", "--check").returncode == 3
