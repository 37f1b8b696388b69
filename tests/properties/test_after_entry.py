"""Once a tool was entered, nothing it returns, changes or fails to use, no change of its
contract, no clock and no record that vanishes may lead to a second send that the downstream
cannot recognise, or to an outcome that is not true.

One effect is asked for again and again, as an orchestrator would: by processes that die, under
contracts that change between two deploys. The world counts what reached it.
`EFFECTONCE_SOAK=20000` plays as many new histories; otherwise it is the same 150 each time.
"""

import asyncio
import concurrent.futures
import os
from dataclasses import dataclass, field
from itertools import combinations

from hypothesis import event
from hypothesis import strategies as st
from tests.core.examples import examples

from effectonce import (
    Downstream,
    EffectOnceError,
    Guard,
    Rejected,
    ReplayedFailure,
    Retry,
    current_effect,
)
from effectonce.stores.memory import MemoryStore
from effectonce.testing.clock import FakeClock

HISTORIES = int(os.environ.get("EFFECTONCE_SOAK", "150"))
WINDOW_S, LEASE_S = 3600.0, 30.0
CONTRACTS = tuple(
    (kind, downstream)
    for kind in ("idempotent_write", "write", "irreversible")
    for downstream in ("none", "key")
)
LAZY = {
    "coroutine": lambda: asyncio.sleep(0),
    "future": concurrent.futures.Future,
    "generator": lambda: (n for n in "ab"),
    "nested": lambda: {"lines": [map(str, "ab")]},
}
RESULTS = ("receipt", *LAZY, "huge", "odd")


class Died(BaseException):
    """This process is gone."""


@dataclass(frozen=True)
class Run:
    """How one run of the tool goes."""

    changes: bool  # its argument, in place
    error: str  # "", before, rejected, after: relative to the effect
    result: str
    vanishes: bool  # the record, meanwhile
    dies: bool  # the process, after the effect


@dataclass(frozen=True)
class Call:
    contract: tuple[str, str]
    runs: tuple[Run, ...]
    passes_s: float  # before the next call; also backwards


@dataclass
class World:
    keeps_word: bool  # the tool reads the key that it declares to send
    clock: FakeClock = field(default_factory=FakeClock)
    sent: list = field(default_factory=list)  # (key or None, kind), in the order of their arrival
    alive: bool = True

    def key(self):
        """What the tool sends with its request. Here, and not in the code of the tool: that
        would be looked at.
        """
        return current_effect().downstream_key if self.keeps_word else None

    @property
    def twice(self):
        """Two sends that the downstream takes for two, one of which may not be repeated."""
        return [
            (one, other)
            for one, other in combinations(self.sent, 2)
            if (one[0] is None or one[0] != other[0]) and {one[1], other[1]} != {"idempotent_write"}
        ]


runs = st.builds(
    Run,
    changes=st.booleans(),
    error=st.sampled_from(("", "", "before", "rejected", "after")),
    result=st.sampled_from(RESULTS),
    vanishes=st.booleans(),
    dies=st.booleans(),
)
calls = st.lists(
    st.builds(
        Call,
        contract=st.sampled_from(CONTRACTS),
        runs=st.lists(runs, min_size=3, max_size=3).map(tuple),
        passes_s=st.sampled_from((0.0, 31.0, 31.0, 1800.0, -1800.0)),
    ),
    min_size=2,
    max_size=5,
)


class Store(MemoryStore):
    """The reference; a process that died reaches it no more."""

    def __init__(self, world):
        super().__init__(clock=world.clock)
        self.world = world

    def apply(self, op, /):
        if not self.world.alive:
            raise Died
        return super().apply(op)


def deployed(world, store, call, script):
    guard = Guard(store, cache=0)
    kind, downstream = call.contract
    declared = Downstream.key(window=WINDOW_S) if downstream == "key" else downstream
    retry = Retry(base_s=0, cap_s=0, attempts=3)

    @guard.tool(
        kind=kind,
        downstream=declared,
        retry=retry,
        wait_s=0,
        lease_s=LEASE_S,
        accept_store_loss=True,
    )
    def pay(order: dict):
        run = next(script)
        key = world.key() if downstream == "key" else None
        if run.changes:
            order["tries"] += 1
        if run.error == "before":
            raise TimeoutError
        if run.error == "rejected":
            raise Rejected("declined")
        world.sent.append((key, kind))
        if run.vanishes:
            store._records.clear()
            store._open.clear()
        elif run.dies and (key is not None or downstream == "none"):
            # Of a process that died nobody knows what it did not read: there a tool that breaks
            # its word is not noticed.
            world.alive = False
            raise Died
        if run.error == "after":
            raise TimeoutError
        return LAZY[run.result]() if run.result in LAZY else RESULT[run.result]

    return guard, pay


RESULT = {"receipt": {"receipt": 1}, "huge": "x" * (17 << 20), "odd": object()}


@examples(
    calls, st.booleans(), smoke=40, full=HISTORIES, derandomize="EFFECTONCE_SOAK" not in os.environ
)
def test_nothing_that_happens_after_entry_makes_a_second_effect_or_an_untruth(history, keeps_word):
    world, order = World(keeps_word), {"id": "o1", "tries": 0}
    store = Store(world)

    for call in history:
        world.alive = True
        guard, pay = deployed(world, store, call, iter(call.runs))
        refused = False
        try:
            with guard.step("chat", "pay"):
                outcome = guard.call(pay, {"order": order})
            succeeded = outcome.status == "succeeded"
            refused = isinstance(outcome.error, Rejected | ReplayedFailure)
        except (Died, EffectOnceError, TimeoutError):
            succeeded = False
        event("ended well" if succeeded else "refused" if refused else "ended otherwise")
        assert order == {"id": "o1", "tries": 0}, "the caller's argument was changed"
        assert not (succeeded and not world.sent), "a success without an effect"
        assert not (refused and world.sent), "a failure, and the effect happened"
        assert world.twice == []
        world.clock.advance(call.passes_s)
