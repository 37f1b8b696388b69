"""Late owners, and other requests under the same key."""

import threading

import pytest

from effectonce import Conflict, GaveUp, Guard, InFlight, LeaseLost, NotSent, PartialSuccess, State
from effectonce._core import ops
from tests.core.helpers import named, tool

# ---------------------------------------------------------------- zombies


def test_a_zombie_that_succeeds_late_gets_the_recorded_result(store, clock):
    """A outlives its lease, B takes over and completes, A comes back with a result of its own."""
    guards = Guard(store, cache=0), Guard(store, cache=0)
    effects = []

    def attempt(name, meanwhile):
        effects.append(name)
        meanwhile()
        return name

    def b():
        clock.advance(31)
        with guards[1].step("chat", "pay"):
            assert guards[1].call("pay", {}).value == "B"

    tool(guards[1], named("pay", lambda: attempt("B", lambda: None)), downstream="key")
    tool(guards[0], named("pay", lambda: attempt("A", b)), downstream="key")

    with guards[0].step("chat", "pay"):
        outcome = guards[0].call("pay", {})

    assert effects == ["A", "B"]
    assert (outcome.value, outcome.replayed) == ("B", True)
    (record,) = store.apply(ops.Browse(State.COMPLETED))
    assert record.evidence[0].note == "an owner that had lost its lease reports success"


def test_a_zombie_that_fails_late_does_not_free_its_successors_key(store, clock):
    guards = [Guard(store, cache=0) for _ in range(3)]
    effects = []

    def a():
        effects.append("A")
        clock.advance(31)
        with guards[1].step("chat", "pay"):
            guards[1].call("pay", {})
        raise NotSent("too late to matter", retryable=False)

    tool(guards[0], named("pay", a), downstream="key")
    tool(guards[1], named("pay", lambda: effects.append("B")), downstream="key")
    tool(guards[2], named("pay", lambda: effects.append("C")), downstream="key")

    with guards[0].step("chat", "pay"), pytest.raises(GaveUp, match="may have run"):
        guards[0].call("pay", {})
    with guards[2].step("chat", "pay"):
        assert guards[2].call("pay", {}).replayed

    assert effects == ["A", "B"]


def test_a_zombie_that_did_half_leaves_its_word_as_evidence(store, clock):
    guards = Guard(store, cache=0), Guard(store, cache=0)

    def a():
        clock.advance(31)
        with guards[1].step("chat", "pay"):
            guards[1].call("pay", {})
        raise PartialSuccess("half", corrective_action="look")

    tool(guards[0], named("pay", a), downstream="key")
    tool(guards[1], named("pay", lambda: "B"), downstream="key")

    with guards[0].step("chat", "pay"):
        assert isinstance(guards[0].call("pay", {}).error, PartialSuccess)
        assert guards[0].call("pay", {}).value == "B"
    (record,) = store.apply(ops.Browse(State.COMPLETED))
    assert "partial success" in record.evidence[0].note


def test_an_owner_whose_successor_is_still_at_work_is_told_so(store, clock, guard):
    other = Guard(store, cache=0)
    pending = []

    def a():
        clock.advance(31)
        with other.step("chat", "pay"):
            request = other._tool("pay").prepare((), {}).request
        pending.append(store.apply(ops.Claim(request, "b", 30, dispatch=True)))
        return "A's result"

    tool(other, named("pay", lambda: None), downstream="key")
    tool(guard, named("pay", a), downstream="key")

    with guard.step("chat", "pay"), pytest.raises(LeaseLost) as caught:
        guard.call("pay", {})

    assert isinstance(pending[0], ops.Held)
    assert caught.value.value == "A's result"


def test_late_evidence_settles_what_was_given_up_for_lost(store, clock, guard):
    other = Guard(store, cache=0)

    def a():
        clock.advance(31)
        with other.step("chat", "pay"):
            assert other.call("pay", {}).status == "in_doubt"
        return "it did happen"

    tool(other, named("pay", lambda: None))
    tool(guard, named("pay", a))

    with guard.step("chat", "pay"):
        assert guard.call("pay", {}).value == "it did happen"
    with other.step("chat", "pay"):
        outcome = other.call("pay", {})
    assert (outcome.value, outcome.settled_by) == ("it did happen", "late evidence")


# ---------------------------------------------------------------- conflict


def test_the_same_key_with_other_arguments_is_a_conflict_fresh_and_in_flight(guard):
    seen = []

    @guard.tool(kind="write", identity=["invoice"], volatile=["note"], wait_s=0)
    def pay(invoice: str, amount: int, note: str):
        if amount == 1:
            with guard.step("chat", "pay"), pytest.raises(Conflict):
                pay("inv_1", 2, "while the first is in flight")
            seen.append("in flight")
        return amount

    with guard.step("chat", "pay"):
        assert pay("inv_1", 1, "a") == pay("inv_1", 1, "another note") == 1
        with pytest.raises(Conflict, match="the earlier result stays with them") as caught:
            pay("inv_1", 2, "b")

    assert seen == ["in flight"]
    assert "1" not in caught.value.as_model_error().get("message", "").replace(
        caught.value.effect.reference, ""
    )


def test_a_waiting_caller_gets_the_result_of_the_one_in_flight():
    guard, entered, leave, calls, outcomes = (
        Guard("memory://"),
        threading.Event(),
        threading.Event(),
        [],
        [],
    )

    @guard.tool(kind="write")
    def pay():
        calls.append(1)
        entered.set()
        leave.wait(30)
        return "receipt"

    def call():
        with guard.step("chat", "pay"):
            outcomes.append(guard.call(pay, {}))

    threads = [threading.Thread(target=call) for _ in range(5)]
    threads[0].start()
    entered.wait(30)
    for thread in threads[1:]:
        thread.start()
    leave.set()
    for thread in threads:
        thread.join()

    assert len(calls) == 1
    assert {outcome.value for outcome in outcomes} == {"receipt"}
    assert sum(outcome.replayed for outcome in outcomes) == 4


@pytest.mark.parametrize(("lease_s", "after_s"), [(600, 1.0), (0.5, 0.5)])
def test_a_call_in_flight_says_when_to_look_again_and_when_it_can_be_taken_over(
    guard, lease_s, after_s
):
    @guard.tool(kind="write", lease_s=lease_s, wait_s=0)
    def pay():
        with guard.step("chat", "pay"), pytest.raises(InFlight) as caught:
            pay()
        return caught.value

    with guard.step("chat", "pay"):
        told = guard.call(pay, {}).value

    assert told.as_model_error() == {
        "code": "RETRY_IN_FLIGHT",
        "retriable": True,
        "message": str(told),
        "corrective_action": "Repeat the same call after retry_after_s to get its result.",
        "operation": told.effect.reference,
        "retry_after_s": after_s,
    }
    assert f"in {lease_s:g} s at the latest" in str(told)
