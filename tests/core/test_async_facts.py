"""What is different about async: cancellation, loops, and one colour beside the other."""

import asyncio
import contextlib
import functools

import pytest

from effectonce import (
    ContractViolation,
    Found,
    Guard,
    InDoubt,
    NotFound,
    Rejected,
    Retry,
    State,
    StoreUnavailable,
    current_effect,
)
from effectonce._core import ops
from effectonce.stores.memory import MemoryStore
from effectonce.stores.sqlite import SqliteStore
from effectonce.testing.clock import FakeClock
from tests.flaky import FlakyStore

QUICK = Retry(base_s=0, cap_s=0)


class GatedStore:
    """A memory store that lets each async op through only when the test says so, so that a test can cancel at every await."""

    def __init__(self, clock=None):
        self.inner = MemoryStore(clock=clock or FakeClock())
        self.capabilities = self.inner.capabilities
        self.waiting, self.log = [], []
        self.arrived = asyncio.Event()

    def apply(self, op):
        return self.inner.apply(op)

    async def aapply(self, op):
        self.log.append(type(op).__name__)
        gate = asyncio.get_running_loop().create_future()
        self.waiting.append(gate)
        self.arrived.set()
        await gate
        return self.inner.apply(op)

    async def arrival(self):
        await self.arrived.wait()
        self.arrived.clear()

    def open(self):
        for gate in self.waiting:
            if not gate.done():
                gate.set_result(None)
        self.waiting.clear()

    def close(self):
        pass


def states(store):
    return store.apply(ops.Tally())


async def opened_until_done(store, task):
    """Let ops through until the caller has ended."""
    while not task.done():
        store.open()
        await asyncio.sleep(0)
    return task


def guarded(store, body, **contract):
    guard = Guard(store, cache=0)

    @guard.tool(**({"kind": "write", "retry": QUICK} | contract))
    async def pay():
        return await body()

    async def call():
        async with guard.step("chat", "pay"):
            return await pay()

    return guard, pay, call


@pytest.mark.parametrize("cancels", [1, 2, 5])
def test_cancelled_while_claiming_nothing_is_sent_and_the_key_is_free(cancels):
    async def main():
        store, calls = GatedStore(), []

        async def body():
            calls.append(1)

        _, _, call = guarded(store, body)
        task = asyncio.create_task(call())
        await store.arrival()
        for _ in range(cancels):
            task.cancel()
            await asyncio.sleep(0)
        await opened_until_done(store, task)
        assert task.cancelled()
        assert calls == []
        again = asyncio.create_task(call())
        await opened_until_done(store, again)
        assert (calls, again.exception()) == ([1], None)

    asyncio.run(main())


@pytest.mark.parametrize("cancels", [1, 2, 5])
def test_cancelled_while_completing_the_outcome_is_recorded_first(cancels):
    async def main():
        store, calls = GatedStore(), []

        async def body():
            calls.append(1)
            return "receipt"

        guard, pay, call = guarded(store, body)
        task = asyncio.create_task(call())
        await store.arrival()
        store.open()
        await store.arrival()
        assert store.log[-1] == "Complete"
        for _ in range(cancels):
            task.cancel()
            await asyncio.sleep(0)
        await opened_until_done(store, task)
        assert task.cancelled()
        assert states(store) == {State.COMPLETED: 1}
        again = asyncio.create_task(call())
        await opened_until_done(store, again)
        assert (again.result(), calls) == ("receipt", [1])

    asyncio.run(main())


@pytest.mark.parametrize("cancels", [1, 3])
def test_cancelled_while_the_tool_runs_the_effect_is_in_doubt_not_failed(cancels):
    async def main():
        store, entered, calls = MemoryStore(), asyncio.Event(), []

        async def body():
            calls.append(1)
            entered.set()
            await asyncio.Event().wait()

        _, _, call = guarded(store, body)
        task = asyncio.create_task(call())
        await entered.wait()
        for _ in range(cancels):
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert states(store) == {State.IN_DOUBT: 1}
        with pytest.raises(InDoubt):
            await call()
        assert calls == [1]

    asyncio.run(main())


def test_a_time_out_around_the_call_is_a_time_out():
    async def main():
        store = MemoryStore()

        async def body():
            await asyncio.Event().wait()

        _, _, call = guarded(store, body)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await call()
        assert states(store) == {State.IN_DOUBT: 1}

    asyncio.run(main())


