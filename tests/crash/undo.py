"""One effect, whose undo is asked for by a process that is killed, and then by eight at once.

Started as a process of its own without threads, as `tests.crash.approvals` is. Prints what became
of each; the bank counts.
"""

import asyncio
import itertools
import json
import sys

from effectonce import Guard, current_effect
from effectonce.testing.bank import pay
from effectonce.testing.clock import FakeClock
from tests.crash.approvals import LEASE_S, NOW, Mortal, forked, opened, said, together

CROWD = 8


class Shop:
    """A tool and its undo, which pay at a bank."""

    def __init__(self, store, port, downstream, mode):
        self.guard, self._port, self._keyed = Guard(store, cache=0), port, downstream == "key"
        self._mode = mode
        declare = self.guard.tool(kind="write", downstream=downstream, lease_s=LEASE_S, wait_s=100)
        if mode == "sync":

            @declare
            def refund(invoice: str) -> str:
                return self._pay(invoice)

            @refund.undo
            def take_back(result, invoice):
                return self._pay(f"undo {invoice} {result}")

            self._call = refund
        else:

            @declare
            async def refund(invoice: str) -> str:
                return self._pay(invoice)

            @refund.undo
            async def take_back(result, invoice):
                return self._pay(f"undo {invoice} {result}")

            self._call = lambda invoice: asyncio.run(self._awaited(invoice))
        self.tool = refund

    async def _awaited(self, invoice):
        return await self.tool(invoice)

    def _pay(self, what):
        key = current_effect().downstream_key  # read in any case, as is declared
        return pay(self._port, what, 1, key=key if self._keyed else None, timeout_s=60)["receipt"]

    def refund(self, invoice):
        with self.guard.step("undo", invoice):
            return self._call(invoice)

    def undo(self, invoice):
        with self.guard.step("undo", invoice):
            key = self.tool.explain(invoice).key
        asked = {"by": "ada", "reason": "wrong customer"}
        if self._mode == "sync":
            return self.guard.undo(key, **asked).unwrap()
        return asyncio.run(self.guard.aundo(key, **asked)).unwrap()


def killed(url, port, downstream, mode):
    """A process dies before and after each op of an undo; then eight ask for it at once."""
    flows = []
    for when in ("before", "after"):
        for nth in itertools.count():
            flow = _flow(url, int(port), downstream, mode, (when, nth))
            if flow is None:
                break
            flows.append(flow)
    return flows


def _flow(url, port, downstream, mode, dies):
    """None: an undo has fewer ops."""
    when, nth = dies
    invoice, clock = f"{downstream}-{mode}-{when}-{nth}", FakeClock(NOW)

    def worker(act, nth=-1, when=""):
        def work():
            store = Mortal(opened(url, clock), nth, when)
            told = said(getattr(Shop(store, port, downstream, mode), act), invoice)
            store.close()
            return told

        return work

    refunded = forked(worker("refund"))()
    if forked(worker("undo", nth, when))() is not None:
        return None
    clock.advance(LEASE_S + 1)
    told = together([worker("undo")] * CROWD)
    return {"at": dies, "invoice": invoice, "refunded": refunded, "told": told}


if __name__ == "__main__":
    print(json.dumps(killed(*sys.argv[1:])))
