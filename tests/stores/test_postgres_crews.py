"""Those who carry jobs to the server: interrupted, late, cut off in the middle, with more to say
than fits a socket.
"""

import asyncio
import os
import select
import threading
import time

import psycopg
import pytest

from effectonce import StoreUnavailable
from effectonce._core import ops
from effectonce._core.record import Scene
from effectonce._core.rules import TABLE
from effectonce._core.transitions import transition
from effectonce._drivers import drive
from effectonce.stores import _roundtrip
from effectonce.stores.postgres import PostgresStore
from effectonce.stores.postgres import pool as crews
from effectonce.stores.postgres import statements as sql
from effectonce.stores.postgres import store as postgres
from effectonce.stores.postgres.batch import PendingQuery
from effectonce.stores.postgres.connection import ConnectionLost, connect
from effectonce.testing.conformance.bench import LEASE_S, TRANSACTED, request, terms
from tests.stores.helpers import claim

BIG = os.urandom(1 << 20) * 16  # more than a socket holds


@pytest.fixture
def store(database):
    store = PostgresStore(database, connections=1)
    store.apply(ops.Tally())
    yield store
    store.close()


def soon():
    return time.monotonic() + 60


# ---------------------------------------------------------------- threads


class Gate:
    """A lock whose holder is interrupted, or gives up, at the worst moment."""

    def __init__(self, *happens):
        self._happens = list(happens)

    def acquire(self, timeout=None):
        return self._happens.pop(0)() if self._happens else True

    def release(self):
        pass


def turn_with(monkeypatch, *happens):
    class Turn(crews._Turn):
        def __init__(self, jobs):
            super().__init__(jobs)
            self.gate = Gate(*happens)

    monkeypatch.setattr(crews, "_Turn", Turn)


def interrupted():
    raise KeyboardInterrupt


ANOTHER = frozenset({0})  # a thread that leads


def test_a_thread_that_finds_every_connection_busy_gives_up_in_time(database):
    store = PostgresStore(database, connections=1, timeout_s=0.1)
    store._crew._leaders = set(ANOTHER)
    with pytest.raises(
        StoreUnavailable, match=r"all 1 connections were busy all the time\. Nothing was sent"
    ):
        store.apply(claim("k"))
    store._crew._leaders.clear()
    store._timeout_s = 60.0
    assert isinstance(store.apply(claim("k")), ops.Held)
    store.close()


def test_a_thread_that_is_interrupted_while_it_waits_leaves_the_queue(store, monkeypatch):
    turn_with(monkeypatch, interrupted)
    store._crew._leaders = set(ANOTHER)
    with pytest.raises(KeyboardInterrupt):
        store.apply(claim("k"))
    assert not store._crew._waiting


def test_a_thread_that_is_interrupted_when_its_turn_comes_passes_it_on(store, monkeypatch):
    wire = store._crew._idle.pop()

    def given_and_interrupted():
        store._crew._hand_over(wire)
        raise KeyboardInterrupt

    turn_with(monkeypatch, given_and_interrupted)
    store._crew._leaders = set(ANOTHER)
    with pytest.raises(KeyboardInterrupt):
        store.apply(claim("k"))
    assert (store._crew._idle, store._crew._leaders) == ([wire], ANOTHER)


def test_a_thread_whose_job_was_taken_along_at_the_last_moment_waits_for_its_reply(
    store, monkeypatch
):
    taken = []
    turn_with(
        monkeypatch,
        lambda: taken.extend(store._crew._waiting.popleft().jobs),
        lambda: [job.refuse(ConnectionLost("it was lost on the way")) for job in taken],
    )
    store._crew._leaders = set(ANOTHER)
    with pytest.raises(StoreUnavailable, match="it was lost on the way"):
        store.apply(claim("k"))


def test_a_leader_that_was_interrupted_before_it_could_say_so_is_no_leader_any_more(database):
    """Signals strike anywhere. A thread leads once at a time, so one that comes again has ended."""
    store = PostgresStore(database, connections=1)
    store._crew._leaders = {threading.get_ident()}
    assert isinstance(store.apply(claim("k")), ops.Held)
    assert not store._crew._leaders
    store.close()


