"""A tool's own rows and its record in one COMMIT, on a connection that psycopg's users know."""

import asyncio
import contextlib
import threading

import psycopg
import pytest

from effectonce import (
    ContractViolation,
    GaveUp,
    Guard,
    Rejected,
    Retry,
    StoreUnavailable,
    current_effect,
)
from effectonce._core import ops
from effectonce.stores.base import RolledBack
from effectonce.stores.postgres import PostgresStore
from effectonce.stores.postgres import transaction as lending
from effectonce.testing.clock import FakeClock
from effectonce.testing.conformance.bench import LEASE_S, TRANSACTED, request
from tests.servers.postgres import through
from tests.stores.helpers import name_of, wait_for_a_lock

CONTRACT = {
    "kind": "irreversible",
    "downstream": "transaction",
    "retry": Retry(attempts=3, base_s=0, cap_s=0),
}
BOOKING = request("booking", on=TRANSACTED, latch="step")
CREDIT = ops.Claim(request("credit", latch="step"), "r", LEASE_S, dispatch=True)
DONE = ops.Complete("booking", "t", 1, b"done")


@pytest.fixture
def ledger(postgres, database):
    postgres.execute("CREATE TABLE ledger (n serial, amount int)", database)
    return lambda: [
        row[0] for row in postgres.execute("SELECT amount FROM ledger ORDER BY n", database)
    ]


@pytest.fixture
def store(database):
    store = PostgresStore(database)
    yield store
    store.close()


def insert(amount):
    return "INSERT INTO ledger (amount) VALUES (%s)", (amount,)


def answer_to(amount):
    if amount < 0:
        raise ValueError("a bug after the insert")
    if amount == 0:
        raise Rejected("nothing to book")
    return amount


class Awaitable:
    """A sync connection whose methods are awaited: one body serves both colours."""

    def __init__(self, connection):
        self._connection = connection

    def __getattr__(self, name):
        value = getattr(self._connection, name)
        if not callable(value):
            return value

        async def call(*args):
            return value(*args)

        return call


def booking(store, body=None, **contract):
    """A sync tool that inserts a row, and a call of it in its step."""
    guard = Guard(store, cache=0)

    @guard.tool(**(CONTRACT | contract))
    def book(amount: int):
        connection = current_effect().connection
        connection.execute(*insert(amount))
        if body is not None:
            with contextlib.suppress(StopIteration):  # it waits for nothing
                body(Awaitable(connection)).send(None)
        return answer_to(amount)

    def call(amount):
        with guard.step("chat", f"book {amount}"):
            return book(amount)

    return guard, call


def abooking(store, body=None, **contract):
    """The same as an async tool, called in a loop of its own."""
    guard = Guard(store, cache=0)

    @guard.tool(**(CONTRACT | contract))
    async def book(amount: int):
        connection = current_effect().connection
        await connection.execute(*insert(amount))
        if body is not None:
            await body(connection)
        return answer_to(amount)

    async def acall(amount):
        async with guard.step("chat", f"book {amount}"):
            return await book(amount)

    return guard, lambda amount: asyncio.run(acall(amount))


BOTH = pytest.mark.parametrize("make", [booking, abooking], ids=["sync", "async"])


# ---------------------------------------------------------------- together or not at all


@BOTH
def test_effect_and_record_commit_together(store, ledger, make):
    guard, book = make(store)
    assert [book(5), book(5), book(7)] == [5, 5, 7]
    for _ in range(2):
        with pytest.raises(ValueError, match="a bug"):
            book(-1)
    for _ in range(2):
        with pytest.raises(Exception, match="nothing to book"):
            book(0)
    assert ledger() == [5, 7]


