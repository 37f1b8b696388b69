"""A lease lives as long as its tool runs, whatever the store does in between."""

import asyncio
import sys
import threading

import pytest

from effectonce import GaveUp, Guard, Retry, StoreUnavailable
from effectonce._core import ops
from effectonce._runtime import heartbeat, performers
from effectonce._runtime.step import here
from effectonce.effect import running
from effectonce.stores.memory import MemoryStore

LEASE_S = 0.15


class CountingStore:
    """Counts renewals, refuses or fails some of them, and tells when enough have come."""

    def __init__(self, fail=0, refuse=False, enough=4, blip=None):
        self.inner = MemoryStore()
        self.capabilities = self.inner.capabilities
        self.left_to_fail, self.refuse, self.enough = fail, refuse, enough
        self.renewals, self.blip = 0, blip or StoreUnavailable("a blip")
        self.reached = threading.Event()

    def apply(self, op):
        if isinstance(op, ops.Renew) and op.lease_s > 0:
            self.renewals += 1
            if self.renewals >= self.enough:
                self.reached.set()
            if self.left_to_fail:
                self.left_to_fail -= 1
                raise self.blip
            if self.refuse:
                return ops.Refused(None)
        return self.inner.apply(op)

    async def aapply(self, op):
        return self.apply(op)

    def close(self):
        pass


def call_sync(store, until):
    guard = Guard(store, cache=0)

    @guard.tool(kind="write", lease_s=LEASE_S)
    def pay():
        assert until.wait(30)
        return "paid"

    with guard.step("chat", "pay"):
        return guard.call(pay, {})


def call_async(store, until):
    async def main():
        guard = Guard(store, cache=0)

        @guard.tool(kind="write", lease_s=LEASE_S)
        async def pay():
            assert await asyncio.to_thread(until.wait, 30)
            return "paid"

        async with guard.step("chat", "pay"):
            return await guard.call(pay, {})

    return asyncio.run(main())


CALLS = pytest.mark.parametrize("call", [call_sync, call_async])


@CALLS
def test_a_tool_that_outlives_its_lease_keeps_it(call):
    store = CountingStore(enough=6)

    outcome = call(store, store.reached)

    assert (outcome.value, outcome.replayed, outcome.recorded) == ("paid", False, True)


@CALLS
@pytest.mark.parametrize("blip", [None, ValueError("a row that it cannot read")])
def test_a_blip_of_the_store_neither_cancels_the_tool_nor_stops_the_heartbeat(call, blip):
    store = CountingStore(fail=3, enough=6, blip=blip)

    outcome = call(store, store.reached)

    assert (outcome.value, outcome.recorded) == ("paid", True)
    assert store.left_to_fail == 0


@CALLS
def test_a_refused_heartbeat_stops_and_leaves_the_tool_alone(call):
    store = CountingStore(refuse=True, enough=1)

    assert call(store, store.reached).value == "paid"
    assert store.renewals == 1


def test_many_tools_share_one_heart():
    store = CountingStore(enough=40)
    guard, threads = Guard(store, cache=0), []

    @guard.tool(kind="write", lease_s=LEASE_S)
    def pay(n: int):
        assert store.reached.wait(30)

    def call(n):
        with guard.step("chat", f"pay {n}"):
            pay(n)

    for n in range(10):
        threads.append(threading.Thread(target=call, args=(n,)))
        threads[-1].start()
    assert store.reached.wait(30)
    assert sum(thread.name == "effectonce-heartbeat" for thread in threading.enumerate()) >= 1
    for thread in threads:
        thread.join()
    assert store.apply(ops.Tally()) == {"completed": 10}


def test_a_long_lease_does_not_keep_the_heart_from_a_short_one():
    store = CountingStore(enough=4)
    guard, entered = Guard(store, cache=0), threading.Event()

    @guard.tool(kind="write", lease_s=3600)
    def settle():
        entered.set()
        assert store.reached.wait(30)

    @guard.tool(kind="write", lease_s=LEASE_S)
    def pay():
        return store.reached.wait(30)

    def settling():
        with guard.step("chat", "settle"):
            settle()

    thread = threading.Thread(target=settling)
    thread.start()
    assert entered.wait(30)
    with guard.step("chat", "pay"):
        assert pay()
    thread.join()


