"""One process that pays from an allowance, and dies at its n-th store op, or not at all. Prints
what became of each payment.

    python -m tests.crash.spender URL PORT LIMIT FIRST LAST
    python -m tests.crash.spender URL PORT LIMIT     a process dies at each op; then one finishes
    python -m tests.crash.spender URL PORT 1 CROWD   so many processes want one unit at once
"""

import json
import os
import sys
from itertools import count

from effectonce import Allowance, Downstream, EffectOnceError, Guard, LimitReached, current_effect
from effectonce.testing.bank import pay
from effectonce.testing.crash import die
from tests.crash.approvals import opened, together

AMOUNTS = (3, 1, 4, 1, 5, 9, 2, 6)


class Dying:
    """A store whose process dies at the n-th op."""

    def __init__(self, store, number, when):
        self._store, self._left, self._when = store, number, when

    def __getattr__(self, name):
        return getattr(self._store, name)

    def apply(self, op, /):
        self._left -= 1
        if self._left == 0 and self._when == "before":
            die()
        reply = self._store.apply(op)
        if self._left == 0:
            die()
        return reply


def spend(url, port, limit, first, last, number=0, when="before"):
    store = opened(url)
    guard = Guard(Dying(store, number, when) if number else store, reconcile=False)
    allowance = Allowance("payouts", limit=int(limit), per=365 * 86_400, for_each=None)

    @guard.tool(
        kind="write",
        downstream=Downstream.key(),
        lease_s=0.2,
        wait_s=30,
        allowance=allowance,
        spends="amount",
    )
    def pay_out(invoice: str, amount: int) -> str:
        key = current_effect().downstream_key
        return pay(int(port), invoice, amount, key=key, timeout_s=60)["receipt"]

    became = {}
    for payment in range(int(first), int(last)):
        try:
            with guard.step("payouts", payment):
                pay_out(f"inv_{payment}", AMOUNTS[payment % len(AMOUNTS)])
            became[payment] = "paid"
        except LimitReached:
            became[payment] = "limit"
        except EffectOnceError as error:
            became[payment] = error.code
    (account,) = guard.allowances.list() or (None,)
    state = None if account is None else [account.spent, account.reserved, account.in_doubt]
    guard.close()
    return {"became": became, "account": state}


def die_everywhere(url, port, limit):
    """Each payment is begun by a process that dies in it. Returns how many there are."""
    payments, killed = 0, 1
    for number in count(1):
        if not killed:
            break
        killed = 0
        for when in ("before", "after"):
            child = os.fork()
            if child == 0:
                spend(url, port, limit, payments, payments + 1, number, when)
                os._exit(0)
            killed += os.waitpid(child, 0)[1] != 0
            payments += 1
    return payments


def crowd(url, port, limit, processes):
    """Each wants one unit, at the same moment."""
    one = AMOUNTS.index(1)

    def want(number):
        payment = one + number * len(AMOUNTS)
        return lambda: spend(url, port, limit, payment, payment + 1)

    became = [told["became"] for told in together([want(n) for n in range(int(processes))])]
    return {"became": {payment: what for each in became for payment, what in each.items()}}


if __name__ == "__main__":
    url, port, limit, *rest = sys.argv[1:]
    if len(rest) == 1:
        told = crowd(url, port, limit, *rest)
    else:
        told = spend(url, port, limit, *(rest or (0, die_everywhere(url, port, limit))))
    print(json.dumps(told))
