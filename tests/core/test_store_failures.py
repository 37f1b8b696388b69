"""The store fails before, during and after the effect."""

import itertools

import pytest

from effectonce import (
    Found,
    GaveUp,
    Guard,
    InDoubt,
    NotSent,
    Rejected,
    ReplayedFailure,
    Retry,
    StoreUnavailable,
    current_effect,
)
from effectonce._core import ops
from effectonce._core.call import GuardedCall
from effectonce._core.retry_state import Env
from tests.core.helpers import named, tool
from tests.flaky import FlakyStore


@pytest.fixture
def store(clock):
    return FlakyStore(clock=clock)


@pytest.mark.parametrize("how", ["lost", "unacknowledged"])
def test_a_store_that_is_down_sends_nothing(how, store, guard):
    calls = []
    pay = tool(guard, named("pay", lambda: calls.append(1)))
    store.fail(ops.Claim, how, times=3)

    with guard.step("chat", "pay"):
        with pytest.raises(StoreUnavailable, match="was not run"):
            pay()
        assert calls == []


def test_a_claim_whose_acknowledgement_was_lost_is_still_ours(store, guard):
    calls = []
    pay = tool(guard, named("pay", lambda: calls.append(1)))
    store.fail(ops.Claim, "unacknowledged", times=2)

    with guard.step("chat", "pay"):
        pay()
    assert (calls, store.log) == ([1], ["Claim", "Claim", "Claim", "Complete"])


@pytest.mark.parametrize("how", ["lost", "unacknowledged"])
def test_a_store_error_after_the_effect_is_repeated_until_it_is_written(how, store, guard):
    calls = []
    pay = tool(guard, named("pay", lambda: calls.append(1) or "receipt"))
    store.fail(ops.Complete, how, times=4)

    with guard.step("chat", "pay"):
        assert pay() == "receipt"
        assert guard.call(pay, {}).replayed
    assert calls == [1]


def test_an_effect_whose_outcome_could_not_be_written_is_never_run_again(clock, store, guard):
    calls = []
    pay = tool(
        guard,
        named("pay", lambda: calls.append(1) or "receipt"),
        retry=Retry(attempts=3, deadline_s=0.05),
    )
    store.fail(ops.Complete, times=10_000)

    with guard.step("chat", "pay"):
        outcome = guard.call(pay, {})
        assert (outcome.value, outcome.recorded) == ("receipt", False)
        clock.advance(31)
        with pytest.raises(InDoubt):
            pay()
    assert calls == [1]


def test_a_dispatch_that_could_not_be_written_sends_nothing(store, guard):
    calls = []
    pay = tool(guard, named("pay", lambda: calls.append(1)), separate_dispatch=True)
    store.fail(ops.Dispatch, times=3)

    with guard.step("chat", "pay"):
        with pytest.raises(StoreUnavailable):
            pay()
        assert calls == []


def test_a_doubt_that_cannot_be_asked_about_is_told_as_a_store_failure(store, guard):
    pay = tool(
        guard, named("pay", lambda: (_ for _ in ()).throw(TimeoutError())), downstream="probe"
    )
    pay.probe(lambda: Found(1))
    store.fail(ops.Inquire, times=3)
    with guard.step("chat", "pay"):
        with pytest.raises(InDoubt):
            pay()
        store.fail(ops.Inquire, times=3)
        with pytest.raises(StoreUnavailable):
            pay()
        assert pay() == 1


@pytest.mark.parametrize("how", ["lost", "unacknowledged"])
def test_a_refusal_that_could_not_be_written_is_not_reported_as_final(how, clock, store, guard):
    """The next caller sends it again under the same key, and it may succeed then."""
    answers = ["no", "receipt"]

    def pay():
        answer = answers.pop(0)
        if answer == "no":
            raise Rejected(answer)
        return answer

    pay = tool(guard, pay, downstream="key", retry=Retry(attempts=3, deadline_s=0.05))
    store.fail(ops.Fail, how, times=10_000)

    with guard.step("chat", "pay"):
        with pytest.raises(GaveUp, match="Calling again is safe"):
            pay()
        clock.advance(31)
        if how == "lost":
            assert pay() == "receipt"
        else:
            with pytest.raises(ReplayedFailure):
                pay()


def test_a_refusal_that_could_not_be_written_is_a_doubt_where_nothing_may_be_sent_again(
    clock, store, guard
):
    def pay():
        raise Rejected("no")

    pay = tool(guard, pay, retry=Retry(attempts=3, deadline_s=0.05))
    store.fail(ops.Fail, times=10_000)

    with guard.step("chat", "pay"):
        with pytest.raises(InDoubt, match="could not write that down"):
            pay()
        clock.advance(31)
        with pytest.raises(InDoubt):
            pay()


def test_after_an_unknown_taking_back_nothing_more_is_sent(store, guard):
    calls = []

    def pay():
        calls.append(1)
        raise NotSent

    pay = tool(guard, pay, retry=Retry(attempts=3, base_s=0.0))
    store.fail(ops.Unsend, times=3)

    with guard.step("chat", "pay"), pytest.raises(GaveUp, match="did not run"):
        pay()
    assert calls == [1]


def test_a_call_that_sent_something_does_not_end_as_if_it_had_not(store, guard):
    calls = []

    def pay():
        calls.append(current_effect().downstream_key)
        raise TimeoutError

    pay = tool(guard, pay, downstream="key")
    store.fail(ops.Dispatch, times=3)
    with guard.step("chat", "pay"), pytest.raises(GaveUp, match="may have run"):
        pay()
    assert len(calls) == 1


@pytest.mark.parametrize("tick_s", [0.15, 0.2, 0.22, 0.3, 0.4])
def test_a_pause_is_never_negative_however_late_the_clock_is_looked_at(tick_s):
    guard = Guard(FlakyStore(), cache=0)
    pay = tool(guard, named("pay", lambda: 1), retry=Retry(attempts=3, deadline_s=1.0))
    ticks = itertools.count()
    env = Env(now=lambda: next(ticks) * tick_s, new_token=lambda: "token", rng=lambda: 1.0)
    with guard.step("chat", "pay"):
        flow = GuardedCall(
            pay.__effectonce_tool__.prepare((), {}).request, pay.__effectonce_tool__.plan, env
        ).flow()

    replies = {ops.Claim: ops.Held(1, 1, dispatched=True), ops.Invoke: ops.Ok(1), ops.Sleep: None}
    op, pauses = next(flow), []
    with pytest.raises(StopIteration):
        while True:
            pauses += [op.seconds] if isinstance(op, ops.Sleep) else []
            op = flow.send(replies.get(type(op), ops.Unavailable(StoreUnavailable("gone"))))
    assert pauses
    assert min(pauses) >= 0


def test_a_large_result_that_the_store_does_not_take_in_time_is_kept_when_the_store_is_away(
    tmp_path, store
):
    guard = Guard(store, cache=0, spool=tmp_path)
    pay = tool(guard, named("pay", lambda: "x" * 100_000), retry=Retry(attempts=3, deadline_s=0.01))
    store.fail(ops.Complete, times=99)

    with guard.step("chat", "pay"):
        outcome = guard.call(pay, {})

    assert (len(outcome.value), outcome.recorded) == (100_000, False)
    assert len(list(tmp_path.glob("*.json"))) == 1
