"""Stores that break what holds a store together, not a rule of the protocol: nothing is atomic,
or it is less than it says.
"""

import asyncio
import contextlib
import threading

import pytest

from effectonce import StoreUnavailable
from effectonce._core.ops import Find
from effectonce.stores.base import Capabilities
from effectonce.stores.memory import MemoryStore
from effectonce.stores.sqlite import SqliteStore
from effectonce.testing.conformance import CHECKS, MODES, Bench, claims, promises
from effectonce.testing.conformance import bench as bench_room
from effectonce.testing.conformance.bench import request


class NoLock(MemoryStore):
    """The reference without its lock: what it has read may be old when it writes."""

    def apply(self, op, /):
        return self._apply(op)


class ReadsBeforeItWaits(MemoryStore):
    """Its driver awaits between the read and the write, and nobody holds anything meanwhile."""

    async def aapply(self, op, /):
        key = getattr(op, "key", None)
        before = self._records.get(key)
        await asyncio.sleep(0)
        if before is None and key is not None:
            self._records.pop(key, None)  # it decides on what it read
        return self.apply(op)


class GivesUp(MemoryStore):
    """Somebody else is writing: that is too much for it."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self._mine = threading.Lock()

    def apply(self, op, /):
        if not self._mine.acquire(blocking=False):
            raise StoreUnavailable("locked")
        try:
            return super().apply(op)
        finally:
            self._mine.release()


class CallsItselfDurable(MemoryStore):
    capabilities = Capabilities(durable=True, transactions=False)


class CallsItselfTransactional(MemoryStore):
    capabilities = Capabilities(durable=False, transactions=True)


class CommitsAnyway(SqliteStore):
    """Leaving the block commits."""

    @contextlib.contextmanager
    def transaction(self):
        with super().transaction() as transaction:
            yield transaction
            transaction.commit()

    @contextlib.asynccontextmanager
    async def atransaction(self):
        async with super().atransaction() as transaction:
            yield transaction
            await transaction.commit()


BROKEN = [
    (NoLock, "sync", claims.of_many_racers_one_holds),
    (ReadsBeforeItWaits, "async", claims.of_many_racers_one_holds),
    (GivesUp, "sync", claims.of_many_that_take_over_one_holds),
    *(
        (
            CallsItselfDurable,
            mode,
            promises.a_durable_store_knows_everything_when_it_is_opened_again,
        )
        for mode in MODES
    ),
    *(
        (CallsItselfTransactional, mode, promises.a_store_with_transactions_can_begin_one)
        for mode in MODES
    ),
    *((CommitsAnyway, mode, promises.what_is_not_committed_does_not_stay) for mode in MODES),
]


@pytest.mark.parametrize(
    ("store", "mode", "check"), BROKEN, ids=lambda value: getattr(value, "__name__", value)
)
def test_the_suite_catches(store, mode, check, tmp_path):
    place = (tmp_path / "effects.db",) if issubclass(store, SqliteStore) else ()

    assert check in CHECKS
    with (
        Bench(lambda clock: store(*place, clock=clock), mode) as bench,
        pytest.raises((AssertionError, StoreUnavailable)),
    ):
        check(bench)


def test_a_store_that_says_little_is_held_to_no_more():
    with Bench(lambda clock: MemoryStore(clock=clock), "sync") as bench:
        promises.a_durable_store_knows_everything_when_it_is_opened_again(bench)
        bench.held(request())
        bench.reopen()
        assert bench.apply(Find("k")) is None


def test_a_thread_that_ends_before_the_race_is_reported(monkeypatch):
    """A tracer that a thread may not install ends it there; the others would wait for it until
    the run is killed.
    """
    monkeypatch.setattr(bench_room, "GATE_S", 0.01)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    ends = iter([True])

    class Ending(threading.Thread):
        def run(self):
            if next(ends, False):
                raise RuntimeError("no tracer")
            super().run()

    monkeypatch.setattr(threading, "Thread", Ending)

    with (
        Bench(lambda clock: MemoryStore(clock=clock), "sync") as bench,
        pytest.raises(threading.BrokenBarrierError),
    ):
        bench.race([Find("k"), Find("k")])