def test_a_leader_that_is_interrupted_tells_its_followers(store, monkeypatch):
    wire = store._crew._idle[0]
    monkeypatch.setattr(wire, "wait", lambda _: interrupted())
    leader = PendingQuery(_roundtrip.Read("k"), None, soon())
    follower = PendingQuery(_roundtrip.Read("other"), None, soon())
    store._crew._leaders = {threading.get_ident()}
    with pytest.raises(KeyboardInterrupt):
        store._crew._lead(store._crew._idle.pop(), [leader, follower])
    assert "interrupted" in str(follower.error)
    assert not store._crew._leaders
    assert isinstance(store.apply(claim("k")), ops.Held), "on a new connection"


# ---------------------------------------------------------------- wires


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_an_outcome_that_is_bigger_than_a_socket_arrives(store, colour):
    def apply(op):
        return store.apply(op) if colour == "sync" else asyncio.run(store.aapply(op))

    apply(claim("k"))
    assert apply(ops.Complete("k", "t", 1, BIG)) == ops.Applied(1)
    assert apply(claim("k")).outcome == BIG


def test_a_big_outcome_is_completed_in_an_async_transaction(store):
    store.apply(ops.Claim(request("k", on=TRANSACTED), "t", LEASE_S, dispatch=False))

    async def main():
        async with store.atransaction() as transaction:
            assert await transaction.complete(ops.Complete("k", "t", 1, BIG)) == ops.Applied(1)
            await transaction.commit()

    asyncio.run(main())
    assert store.apply(ops.Find("k")).outcome == BIG


END = sql.BoundStatement(sql.statement("SELECT pg_terminate_backend(pg_backend_pid())"), ())


@pytest.mark.parametrize("questions", [1, 2])
def test_a_connection_that_the_server_ends_in_the_middle_is_lost_not_refused(store, questions):
    wire = store._open(soon())
    with pytest.raises(ConnectionLost, match="terminat"):
        wire.ask([END] * questions, soon())
    wire.close()


def test_a_server_that_says_it_is_going_is_lost_not_refused(store):
    going = "DO $$ BEGIN RAISE EXCEPTION 'terminating' USING ERRCODE = '57P01'; END $$"
    wire = store._open(soon())
    with pytest.raises(ConnectionLost, match="terminating"):
        wire.ask_simple(going, soon())
    wire.close()


@pytest.mark.parametrize("ask", ["ask", "ask_simple"])
def test_a_connection_that_is_closed_is_lost(store, ask):
    wire = store._open(soon())
    wire.pgconn.finish()
    with pytest.raises(ConnectionLost, match="closed"):
        getattr(wire, ask)([END] if ask == "ask" else "SELECT 1", soon())


def test_a_connection_that_died_in_use_costs_one_call_and_is_replaced(store):
    def die(wire):
        wire.pgconn.finish()
        # so lately that it is not looked at, however slow this machine is
        wire._answered_at = time.monotonic() + 60.0

    store.apply(ops.Tally())
    die(store._crew._idle[0])
    with pytest.raises(StoreUnavailable):
        store.apply(claim("k"))
    assert isinstance(store.apply(claim("k")), ops.Held)

    async def main():
        await store.aapply(ops.Tally())
        (lanes,) = store._lanes.values()
        die(lanes._lanes[0].wire)
        with pytest.raises(StoreUnavailable):
            await store.aapply(claim("k2"))
        return await store.aapply(claim("k2"))

    assert isinstance(asyncio.run(main()), ops.Held)


def test_an_idle_connection_that_the_server_closed_costs_nothing(store, postgres, database):
    end_all = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND"
        " datname = current_database()"
    )

    def end(wire):
        postgres.execute(end_all, database)
        select.select([wire.fd], [], [])
        wire._answered_at = 0.0

    end(store._crew._idle[0])
    assert isinstance(store.apply(claim("k")), ops.Held)

    async def main():
        await store.aapply(ops.Tally())
        (lanes,) = store._lanes.values()
        (lane,) = lanes._lanes
        dropped, drop = asyncio.Event(), lane.drop
        lane.drop = lambda: (drop(), dropped.set())
        await asyncio.to_thread(postgres.execute, end_all, database)
        await dropped.wait()
        assert isinstance(await store.aapply(claim("k2")), ops.Held), "noticed when it was closed"
        end(lane.wire)
        assert isinstance(await store.aapply(claim("k3")), ops.Held), "noticed before it is used"

    asyncio.run(main())