def test_the_connection_is_an_ordinary_one(store, ledger):
    guard = Guard(store, cache=0)

    @guard.tool(**CONTRACT)
    def book():
        connection = current_effect().connection
        with connection.transaction(), connection.cursor() as cursor:
            cursor.execute(*insert(70))
        with pytest.raises(psycopg.errors.DivisionByZero), connection.transaction():
            connection.execute("SELECT 1 / 0")
        return type(connection).__name__

    @guard.tool(**CONTRACT)
    async def abook():
        connection = current_effect().connection
        async with connection.transaction(), connection.cursor() as cursor:
            await cursor.execute(*insert(7))
        with pytest.raises(psycopg.errors.DivisionByZero):
            async with connection.transaction():
                await connection.execute("SELECT 1 / 0")
        return type(connection).__name__

    async def call():
        async with guard.step("chat", "async"):
            return await abook()

    with guard.step("chat", "sync"):
        assert book() == psycopg.Connection.__name__
    assert asyncio.run(call()) == psycopg.AsyncConnection.__name__
    assert ledger() == [70, 7]


@BOTH
@pytest.mark.parametrize("end", ["commit", "rollback", "close"])
def test_a_tool_cannot_end_the_transaction(store, ledger, make, end):
    async def body(connection):
        await getattr(connection, end)()

    _, book = make(store, body)
    with pytest.raises(ContractViolation, match="not the tool's to end"):
        book(7)
    assert ledger() == []


@BOTH
@pytest.mark.parametrize(
    "script",
    [
        "COMMIT",
        "COMMIT; BEGIN",
        "COMMIT AND CHAIN",
        "END",
        "SET CONSTRAINTS ALL IMMEDIATE; COMMIT",
        (
            "SET CONSTRAINTS ALL IMMEDIATE; SET CONSTRAINTS ALL DEFERRED; SET CONSTRAINTS ALL"
            " IMMEDIATE; COMMIT"
        ),
    ],
)
def test_a_commit_in_the_tools_sql_is_refused_and_leaves_nothing(store, ledger, make, script):
    async def body(connection):
        await connection.execute(script)

    _, book = make(store, body, wait_s=0)
    for _ in range(2):
        with pytest.raises(
            psycopg.errors.InvalidTransactionTermination, match="not the tool's to end"
        ):
            book(7)
    assert ledger() == []


@BOTH
@pytest.mark.parametrize("again", ["INSERT INTO ledger (amount) VALUES (8)", "BEGIN"])
@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_a_tool_that_ends_its_transaction_and_goes_on_writes_nothing(
    store, ledger, make, end, again
):
    """A helper that tries again after any error: the transaction that it begins then is
    nobody's, and read-only.
    """

    async def body(connection):
        with contextlib.suppress(psycopg.errors.InvalidTransactionTermination):
            await connection.execute(end)
        await connection.execute(again)
        await connection.execute("INSERT INTO ledger (amount) VALUES (9)")
        await connection.execute("COMMIT")

    _, book = make(store, body)
    # it looks like a server that is a standby by now, and is tried again
    with pytest.raises(GaveUp, match="read-only"):
        book(7)
    assert ledger() == []


@BOTH
@pytest.mark.parametrize("script", ["COMMIT", "ROLLBACK", "ROLLBACK; BEGIN"])
def test_a_tool_that_ends_the_transaction_in_its_sql_is_found_out(store, ledger, make, script):
    async def body(connection):
        with contextlib.suppress(psycopg.errors.InvalidTransactionTermination):
            await connection.execute(script)

    _, book = make(store, body, wait_s=0)
    for _ in range(2):  # the second call does not wait for the lease of the first
        with pytest.raises(ContractViolation, match="ended the transaction that was lent to it"):
            book(7)
    assert ledger() == []


@BOTH
def test_constraints_may_be_checked_early(store, ledger, make):
    script = (
        "SET CONSTRAINTS ALL IMMEDIATE; SET CONSTRAINTS ALL DEFERRED; SET CONSTRAINTS ALL IMMEDIATE"
    )

    async def body(connection):
        await connection.execute(script)

    _, book = make(store, body)
    assert book(7) == 7
    assert ledger() == [7]


