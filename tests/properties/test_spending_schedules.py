"""Calls that spend from one allowance, in every order of their ops and with deaths between them:
what was paid is never more than the limit, and in the end it is what the account says.
"""

import random
from itertools import combinations

import pytest
from tests.core.helpers import QUICK

from effectonce import Allowance, Guard
from effectonce._core.ops import Invoke, Ok, Raised, Sleep
from effectonce._tools.registry import tool_of
from effectonce.errors import Rejected
from effectonce.stores.memory import MemoryStore
from effectonce.testing.clock import FakeClock

LIMIT, LEASE_S = 10, 30.0


class World:
    """Workers whose flows stand between two ops, one store, and what was paid."""

    def __init__(self, amounts, refused=()):
        self.clock, self.paid, self.refused = FakeClock(), {}, refused
        self.store = MemoryStore(clock=self.clock)
        self.guard = Guard(self.store, cache=0, reconcile=False)

        @self.guard.tool(
            kind="write",
            retry=QUICK,
            wait_s=0,
            lease_s=LEASE_S,
            allowance=Allowance("money", limit=LIMIT, per=10 * 365 * 86_400),
            spends="amount",
        )
        def pay(number: int, amount: int) -> int:
            raise AssertionError("the world pays")

        self.tool, self.amounts, self.workers = tool_of(pay), amounts, {}
        for number in range(len(amounts)):
            self.begin(number)

    def begin(self, number):
        with self.guard.step("work", number):
            prepared = self.tool.prepare((number, self.amounts[number]), {})
            flow = self.tool.flow(prepared)
        self.workers[number] = [flow, None]

    def step(self, number):
        """One op of a worker. A worker whose flow ends is gone."""
        flow, reply = self.workers[number]
        try:
            op = flow.send(reply)
        except StopIteration:
            del self.workers[number]
            return
        if isinstance(op, Invoke):
            reply = self.pay(number)
        elif isinstance(op, Sleep):
            reply = None
        else:
            reply = self.store.apply(op)
        self.workers[number][1] = reply

    def pay(self, number):
        if number in self.refused:
            return Raised(Rejected("declined"))
        assert number not in self.paid, "the effect happened twice"
        self.paid[number] = self.amounts[number]
        assert sum(self.paid.values()) <= LIMIT, "overdrawn"
        return Ok(number)

    def die(self, number):
        self.workers.pop(number)[0].close()

    def lapse(self):
        self.clock.advance(LEASE_S + 1)

    def settle(self):
        """All have ended or died. Doubts are settled as the bank says; then all is asked again."""
        self.lapse()
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


def every_order(first, second):
    """Each order in which two workers that make so many ops can go on."""
    for places in combinations(range(first + second), first):
        yield [0 if place in places else 1 for place in range(first + second)]


def test_in_every_order_of_two_calls_one_gets_what_is_left():
    """They differ only after the first has the money: till then, each makes five ops."""
    for order in every_order(5, 5):
        world = World((6, 5))
        for number in order:
            if number in world.workers:
                world.step(number)
        for number in tuple(world.workers):
            while number in world.workers:
                world.step(number)
        assert len(world.paid) == 1
        world.settle()


@pytest.mark.parametrize("seed", range(10))
def test_with_deaths_and_lost_leases_nothing_is_overdrawn_and_nothing_leaks(seed):
    rng = random.Random(seed)
    for _ in range(25):
        amounts = [rng.randint(1, 7) for _ in range(4)]
        world = World(amounts, refused={n for n in range(4) if rng.random() < 0.2})
        while world.workers:
            number = rng.choice(list(world.workers))
            action = rng.random()
            if action < 0.04:
                world.die(number)
                world.begin(number) if rng.random() < 0.5 else None
            elif action < 0.12:
                world.lapse()
            else:
                world.step(number)
        world.settle()
