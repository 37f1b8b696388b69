"""Async transactions: the effect and its record in one COMMIT, cancelled or not."""

import asyncio

import pytest

from effectonce import ContractViolation, Guard, PartialSuccess, Rejected, current_effect
from effectonce.stores.sqlite import SqliteStore
from effectonce.stores.sqlite.transaction import Handover


def ledger(connection):
    connection.execute("CREATE TABLE IF NOT EXISTS ledger (amount INTEGER)")
    connection.execute("INSERT INTO ledger VALUES (1)")


def rows(store):
    with store.transaction() as transaction:
        return transaction.connection.execute("SELECT count(*) FROM ledger").fetchone()[0]


def test_an_async_transaction_commits_effect_and_record_together(tmp_path):
    store = SqliteStore(tmp_path / "effects.db")

    async def main():
        guard = Guard(store, cache=0)

        @guard.tool(kind="irreversible", downstream="transaction", rejected=[KeyError])
        async def book(amount: int):
            ledger(current_effect().connection)
            if amount < 0:
                raise ValueError("a bug after the insert")
            if amount == 0:
                raise Rejected("nothing to book")
            return amount

        async with guard.step("chat", "book"):
            assert [await book(1), await book(1)] == [1, 1]
            with pytest.raises(ValueError, match="a bug"):
                await book(-1)
            with pytest.raises(ValueError, match="a bug"):
                await book(-1)
            with pytest.raises(Rejected):
                await book(0)
            assert (await guard.call(book, {"amount": 0})).replayed

    asyncio.run(main())
    assert rows(store) == 1
    store.close()


def test_a_cancelled_transaction_is_rolled_back_and_its_lock_is_given_back(tmp_path):
    store = SqliteStore(tmp_path / "effects.db", busy_s=60)

    async def main():
        guard, entered = Guard(store, cache=0), asyncio.Event()

        @guard.tool(kind="write", downstream="transaction")
        async def book(wait: int):
            ledger(current_effect().connection)
            entered.set()
            if wait:
                await asyncio.Event().wait()

        async def call(wait):
            async with guard.step("chat", "book"):
                await book(wait)

        task = asyncio.create_task(call(1))
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await call(0)

    asyncio.run(main())
    assert rows(store) == 1
    store.close()


def test_a_transaction_cancelled_while_it_waits_for_the_lock_gives_it_back(tmp_path):
    store = SqliteStore(tmp_path / "effects.db", busy_s=60)

    async def main():
        with store.transaction():
            waiting = asyncio.create_task(enter())
            # its thread is started; whether it polls already does not matter
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        await enter()

    async def enter():
        async with store.atransaction() as transaction:
            ledger(transaction.connection)
            await transaction.commit()

    asyncio.run(main())
    assert rows(store) == 1  # and the abandoned thread, whenever it got the lock, has given it back
    store.close()


def test_an_abandoned_transaction_is_ended_by_whoever_comes_last(tmp_path):
    store = SqliteStore(tmp_path / "effects.db", busy_s=0.05)

    too_late = Handover(store._begin, store._end)
    too_late.begin()
    too_late.abandon()
    gone_before = Handover(store._begin, store._end)
    gone_before.abandon()
    gone_before.begin()

    with store.transaction() as transaction:
        ledger(transaction.connection)
        transaction.commit()
    assert rows(store) == 1
    store.close()


def test_a_guarded_call_inside_a_transaction_is_refused(tmp_path):
    store = SqliteStore(tmp_path / "effects.db")
    guard = Guard(store, cache=0)

    @guard.tool(kind="write")
    def mail():
        pytest.fail("it must not run")

    @guard.tool(kind="write", downstream="transaction")
    def book():
        with pytest.raises(ContractViolation, match="inside the transaction of book"):
            mail()

    with guard.step("chat", "book"):
        book()
    store.close()


def test_many_async_transactions_do_not_block_each_others_commit(tmp_path):
    store = SqliteStore(tmp_path / "effects.db")

    async def main():
        guard = Guard(store, cache=0)

        @guard.tool(kind="write", downstream="transaction")
        async def book(n: int):
            ledger(current_effect().connection)
            await asyncio.sleep(0)
            return n

        async def call(n):
            async with guard.step("chat", n):
                return await book(n)

        assert await asyncio.gather(*(call(n) for n in range(24))) == list(range(24))

    asyncio.run(main())
    assert rows(store) == 24
    store.close()


def test_a_partial_success_inside_a_transaction_is_none(tmp_path):
    guard, ran = Guard(f"sqlite:///{tmp_path}/effects.db", spool=tmp_path / "spool"), []

    @guard.tool(kind="write", downstream="transaction")
    def book():
        ran.append(current_effect().connection.execute("CREATE TABLE booked (n)"))
        raise PartialSuccess("one of two", done=1, corrective_action="cancel the one")

    @guard.tool(kind="write", downstream="transaction")
    async def abook():
        ran.append(current_effect().connection.execute("CREATE TABLE booked (n)"))
        raise PartialSuccess("one of two", done=1, corrective_action="cancel the one")

    async def main():
        async with guard.step("chat", "async"):
            await abook()

    with guard.step("chat", "sync"), pytest.raises(ContractViolation, match="nothing of it stays"):
        book()
    with pytest.raises(ContractViolation, match="nothing of it stays"):
        asyncio.run(main())
    assert len(ran) == 2
    guard.close()