def test_a_role_that_may_only_use_our_tables_can_be_lent_a_transaction(
    store, ledger, database, postgres
):
    store.apply(ops.Tally())
    role = f"app_{name_of(database)}"
    postgres.execute(
        f"CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA effectonce TO {role}; GRANT SELECT ON"
        f" effectonce.migrations TO {role};GRANT SELECT, INSERT, UPDATE, DELETE ON"
        f" effectonce.effects TO {role};GRANT INSERT, SELECT ON ledger TO {role}; GRANT USAGE ON"
        f" SEQUENCE ledger_n_seq TO {role}",
        database,
    )
    theirs = PostgresStore(database.replace("://test@", f"://{role}@"))
    _, book = booking(theirs)
    assert book(1) == 1
    assert ledger() == [1]
    theirs.close()


def test_what_marks_a_lent_transaction_leaves_nothing_behind(store, ledger, database, postgres):
    async def body(connection):
        await connection.execute("SET CONSTRAINTS ALL IMMEDIATE")

    _, book = booking(store, body)
    assert [book(1), book(2)] == [1, 2]
    assert postgres.execute("SELECT count(*) FROM effectonce.lent", database) == [(0,)]


@BOTH
def test_a_tool_that_swallows_a_database_error_is_not_taken_for_done(store, ledger, make):
    async def body(connection):
        with pytest.raises(psycopg.errors.DivisionByZero):
            await connection.execute("SELECT 1 / 0")

    _, book = make(store, body, wait_s=0)
    for _ in range(2):
        with pytest.raises(ContractViolation, match="caught a database error and went on"):
            book(7)
    assert ledger() == []


@BOTH
def test_a_connection_that_a_tool_kept_is_closed_and_its_session_is_washed(store, ledger, make):
    kept = []

    async def body(connection):
        kept.append(connection)
        await connection.execute("SET statement_timeout = 1234; CREATE TEMP TABLE mine (n int)")

    _, book = make(store, body)
    assert book(7) == 7
    assert kept[0].closed
    with store.transaction() as transaction:
        assert transaction.connection.execute("SHOW statement_timeout").fetchone() == ("0",)
        assert transaction.connection.execute("SELECT to_regclass('mine')").fetchone() == (None,)


# ---------------------------------------------------------------- owners and rivals


def test_a_transaction_of_an_owner_that_lost_its_record_is_rolled_back(database, ledger):
    clock = FakeClock()
    store = PostgresStore(database, clock=clock)
    thefts = []

    async def steal(_):
        if not thefts:
            clock.advance(LEASE_S * 10)
            asked = store.apply(ops.Browse("claimed"))[0].request
            thefts.append(store.apply(ops.Claim(asked, "thief", LEASE_S, dispatch=False)))
            clock.advance(LEASE_S * 10)

    _, book = booking(store, steal)
    assert book(5) == 5
    assert thefts[0].epoch == 2
    assert ledger() == [5]
    store.close()


def test_a_completion_in_a_transaction_and_a_rival_claim_are_one_after_the_other(
    store, database, postgres
):
    """Between `complete` and COMMIT nobody sees the record, but a claim of another call of the
    step waits for it.
    """
    store.apply(ops.Claim(BOOKING, "t", LEASE_S, dispatch=False))
    replies = []
    rival = threading.Thread(target=lambda: replies.append(store.apply(CREDIT)))
    with store.transaction() as transaction:
        assert transaction.complete(DONE) == ops.Applied(1)
        rival.start()
        wait_for_a_lock(postgres, database)
        assert replies == []
        transaction.commit()
    rival.join()
    assert replies == [ops.Held(1, 1, dispatched=True)]


def test_a_rival_that_was_claimed_first_refuses_the_completion(store):
    store.apply(ops.Claim(BOOKING, "t", LEASE_S, dispatch=False))
    with store.transaction() as transaction:
        store.apply(CREDIT)
        assert transaction.complete(DONE) == ops.Refused("claimed")
    assert store.apply(ops.Find("booking")).state == "claimed"


def test_a_rival_that_comes_between_look_and_write_refuses_the_completion(store):
    """The look finds nobody; the unique index of what is in the air has the last word."""
    store.apply(ops.Claim(BOOKING, "t", LEASE_S, dispatch=False))
    with store.transaction() as transaction:
        perform = transaction._perform

        def beaten(exchange):
            reply = perform(exchange)
            if type(exchange).__name__ == "Read":
                store.apply(CREDIT)
            return reply

        transaction._perform = beaten
        assert transaction.complete(DONE) == ops.Refused(None)