def test_cancelled_between_attempts_the_claim_is_let_go():
    async def main():
        store, calls = MemoryStore(), []

        async def body():
            calls.append(1)
            if len(calls) == 1:
                asyncio.current_task().cancel()
                raise ConnectionRefusedError

        _, _, call = guarded(store, body, retry=Retry(base_s=0.01, cap_s=0.01))
        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(call())
        await call()
        assert len(calls) == 2

    asyncio.run(main())


def test_cancelled_between_attempts_under_a_key_the_claim_is_let_go():
    async def main():
        store, calls = MemoryStore(), []

        async def body():
            calls.append(1)
            if len(calls) == 1:
                asyncio.current_task().cancel()
                raise TimeoutError

        _, _, call = guarded(store, body, downstream="key", retry=Retry(base_s=0.01, cap_s=0.01))
        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(call())
        await call()
        assert len(calls) == 2

    asyncio.run(main())


def test_cancelled_while_waiting_for_somebody_else_nothing_changes():
    async def main():
        store, entered, leave = MemoryStore(), asyncio.Event(), asyncio.Event()

        async def body():
            entered.set()
            await leave.wait()
            return "receipt"

        _, _, call = guarded(store, body)
        first, second = asyncio.create_task(call()), asyncio.create_task(call())
        await entered.wait()
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        leave.set()
        assert await first == "receipt"

    asyncio.run(main())


def test_a_loop_that_is_closed_in_the_middle_leaves_a_recoverable_record():
    clock = FakeClock()
    store, entered = MemoryStore(clock=clock), asyncio.Event()

    async def body():
        entered.set()
        await asyncio.Event().wait()

    _, _, call = guarded(store, body, downstream="key")
    loop = asyncio.new_event_loop()
    task = loop.create_task(call())
    loop.run_until_complete(entered.wait())
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.close()
    assert states(store).keys() <= {State.DISPATCHED, State.CLAIMED}


def test_a_caller_whose_loop_died_with_a_write_on_its_way_loses_nothing(tmp_path):
    store = SqliteStore(tmp_path / "effects.db")

    async def abandoned():
        for n in range(20):
            request = ops.Request(f"k{n}", "f", guard._tool("pay").terms, "main")
            asyncio.ensure_future(store.aapply(ops.Claim(request, "t", 30, dispatch=True)))  # noqa: RUF006
        await asyncio.sleep(0)

    guard = Guard(store)

    @guard.tool(kind="write")
    async def pay():
        return 1

    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(abandoned())

    async def call():
        async with guard.step("chat", "pay"):
            return await pay()

    assert asyncio.run(call()) == 1
    store.close()


def test_both_colours_share_one_guard_and_one_store(tmp_path):
    guard = Guard(f"sqlite:///{tmp_path}/effects.db", cache=0)
    calls = []

    @guard.tool(kind="write", name="pay")
    def pay(amount: int):
        calls.append("sync")
        return amount

    with guard.step("chat", "pay"):
        assert pay(1) == 1

    other = Guard(f"sqlite:///{tmp_path}/effects.db", cache=0)

    @other.tool(kind="write", name="pay")
    async def apay(amount: int):
        calls.append("async")
        return amount

    async def main():
        async with other.step("chat", "pay"):
            return await other.call(apay, {"amount": 1})

    assert asyncio.run(main()).replayed
    assert calls == ["sync"]


def test_tasks_of_one_loop_share_one_effect(tmp_path):
    async def main():
        guard, calls = Guard(f"sqlite:///{tmp_path}/effects.db", cache=0), []

        @guard.tool(kind="write", downstream="key")
        async def pay(amount: int):
            calls.append(current_effect().downstream_key)
            await asyncio.sleep(0)
            return {"amount": amount}

        async with guard.step("chat", "pay"):
            results = await asyncio.gather(*(pay(5) for _ in range(64)))
        assert results == [{"amount": 5}] * 64
        assert len(calls) == 1

    asyncio.run(main())


