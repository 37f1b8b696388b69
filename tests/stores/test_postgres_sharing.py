"""Many at once: processes, loops, threads, poolers, and a server that is killed under them."""

import asyncio
import contextlib
import itertools
import subprocess
import sys
import textwrap
import threading
from functools import partial

import psycopg
import pytest

from effectonce import InDoubt, InFlight, StoreUnavailable
from effectonce._core import ops
from effectonce.stores.postgres import PostgresStore
from effectonce.testing.conformance import CHECKS, MODES, Bench
from effectonce.testing.conformance.bench import LEASE_S, request
from tests.servers.postgres import Pooler, Postgres
from tests.stores.helpers import aguarded, claim, guarded, in_threads, name_of, wait_for_a_lock

RACERS = 20


def race(stores, make):
    """Apply make(n) from as many threads, each on one of the stores."""
    gate, replies = threading.Barrier(RACERS), []

    def racer(n):
        gate.wait()
        replies.append(stores[n % len(stores)].apply(make(n)))

    in_threads(partial(racer, n) for n in range(RACERS))
    return replies


@pytest.fixture
def stores(database):
    """Like four processes: nothing is shared but the server."""
    stores = [PostgresStore(database) for _ in range(4)]
    yield stores
    for store in stores:
        store.close()


# ---------------------------------------------------------------- races


def test_of_20_claims_that_were_not_sent_one_is_dispatched(stores):
    for n in range(RACERS):
        stores[0].apply(ops.Claim(request(f"k{n}", latch="step"), "t", LEASE_S, dispatch=False))
    replies = race(stores, lambda n: ops.Dispatch(f"k{n}", "t", 1, 1, LEASE_S))
    assert sum(isinstance(reply, ops.Applied) for reply in replies) == 1


def test_a_race_under_another_isolation_level_is_decided_the_same_way(postgres, database):
    name = name_of(database)
    postgres.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    stores = [PostgresStore(database) for _ in range(4)]
    replies = race(stores, lambda n: claim("k", f"t{n}", latch="step"))
    assert sum(isinstance(reply, ops.Held) for reply in replies) == 1
    (owner,) = {stores[0].apply(ops.Find("k")).token}
    race(stores, lambda n: ops.Renew("k", owner, 1, LEASE_S))
    replies = race(stores, lambda n: ops.Complete("k", owner, 1, b"done"))
    assert set(replies) == {ops.Applied(1)}
    for store in stores:
        store.close()


def test_several_ops_that_lose_a_race_together_are_asked_one_by_one(postgres, database):
    name = name_of(database)
    postgres.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    store = PostgresStore(database)
    store.apply(claim("first", "t"))
    replies = []
    together = ops.Together((ops.Complete("first", "t", 1, b"done"), claim("second", "t")))

    with psycopg.connect(database) as other:
        other.execute("UPDATE effectonce.effects SET revision = revision + 1 WHERE key = 'first'")
        racer = threading.Thread(target=lambda: replies.append(store.apply(together)))
        racer.start()
        wait_for_a_lock(postgres, database)
        other.commit()  # now the racer's transaction cannot be serialised any more
    racer.join()

    assert replies == [(ops.Applied(1), ops.Held(1, 1, dispatched=True))]
    store.close()


def test_a_hundred_thousand_doubts_slow_no_call_down(postgres, database):
    store = PostgresStore(database)
    store.apply(claim("k", latch="first"))
    store.apply(ops.Doubt("k", "t", 1, "?"))
    columns = [
        row[0]
        for row in postgres.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_name = 'effects' AND"
            " column_name NOT IN ('key', 'latch')",
            database,
        )
    ]
    listed = ", ".join(columns)
    postgres.execute(
        f"INSERT INTO effectonce.effects (key, latch, {listed}) SELECT key || n, latch || n,"
        f" {listed} FROM effectonce.effects, generate_series(1, 100000) n",
        database,
    )
    postgres.execute("ANALYZE effectonce.effects", database)

    plans = {}
    for name, sql in {
        "sweep": (
            "SELECT * FROM effectonce.effects WHERE due_at < 'infinity' AND due_at <= 1e9 AND state"
            " <> 'dispatched' ORDER BY due_at LIMIT 100"
        ),
        "browse": (
            "SELECT * FROM effectonce.effects WHERE state = 'in_doubt' ORDER BY created_at, key"
            " LIMIT 100"
        ),
        "rival": (
            "SELECT * FROM effectonce.effects WHERE latch = 'x' AND latch <> '' AND (state IN"
            " ('dispatched', 'in_doubt') OR (state = 'claimed' AND sends > 0))"
        ),
    }.items():
        plans[name] = "\n".join(
            row[0]
            for row in postgres.execute(f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) {sql}", database)
        )

    assert "effects_due" in plans["sweep"]
    assert "rows=0 " in plans["sweep"], "what is in doubt is never due"
    assert "effects_rare" in plans["browse"]
    assert "effects_in_the_air" in plans["rival"]
    assert len(store.apply(ops.Browse("in_doubt"))) == 100
    store.close()


# ---------------------------------------------------------------- processes and loops

FORK = """
    import os, sys, asyncio
    from effectonce import Guard, current_effect
    from effectonce.stores.postgres import PostgresStore
    guard = Guard(PostgresStore({url!r}), cache=0)
    ran = []
    @guard.tool(kind="write", lease_s=5)
    def pay(who: str):
        ran.append(who)
        return who
    def call(who):
        with guard.step("chat", "pay " + who):
            return pay(who)
    assert call("parent before") == "parent before"
    asyncio.run(guard.store.aapply(__import__("effectonce._core.ops").
        _core.ops.Tally()))
    with guard.store.transaction() as transaction:
        transaction.connection.execute("CREATE TABLE half (n int)")
        pid = os.fork()
        if pid == 0:
            assert call("parent before") == "parent before" and len(ran) == 1
            assert call("child") == "child" and len(ran) == 2
            guard.store.close()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        transaction.connection.execute("INSERT INTO half VALUES (1)")
        transaction.commit()
    assert call("parent after") == "parent after"
    assert call("child") == "child" and "child" not in ran, ran
    with guard.store.transaction() as transaction:
        assert transaction.connection.execute("SELECT n FROM half").fetchall() == [(1,)]
"""


