"""Doubts that settle themselves: who begins to ask, where, and when that ends."""

import asyncio
import os
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from effectonce import (
    CannotTell,
    ContractViolation,
    Found,
    Guard,
    InDoubt,
    Reconciled,
    State,
    current_effect,
)
from effectonce._core import ops
from effectonce.recovery.pace import ReconcilePace, pace_of
from effectonce.stores.memory import MemoryStore
from tests.core.helpers import QUICK

pytestmark = pytest.mark.usefixtures("in_the_background")
FAST = ReconcilePace(every_s=0.001, per_s=1e9)
SLOW = ReconcilePace(every_s=3600)


def threads():
    return [t for t in threading.enumerate() if t.name == "effectonce-reconciler"]


def silent(guard, probe, **contract):
    @guard.tool(kind="write", downstream="probe", retry=QUICK, wait_s=0, **contract)
    def pay(n: int):
        raise TimeoutError

    pay.probe(probe)
    return pay


def call(guard, pay, n=0):
    with guard.step("chat", n), pytest.raises(InDoubt):
        pay(n)


def later(answers):
    """A probe that cannot tell while it is asked by the call, and then finds it."""
    asked = []

    def probe(n: int):
        asked.append((n, threading.current_thread().name))
        return answers.pop(0) if answers else Found("receipt")

    probe.asked = asked
    return probe


def until(condition):
    limit = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < limit
    return True


def test_a_doubt_that_a_call_ends_with_settles_itself_and_the_thread_ends():
    guard, probe = Guard("memory://", reconcile=FAST), later([CannotTell(), CannotTell()])
    events = []
    guard.observe(lambda event: events.append((event.name, event.by)))
    pay = silent(guard, probe)

    call(guard, pay)

    assert until(lambda: guard.counts() == {State.COMPLETED: 1})
    assert until(lambda: not guard._background.running)
    assert [name for _, name in probe.asked][1:] == ["effectonce-reconciler"] * 2
    assert ("settled", "probe") in events
    with guard.step("chat", 0):
        assert pay(0) == "receipt"


def test_a_process_without_doubts_starts_no_thread():
    before = threads()
    guard = Guard("memory://", reconcile=FAST)

    @guard.tool(kind="write", downstream="probe")
    def pay(n: int):
        return "receipt"

    pay.probe(lambda n: Found("receipt"))
    with guard.step("chat", 1):
        pay(1)

    assert threads() == before
    assert not guard._background.running


def test_a_doubt_of_a_tool_without_a_probe_starts_none():
    guard = Guard("memory://", reconcile=FAST)

    @guard.tool(kind="write", retry=QUICK)
    def pay(n: int):
        raise TimeoutError

    call(guard, pay)

    assert not guard._background.running


@pytest.mark.parametrize("how", ["argument", "environment"])
def test_off_means_off(how, monkeypatch):
    if how == "environment":
        monkeypatch.setenv("EFFECTONCE_RECONCILE", "off")
    guard = Guard("memory://", reconcile=False if how == "argument" else FAST)
    probe = later([CannotTell()])

    call(guard, silent(guard, probe))

    assert not guard._background.running
    assert len(probe.asked) == 1
    assert guard.reconcile() == Reconciled(1, 0, 0)


@pytest.mark.parametrize("wrong", [1, "yes", "off"])
def test_what_is_neither_yes_nor_no_nor_a_pace_is_refused(wrong):
    with pytest.raises(ContractViolation, match="reconcile"):
        Guard("memory://", reconcile=wrong)


def test_a_variable_that_is_neither_is_refused():
    with pytest.raises(ContractViolation, match="EFFECTONCE_RECONCILE is true or false"):
        pace_of(True, {"EFFECTONCE_RECONCILE": "perhaps"})


@pytest.mark.parametrize(
    "wrong",
    [{"per_round": 0}, {"round_s": 0}, {"lease_s": 0}, {"per_s": 0}, {"every_s": -1}],
    ids=str,
)
def test_a_pace_that_does_nothing_is_refused(wrong):
    with pytest.raises(ContractViolation):
        ReconcilePace(**wrong)


def test_closing_ends_it_and_the_next_doubt_begins_again():
    guard = Guard("memory://", reconcile=SLOW)
    pay = silent(guard, lambda n: CannotTell())

    call(guard, pay)
    (thread,) = threads()
    guard.close()
    assert not thread.is_alive()
    call(guard, pay)

    assert guard._background.running
    guard.close()
    assert threads() == []


def test_closing_does_not_wait_for_a_probe_that_hangs(monkeypatch):
    monkeypatch.setattr("effectonce.recovery.background.CLOSE_WAIT_S", 0.01)
    asked, go_on = threading.Event(), threading.Event()
    guard = Guard("memory://", reconcile=FAST)
    first = [True]

    def probe(n: int):
        if first:
            first.clear()
        else:
            asked.set()
            go_on.wait()
        return CannotTell()

    call(guard, silent(guard, probe))
    assert asked.wait(30)
    guard.close()
    go_on.set()
    assert until(lambda: not threads())


def test_a_probe_may_close_its_guard():
    guard = Guard("memory://", reconcile=FAST)
    closed = threading.Event()

    def probe(n: int):
        if threading.current_thread().name == "effectonce-reconciler":
            guard.close()
            closed.set()
        return CannotTell()

    call(guard, silent(guard, probe))
    assert closed.wait(30)
    assert until(lambda: not threads())


def test_a_store_that_does_not_answer_is_asked_again(clock):
    from tests.flaky import FlakyStore

    store = FlakyStore(clock=clock)
    guard = Guard(store, cache=0, reconcile=FAST)
    pay = silent(guard, later([CannotTell()]))
    store.fail(ops.Browse, times=1)

    call(guard, pay)

    clock.advance(60)
    assert until(lambda: guard.counts() == {State.COMPLETED: 1})


