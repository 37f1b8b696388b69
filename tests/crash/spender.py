"""One process that pays from an allowance, and dies at its n-th store op, or not at all. Prints
what became of each payment.

    python -m tests.crash.spender URL PORT LIMIT FIRST LAST
    python -m tests.crash.spender URL PORT LIMIT     a process dies at each op; then one finishes
    python -m tests.crash.spender URL PORT 1 CROWD   so many processes want one unit at once
"""

import json
import sys
from functools import partial
from itertools import count

from effectonce import Allowance, Downstream, EffectOnceError, Guard, LimitReached, current_effect
from effectonce._core.allowances import CELLS, read_account
from effectonce._core.ops import ListCells
from effectonce._core.record import State
from effectonce.testing.bank import pay
from tests.crash.approvals import Mortal, forked, opened, together

AMOUNTS = (3, 1, 4, 1, 5, 9, 2, 6)
ACCOUNTS = ListCells(CELLS, "", 10)


class Payer:
    """What one process does."""

    def __init__(self, url, port, limit, number=0, when="before", lease_s=0.2):
        self._store = opened(url)
        store = Mortal(self._store, number - 1, when)
        self.guard = Guard(store, reconcile=False)

        @self.guard.tool(
            kind="write",
            downstream=Downstream.key(),
            lease_s=lease_s,
            wait_s=30,
            allowance=Allowance("payouts", limit=int(limit), per=365 * 86_400, for_each=None),
            spends="amount",
        )
        def pay_out(invoice: str, amount: int) -> str:
            key = current_effect().downstream_key
            return pay(int(port), invoice, amount, key=key, timeout_s=60)["receipt"]

        self._pay_out = pay_out

    def pay(self, payment):
        """What became of it."""
        try:
            with self.guard.step("payouts", payment):
                self._pay_out(*_given(payment))
        except LimitReached:
            return "limit"
        except EffectOnceError as error:
            return error.code
        return "paid"

    def left(self, payment):
        """How far it came, as docs/howto/spending-limits.md has it."""
        with self.guard.step("payouts", payment):
            key = self._pay_out.explain(*_given(payment)).key
        record = self.guard.find(key)
        held = [key in read_account(value).held for _, value in self._store.apply(ACCOUNTS)]
        if record is not None and record.state is State.COMPLETED:
            return "after the outcome"
        if record is not None and record.sends:
            return "sent, and no outcome is written"
        return "held, and nothing was sent" if any(held) else "before it is held"


def _given(payment):
    return f"inv_{payment}", AMOUNTS[payment % len(AMOUNTS)]


def spend(url, port, limit, first, last):
    payer = Payer(url, port, limit)
    became = {payment: payer.pay(payment) for payment in range(int(first), int(last))}
    (account,) = payer.guard.allowances.list() or (None,)
    state = None if account is None else [account.spent, account.reserved, account.in_doubt]
    payer.guard.close()
    return {"became": became, "account": state}


def die_everywhere(url, port, limit):
    """Each payment is begun by a process that dies in it. How far each came."""
    payments, killed = 0, 1
    for number in count(1):
        if not killed:
            break
        killed = 0
        for when in ("before", "after"):
            work = partial(_die_in, payments, url, port, limit, number, when)
            killed += forked(work)() is None
            payments += 1

    def left():
        payer = Payer(url, port, limit)
        return [payer.left(payment) for payment in range(payments)]

    return forked(left)()


def _die_in(payment, *given):
    return Payer(*given).pay(payment)


def crowd(url, port, limit, processes):
    """Each wants one unit, at the same moment. None is thought dead while it waits for its turn."""
    one = AMOUNTS.index(1)

    def want(number):
        payment = one + number * len(AMOUNTS)
        return lambda: Payer(url, port, limit, lease_s=60).pay(payment)

    return {"became": together([want(number) for number in range(int(processes))])}


if __name__ == "__main__":
    url, port, limit, *rest = sys.argv[1:]
    if len(rest) == 1:
        told = crowd(url, port, limit, *rest)
    elif rest:
        told = spend(url, port, limit, *rest)
    else:
        left = die_everywhere(url, port, limit)
        told = {"left": left, **spend(url, port, limit, 0, len(left))}
    print(json.dumps(told))
