"""Payments that need an approval and are paid from one allowance, by processes that are killed.

    python -m tests.crash.soak_permissions --kills 2000 [--store postgres|redis] [--seed N]

Four processes at a time ask, approve and pay, each a fork of this one that is killed before or
after one of its store ops. Then one that is not killed asks for every payment. What it says has to
be what the bank's ledger says, to the unit.
"""

import os
import random
import signal
import sys
import tempfile
import traceback
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path

from effectonce import (
    Allowance,
    Approval,
    ApprovalNeeded,
    ContractViolation,
    Downstream,
    EffectOnceError,
    Guard,
    LimitReached,
    current_effect,
)
from effectonce.testing.bank import Bank, pay
from tests.crash.approvals import Mortal
from tests.crash.soak import command, opened, served
from tests.crash.spender import AMOUNTS

ABOVE, AT_ONCE, EACH, OPS, LEASE_S = 4, 4, 3, 12, 0.05


class Till:
    """What one process does with payments."""

    def __init__(self, store, port, limit):
        self.guard = Guard(store, reconcile=False, cache=0)

        @self.guard.tool(
            kind="write",
            downstream=Downstream.key(),
            lease_s=LEASE_S,
            wait_s=30,
            approval=Approval(when=lambda amount: amount > ABOVE),
            allowance=Allowance("payouts", limit=limit, per=365 * 86_400, for_each=None),
            spends="amount",
        )
        def pay_out(invoice: str, amount: int) -> str:
            key = current_effect().downstream_key
            return pay(port, invoice, amount, key=key, timeout_s=60)["receipt"]

        self._pay_out = pay_out

    def settle(self, number):
        """Pay it, with an approval where it needs one. What became of it."""
        given = (f"inv_{number}", AMOUNTS[number % len(AMOUNTS)])
        with self.guard.step("payouts", number):
            try:
                self._pay_out(*given)
            except ApprovalNeeded as needed:
                with suppress(ContractViolation):  # another process was faster
                    self.guard.approvals.approve(needed.effect.key, by="ada", reason="yes")
                self._pay_out(*given)
        return "paid"


def became(till, number):
    try:
        return till.settle(number)
    except LimitReached:
        return "limit"
    except EffectOnceError as error:
        return error.code


def forked(work):
    """Do it in a process of its own. Its id."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return child


def killed_payments(kills, seed, store, port, ledger, on_progress):
    """Until so many were killed."""
    rng = random.Random(seed)
    payments = max(8, kills)
    limit = sum(AMOUNTS[number % len(AMOUNTS)] for number in range(payments)) * 3 // 4
    died, running, rounds = 0, set(), 0
    while died < kills or running:
        while died + len(running) < kills and len(running) < AT_ONCE:
            newest = min(payments, 8 + (rounds + 1) * payments // kills)
            numbers = [rng.randrange(max(0, newest - 8), newest) for _ in range(EACH)]
            nth, when = rng.randrange(OPS), rng.choice(("before", "after"))

            def work(numbers=numbers, nth=nth, when=when):
                till = Till(Mortal(store(), nth, when), port, limit)
                for number in numbers:
                    became(till, number)

            running.add(forked(work))
            rounds += 1
        child, status = os.wait()
        running.discard(child)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        assert killed or status == 0, f"a worker ended with {status}"
        died += killed
        if killed:
            on_progress(died)
    till = Till(store(), port, limit)
    ends = {number: became(till, number) for number in range(payments)}
    (account,) = till.guard.allowances.list()
    till.guard.close()
    return report(ledger(), ends, account, limit) | {"kills": died, "processes": rounds}


def report(ledger, ends, account, limit):
    """What the last process says, beside the ledger."""
    effects = Counter(entry["payment_id"] for entry in ledger)
    paid = {f"inv_{number}" for number, what in ends.items() if what == "paid"}
    return {
        "payments": len(ends),
        "ends": dict(Counter(ends.values())),
        "duplicates": sum(count > 1 for count in effects.values()),
        "paid_and_not_reported": len(set(effects) - paid),
        "reported_and_not_paid": len(paid - set(effects)),
        "limit": limit,
        "least_refused": min(
            (AMOUNTS[number % len(AMOUNTS)] for number, what in ends.items() if what == "limit"),
            default=limit,
        ),
        "ledger": sum(entry["amount_minor"] for entry in ledger),
        "account": [account.spent, account.reserved, account.in_doubt],
    }


def soak(kills, seed, store, on_progress):
    with (
        tempfile.TemporaryDirectory(prefix="effectonce-soak-") as folder,
        served(store, folder) as (url, _),
        Bank(Path(folder) / "ledger", honours_keys=True) as bank,
    ):
        opening = partial(opened, url)
        return killed_payments(kills, seed, opening, bank.port, bank.ledger, on_progress)


def main():
    sys.exit(0 if is_right(command(soak, __doc__, kills=200, seed=1)) else 1)


def is_right(result):
    """Each payment once, as was said, and the account to the unit; nothing above the limit, and
    nothing refused that fits in what is left.
    """
    wrong = ("duplicates", "paid_and_not_reported", "reported_and_not_paid")
    return (
        not any(result[what] for what in wrong)
        and set(result["ends"]) <= {"paid", "limit"}
        and result["account"] == [result["ledger"], 0, 0]
        and 0 <= result["limit"] - result["ledger"] < result["least_refused"]
    )


if __name__ == "__main__":
    main()