def test_what_cannot_be_asked_about_takes_no_turn_and_keeps_no_thread():
    pace = ReconcilePace(every_s=0.001, per_s=5, per_round=1, round_s=0.1)
    guard = Guard("memory://", reconcile=pace, secret=b"s" * 32)

    @guard.tool(kind="write", downstream="probe", retry=QUICK, redact=["card"])
    def charge(n: int, card: str):
        raise TimeoutError

    charge.probe(lambda n, card: CannotTell())
    for n in range(50):
        with guard.step("cards", n), pytest.raises(InDoubt):
            charge(n, "4242")
    call(guard, silent(guard, later([CannotTell()])))

    assert until(lambda: guard.counts() == {State.IN_DOUBT: 50, State.COMPLETED: 1})
    assert until(lambda: not guard._background.running)


def tenants_guard(store, tenant, asked):
    guard = Guard(store, reconcile=FAST, **({} if tenant is None else {"tenant": tenant}))

    def probe(n: int):
        asked.append((tenant, current_effect().ref.tenant))
        return CannotTell() if len(asked) < 50 else Found("receipt")

    return guard, silent(guard, probe)


def test_the_guard_of_a_tenant_does_not_ask_about_those_of_others():
    """Its client is that of the tenant, where an order of the same number may be another one."""
    store, asked = MemoryStore(), []
    ada, pay = tenants_guard(store, "ada", asked)
    bob, refund = tenants_guard(store, "bob", asked)

    call(ada, pay)
    ada.close()
    call(bob, refund)

    until(lambda: asked.count(("bob", "bob")) > 5)
    bob.close()
    assert ("bob", "ada") not in asked


@pytest.mark.parametrize("usual", ["ada", None])
def test_a_guard_asks_about_each_tenant_that_it_was_called_for(usual):
    store, asked = MemoryStore(), []
    guard, pay = tenants_guard(store, usual, asked)

    with guard.step("chat", 0, tenant="bob"), pytest.raises(InDoubt):
        pay(0)

    assert until(lambda: asked.count((usual, "bob")) > 2)
    guard.close()


def test_async_tools_are_asked_on_their_loop():
    guard, asked = Guard("memory://", reconcile=FAST), []

    @guard.tool(kind="write", downstream="probe", retry=QUICK)
    async def pay(n: int):
        raise TimeoutError

    settled = []
    guard.observe(lambda event: event.name == "settled" and settled.append(event.by))

    @pay.probe
    async def find(n: int):
        asked.append(asyncio.get_running_loop())
        return CannotTell() if len(asked) < 3 else Found("receipt")

    async def main():
        async with guard.step("chat", 1):
            with pytest.raises(InDoubt):
                await pay(1)
        async with asyncio.timeout(30):
            while guard._background.running:  # noqa: ASYNC110
                await asyncio.sleep(0)
        return asyncio.get_running_loop()

    loop = asyncio.run(main())
    assert asked == [loop] * 3
    assert settled == ["probe"]
    assert threads() == []


def test_a_loop_that_ends_soon_leaves_no_task_and_closing_ends_the_others():
    guard = Guard("memory://", reconcile=SLOW)

    @guard.tool(kind="write", downstream="probe", retry=QUICK)
    async def pay(n: int):
        raise TimeoutError

    @pay.probe
    async def find(n: int):
        return CannotTell()

    async def doubt(n):
        async with guard.step("chat", n):
            with pytest.raises(InDoubt):
                await pay(n)
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(doubt(1)) == set()
    asyncio.run(doubt(2))
    assert len(guard._background._timers) == 1  # not that of the first loop, which is closed
    guard.close()
    assert not guard._background.running


def test_a_forked_child_begins_its_own():
    guard = Guard("memory://", reconcile=SLOW)
    pay = silent(guard, lambda n: CannotTell())
    call(guard, pay)

    child = os.fork()
    if child == 0:
        fine = not guard._background.running
        call(guard, pay)
        os._exit(0 if fine and guard._background.running else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    guard.close()


def test_a_short_script_does_not_wait_for_it(tmp_path):
    script = textwrap.dedent("""
        import threading
        from effectonce import CannotTell, Guard
        from effectonce.recovery.pace import ReconcilePace

        guard = Guard("sqlite:///effects.db", reconcile=ReconcilePace(every_s=0.001))
        asked = threading.Event()

        @guard.tool(kind="write", downstream="probe")
        def pay(n: int):
            raise TimeoutError

        @pay.probe
        def find(n: int):
            if threading.current_thread() is not threading.main_thread():
                asked.set()
                threading.Event().wait()
            return CannotTell()

        with guard.step("chat", 1):
            print(guard.call(pay, {"n": 1}).status)
        asked.wait()
    """)
    env = os.environ | {"HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True,
        timeout=60, check=False, env=env,
    )  # fmt: skip
    assert (done.stdout, done.stderr, done.returncode) == ("in_doubt\n", "", 0)


def test_a_probe_knows_when_it_was_sent_and_how_long_it_is_in_doubt(clock, guard):
    from effectonce import current_effect

    seen = []

    def probe(n: int):
        effect = current_effect()
        seen.append((effect.sent_at, effect.in_doubt_s))
        return CannotTell()

    pay = silent(guard, probe)
    sent_at = clock()
    call(guard, pay)
    guard.close()
    clock.advance(100)
    guard.reconcile()

    assert seen[0] == (sent_at, 0.0)
    assert seen[-1] == (sent_at, 100.0)