def test_of_two_transactions_for_one_record_one_stays(store, database, postgres, ledger):
    store.apply(ops.Claim(BOOKING, "t", LEASE_S, dispatch=False))
    replies = []

    def second():
        with store.transaction() as transaction:
            transaction.connection.execute(*insert(2))
            replies.append(transaction.complete(DONE))

    with store.transaction() as transaction:
        transaction.connection.execute(*insert(1))
        assert transaction.complete(DONE) == ops.Applied(1)
        other = threading.Thread(target=second)
        other.start()
        wait_for_a_lock(postgres, database)
        transaction.commit()
    other.join()
    assert replies == [ops.Refused("completed")]
    assert ledger() == [1]


# ---------------------------------------------------------------- answers that get lost


@BOTH
def test_a_commit_whose_answer_was_lost_is_resolved_by_the_record(database, proxy, ledger, make):
    store = PostgresStore(through(proxy, database))
    _, book = make(store)
    assert book(1) == 1
    proxy.lose_the_answer_to(b"COMMIT\0")
    assert book(5) == 5
    assert proxy.lost.is_set()
    assert ledger() == [1, 5]
    store.close()


@BOTH
def test_a_transaction_that_breaks_before_its_commit_leaves_nothing(database, proxy, ledger, make):
    cuts = []

    store = PostgresStore(through(proxy, database))

    async def cut(_):
        if not cuts:
            cuts.append(1)
            proxy.cut()

    _, book = make(store, cut, lease_s=0.2)
    with pytest.raises(StoreUnavailable, match="Nothing of this transaction stays"):
        book(5)
    assert ledger() == []
    assert book(5) == 5
    store.close()


@BOTH
def test_a_server_that_hangs_at_begin_sends_nothing(database, proxy, ledger, make):
    store = PostgresStore(through(proxy, database))
    _, book = make(store)
    book(1)
    proxy.lose_the_answer_to(b"BEGIN")
    with pytest.raises(StoreUnavailable, match="Nothing was sent"):
        book(2)
    assert ledger() == [1]
    store.close()


@BOTH
def test_a_deferred_constraint_that_fails_at_commit_leaves_nothing(
    database, postgres, ledger, make
):
    postgres.execute(
        "ALTER TABLE ledger ADD UNIQUE (amount) DEFERRABLE INITIALLY DEFERRED", database
    )
    store, runs = PostgresStore(database), []

    async def twice(connection):
        runs.append(1)
        await connection.execute(*insert(5))

    _, book = make(store, twice)
    with pytest.raises(StoreUnavailable, match=r"duplicate key.*Nothing of this transaction stays"):
        book(5)
    assert (ledger(), runs) == ([], [1])
    store.close()


@BOTH
def test_a_server_that_is_gone_after_commit_was_asked_for_is_not_called_unsent(
    database, proxy, ledger, make
):
    store = PostgresStore(through(proxy, database))
    _, book = make(store)
    book(1)
    proxy.lose_the_answer_to(b"COMMIT\0")
    perform = store._perform

    def deaf(exchange, give_up_at):
        if proxy.lost.is_set():
            proxy.cut()
            raise lending.ConnectionLost("gone")
        return perform(exchange, give_up_at)

    async def adeaf(exchange, give_up_at, lanes):
        return deaf(exchange, give_up_at)

    store._perform, store._aperform = deaf, adeaf
    with pytest.raises(GaveUp, match=r"may have run.*the record tells"):
        book(5)
    del store._perform, store._aperform
    assert ledger() == [1, 5]
    assert book(5) == 5
    store.close()
    assert ledger() == [1, 5]


