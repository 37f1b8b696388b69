"""Processes that pay from one allowance, killed at every op and racing for what is left. The bank
is another process, and its ledger is what they spent.
"""

import json
import subprocess
import sys

from effectonce.testing.bank import Bank
from tests.crash.spender import AMOUNTS
from tests.crash.test_approvals import first_column
from tests.crash.tiers import on_stores


def started(url, bank, limit, *payments):
    arguments = [url, bank.port, limit, *payments]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.crash.spender", *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
    )


def told_by(process):
    return json.loads(process.communicate()[0])


def paid(bank):
    return sum(entry["amount_minor"] for entry in bank.ledger())


@on_stores("sqlite")
def test_killed_at_every_op_what_is_spent_is_what_the_bank_paid(url, tmp_path):
    """Each payment is begun by a process that dies in it, and finished by another one."""
    with Bank(tmp_path / "ledger", honours_keys=True) as bank:
        told = told_by(started(url, bank, 10_000))

        assert set(told["became"].values()) == {"paid"}
        assert set(told["left"]) == set(first_column("howto/spending-limits.md"))
        owed = sum(AMOUNTS[number % len(AMOUNTS)] for number in range(len(told["became"])))
        assert (told["account"], paid(bank)) == ([owed, 0, 0], owed)
        assert len(told["became"]) > 12  # claim, hold, dispatch, complete, spent: before and after


def test_payments_that_need_approval_and_allowance_survive_processes_that_are_killed():
    """`make soak` does it on every store, with 2,000 of them."""
    command = [sys.executable, "-m", "tests.crash.soak_permissions", "--kills", "12"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)

    assert json.loads(done.stdout)["kills"] == 12


@on_stores("postgres")
def test_processes_that_race_for_what_is_left_get_it_and_no_more(url, tmp_path):
    limit, each = 40, 6
    with Bank(tmp_path / "ledger", honours_keys=True) as bank:
        crowd = [
            started(url, bank, limit, number * each, (number + 1) * each) for number in range(4)
        ]
        became = {}
        for process in crowd:
            became |= told_by(process)["became"]

        assert set(became.values()) == {"paid", "limit"}
        assert len(bank.ledger()) == list(became.values()).count("paid")
        refused = [
            AMOUNTS[int(payment) % len(AMOUNTS)]
            for payment, what in became.items()
            if what == "limit"
        ]
        # nothing was refused that fits in what is left
        assert 0 <= limit - paid(bank) < min(refused)


@on_stores("redis")
def test_of_64_processes_that_want_the_last_unit_one_gets_it(url, tmp_path):
    with Bank(tmp_path / "ledger", honours_keys=True) as bank:
        became = told_by(started(url, bank, 1, 64))["became"]

        assert (became.count("paid"), became.count("limit")) == (1, 63)
        assert [entry["amount_minor"] for entry in bank.ledger()] == [1]
