"""A run in a run, killed, taken over and cancelled at any moment: what landed is undone, once,
and nothing lands after the end.
"""

import contextvars
import random

import pytest
from tests.tiers import long_except

from effectonce import Guard, NotSent, Rejected, Retry
from effectonce._core.codec import decode
from effectonce.stores.memory import MemoryStore
from effectonce.testing.clock import FakeClock
from effectonce.workflows import Run

ONCE = Retry(attempts=1)
STORMY, ROUNDS = 40, 400
SEEDS = 150


class Killed(BaseException):
    """This process is gone."""


class Stormy(MemoryStore):
    """The reference; its caller may be killed before or after any op, and others may do
    something first.
    """

    def __init__(self, clock, rng):
        super().__init__(clock=clock)
        self._rng, self.deadly, self.meanwhile = rng, 0.0, None

    def apply(self, op, /):
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None and self._rng.random() < 0.03:
            meanwhile()
        self._may_kill()
        reply = super().apply(op)
        self._may_kill()
        self.meanwhile = meanwhile
        return reply

    def _may_kill(self):
        if self._rng.random() < self.deadly:
            raise Killed


class World:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.clock = FakeClock()
        self.store = Stormy(self.clock, self.rng)
        self.landed, self.undone = {}, set()
        self.workers = [self.worker(), self.worker()]

    def worker(self):
        guard, rng = Guard(self.store, cache=0), self.rng

        def pay(n: str) -> None:
            match rng.random():
                case chance if chance < 0.08:
                    raise NotSent("no line")
                case chance if chance < 0.11:
                    raise Rejected("sold out")
            self.landed[n] = self.landed.get(n, 0) + 1
            match rng.random():
                case chance if chance < 0.08:
                    raise ConnectionError("the answer is lost")
                case chance if chance < 0.12:
                    raise Killed

        def give_back(n: str) -> None:
            self.undone.add(n)
            if rng.random() < 0.1:
                raise ConnectionError("the answer is lost")

        at_once = guard.tool(kind="write", retry=ONCE, wait_s=0, name="at_once")(pay)
        in_two = guard.tool(
            kind="write", retry=ONCE, wait_s=0, name="in_two", separate_dispatch=True
        )(pay)
        undo = guard.tool(kind="idempotent_write", retry=ONCE, wait_s=0, name="undo")(give_back)

        @guard.workflow(runs=ROUNDS * ROUNDS, lease_s=10, wait_s=0)
        def book(run: Run, trip: str) -> None:
            for tool, n in ((in_two, "hotel"), (at_once, "train")):
                run.step("pay", tool, n)
                run.compensate("undo", undo, n)

        @guard.workflow(runs=ROUNDS * ROUNDS, lease_s=10, wait_s=0)
        def travel(run: Run, trip: str) -> None:
            run.step("pay", at_once, "visa")
            run.compensate("undo", undo, "visa")
            run.step("book", book, trip)
            run.compensate("undo", undo, "hotel")
            run.compensate("undo", undo, "train")
            run.step("pay", in_two, "guide")
            run.compensate("undo", undo, "guide")

        return guard, travel

    def go_on(self):
        """Somebody calls it, and may die over it. How it ended; "" if it did not."""
        guard, travel = self.rng.choice(self.workers)
        try:
            contextvars.Context().run(travel, "t1")
        except Killed:
            return ""
        except Exception:  # whatever it was told: the records count
            self.settle(guard)
            return "failed" if any(guard.workflows.runs("failed", workflow="travel")) else ""
        return "completed"

    def settle(self, guard):
        """A person looks at the bank."""
        self.calm()
        for record in guard.in_doubt():
            n = decode(record.request.arguments).content["n"]
            if n in self.landed:
                guard.confirm(
                    record.request.key, result=None, by="ann", reason="it is in the ledger"
                )
            else:
                guard.refute(record.request.key, by="ann", reason="it is not in the ledger")

    def cancel(self):
        self.calm()
        guard, _ = self.workers[0]
        for record in guard.workflows.runs("open", workflow="travel"):
            guard.workflows.cancel(record.request.key, by="ann", reason="the customer called")

    def calm(self):
        self.store.deadly, self.store.meanwhile = 0.0, None

    def storm(self):
        self.store.deadly = self.rng.choice([0.0, 0.02])
        self.store.meanwhile = self.meanwhile

    def meanwhile(self):
        self.clock.advance(self.rng.choice([0, 5, 11, 40]))
        self.go_on()
        self.store.deadly = 0.02


@pytest.mark.parametrize("seed", long_except(range(30), range(SEEDS)))
def test_a_cancelled_run_leaves_nothing_done_and_nothing_to_do(seed):
    world = World(seed)
    cancelled_at, ended = world.rng.randrange(12), ""
    for number in range(ROUNDS):
        if number == cancelled_at:
            world.cancel()
        (world.storm if number < STORMY else world.calm)()
        ended = world.go_on()
        if ended:
            break
        world.clock.advance(world.rng.choice([0, 1, 11, 40]))
    world.calm()
    guard, _ = world.workers[0]
    world.settle(guard)
    landed = dict(world.landed)

    world.clock.advance(1000)
    guard.dead_letters.redrive_all(dry_run=False, per_s=None, by="bob", reason="the line is back")
    guard.workflows.resume_all()

    assert ended in ("completed", "failed")
    assert set(world.landed.values()) <= {1}
    assert world.landed == landed  # nothing came after the end
    assert world.undone == (set() if ended == "completed" else world.undone | set(landed))