def test_an_async_probe_and_fallback_and_settling():
    async def main():
        guard = Guard("memory://", cache=0)

        @guard.tool(kind="write", downstream="probe", retry=QUICK)
        async def pay(invoice: int):
            raise TimeoutError

        desk_open = False

        @pay.probe
        async def find(invoice: int):
            return Found(f"receipt {invoice}") if desk_open else NotFound()

        @guard.tool(kind="write", retry=QUICK)
        async def mail():
            raise TimeoutError

        @mail.fallback
        async def sorry(error):
            return error.code

        async with guard.step("chat", "pay"):
            with pytest.raises(InDoubt):
                await pay(1)
        async with guard.step("chat", "mail"):
            assert await mail() == "OUTCOME_UNKNOWN"
        assert guard.reconcile().skipped == 2
        desk_open = True
        done = await guard.areconcile()
        assert (done.settled, done.skipped) == (1, 1)
        async with guard.step("chat", "pay"):
            assert await pay(1) == "receipt 1"

    asyncio.run(main())


def test_async_reads_retry_and_fall_back():
    async def main():
        guard, calls = Guard("memory://"), []

        @guard.tool(kind="read", retry=QUICK)
        async def balance():
            calls.append(1)
            if len(calls) < 2:
                raise TimeoutError
            return 100

        @guard.tool(kind="read", retry=QUICK)
        async def broken():
            raise TimeoutError

        assert await balance() == 100
        with pytest.raises(Exception, match="did not run"):
            await broken()

        @broken.fallback
        async def stale(error):
            return "stale"

        assert await broken() == "stale"

    asyncio.run(main())


def test_an_async_read_that_is_cancelled_between_attempts_ends():
    async def main():
        guard = Guard("memory://")

        @guard.tool(kind="read", retry=Retry(base_s=60, cap_s=60))
        async def balance():
            asyncio.current_task().cancel()
            raise TimeoutError

        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(balance())

    asyncio.run(main())


def test_an_async_store_failure_sends_nothing():
    async def main():
        store, calls = FlakyStore(), []

        async def body():
            calls.append(1)

        _, _, call = guarded(store, body)
        store.fail(ops.Claim, times=3)
        with pytest.raises(StoreUnavailable):
            await call()
        assert calls == []

    asyncio.run(main())


def test_async_callables_behind_objects_and_partials_are_async():
    guard = Guard("memory://")

    class Payer:
        __name__ = "payer"

        async def __call__(self, amount: int):
            return amount

    async def pay(currency, amount):
        return (currency, amount)

    async def main():
        partial = functools.partial(pay, "EUR")
        partial.__name__ = "pay_eur"
        async with guard.step("chat", "pay"):
            assert await guard.tool(kind="write")(Payer())(5) == 5
            assert await guard.tool(kind="write", name="pay_eur")(partial)(amount=5) == ("EUR", 5)

    asyncio.run(main())


# ---------------------------------------------------------------- transactions


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
    store = SqliteStore(tmp_path / "effects.db", busy_s=0.5)

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
    store = SqliteStore(tmp_path / "effects.db", busy_s=5)

    async def main():
        with store.transaction():
            waiting = asyncio.create_task(enter())
            await asyncio.sleep(0)  # its thread is started; whether it polls already does not matter
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        await enter()
        begin = store._begin

        def failing():
            raise StoreUnavailable("locked")

        store._begin = failing
        waiting = asyncio.create_task(enter())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        store._begin = begin
        await enter()

    async def enter():
        async with store.atransaction() as transaction:
            ledger(transaction.connection)
            transaction.commit()

    asyncio.run(main())
    assert rows(store) == 2
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


def test_cancelled_while_the_store_is_repeated_the_call_ends():
    async def main():
        for op_type in (ops.Claim, ops.Complete):
            store = FlakyStore()
            _, _, call = guarded(store, lambda: asyncio.sleep(0, "receipt"))
            store.fail(op_type, times=1000)
            task = asyncio.create_task(call())
            for _ in range(20):  # enough turns of the loop to be waiting between two tries
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())


def test_an_async_caller_hears_of_a_failing_file(tmp_path):
    async def main():
        guard = Guard(f"sqlite:///{tmp_path}/no/effects.db")

        @guard.tool(kind="write")
        async def pay():
            pytest.fail("it must not run")

        async with guard.step("chat", "pay"):
            with pytest.raises(StoreUnavailable, match="there is no folder"):
                await pay()
        with pytest.raises(StoreUnavailable):
            async with guard.store.atransaction():
                pass

    asyncio.run(main())


def test_a_cancelled_caller_is_not_answered(tmp_path):
    async def main():
        store = SqliteStore(tmp_path / "effects.db")
        await store.aapply(ops.Tally())
        with store._lock:
            task = asyncio.create_task(store.aapply(ops.Tally()))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert await store.aapply(ops.Tally()) == {}
        store.close()

    asyncio.run(main())
