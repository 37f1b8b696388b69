"""Windows, time-window dedup, sequences and the step latch."""

import math
import sqlite3
import threading
import time
from contextlib import closing
from datetime import timedelta

import pytest

from effectonce import (
    Conflict,
    ContractViolation,
    Expired,
    Guard,
    InDoubt,
    NotSent,
    OutOfOrder,
    State,
    TimeWindow,
)
from effectonce._core import ops
from effectonce.stores.memory import MemoryStore
from tests.core.helpers import QUICK, named

# ---------------------------------------------------------------- windows, expiry, sequences


@pytest.mark.parametrize(
    ("declared", "left"), [({}, 0), ({"tombstone": math.inf}, 1)], ids=["by default", "for ever"]
)
def test_an_expired_key_is_remembered_for_a_year_unless_it_is_declared_otherwise(
    guard, clock, declared, left
):
    @guard.tool(kind="write", window=timedelta(hours=1), **declared)
    def pay():
        pass

    with guard.step("chat", "pay"):
        pay()
    clock.advance(3601)
    guard.sweep()
    clock.advance(364 * 86_400)
    guard.sweep()
    with guard.step("chat", "pay"), pytest.raises(Expired):
        pay()
    clock.advance(86_400)
    guard.sweep()

    assert sum(guard.counts().values()) == left


def test_a_time_window_drops_repeats_and_then_lets_one_through(guard, clock):
    calls = []

    @guard.tool(kind="write", dedup=TimeWindow(seconds=60))
    def notify(user: str):
        calls.append(user)
        return len(calls)

    assert [notify("ada"), notify("ada"), notify("bob")] == [1, 1, 2]
    clock.advance(61)
    assert notify("ada") == 3
    clock.advance(61)
    assert guard.sweep().forgotten == 2
    assert guard.counts() == {}


@pytest.mark.parametrize(
    "declared",
    [{"window": math.inf}, {"dedup": TimeWindow(seconds=math.inf)}],
    ids=["window", "dedup"],
)
def test_a_window_may_never_end(guard, clock, declared):
    calls = []

    @guard.tool(kind="write", **declared)
    def notify(user: str):
        calls.append(user)
        return len(calls)

    with guard.step("chat", "notify"):
        first = notify("ada")
    clock.advance(100 * 365 * 86_400)
    swept = guard.sweep()
    with guard.step("chat", "notify"):
        again = notify("ada")

    assert (first, again, len(calls)) == (1, 1, 1)
    assert swept.total == 0


def test_a_time_window_lets_a_repeat_through_after_a_crash(guard, clock, store):
    @guard.tool(kind="write", dedup=TimeWindow(seconds=60), retry=QUICK)
    def notify(user: str):
        return user

    store.apply(
        ops.Claim(guard._tool(notify).prepare(("ada",), {}).request, "dead", 30, dispatch=True)
    )
    clock.advance(31)
    assert notify("ada") == "ada"


def test_a_sequence_runs_in_order_and_replays(guard):
    applied = []

    @guard.tool(kind="write")
    def change(delta: int):
        applied.append(delta)
        return sum(applied)

    def apply(number, delta):
        with guard.sequence("account/42", number):
            return change(delta)

    with pytest.raises(OutOfOrder, match="before its predecessor"):
        apply(2, 5)
    assert [apply(1, 10), apply(2, 5), apply(1, 10), apply(2, 5)] == [10, 15, 10, 15]
    with pytest.raises(Conflict):
        apply(2, 6)
    with pytest.raises(OutOfOrder):
        apply(4, 1)
    with pytest.raises(ContractViolation, match="counts from 1"):
        guard.sequence("account/42", 0)
    assert applied == [10, 5]


# ---------------------------------------------------------------- the step latch


def test_a_step_in_doubt_runs_no_other_call(guard):
    done = []

    @guard.tool(kind="write", retry=QUICK)
    def refund():
        done.append("refund")
        raise TimeoutError

    @guard.tool(kind="write")
    def store_credit():
        done.append("credit")

    with guard.step("chat", "compensate"):
        with pytest.raises(InDoubt):
            refund()
        with pytest.raises(InDoubt, match="Doing something else instead could do both") as caught:
            store_credit()
        assert caught.value.effect.tool == "refund"
        guard.refute(caught.value.effect.key, by="ada", reason="not on the statement")
        store_credit()
    with guard.step("chat", "compensate", latch=False):
        store_credit()

    assert done == ["refund", "credit"]


