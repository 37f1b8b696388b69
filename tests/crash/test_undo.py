"""Processes that undo one effect are killed and race; the bank counts."""

import json
import subprocess
import sys
from collections import Counter

import pytest

from effectonce.testing.bank import Bank
from tests.crash.tiers import on_stores

OPS = 5  # look, look at the clock, who asked, claim, complete


@on_stores("sqlite")
@pytest.mark.parametrize(
    ("downstream", "mode"),
    [pytest.param("key", "sync", marks=pytest.mark.long), ("key", "async"), ("none", "sync")],
)
def test_killed_at_every_op_and_asked_by_eight_processes_it_is_undone_once(
    tmp_path, url, downstream, mode
):
    with Bank(tmp_path / "ledger", honours_keys=True) as bank:
        command = [sys.executable, "-m", "tests.crash.undo", url, str(bank.port), downstream, mode]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        ledger = bank.ledger()

    flows = json.loads(done.stdout)
    effects = Counter(entry["payment_id"] for entry in ledger)
    receipts = {entry["payment_id"]: entry["receipt"] for entry in ledger}
    assert len(flows) >= 2 * OPS
    for flow in flows:
        invoice = flow["invoice"]
        receipt, _ = flow["refunded"]
        undo = f"undo {invoice} {receipt}"
        assert effects[invoice] == 1, flow
        assert effects[undo] <= 1, flow
        told = {tuple(each) for each in flow["told"]}
        if downstream == "none" and told == {(None, "InDoubt")}:
            continue  # without help, what a killed process may have sent is in doubt
        assert told == {(receipts[undo], "")}, flow
    assert set(effects.values()) == {1}
    doubts = sum(flow["told"][0][1] == "InDoubt" for flow in flows)
    assert doubts == (2 if downstream == "none" else 0)  # after the claim, before its end
