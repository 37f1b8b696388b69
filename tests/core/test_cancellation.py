"""Cancelled at every await, once, twice and at the end of the loop: what is known is written
down first.
"""

import asyncio
import contextlib

import pytest

from effectonce import Guard, InDoubt, Retry, State, current_effect
from effectonce._core import ops
from effectonce.stores.memory import MemoryStore
from effectonce.stores.sqlite import SqliteStore
from effectonce.testing.clock import FakeClock
from tests.core.helpers import guarded, in_a_loop
from tests.flaky import FlakyStore


class GatedStore:
    """A memory store that lets each async op through only when the test says so, so that a test
    can cancel at every await.
    """

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


@pytest.mark.parametrize("cancels", [1, 2, 5])
@in_a_loop
async def test_cancelled_while_claiming_nothing_is_sent_and_the_key_is_free(cancels):
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


@pytest.mark.parametrize("cancels", [1, 2, 5])
@in_a_loop
async def test_cancelled_while_completing_the_outcome_is_recorded_first(cancels):
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


@pytest.mark.parametrize("cancels", [1, 3])
@in_a_loop
async def test_cancelled_while_the_tool_runs_the_effect_is_in_doubt_not_failed(cancels):
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


@in_a_loop
async def test_a_time_out_around_the_call_is_a_time_out():
    store = MemoryStore()

    async def body():
        await asyncio.Event().wait()

    _, _, call = guarded(store, body)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await call()
    assert states(store) == {State.IN_DOUBT: 1}


@pytest.mark.parametrize("contract", [{"not_sent": [TimeoutError]}, {"downstream": "key"}], ids=str)
@in_a_loop
async def test_cancelled_between_attempts_the_claim_is_let_go(contract):
    store, calls = MemoryStore(), []

    async def body():
        current_effect().downstream_key  # noqa: B018  # sent with the request
        calls.append(1)
        if len(calls) == 1:
            asyncio.current_task().cancel()
            raise TimeoutError

    retry = Retry(attempts=3, base_s=0.01, cap_s=0.01)
    _, _, call = guarded(store, body, retry=retry, **contract)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(call())
    await call()
    assert len(calls) == 2


@in_a_loop
async def test_cancelled_while_waiting_for_somebody_else_nothing_changes():
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


def test_a_loop_that_is_closed_in_the_middle_leaves_a_recoverable_record():
    clock = FakeClock()
    store, entered = MemoryStore(clock=clock), asyncio.Event()

    async def body():
        current_effect().downstream_key  # noqa: B018  # sent with the request
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


@in_a_loop
async def test_cancelled_while_the_store_is_repeated_the_call_ends():
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