def test_a_fork_gets_its_own_connections_and_leaves_its_parents_alone(database):
    code = textwrap.dedent(FORK.format(url=database))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_several_event_loops_share_a_store(database):
    store, calls = PostgresStore(database), []

    async def main(n):
        _, pay = aguarded(store, calls)
        await asyncio.gather(*(pay(f"inv {n} {m}") for m in range(5)))
        return await pay("shared")

    def one_after_the_other(n):
        for m in range(3):
            asyncio.run(main(f"{n} {m}"))

    asyncio.run(main("first"))
    in_threads(partial(one_after_the_other, n) for n in range(3))

    assert calls.count("shared") == 1
    assert len(calls) == 51
    assert len(store._lanes) <= 3, "the connections of closed loops are given back"
    store.close()


def test_a_closed_store_opens_again(database):
    store, calls = PostgresStore(database), []
    _, pay = guarded(store, calls)
    _, apay = aguarded(store, calls)

    async def main():
        for _ in range(2):
            pay()
            await apay("async")
            with store.transaction():
                pass
            store.close()

    asyncio.run(main())
    assert calls == ["inv_1", "async"]
    store.close()


# ---------------------------------------------------------------- a pooler


@pytest.fixture(scope="module")
def pooler(postgres):
    with Pooler(postgres, sessions=3) as pooler:
        yield pooler


@pytest.fixture
def pooled(pooler, database):
    return pooler.url(database)


@pytest.mark.cover(1)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("check", CHECKS[::6], ids=lambda check: check.__name__)
def test_behind_a_transaction_pooler_it_conforms(check, mode, pooler, postgres):
    url = pooler.url(postgres.emptied())
    with Bench(lambda clock: PostgresStore(url, clock=clock), mode) as bench:
        check(bench)


def test_statements_that_a_pooler_loses_are_sent_in_full(pooled, database):
    stores = [PostgresStore(pooled) for _ in range(4)]
    # all at once: from now on there are three sessions, which take turns
    with contextlib.ExitStack() as transactions:
        for _ in range(3):
            transactions.enter_context(psycopg.connect(pooled)).execute("SELECT 1")
    for n in range(5):
        assert isinstance(stores[0].apply(claim(f"alone {n}")), ops.Held)
    assert not stores[0]._habits.named, "it met a session that did not know its statements"
    for turn in range(5):
        replies = race(stores, lambda n: claim(f"k{turn} {n}"))  # noqa: B023
        assert all(isinstance(reply, ops.Held) for reply in replies)
    refusing = PostgresStore(pooled, prepared=False)
    assert refusing.apply(ops.Tally()) == {"dispatched": 105}
    for store in (*stores, refusing):
        store.close()


def test_behind_a_pooler_commits_are_durable_and_no_session_is_changed(pooled, database, postgres):
    name = name_of(database)
    postgres.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    store = PostgresStore(pooled)
    store.apply(claim("k"))
    with store.transaction() as transaction:
        assert transaction.connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
        transaction.connection.execute("CREATE TABLE t (n int)")
        transaction.commit()
    for _ in range(4):
        assert postgres.execute("SHOW synchronous_commit", pooled) == [("off",)]
        assert postgres.execute("SHOW lock_timeout", pooled) == [("0",)]
    store.close()


# ---------------------------------------------------------------- a server that is killed


def test_a_server_that_is_killed_under_load_loses_nothing_that_it_acknowledged():
    with Postgres() as server:
        url, numbers = server.database(), itertools.count()
        stores = [PostgresStore(url) for _ in range(2)]
        stores[0].apply(ops.Tally())
        effects, told, stop = [], [], threading.Event()

        def load(store):
            guard, pay = guarded(store, effects)
            while not stop.is_set():
                invoice = f"inv {next(numbers)}"
                with contextlib.suppress(StoreUnavailable):
                    told.append((invoice, pay(invoice)))

        async def aload(store):
            guard, pay = aguarded(store, effects)
            while not stop.is_set():
                invoice = f"inv {next(numbers)}"
                with contextlib.suppress(StoreUnavailable):
                    told.append((invoice, await pay(invoice)))

        async def many(store):
            await asyncio.gather(*(aload(store) for _ in range(8)))

        crowd = [threading.Thread(target=load, args=(store,)) for store in stores for _ in range(2)]
        crowd.append(threading.Thread(target=lambda: asyncio.run(many(stores[0]))))
        for each in crowd:
            each.start()
        for _ in range(3):
            wanted = len(told) + 200
            while len(told) < wanted:
                threading.Event().wait(0.005)
            server.kill()
            server.start()
        wanted = len(told) + 50
        while len(told) < wanted:
            threading.Event().wait(0.005)
        stop.set()
        for each in crowd:
            each.join()

        assert len(effects) == len(set(effects)), "a duplicate"
        before = len(effects)
        lost, _, pay = [], *guarded(stores[0], effects)
        # one that was told without being recorded is in doubt or in flight, and never run again
        for invoice, receipt in told:
            with contextlib.suppress(InDoubt, InFlight):
                if pay(invoice) != receipt:
                    lost.append(invoice)
        assert lost == []
        assert len(effects) == before, "what was told is never run again"
        for store in stores:
            store.close()