def test_transactions_wait_for_a_free_connection_and_say_so_in_the_end(database, ledger):
    store = PostgresStore(database, transactions=1)
    crowded = r"all 1 connections for transactions were busy for 0\.2 s\. Nothing was sent"
    with store.transaction():
        store._lending._timeout_s = 0.2
        with pytest.raises(StoreUnavailable, match=crowded):
            store.transaction().__enter__()
        store._lending._timeout_s = 60.0

    async def main():
        async with store.atransaction():
            store._lending._timeout_s = 0.2
            with pytest.raises(StoreUnavailable, match=crowded):
                await store.atransaction().__aenter__()
            store._lending._timeout_s = 60.0
        async with store.atransaction() as transaction:
            await transaction.connection.execute("SELECT 1")

    asyncio.run(main())
    with store.transaction() as transaction:
        transaction.connection.execute("SELECT 1")
    store.close()


def test_a_cancelled_transaction_is_rolled_back_and_its_connection_is_free_again(database, ledger):
    store = PostgresStore(database, transactions=1)

    async def main():
        entered, guard = asyncio.Event(), Guard(store, cache=0)

        @guard.tool(kind="write", downstream="transaction")
        async def book(wait: int):
            await current_effect().connection.execute(*insert(wait))
            entered.set()
            if wait:
                await asyncio.Event().wait()

        async def call(wait):
            async with guard.step("chat", f"book {wait}"):
                await book(wait)

        task = asyncio.create_task(call(1))
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await call(0)

    asyncio.run(main())
    assert ledger() == [0]
    store.close()