def test_tools_of_one_loop_share_a_timer_and_one_with_a_shorter_lease_is_not_late():
    store, timers = CountingStore(enough=12), []

    async def main():
        guard, loop = Guard(store, cache=0), asyncio.get_running_loop()
        set_at = loop.call_at

        def counted(when, callback, *args, **kwargs):
            if getattr(callback, "__self__", None).__class__ is heartbeat.LoopHeartbeat:
                timers.append(when)
            return set_at(when, callback, *args, **kwargs)

        loop.call_at = counted

        @guard.tool(kind="write", lease_s=600)
        async def at_once(n: int):
            return n

        @guard.tool(kind="write", lease_s=LEASE_S)
        async def slowly():
            assert await asyncio.to_thread(store.reached.wait, 30)
            return "paid"

        async with guard.step("chat", "many"):
            assert await asyncio.gather(
                *(guard.call(at_once, {"n": n}, key=("at once", n)) for n in range(20))
            )
        assert len(timers) == 1
        async with guard.step("chat", "pay"):
            return await guard.call(slowly, {})

    assert asyncio.run(main()).value == "paid"
    assert store.renewals >= 12


def test_a_loop_that_is_closed_is_forgotten():
    heart = heartbeat.Heartbeat(MemoryStore())

    async def pulse():
        return heart.pulse()

    first, second = asyncio.run(pulse()), asyncio.run(pulse())
    assert first is not second
    assert len(heart._pulses) == 1


def test_a_heart_with_nothing_to_do_ends_its_thread_and_starts_another(monkeypatch):
    monkeypatch.setattr(heartbeat, "IDLE_S", 0.01)
    heart = heartbeat.Heartbeat(MemoryStore())
    running = ops.Invoke("k", "t", 1, 1, 0.0)
    with heart._lock:  # or else it may have ended before it is looked at
        heart.wake(heart.beat(running, 0.01))
        thread = heart._thread
    thread.join(30)
    assert not thread.is_alive()
    heart.wake(heart.beat(running, 30.0))
    assert heart._thread is not thread


def test_a_tool_whose_lease_nobody_could_keep_alive_is_not_started(monkeypatch):
    """As in a container that may have no more threads, or in an exit handler."""
    guard, ran = Guard(MemoryStore(), cache=0), []

    @guard.tool(kind="write", retry=Retry(attempts=3, base_s=0, cap_s=0))
    def pay():
        ran.append(1)
        return "paid"

    def no_room(_):
        raise RuntimeError("can't start new thread")

    with guard.step("chat", "pay"):
        with monkeypatch.context() as machine:
            machine.setattr(threading.Thread, "start", no_room)
            with pytest.raises(GaveUp, match=r"did not run.*can't start new thread"):
                pay()
        assert ran == []
        assert pay() == "paid"


def struck(number, function):
    """Call *function*, and interrupt it where the *number*-th call in the engine begins or ends.
    False: there are fewer.
    """
    places, met, before = {performers.__file__, heartbeat.__file__}, 0, sys.getprofile()

    def strike(frame, event, _):
        nonlocal met
        # a signal waits until what is written in C has returned
        if event != "c_call" and frame.f_code.co_filename in places:
            met += 1
            if met == number:
                sys.setprofile(None)
                raise KeyboardInterrupt

    sys.setprofile(strike)
    try:
        function()
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(before)
    return met == number


def test_wherever_a_signal_strikes_no_lease_is_kept_alive_for_nobody_and_nothing_stays_inside_the_effect():
    guard = Guard(MemoryStore(), cache=0)

    @guard.tool(kind="write")
    def pay(n: int):
        return n

    number, pending = 1, True
    while pending:
        with guard.step("chat", number):
            boundary = here.get()
            pending = struck(number, lambda: pay(1))
            assert guard._house.heart.beats == set(), number
            assert running.get() is None, number
            assert here.get() is boundary, number
        number += 1
    assert number > 20
