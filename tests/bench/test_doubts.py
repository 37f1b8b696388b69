"""The matrix of faults judges by the bank's ledger, and ours has no duplicate, no lost effect
and no false report in it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def module(monkeypatch):
    """A module of bench: scripts, whose folder is no package."""
    monkeypatch.syspath_prepend(str(BENCH))
    return import_module


@pytest.fixture(scope="module")
def quick():
    command = [sys.executable, BENCH / "doubts.py", "--quick", "--json"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_no_fault_makes_ours_do_it_twice_lose_it_or_report_what_is_not_so(quick):
    rows = quick["rows"]
    assert [row["subject"] for row in rows] == [
        "effectonce, protect and through",
        "effectonce async, protect and through",
    ]
    for row in rows:
        assert (row["duplicates"], row["lost"], row["false"]) == (0, 0, 0), row
        assert row["faults"] == len(row["cells"]) == row["right"] + row["persons"] == 24
    assert (
        [row["persons_per_1000"] for row in rows]
        == [row["floor_per_1000"] for row in rows]
        == [83, 83]
    )


def test_a_process_that_is_killed_another_client_and_a_workflow_need_a_person_only_where_nothing_else_can_tell(
    quick,
):
    ended = {
        name: [(row["faults"], row["persons"], row["floor"]) for row in rows]
        for name, rows in quick["sections"].items()
    }

    assert ended == {
        "killed processes": [(12, 2, 2)],
        "other clients": [(24, 2, 2)],
        "a step of a workflow": [(24, 2, 2)],
    }
    for row in (row for rows in quick["sections"].values() for row in rows):
        assert (row["duplicates"], row["lost"], row["false"]) == (0, 0, 0), row


@pytest.mark.long
def test_the_faults_of_a_tool_server_are_doubts_only_where_no_word_of_it_tells():
    command = [sys.executable, BENCH / "doubts.py", "--json", "--section", "MCP"]

    run = subprocess.run(command, capture_output=True, text=True, check=False)

    assert run.returncode == 0, run.stderr
    [row] = json.loads(run.stdout)["sections"]["a tool server behind MCP"]
    assert (row["faults"], row["persons"], row["floor"]) == (12, 5, 5)


@pytest.mark.long
def test_a_tool_that_names_its_provider_needs_a_person_only_where_the_provider_cannot_say():
    subjects = ("moov", "stripe.v1", "twilio")
    command = [sys.executable, BENCH / "doubts.py", "--quick", "--json", "--section", "packs"]
    command += [part for name in subjects for part in ("--only", f"effectonce, {name}")]

    run = subprocess.run(command, capture_output=True, text=True, check=False)

    assert run.returncode == 0, run.stderr
    ended = {
        row["subject"]: (row["faults"], row["persons"])
        for rows in json.loads(run.stdout)["sections"].values()
        for row in rows
    }
    assert ended == {
        "effectonce, moov": (12, 0),
        "effectonce, stripe.v1": (12, 0),  # it keeps its 500 under the key, and its probe knows
        "effectonce, twilio, asked": (12, 2),  # not found is no proof
        "effectonce, twilio, not found is proof": (12, 1),  # the irreversible one
    }


@pytest.mark.parametrize(
    ("fault", "downstream", "must"),
    [
        ("bug before", "none", False),
        ("404", "none", False),
        ("closed after", "none", True),
        ("closed after", "key", False),
        ("closed after", "probe", False),
        ("closed before", "probe", True),
        ("closed before", "proof", False),
        ("killed before the request", "none", False),
        ("killed after a byte left", "probe", True),
        ("killed after the answer", "probe", False),
        ("killed before the record", "none", True),
    ],
)
def test_a_person_must_look_where_the_bank_cannot_say(module, fault, downstream, must):
    assert module("_doubts_cells").floor(fault, downstream) is must


@pytest.mark.parametrize(
    ("fault", "answers", "verdict"),
    [
        ("refused", [("later", 0), ("done", 1), ("done", 1)], "right"),
        ("not JSON", [("happened", 1), ("happened", 1), ("happened", 1)], "right"),
        ("404", [("failed", 0), ("failed", 0), ("failed", 0)], "right"),
        ("closed after", [("unknown", 1), ("unknown", 1), ("unknown", 1)], "person"),
        ("429", [("later", 0), ("later", 0), ("later", 0)], "person"),
        ("closed after", [("raised", 1), ("done", 2), ("done", 2)], "duplicate"),
        ("refused", [("failed", 0), ("failed", 0), ("failed", 0)], "lost"),
        ("closed after", [("failed", 1), ("done", 1), ("done", 1)], "false"),
        ("closed before", [("unknown", 0), ("done", 0), ("done", 0)], "false"),
        ("502 before", [("happened", 0), ("unknown", 0), ("unknown", 0)], "false"),
    ],
)
def test_a_cell_is_judged_by_what_the_ledger_had_when_it_was_said(module, fault, answers, verdict):
    cells = module("_doubts_cells")
    said = [cells.Answer(cells.Said(word), effects) for word, effects in answers]

    assert cells.judge(fault, said) == verdict


@pytest.mark.parametrize(
    ("subject", "verdict", "failed"),
    [
        ("effectonce, plain httpx", "right", False),
        ("effectonce, plain httpx", "person", False),
        ("effectonce, plain httpx", "duplicate", True),
        ("effectonce async, protect(client)", "lost", True),
        ("effectonce async, protect and through", "false", True),
        ("idemkit, as shipped", "duplicate", False),
    ],
)
def test_the_command_fails_if_ours_did_what_it_never_may(module, subject, verdict, failed):
    doubts = module("doubts")

    row = doubts.counted(
        subject, [{"verdict": "right", "floor": False}, {"verdict": verdict, "floor": False}]
    )

    assert doubts.ours_failed([row]) is failed


def test_a_subject_that_there_is_not_is_refused_with_the_names_of_those_that_there_are():
    command = [sys.executable, BENCH / "doubts.py", "--only", "nothing"]

    run = subprocess.run(command, capture_output=True, text=True, check=False)

    assert run.returncode == 1
    assert "no subject has 'nothing' in its name" in run.stderr
    assert "effectonce, plain httpx" in run.stderr


def test_each_peer_says_how_it_was_set_up(module):
    peers = module("_doubts_peers")

    names = {subject.partition(",")[0] for subject in peers.SUBJECTS}

    assert names == peers.NOTES.keys() == peers.MODULES.keys()
    assert {subject.partition(", ")[2] for subject in peers.SUBJECTS} == {
        "as shipped",
        "best configured",
    }