def test_a_caller_that_is_cancelled_after_its_commit_is_told_of_as_what_it_did(
    database, proxy, ledger
):
    """The session is washed after COMMIT. Who is cancelled while that takes its time has
    executed its effect, not been refused.
    """
    told = []

    async def main(store, proxy):
        guard = Guard(store, cache=0, observers=[told.append])

        @guard.tool(kind="write", downstream="transaction")
        async def book(amount: int):
            await current_effect().connection.execute(*insert(amount))

        async def call():
            async with guard.step("chat", "book"):
                await book(1)

        proxy.hold_the_answer_to(b"DISCARD ALL")
        task = asyncio.create_task(call())
        await asyncio.to_thread(proxy.held.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    store = PostgresStore(through(proxy, database))
    asyncio.run(main(store, proxy))
    store.close()
    assert ledger() == [1]
    assert [event.outcome for event in told if event.name == "call"] == ["executed"]


@BOTH
def test_a_server_that_hangs_at_commit_is_resolved_by_the_record(database, proxy, ledger, make):
    """The answer to COMMIT does not come in time; the record says whether it happened."""
    store = PostgresStore(through(proxy, database))
    _, book = make(store, lease_s=5)
    assert book(1) == 1
    store._lending._timeout_s = 0.3
    proxy.hold_the_answer_to(b"COMMIT\0")
    assert book(5) == 5
    assert ledger() == [1, 5]
    store.close()


@BOTH
def test_a_record_that_became_unreadable_while_the_tool_ran_leaves_nothing(
    database, postgres, ledger, make
):
    """As when a newer release has written to it."""
    store = PostgresStore(database)
    _, book = make(store)
    postgres.execute(SPOILING, database)

    with pytest.raises(StoreUnavailable, match=r"cannot read.*Nothing of this transaction stays"):
        book(5)
    assert ledger() == []
    store.close()


SPOILING = """
CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN UPDATE effectonce.effects SET terms = '{"kind": "from a newer release"}'; RETURN NULL; END $$;
CREATE TRIGGER spoil AFTER INSERT ON ledger EXECUTE FUNCTION spoil();
"""


@BOTH
def test_a_session_that_cannot_be_washed_is_thrown_away(database, proxy, ledger, make):
    store = PostgresStore(through(proxy, database))
    _, book = make(store)
    proxy.lose_the_answer_to(b"DISCARD ALL")
    assert book(1) == 1
    assert book(2) == 2
    assert len(store._lending._idle) == 1
    store.close()


@BOTH
def test_a_transaction_that_is_interrupted_while_it_ends_leaves_no_connection_behind(
    store, ledger, make, monkeypatch
):
    def interrupted(*_):
        raise KeyboardInterrupt

    _, book = make(store)
    book(1)
    monkeypatch.setattr(lending, "_ending", interrupted)
    with pytest.raises(KeyboardInterrupt):
        book(2)
    monkeypatch.undo()
    assert store._lending._idle == []
    assert book(3) == 3
    assert ledger() == [1, 2, 3]


def test_a_server_that_is_gone_cannot_begin_a_transaction(tmp_path):
    store = PostgresStore(f"postgresql:///db?host={tmp_path}&port=1", timeout_s=0.5)
    with pytest.raises(StoreUnavailable, match="Nothing was sent"):
        store.transaction().__enter__()

    async def main():
        with pytest.raises(StoreUnavailable, match="Nothing was sent"):
            await store.atransaction().__aenter__()

    asyncio.run(main())


def test_a_commit_that_turns_into_a_rollback_is_not_taken_for_one(store):
    with store.transaction() as transaction:
        with pytest.raises(psycopg.errors.DivisionByZero):
            transaction.connection.execute("SELECT 1 / 0")
        with pytest.raises(RolledBack, match="Nothing of this transaction stays"):
            transaction.commit()
    with store.transaction() as transaction:
        with pytest.raises(psycopg.errors.DivisionByZero):
            transaction.connection.execute("SELECT 1 / 0")
        with pytest.raises(RolledBack, match="the server rolled back instead"):
            lending._check_committed(
                transaction._loan.wire.ask_simple("COMMIT", transaction._loan.give_up_at())
            )


def test_an_async_rival_that_comes_between_look_and_write_refuses_the_completion(store):
    store.apply(ops.Claim(BOOKING, "t", LEASE_S, dispatch=False))

    async def main():
        async with store.atransaction() as transaction:
            perform = transaction._perform

            async def beaten(exchange):
                reply = await perform(exchange)
                if type(exchange).__name__ == "Read":
                    await store.aapply(CREDIT)
                return reply

            transaction._perform = beaten
            assert await transaction.complete(DONE) == ops.Refused(None)

    asyncio.run(main())


@BOTH
def test_a_connection_that_is_lost_under_the_tool_is_the_stores_failure_and_the_key_is_free(
    make, store, ledger, postgres
):
    losses = []

    async def cut(connection):
        if not losses:
            losses.append(connection.info.backend_pid)
            postgres.execute(f"SELECT pg_terminate_backend({connection.info.backend_pid})")
            await connection.execute("SELECT 1")

    _, call = make(store, cut, wait_s=0)
    with pytest.raises(StoreUnavailable, match="its connection was lost while the tool ran"):
        call(1)
    assert call(1) == 1  # at once: the claim was let go
    assert (len(losses), ledger()) == (1, [1])


def test_a_cancelled_tool_leaves_no_query_behind_on_the_server(store, ledger, postgres):
    def running():
        asked = (
            "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'SELECT"
            " pg_sleep%'"
        )
        return postgres.execute(asked)[0][0]

    async def main():
        guard = Guard(store, cache=0)

        @guard.tool(kind="write", downstream="transaction")
        async def book():
            await current_effect().connection.execute(*insert(1))
            await current_effect().connection.execute("SELECT pg_sleep(600)")

        async def call():
            async with guard.step("chat", "book"):
                await book()

        task = asyncio.create_task(call())
        while not await asyncio.to_thread(running):
            pass
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert (running(), ledger()) == (0, [])


def test_an_interrupt_goes_through_also_where_the_connection_was_lost(store, ledger, postgres):
    async def interrupted(connection):
        if not losses:
            losses.append(1)
            postgres.execute(f"SELECT pg_terminate_backend({connection.info.backend_pid})")
            with contextlib.suppress(psycopg.Error):
                await connection.execute("SELECT 1")
            raise KeyboardInterrupt

    losses = []
    _, call = booking(store, interrupted, wait_s=0)
    with pytest.raises(KeyboardInterrupt):
        call(1)
    assert call(1) == 1  # at once: the claim was let go
    assert ledger() == [1]