def test_a_row_that_somebody_has_locked_holds_up_nobody_else(store, database):
    for key in ("locked", "free"):
        store.apply(claim(key))
    seen = store._perform(_roundtrip.Read("locked"), soon())
    free = PendingQuery(_roundtrip.Finish(ops.Complete("free", "t", 1, b"done")), None, soon())
    with psycopg.connect(database) as somebody:
        somebody.execute("SELECT FROM effectonce.effects WHERE key = 'locked' FOR UPDATE")
        locked = PendingQuery(
            _roundtrip.CompareAndSwap("locked", seen.revision, seen.record),
            None,
            time.monotonic() + 0.5,
        )
        store._crew.do([locked, free])

    assert (free.error, free.reply) == (None, True)
    assert "no answer in time" in str(locked.error)
    assert store.apply(ops.Find("free")).state == "completed"


def test_new_records_of_several_callers_are_written_together(store):
    jobs = []
    for key in ("one", "other"):
        op = ops.Claim(request(key), "t", LEASE_S, dispatch=False)
        record = transition(None, op, Scene(0.0)).after
        jobs.append(PendingQuery(_roundtrip.InsertNew(record), None, soon()))

    store._crew.do(jobs)

    assert [job.error for job in jobs] == [None, None]
    assert store.apply(ops.Tally()) == {"claimed": 2}


def test_a_row_that_is_locked_for_a_moment_is_waited_for(store, database):
    for key in ("locked", "free"):
        store.apply(claim(key))
    seen = store._perform(_roundtrip.Read("locked"), soon())
    locked = PendingQuery(
        _roundtrip.CompareAndSwap("locked", seen.revision, seen.record), None, soon()
    )
    free = PendingQuery(_roundtrip.Finish(ops.Complete("free", "t", 1, b"done")), None, soon())
    with psycopg.connect(database) as somebody:
        somebody.execute("SELECT FROM effectonce.effects WHERE key = 'locked' FOR UPDATE")
        free.notify = lambda _: somebody.rollback()
        store._crew.do([locked, free])

    assert (locked.reply, free.reply) == (True, True)


# ---------------------------------------------------------------- event loops


def test_an_async_caller_whose_time_was_over_before_its_turn_is_told(store):
    async def main():
        await store.aapply(ops.Tally())
        (lanes,) = store._lanes.values()
        job = PendingQuery(_roundtrip.Read("k"), None, time.monotonic() - 1)
        await lanes.do([job])
        return job

    assert "busy all the time" in str(asyncio.run(main()).error)


def test_the_timer_rests_when_nobody_waits_and_goes_on_for_those_who_came_later(store):
    async def main():
        await store.aapply(ops.Tally())
        (lanes,) = store._lanes.values()
        (lane,) = lanes._lanes
        lane._look_at_the_clock()
        assert lane._watch is None

        waits = asyncio.ensure_future(store.aapply(ops.Tally()))
        await asyncio.sleep(0)
        lane._watch = None
        lane._look_at_the_clock()
        assert lane._watch is not None
        return await waits

    assert asyncio.run(main()) == {}


def test_callers_whose_connection_is_cancelled_with_all_tasks_are_told(database):
    """A shutdown that cancels every task also cancels the one that connects for all."""
    store, ready = PostgresStore(database, connections=1), threading.Event()
    open_, store._open = store._open, lambda give_up_at: (ready.wait(60), open_(give_up_at))[1]

    async def main():
        waits = asyncio.create_task(store.aapply(ops.Tally()))
        await asyncio.sleep(0)
        (lanes,) = store._lanes.values()
        lanes._lanes[0]._connecting.cancel()
        with pytest.raises(StoreUnavailable, match="was cancelled"):
            await asyncio.wait_for(waits, 60)
        ready.set()
        return await asyncio.wait_for(store.aapply(ops.Tally()), 60)

    assert asyncio.run(main()) == {}
    store.close()


def test_a_name_that_takes_too_long_to_look_up_does_not_hold_up_an_event_loop(database):
    store, ready = PostgresStore(database, timeout_s=0.1), threading.Event()
    open_, store._open = store._open, lambda give_up_at: (ready.wait(30), open_(give_up_at))[1]

    async def main():
        with pytest.raises(StoreUnavailable, match="no connection in time"):
            await store.aapply(ops.Tally())
        ready.set()

    asyncio.run(main())
    store.close()


def test_a_connection_that_dies_as_soon_as_it_is_there_is_told(database):
    store = PostgresStore(database, connections=1)
    open_ = store._open

    def gone(*_, **__):
        raise ConnectionLost("the connection was closed")

    def dead(give_up_at):
        wire = open_(give_up_at)
        wire.send = gone
        return wire

    async def main():
        store._open = dead
        with pytest.raises(StoreUnavailable, match="Nothing was changed"):
            await store.aapply(ops.Tally())
        (lanes,) = store._lanes.values()
        lanes.open = open_
        return await store.aapply(ops.Tally())

    assert asyncio.run(main()) == {}
    store.close()


