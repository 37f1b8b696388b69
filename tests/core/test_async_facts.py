"""What is different about async: probes, reads, failing stores, and one colour beside the other."""

import asyncio
import functools

import pytest

from effectonce import Found, Guard, InDoubt, NotFound, Retry, StoreUnavailable, current_effect
from effectonce._core import ops
from effectonce.stores.sqlite import SqliteStore
from effectonce.testing.conformance.bench import request
from tests.core.helpers import QUICK, done, guarded, in_a_loop


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

    with other.step("chat", "pay"):
        assert done(other.call(apay, {"amount": 1})).replayed
    assert calls == ["sync"]


@in_a_loop
async def test_tasks_of_one_loop_share_one_effect(tmp_path):
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


@in_a_loop
async def test_an_async_probe_and_fallback_and_settling():
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


@in_a_loop
async def test_async_reads_retry_and_fall_back():
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
    with pytest.raises(Exception, match="broken failed: attempt 3"):
        await broken()

    @broken.fallback
    async def stale(error):
        return "stale"

    assert await broken() == "stale"


@in_a_loop
async def test_an_async_read_that_is_cancelled_between_attempts_ends():
    guard = Guard("memory://")

    @guard.tool(kind="read", retry=Retry(attempts=3, base_s=60, cap_s=60))
    async def balance():
        asyncio.current_task().cancel()
        raise TimeoutError

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(balance())


@in_a_loop
async def test_async_callables_behind_objects_and_partials_are_async():
    guard = Guard("memory://")

    class Payer:
        __name__ = "payer"

        async def __call__(self, amount: int):
            return amount

    async def pay(currency, amount):
        return (currency, amount)

    partial = functools.partial(pay, "EUR")
    partial.__name__ = "pay_eur"
    async with guard.step("chat", "pay"):
        assert await guard.tool(kind="write")(Payer())(5) == 5
        assert await guard.tool(kind="write", name="pay_eur")(partial)(amount=5) == ("EUR", 5)


@in_a_loop
async def test_an_async_caller_hears_of_a_failing_file(tmp_path):
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


@in_a_loop
async def test_a_cancelled_caller_is_not_answered(tmp_path):
    store = SqliteStore(tmp_path / "effects.db")
    await store.aapply(ops.Tally())
    with store._lock:
        task = asyncio.create_task(store.aapply(ops.Claim(request("k"), "t", 30, dispatch=True)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert isinstance(
        await store.aapply(ops.Claim(request("k2"), "t", 30, dispatch=True)), ops.Held
    )
    store.close()


@in_a_loop
async def test_a_replay_is_read_on_the_loop_and_a_failing_read_is_told(tmp_path):
    store = SqliteStore(tmp_path / "effects.db")
    guard, pay, call = guarded(store, lambda: asyncio.sleep(0, "receipt"))
    assert await call() == "receipt"
    with store._lock:  # the writer has gone back to sleep
        jobs, store._jobs = store._jobs, None
    assert await call() == "receipt"  # without a job for the writer
    store._jobs = jobs
    store._connect().db.execute("UPDATE effects SET state = 'paused'")
    with pytest.raises(StoreUnavailable, match="paused"):
        await call()
    store.close()
