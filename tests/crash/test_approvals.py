"""Processes that ask, approve, reject and resume are killed and race; the bank counts."""

import json
import subprocess
import sys
from collections import Counter

import pytest

from effectonce.testing.bank import Bank
from tests.servers import redis

STORES = ["sqlite", "postgres", "redis"]
OPS = {"ask": 1, "approve": 2, "resume": 3}


@pytest.fixture(params=STORES)
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/effects.db"
    if request.param == "postgres":
        return request.getfixturevalue("database")
    return redis.emptied(redis.server()).url


def report_of(bank, what, url, *given):
    command = [sys.executable, "-m", "tests.crash.approvals", what, url, str(bank.port)]
    command += [str(bank.ledger_path), *map(str, given)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("downstream", "colour", "rests_on"),
    [
        ("key", "sync", "nothing"),
        ("key", "async", "nothing"),
        ("none", "sync", "nothing"),
        ("key", "sync", "unpaid"),
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
    for flow in flows:
        told = [name for _, name in flow["told"]]
        assert flow["early"] == 0, flow
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


@pytest.mark.parametrize("colour", ["sync", "async"])
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


def test_64_processes_that_resume_one_approval_land_one_effect(tmp_path, url):
    with Bank(tmp_path / "ledger") as bank:
        report = report_of(bank, "crowd", url, 64)
        ledger = bank.ledger()

    assert [name for _, name in report["begun"]] == ["ApprovalNeeded", ""]
    assert len(report["told"]) == 64
    assert report["told"] == [[ledger[0]["receipt"], ""]] * 64
    assert len(ledger) == 1


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
