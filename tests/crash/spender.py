"""One process that pays from an allowance, and dies at its n-th store op, or not at all. Prints
what became of each payment.

    python -m tests.crash.spender URL PORT LIMIT FIRST LAST
    python -m tests.crash.spender URL PORT LIMIT     a process dies at each op; then one finishes
"""

import io
import json
import os
import sys
from itertools import count

from effectonce import Allowance, Downstream, EffectOnceError, Guard, LimitReached, current_effect
from effectonce.stores import as_store
from effectonce.testing.bank import pay
from effectonce.testing.crash import die

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
    store = as_store(url)
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
    print(json.dumps({"became": became, "account": state}))
    guard.close()


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
                sys.stdout = io.StringIO()
                spend(url, port, limit, payments, payments + 1, number, when)
                os._exit(0)
            killed += os.waitpid(child, 0)[1] != 0
            payments += 1
    return payments


if __name__ == "__main__":
    url, port, limit, *rest = sys.argv[1:]
    first, last = rest or (0, die_everywhere(url, port, limit))
    spend(url, port, limit, first, last)
