"""Processes that ask, approve, reject and resume are killed and race; the bank counts."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from effectonce.testing.bank import Bank
from tests.crash.tiers import in_colours, on_stores

OPS = {"ask": 1, "approve": 2, "resume": 3}
NEED_A_PERSON = ("before the wish is written", "after the wish is written")


def first_column(page):
    """Where a process may end, by the table of a page of the docs."""
    text = (Path(__file__).parents[2] / "docs" / page).read_text()
    table = text.split("| the process ends |")[1].split("\n\n")[0]
    return [row.split("|")[1].strip() for row in table.splitlines()[2:]]


def report_of(bank, what, url, *given):
    command = [sys.executable, "-m", "tests.crash.approvals", what, url, str(bank.port)]
    command += [str(bank.ledger_path), *map(str, given)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


@pytest.mark.cover(1)
@pytest.mark.parametrize(
    ("downstream", "colour", "rests_on"),
    [
        ("key", "sync", "nothing"),
        ("key", "async", "unpaid"),
        ("none", "sync", "unpaid"),
    ],
)
def test_killed_at_every_op_one_effect_lands_and_none_before_it_is_approved(
    tmp_path, url, downstream, colour, rests_on
):
    """Its precondition, that it is not paid, is not asked once it may be."""
    with Bank(tmp_path / "ledger", honours_keys=True) as bank:
        flows = report_of(bank, "killed", url, downstream, colour, rests_on)
        effects = Counter(entry["payment_id"] for entry in bank.ledger())

    died = Counter(flow["at"][0] for flow in flows)
    assert all(died[phase] >= 2 * ops for phase, ops in OPS.items()), died
    assert {flow["left"] for flow in flows} == set(first_column("reference/states.md"))
    for flow in flows:
        told = [name for _, name in flow["told"]]
        assert flow["early"] == 0, flow
        if flow["left"] == "before the wish is written":
            assert told.count("ApprovalNeeded") == 1, flow
        if flow["left"] not in NEED_A_PERSON:  # no person is asked again
            assert told[len(told) - 2 :].count("ApprovalNeeded") == 0, flow
        assert told[0] == "ApprovalNeeded", flow
        assert effects[flow["invoice"]] == flow["effects"] <= 1, flow
        if downstream == "key" or flow["at"][0] != "resume":
            assert flow["effects"] == 1, flow
            assert told[-1] == "", flow
        else:  # without help, what was sent by a process that was killed is in doubt
            assert told[-1] in ("", "InDoubt"), flow
            assert flow["effects"] == 1 or told[-1] == "InDoubt", flow
        results = {result for result, name in flow["told"] if result is not None and not name}
        assert len(results) <= 1, flow


@on_stores("sqlite")
@in_colours("async")
def test_killed_at_every_op_what_no_longer_holds_is_never_sent(tmp_path, url, colour):
    with Bank(tmp_path / "ledger", honours_keys=True) as bank:
        flows = report_of(bank, "killed", url, "key", colour, "asked")
        ledger = bank.ledger()

    died = Counter(flow["at"][0] for flow in flows)
    assert died["resume"] >= 2 * OPS["resume"], died
    assert ledger == []
    for flow in flows:
        assert flow["told"][0][1] == "ApprovalNeeded", flow
        assert flow["told"][-1][1] == "PreconditionFailed", flow


@on_stores("redis")
def test_64_processes_that_resume_one_approval_land_one_effect(tmp_path, url):
    with Bank(tmp_path / "ledger") as bank:
        report = report_of(bank, "crowd", url, 64)
        ledger = bank.ledger()

    assert [name for _, name in report["begun"]] == ["ApprovalNeeded", ""]
    assert len(report["told"]) == 64
    assert report["told"] == [[ledger[0]["receipt"], ""]] * 64
    assert len(ledger) == 1


@on_stores("postgres")
def test_an_approval_that_races_with_its_rejection_lands_one_effect_or_none(tmp_path, url):
    with Bank(tmp_path / "ledger") as bank:
        ends = report_of(bank, "race", url, 20)
        effects = Counter(entry["payment_id"] for entry in bank.ledger())

    assert len(ends) == 20
    for name, state, (result, raised), (_, refused) in ends:
        if refused == "":  # it was rejected, and its rejecter knows
            assert (state, raised, effects[name]) == ("failed", "NotApproved", 0), name
        else:
            assert (state, raised, effects[name]) == ("completed", "", 1), name
            assert result is not None