def test_reads_that_cannot_share_a_transaction_go_one_by_one(store):
    async def main():
        return await asyncio.gather(
            *(
                store.aapply(op)
                for op in (claim("k"), ops.Tally(), ops.Browse("dispatched"), ops.Sweep())
            )
        )

    held, counts, listed, swept = asyncio.run(main())
    assert isinstance(held, ops.Held)
    assert (counts, len(listed), swept) == ({"dispatched": 1}, 1, ops.Swept(0, 0, 0))


def test_a_store_that_is_closed_from_another_thread_leaves_a_busy_loop_its_connections(store):
    async def main():
        await store.aapply(ops.Tally())
        (lanes,) = store._lanes.values()
        lanes._lanes[0].busy = True
        await asyncio.to_thread(store.close)
        await asyncio.sleep(0)
        assert lanes._lanes[0].wire is not None
        lanes._lanes[0].busy = False
        lanes._drop()

    asyncio.run(main())


def test_a_read_that_a_stricter_isolation_level_refused_is_asked_again(store, postgres, database):
    postgres.execute(
        "CREATE SEQUENCE once; CREATE FUNCTION fickle() RETURNS text LANGUAGE plpgsql AS $$ BEGIN"
        " IF nextval('once') = 1 THEN RAISE EXCEPTION 'could not serialize' USING ERRCODE ="
        " '40001'; END IF; RETURN 'claimed'; END $$",
        database,
    )
    job = PendingQuery(_roundtrip.Counted(), None, soon())
    job.queries = [sql.BoundStatement(sql.statement("SELECT fickle(), 1::int8"), ())]
    store._crew.do([job])
    assert job.reply == {"claimed": 1}


# ---------------------------------------------------------------- odds and ends


def test_terms_are_remembered_for_as_many_tools_as_there_are(monkeypatch):
    monkeypatch.setattr(sql, "TERMS_MAX", 2)
    for n in range(5):
        asked = request("k", on=terms(tool=f"tool {n}"))
        born = transition(None, ops.Claim(asked, "t", LEASE_S, dispatch=True), Scene(0.0)).after
        assert sql.bear(born, None).parameters[11] == f"tool {n}".encode()
    assert len(sql._terms_seen) <= 2


def test_a_record_that_never_stops_changing_is_given_up():
    changing = iter(range(1000))

    def perform(exchange):
        if isinstance(exchange, _roundtrip.CompareAndSwap):
            return False
        asked = request("k")
        born = transition(None, ops.Claim(asked, "t", LEASE_S, dispatch=True), Scene(0.0)).after
        return _roundtrip.SeenRecord(0.0, born, next(changing) + 1)

    with pytest.raises(StoreUnavailable, match="changed 100 times"):
        drive(_roundtrip.answer(ops.Renew("k", "t", 1, LEASE_S), TABLE), perform)


def test_a_child_starts_anew(database):
    """What happens after a fork, seen from inside: the parent's sockets are let go, and nothing
    is said on them.
    """
    store = PostgresStore(database)
    store.apply(ops.Tally())
    with store.transaction():
        pass
    wires = list(store._wires)
    kept = [os.dup(wire.fd) for wire in wires]
    spoken = [wire.pgconn for wire in wires]
    closed = store._open(soon())
    closed.close()
    postgres._after_fork()
    for wire, fd in zip(wires, kept, strict=True):
        os.dup2(fd, wire.fd)  # as it still is in the parent
        os.close(fd)
    assert store._crew._idle == []
    assert isinstance(store.apply(claim("k")), ops.Held)
    assert all(pgconn.exec_(b"SELECT 1").status == 2 for pgconn in spoken), "the parent goes on"
    for wire in wires:
        wire.close()
    store.close()


def test_a_fork_closes_no_file_that_has_the_number_of_a_lost_connection(
    postgres, database, tmp_path
):
    """libpq closes the socket of a connection that it has lost; its number goes to whatever is
    opened next.
    """
    wire = connect(database, time.monotonic() + 30)
    number = wire.fd
    postgres.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()",
        database,
    )
    with pytest.raises(ConnectionLost):
        wire.ask_simple("SELECT 1", time.monotonic() + 30)

    with (tmp_path / "next").open("wb") as opened:
        assert opened.fileno() == number

        wire.leave()

        opened.write(b"still here")
    assert (tmp_path / "next").read_bytes() == b"still here"
