"""A tool that takes longer than its lease, inside a transaction: it runs once, and what cannot
be recorded is not tried for ever.
"""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from effectonce import GaveUp, Guard, Retry, current_effect
from effectonce._core import endings, ops
from effectonce._core.codec import encode
from effectonce.stores.postgres import PostgresStore
from effectonce.stores.sqlite import SqliteStore
from effectonce.testing.clock import FakeClock

LEASE_S = 0.3
SLOW_LEASES = 4
CALLERS = 3
ROWS = "CREATE TABLE IF NOT EXISTS ledger (amount int)"


class Watched:
    """A store that tells when a lease was renewed."""

    renewals: threading.Semaphore

    def apply(self, op, /):
        return self._seen(op, super().apply(op))

    async def aapply(self, op, /):
        return self._seen(op, await super().aapply(op))

    def _seen(self, op, reply):
        if isinstance(op, ops.Renew) and isinstance(reply, ops.Applied):
            self.renewals.release()
        return reply


class WatchedSqlite(Watched, SqliteStore):
    pass


class WatchedPostgres(Watched, PostgresStore):
    pass


@pytest.fixture(params=[WatchedSqlite, WatchedPostgres], ids=["sqlite", "postgres"])
def open_store(request, tmp_path):
    """Opens the same store, however often: with a clock of the test's, if it has one."""
    if request.param is WatchedSqlite:
        where, wall = tmp_path / "effects.db", time.time
    else:
        where, wall = request.getfixturevalue("database"), None
    renewals, opened = threading.Semaphore(0), []

    def opening(clock=wall):
        opened.append(request.param(where, clock=clock))
        opened[-1].renewals = renewals
        return opened[-1]

    yield opening
    for store in opened:
        store.close()


def take_longer_than_the_lease(store, clock):
    """Time passes by the store's clock, and only after the lease was renewed: a machine that
    stalls changes nothing.
    """
    for _ in range(2 * SLOW_LEASES):
        assert isinstance(store, WatchedSqlite) or store.renewals.acquire(timeout=30), (
            "nothing keeps the lease of this transaction alive"
        )
        clock.advance(LEASE_S / 2)


def rows(store):
    with store.transaction() as transaction:
        transaction.connection.execute(ROWS)
        return transaction.connection.execute("SELECT count(*) FROM ledger").fetchone()[0]


def make_table(store):
    with store.transaction() as transaction:
        transaction.connection.execute(ROWS)
        transaction.commit()


def test_a_transaction_that_is_slower_than_its_lease_runs_once_for_all_who_ask(open_store):
    make_table(open_store())
    clock, runs = FakeClock(), []

    def caller(_):
        store = open_store(clock)
        guard = Guard(store, cache=0)

        @guard.tool(kind="irreversible", downstream="transaction", lease_s=LEASE_S)
        def book(amount: int):
            runs.append(amount)
            current_effect().connection.execute(f"INSERT INTO ledger VALUES ({amount})")
            take_longer_than_the_lease(store, clock)
            return amount

        with guard.step("chat", "book"):
            return book(7)

    with ThreadPoolExecutor(CALLERS) as pool:
        assert list(pool.map(caller, range(CALLERS))) == [7] * CALLERS

    assert (runs, rows(open_store())) == ([7], 1)


def test_an_async_transaction_that_is_slower_than_its_lease_runs_once_for_all_who_ask(open_store):
    make_table(open_store())
    clock, runs = FakeClock(), []

    async def caller():
        store = open_store(clock)
        guard = Guard(store, cache=0)

        @guard.tool(kind="irreversible", downstream="transaction", lease_s=LEASE_S)
        async def book(amount: int):
            runs.append(amount)
            written = current_effect().connection.execute(f"INSERT INTO ledger VALUES ({amount})")
            if asyncio.iscoroutine(written):
                await written
            await asyncio.to_thread(take_longer_than_the_lease, store, clock)
            return amount

        async with guard.step("chat", "book"):
            return await book(7)

    async def main():
        return await asyncio.gather(*(caller() for _ in range(CALLERS)))

    assert asyncio.run(main()) == [7] * CALLERS
    assert (runs, rows(open_store())) == ([7], 1)


def robbed(open_store, runs, rob, **contract):
    """A tool whose record another caller takes, and lets go again, each time that it runs."""
    clock = FakeClock()
    guard, other = Guard(open_store(clock), cache=0), open_store(clock)
    make_table(other)

    @guard.tool(**({"kind": "write", "downstream": "transaction"} | contract))
    def book(amount: int):
        effect = current_effect()
        runs.append(effect.attempt)
        clock.advance(1000)
        rob(other, guard.find(effect.key).request)
        effect.connection.execute(f"INSERT INTO ledger VALUES ({amount})")
        return amount

    def call():
        with guard.step("chat", "book"):
            return book(7)

    return guard, call


@pytest.fixture
def pg_store(database):
    opened = []

    def opening(clock=None):
        opened.append(PostgresStore(database, clock=clock))
        return opened[-1]

    yield opening
    for store in opened:
        store.close()


def let_go(store, request):
    token = f"other-{time.monotonic_ns()}"
    held = store.apply(ops.Claim(request, token, 30, dispatch=False))
    assert isinstance(store.apply(ops.Renew(request.key, token, held.epoch, 0)), ops.Applied)


def test_every_run_whose_record_was_taken_counts_as_an_attempt(pg_store):
    runs = []
    _, call = robbed(pg_store, runs, let_go, retry=Retry(attempts=3))

    with pytest.raises(
        GaveUp, match=r"did not run.*attempt 3 ended with RecordTaken.*It was tried 3 times"
    ) as gave_up:
        call()

    assert runs == [1, 2, 3]
    assert gave_up.value.effectonce_verdict.certainty == "not_sent"
    assert rows(pg_store()) == 0


def test_no_run_begins_after_the_deadline_however_many_attempts_are_left(pg_store):
    runs = []

    def slowly(store, request):
        let_go(store, request)
        time.sleep(0.15)  # the tool is slow; nothing is waited for

    _, call = robbed(pg_store, runs, slowly, retry=Retry(attempts=1000, deadline_s=0.2))

    with pytest.raises(GaveUp, match="The time that it may take is over"):
        call()

    assert len(runs) in (1, 2)


def test_a_run_that_was_beaten_to_the_end_returns_what_the_other_recorded(pg_store):
    runs = []

    def finish(store, request):
        token = "other"
        held = store.apply(ops.Claim(request, token, 30, dispatch=False))
        with store.transaction() as transaction:
            done = ops.Complete(request.key, token, held.epoch, encode(70))
            assert isinstance(transaction.complete(done), ops.Applied)
            transaction.commit()

    _, call = robbed(pg_store, runs, finish, retry=Retry(attempts=1))

    assert call() == 70
    assert runs == [1]
    assert rows(pg_store()) == 0


def test_what_an_earlier_call_may_have_sent_is_not_said_to_have_had_no_effect():
    assert isinstance(
        endings.robbed(2, "it was tried 2 times", sent_before=True), endings.Exhausted
    )
    assert isinstance(
        endings.robbed(2, "it was tried 2 times", sent_before=False), endings.NothingSent
    )
