"""Sweeping in the background."""

from math import inf

import pytest

from effectonce import Guard, State, StoreUnavailable, Swept
from effectonce._core import ops
from effectonce.stores.memory import MemoryStore
from effectonce.stores.sqlite import SqliteStore
from effectonce.stores.sqlite.statements import _DUE
from tests.flaky import FlakyStore


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path, clock):
    made = (
        MemoryStore(clock=clock)
        if request.param == "memory"
        else SqliteStore(tmp_path / "effects.db", clock=clock)
    )
    yield made
    made.close()


def spend(guard, count, **contract):
    @guard.tool(kind="write", name="pay", window=60, **contract)
    def pay(n: int):
        return n

    for n in range(count):
        with guard.step("chat", n):
            pay(n)


def test_a_round_goes_on_in_batches_until_nothing_is_due(clock, guard):
    spend(guard, 25, tombstone=0)
    clock.advance(61)

    assert guard.sweeper(batch=10, pause_s=0).round() == Swept(0, 0, 25)
    assert guard.counts() == {}


def test_a_round_goes_on_until_no_cell_is_past_its_time(store, clock):
    for n in range(25):
        store.apply(ops.WriteCell(f"cell {n}", 0, b"spent", 60.0))
    clock.advance(60)

    assert Guard(store).sweeper(batch=10, pause_s=0).round() == Swept(0, 0, 0, 25)


def test_a_key_is_refused_for_as_long_as_its_tombstone_stands(clock, guard):
    spend(guard, 3, tombstone=600)
    clock.advance(61)

    assert guard.sweep() == Swept(0, 3, 0)
    assert guard.sweep() == Swept(0, 0, 0)
    clock.advance(600)
    assert guard.sweep() == Swept(0, 0, 3)


def test_tombstones_that_stay_for_ever_are_not_looked_at_again(tmp_path, clock):
    store = SqliteStore(tmp_path / "effects.db", clock=clock)
    guard = Guard(store, cache=0)
    spend(guard, 5, tombstone=inf)
    clock.advance(61)
    guard.sweep()

    # what is not in the index could not be found by it
    due = f"FROM effects INDEXED BY effects_due WHERE {_DUE}"
    assert store._main.rows(f"SELECT count(*) {due}") == [(0,)]
    assert store._main.rows("SELECT count(*) FROM effects") == [(5,)]
    store.close()


def test_a_started_sweeper_sweeps_at_once_and_stops_when_told(clock, guard):
    spend(guard, 4)
    clock.advance(61)
    with guard.sweeper(every_s=3600) as sweeper:
        assert sweeper.start() is sweeper  # a second time changes nothing
    assert sweeper.swept == Swept(0, 4, 0)
    assert sweeper.failure is None
    sweeper.stop()


def test_a_sweeper_outlives_a_store_that_does_not_answer(clock):
    store = FlakyStore(clock=clock)
    guard = Guard(store, cache=0)
    spend(guard, 1)
    clock.advance(61)
    store.fail(ops.Sweep, times=1)
    with guard.sweeper(every_s=3600) as sweeper:
        pass
    assert isinstance(sweeper.failure, StoreUnavailable)
    with sweeper:
        pass
    assert (sweeper.swept, sweeper.failure) == (Swept(0, 1, 0), None)


def test_a_store_that_lets_nobody_sweep_is_told_once_until_it_does(clock, caplog):
    """A role that may not delete finds out here, and nowhere else."""
    store = FlakyStore(clock=clock)
    sweeper = Guard(store, cache=0).sweeper(every_s=3600)
    store.fail(ops.Sweep, times=3)
    for _ in range(4):
        with sweeper:
            pass
    assert caplog.text.count("a round of effectonce-sweeper failed") == 1

    store.fail(ops.Sweep, times=1)
    with sweeper:
        pass
    assert caplog.text.count("a round of effectonce-sweeper failed") == 2


def test_a_sweeper_that_is_stopped_ends_after_its_batch(clock, guard):
    spend(guard, 10)
    clock.advance(61)
    sweeper = guard.sweeper(batch=4)
    sweeper.stop()  # before it began: the first batch is the last

    assert sweeper.round() == Swept(0, 4, 0)
    assert guard.counts() == {State.TOMBSTONE: 4, State.COMPLETED: 6}
