"""Many calls that spend from one allowance, in random orders of their ops and with deaths between
them: what was paid is never more than the limit, and in the end it is what the account says. Two
and three calls in every order are in `model/spending.py`.
"""

import random

import pytest
from tests.tiers import long_except

from effectonce import Allowance, Guard, Retry
from effectonce._core.ops import Invoke, Ok, Raised, Sleep
from effectonce._tools.registry import tool_of
from effectonce.errors import NotSent, Rejected
from effectonce.stores.memory import MemoryStore
from effectonce.testing.clock import FakeClock

LIMIT, LEASE_S = 10, 30.0


class World:
    """Workers whose flows stand between two ops, one store, and what was paid."""

    def __init__(self, amounts, callers=1, refused=(), unsent=()):
        self.clock, self.paid, self.refused, self.unsent = FakeClock(), {}, refused, unsent
        self.store = MemoryStore(clock=self.clock)
        self.guard = Guard(self.store, cache=0, reconcile=False)

        @self.guard.tool(
            kind="write",
            retry=Retry(attempts=1),
            wait_s=0,
            lease_s=LEASE_S,
            allowance=Allowance("money", limit=LIMIT, per=10 * 365 * 86_400),
            spends="amount",
        )
        def pay(number: int, amount: int) -> int:
            raise AssertionError("the world pays")

        self.tool, self.amounts, self.workers = tool_of(pay), amounts, {}
        for worker in range(len(amounts) * callers):
            self.begin(worker)

    def begin(self, worker):
        """Callers of one payment are so many apart as there are payments."""
        number = worker % len(self.amounts)
        with self.guard.step("work", number):
            prepared = self.tool.prepare((number, self.amounts[number]), {})
            flow = self.tool.flow(prepared)
        self.workers[worker] = [flow, None]

    def step(self, worker):
        """One op of a worker. A worker whose flow ends is gone."""
        flow, reply = self.workers[worker]
        try:
            op = flow.send(reply)
        except StopIteration:
            del self.workers[worker]
            return
        if isinstance(op, Invoke):
            reply = self.pay(worker)
        elif isinstance(op, Sleep):
            reply = None
        else:
            reply = self.store.apply(op)
        self.workers[worker][1] = reply

    def pay(self, worker):
        number = worker % len(self.amounts)
        if worker in self.unsent:
            return Raised(NotSent("no connection"))
        if number in self.refused:
            return Raised(Rejected("declined"))
        assert number not in self.paid, "the effect happened twice"
        self.paid[number] = self.amounts[number]
        assert sum(self.paid.values()) <= LIMIT, "overdrawn"
        return Ok(number)

    def die(self, worker):
        self.workers.pop(worker)[0].close()

    def lapse(self):
        self.clock.advance(LEASE_S + 1)

    def settle(self):
        """All have ended or died. Doubts are settled as the bank says; then all is asked again."""
        self.lapse()
        self.unsent = ()
        self.guard.sweep()
        for record in self.guard.in_doubt():
            number = self.tool.signature.decode(record.request.arguments)["number"]
            if number in self.paid:
                self.guard.confirm(record.request.key, result=number, by="ada", reason="paid")
            else:
                self.guard.refute(record.request.key, by="ada", reason="not paid")
        for number in range(len(self.amounts)):
            self.begin(number)
            while number in self.workers:
                self.step(number)
        (account,) = self.guard.allowances.list()
        assert (account.spent, account.in_doubt) == (sum(self.paid.values()), 0)
        assert account.reserved == 0


@pytest.mark.parametrize("seed", long_except(range(5), range(20)))
def test_with_deaths_and_lost_leases_nothing_is_overdrawn_and_nothing_leaks(seed):
    rng = random.Random(seed)
    for _ in range(40):
        amounts = [rng.randint(1, 7) for _ in range(4)]
        refused = {number for number in range(4) if rng.random() < 0.2}
        unsent = {worker for worker in range(8) if rng.random() < 0.4}
        world = World(amounts, 2, refused, unsent)
        while world.workers:
            worker = rng.choice(list(world.workers))
            action = rng.random()
            if action < 0.04:
                world.die(worker)
                world.begin(worker) if rng.random() < 0.5 else None
            elif action < 0.12:
                world.lapse()
            else:
                world.step(worker)
        world.settle()