def test_a_call_waits_for_another_one_of_its_step_that_is_in_flight():
    store = MemoryStore()
    guard, entered, leave, done = Guard(store, cache=0), threading.Event(), threading.Event(), []
    apply = store.apply

    @guard.tool(kind="write")
    def refund():
        entered.set()
        leave.wait(30)
        done.append("refund")

    @guard.tool(kind="write", wait_s=60)
    def store_credit():
        done.append("credit")

    def refunding():
        with guard.step("chat", "compensate"):
            refund()

    def then_it_ends(op):
        reply = apply(op)
        if isinstance(reply, ops.Latched):
            leave.set()
        return reply

    store.apply = then_it_ends
    thread = threading.Thread(target=refunding)
    thread.start()
    entered.wait(30)
    with guard.step("chat", "compensate"):
        store_credit()
    thread.join()

    assert done == ["refund", "credit"]


def test_a_tool_may_call_other_tools_and_each_effect_lands_once(store, clock):
    """The inner calls have their place inside the outer effect: neither latched by it nor run
    again with it.
    """
    done = []

    def process(dies):
        guard = Guard(store, cache=0)

        @guard.tool(kind="write", permission="mail")
        def mail(to: str):
            done.append(f"mail {to}")

        @guard.tool(kind="write", downstream="key", permission="mail", retry=QUICK)
        def refund(payment: str):
            mail("customer")
            mail("book-keeping")
            mail("customer")
            done.append("refund")
            if dies:
                raise SystemExit
            return "refunded"

        with guard.step("chat", "refund", permissions={"mail"}):
            return refund("pay_7")

    with pytest.raises(SystemExit):
        process(dies=True)
    assert process(dies=False) == "refunded"
    assert done == ["mail customer", "mail book-keeping", "refund", "refund"]


def test_the_same_inner_call_of_two_effects_is_two_effects(guard):
    done = []

    @guard.tool(kind="write")
    def mail(to: str):
        done.append(to)

    @guard.tool(kind="write")
    def refund(payment: str):
        mail("customer")

    with guard.step("chat", "refund"):
        refund("pay_7")
        refund("pay_8")
    guard.call(refund, {"payment": "pay_9"}, key="nightly")
    assert done == ["customer"] * 3


def test_a_claim_that_was_not_sent_is_not_sent_while_another_call_of_its_step_is_in_the_air(
    guard, clock
):
    """The first call could not send and waits; meanwhile the model tries another way, and that
    one goes in doubt.
    """
    done = []

    @guard.tool(kind="write", retry=QUICK)
    def voucher():
        done.append("voucher")
        raise TimeoutError

    attempts = []

    @guard.tool(kind="write", retry=QUICK, wait_s=0)
    def refund():
        attempts.append(1)
        if len(attempts) == 1:
            raise NotSent("dns")
        done.append("refund")

    tool_module_sleep = time.sleep

    def meanwhile(seconds):
        with guard.step("chat", "make good"), pytest.raises(InDoubt):
            voucher()

    time.sleep = meanwhile
    try:
        with guard.step("chat", "make good"), pytest.raises(InDoubt, match="could do both"):
            refund()
    finally:
        time.sleep = tool_module_sleep
    assert done == ["voucher"]


def test_a_tightened_contract_is_honoured_for_what_is_open(store, clock):
    loose, strict = Guard(store, cache=0), Guard(store, cache=0)
    loose.tool(kind="idempotent_write", name="pay", retry=QUICK)(
        lambda: (_ for _ in ()).throw(SystemExit())
    )
    strict.tool(kind="write", name="pay", retry=QUICK)(
        lambda: pytest.fail("it may have happened already")
    )
    with loose.step("chat", "pay"), pytest.raises(SystemExit):
        loose.call("pay", {})
    with strict.step("chat", "pay"):
        assert strict.call("pay", {}).status == "in_doubt"


def test_a_tool_that_may_repeat_is_no_place_for_calls_of_its_own(guard, clock):
    @guard.tool(kind="write")
    def sms(to: str):
        pytest.fail("it has no place")

    @guard.tool(kind="write", dedup=TimeWindow(seconds=60), not_sent=[ContractViolation])
    def notify(user: str):
        sms(user)

    with pytest.raises(ContractViolation, match="outside a step"):
        notify("ada")


def test_what_is_deleted_by_hand_runs_again_and_a_tombstone_keeps_it_from_that(tmp_path):
    """The limit that docs/explanation/protocol.md names: the record is what remembers."""
    file, paid = tmp_path / "effects.db", []

    def pay_in_a_new_process():
        guard = Guard(f"sqlite:///{file}", spool=tmp_path / "spool")
        pay = guard.tool(kind="write", window=1e-6)(named("pay", lambda: paid.append(1)))
        with guard.step("chat", "pay"):
            return guard, guard.call(pay, {})

    guard, _ = pay_in_a_new_process()
    guard.sweep()
    assert guard.counts() == {State.TOMBSTONE: 1}
    with pytest.raises(Expired):
        pay_in_a_new_process()
    assert paid == [1]

    with closing(sqlite3.connect(file)) as db:
        db.execute("DELETE FROM effects")
        db.commit()
    pay_in_a_new_process()
    assert paid == [1, 1]
