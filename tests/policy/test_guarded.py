"""Breaker, retry budget and turns around guarded tools: what is known is replayed, what may not
run is not sent, nothing multiplies.
"""

import asyncio

import pytest

from effectonce import (
    Breaker,
    Bucket,
    Budget,
    CannotTell,
    Circuit,
    CircuitOpen,
    ContractViolation,
    Downstream,
    GaveUp,
    Guard,
    InDoubt,
    NotFound,
    NotSent,
    PartialSuccess,
    Rejected,
    Retry,
    RetryBudget,
    State,
    StoreUnavailable,
    current_effect,
    retry,
)
from effectonce._core.ops import Dispatch, WriteCell
from effectonce.stores.memory import MemoryStore
from effectonce.testing.clock import FakeClock
from tests.core.helpers import done, in_colour, silence

QUICK = Retry(attempts=3, base_s=0, cap_s=0)
REFUSED = ConnectionRefusedError(111, "Connection refused")


class Bank:
    """A tool in one colour that raises what it is told to; what it sends is counted."""

    def __init__(self, colour, store="memory://", **contract):
        self.errors, self.sent = [], 0
        self.guard = Guard(store, cache=0)
        settings = {
            "kind": "write",
            "downstream": "key",
            "retry": QUICK,
            "wait_s": 0,
            "name": "pay",
        } | contract
        self._tool = self.guard.tool(**settings)(in_colour(colour, self._plain))

    def _plain(self):
        if self._tool.contract.kind != "read":
            current_effect().downstream_key  # noqa: B018  # sent with the request
        self.sent += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.sent

    def call(self):
        return done(self._tool())

    def pay(self, step="pay"):
        with self.guard.step("chat", step):
            return self.call()

    def states(self):
        return {state: n for state, n in self.guard.counts().items() if n}


# ---------------------------------------------------------------- breaker


def test_an_open_circuit_sends_nothing_and_leaves_nothing(colour):
    circuit = Circuit("bank")
    bank = Bank(colour, breaker=circuit)
    circuit.open(for_s=30)
    with pytest.raises(CircuitOpen) as caught:
        bank.pay()
    assert bank.sent == 0
    assert bank.states() == {}
    assert 0 < caught.value.retry_after_s <= 30
    circuit.close()
    assert bank.pay() == 1


def test_an_open_circuit_replays_what_is_known(colour):
    circuit = Circuit("bank")
    bank = Bank(colour, breaker=circuit)
    assert bank.pay() == 1
    circuit.open()
    assert bank.pay() == 1
    assert bank.sent == 1


def test_a_circuit_that_opens_between_two_attempts_ends_the_call_and_costs_no_attempt(colour):
    circuit = Circuit("bank", Breaker(consecutive=1))
    bank = Bank(colour, breaker=circuit, one_request=True)
    bank.errors = [REFUSED]
    with pytest.raises(CircuitOpen):
        bank.pay()
    assert bank.sent == 1
    assert bank.states() == {State.CLAIMED: 1}  # certainly not sent: the next caller may
    circuit.close()
    assert bank.pay() == 2


def test_what_a_circuit_kept_back_is_not_sent_undispatched_when_its_pause_ends_a_moment_later(
    colour,
):
    clock = FakeClock()
    circuit = Circuit("bank", Breaker(consecutive=1, open_s=10), clock=clock)
    bank = Bank(colour, breaker=circuit, one_request=True)
    bank.errors = [REFUSED]
    refusal, written, apply = circuit.refusal, [], bank.guard.store.apply

    def looked_at():
        refused = refusal()
        clock.advance(60)
        return refused

    def noted(op):
        written.append(type(op))
        return apply(op)

    circuit.refusal, bank.guard.store.apply = looked_at, noted
    with pytest.raises(CircuitOpen):
        bank.pay()
    assert bank.sent == 1
    assert Dispatch not in written


def test_a_circuit_that_opens_after_an_unanswered_send_does_not_say_that_nothing_was_sent(colour):
    circuit = Circuit("bank", Breaker(consecutive=1))
    bank = Bank(colour, breaker=circuit)
    bank.errors = [TimeoutError()]
    with pytest.raises(GaveUp, match="may have run: attempt 1 ended with TimeoutError") as caught:
        bank.pay()
    assert caught.value.retry_after_s > 0
    assert bank.sent == 1


def test_a_circuit_opens_by_the_failures_of_its_tools(colour):
    circuit = Circuit("bank", Breaker(consecutive=3))
    bank = Bank(colour, breaker=circuit)
    bank.errors = [TimeoutError() for _ in range(3)]
    with pytest.raises(GaveUp):
        bank.pay()
    with pytest.raises(CircuitOpen):
        bank.pay("another")
    assert bank.sent == 3


def test_a_permit_that_was_not_needed_is_given_back(colour):
    """A replay is no probe."""
    clock = FakeClock()
    circuit = Circuit("bank", Breaker(consecutive=1, open_s=10), clock=clock)
    bank = Bank(colour, breaker=circuit)
    assert bank.pay() == 1
    circuit.admit().failed(REFUSED)
    clock.advance(60)
    assert bank.pay() == 1  # asked for a permit, was given the probe's, and did not use it
    assert circuit.stats().probes_out == 0
    assert bank.pay("new") == 2
    assert circuit.phase == "closed"


def test_a_probe_that_somebody_else_took_meanwhile_is_not_sent(colour):
    """Another call is let through between the look at the circuit and the claim."""
    clock = FakeClock()
    circuit = Circuit("bank", Breaker(consecutive=1, open_s=10), clock=clock)
    bank = Bank(colour, breaker=circuit)
    circuit.admit().failed(REFUSED)
    clock.advance(60)
    looked = [None, None]  # before the claim, and before the call: the probe is free
    circuit.refusal = looked.pop
    theirs = circuit.admit()

    with pytest.raises(CircuitOpen, match="being tried"):
        bank.pay()

    assert bank.sent == 0
    assert bank.states() == {State.CLAIMED: 1}
    # nothing was tried
    assert [record.evidence for record in bank.guard.store._records.values()] == [()]
    assert looked == []
    theirs.succeeded()
    assert circuit.phase == "closed"


def of_another_effect():
    """What a guarded call inside the tool raises: it is about that call alone."""
    error = InDoubt("the other one is in doubt")
    error.effectonce_of = "another key"
    return error


@pytest.mark.parametrize(
    "error",
    [PartialSuccess("half of it", corrective_action="do the rest"), of_another_effect()],
    ids=repr,
)
def test_an_error_that_says_nothing_about_the_dependency_keeps_no_permit(colour, error):
    clock = FakeClock()
    circuit = Circuit("bank", Breaker(consecutive=1, open_s=10), clock=clock)
    bank = Bank(colour, breaker=circuit)
    circuit.admit().failed(REFUSED)
    clock.advance(60)
    bank.errors = [error]

    with pytest.raises((PartialSuccess, GaveUp)):
        bank.pay()

    assert (circuit.stats().probes_out, circuit.stats().neutral) == (0, 1)


def test_a_read_and_a_fallback_behind_an_open_circuit(colour):
    circuit = Circuit("bank")
    bank = Bank(colour, kind="read", downstream="none", breaker=circuit)
    assert bank.call() == 1
    circuit.open()
    with pytest.raises(CircuitOpen):
        bank.call()

    def name_of(error):
        return type(error).__name__

    bank._tool.fallback(in_colour(colour, name_of))
    assert bank.call() == "CircuitOpen"
    assert bank.sent == 1


# ---------------------------------------------------------------- retry budget


def test_an_empty_budget_ends_retries_of_guarded_calls(colour):
    budget = RetryBudget("bank", capacity=14)
    bank = Bank(colour, budget=budget)
    bank.errors = [TimeoutError() for _ in range(9)]
    with pytest.raises(
        GaveUp, match=r"its retry budget is empty.*the same request goes out under the same key"
    ):
        bank.pay()
    assert bank.sent == 2
    bank.errors = []
    assert (bank.pay(), bank.pay("another")) == (3, 4)
    assert budget.level == 2  # only success earns


def test_a_retry_of_a_guarded_call_that_succeeds_gives_its_cost_back(colour):
    budget = RetryBudget("bank")
    bank = Bank(colour, budget=budget)
    bank.errors = [REFUSED, REFUSED]

    bank.pay()

    assert bank.sent == 3
    assert budget.level == 500 - 14  # of two retries, the last one helped
    bank.pay("another")
    assert budget.level == 500 - 14 + 1  # a call without a retry earns one


def test_a_shared_budget_goes_through_the_guards_store(colour):
    ours, theirs = (RetryBudget("bank", capacity=14, shared=True) for _ in range(2))
    bank = Bank(colour, budget=ours)
    other = bank.guard.tool(
        kind="write", downstream="key", retry=QUICK, name="refund", budget=theirs
    )(in_colour(colour, bank._plain))
    bank.errors = [TimeoutError()]
    assert bank.pay() == 2
    bank.errors, bank._tool = [TimeoutError()], other
    with pytest.raises(GaveUp, match="budget is empty"):
        bank.pay("refund")


# ---------------------------------------------------------------- turns


def test_a_step_that_was_tried_often_enough_is_not_tried_again_in_its_turn(colour):
    bank = Bank(colour, one_request=True)
    for expected in (3, 3):
        bank.errors = [REFUSED] * 9
        with bank.guard.turn("chat", "turn-7"), pytest.raises(GaveUp) as caught:
            bank.pay()
        assert bank.sent == expected
    assert "this step of turn turn-7 has had its 3 attempt(s)" in str(caught.value)
    assert "Nothing was sent by this call" in str(caught.value)
    assert bank.states() == {State.CLAIMED: 1}
    bank.errors = []
    with bank.guard.turn("chat", "turn-8"):
        assert bank.pay() == 4


def test_a_replay_spends_nothing(colour):
    bank = Bank(colour)
    with bank.guard.turn("chat", "turn-7", budget=Budget(attempts=1)):
        assert [bank.pay() for _ in range(5)] == [1] * 5


def test_different_calls_of_one_step_are_no_attempts_of_each_other():
    guard, paid = Guard("memory://"), []

    @guard.tool(kind="write", downstream="key", retry=QUICK)
    def pay(order: int):
        paid.append(order)

    with (
        guard.turn("chat", "turn-7", budget=Budget(attempts=1, steps=1)),
        guard.step("chat", "pay everybody"),
    ):
        for order in range(5):
            pay(order)
    assert paid == [0, 1, 2, 3, 4]


def test_a_turn_has_so_many_steps(colour):
    bank = Bank(colour)
    with bank.guard.turn("chat", "turn-7", budget=Budget(steps=2)):
        assert [bank.pay("a"), bank.pay("b")] == [1, 2]
        with pytest.raises(GaveUp, match="has taken its 2 steps"):
            bank.pay("c")
        assert bank.pay("a") == 1
    assert bank.sent == 2


def test_a_turn_that_is_over_sends_nothing_and_leaves_what_was_sent_alone(colour):
    clock = FakeClock()
    bank = Bank(colour)
    bank.guard.store._clock = clock
    with bank.guard.turn("chat", "turn-7", budget=Budget(wall_s=60)):
        assert bank.pay("a") == 1
        clock.advance(61)
        with pytest.raises(GaveUp, match="has taken its 60 s"):
            bank.pay("b")
    assert bank.sent == 1


def test_a_delay_that_does_not_fit_the_turn_is_handed_back(colour):
    clock = FakeClock()

    class Busy(Exception):
        status_code, headers = 429, {"Retry-After": "20"}

    bank = Bank(colour, one_request=True, retry=Retry(attempts=3, deadline_s=1000))
    bank.guard.store._clock = clock
    with bank.guard.turn("chat", "turn-7", budget=Budget(wall_s=60)) as turn:
        assert bank.pay("a") == 1
        clock.advance(50)
        bank.errors = [Busy()]
        with pytest.raises(GaveUp, match="which is too late") as caught:
            bank.pay("b")
        assert turn.remaining_s == 10
    assert caught.value.retry_after_s == 20


def test_retries_of_one_kind_are_bounded_over_a_whole_turn(colour):
    bank = Bank(colour, one_request=True)
    budget = Budget(by_bucket={Bucket.UNREACHABLE: 1})
    with bank.guard.turn("chat", "turn-7", budget=budget):
        bank.errors = [REFUSED]
        assert bank.pay("a") == 2
        bank.errors = [REFUSED]
        with pytest.raises(GaveUp, match="has retried unreachable 1 time"):
            bank.pay("b")


def test_one_repair_prompt_per_turn(colour):
    guard = Guard("memory://")

    def repair():
        turn = guard.turn("chat", "turn-7")
        if colour == "sync":
            with turn:
                turn.repair()
            return

        async def main():
            async with turn:
                await turn.arepair()

        asyncio.run(main())

    repair()
    with pytest.raises(GaveUp, match="has had its 1 repair prompt"):
        repair()


def test_plain_retries_inside_a_tool_spend_the_same_turn(colour):
    """Three layers of ours, and a loop of somebody else's around them: the budget is what is
    sent.
    """
    guard, sent = Guard("memory://"), []

    @retry(QUICK, kind="read")
    def request():
        sent.append(current_effect().downstream_key)
        raise REFUSED

    @guard.tool(kind="write", downstream="key", retry=QUICK)
    def pay():
        return request()

    for _ in range(3):
        with guard.turn("chat", "turn-7"), guard.step("chat", "pay"), pytest.raises(GaveUp):
            pay()
    assert len(sent) == 3
    assert len(set(sent)) == 1


@pytest.mark.parametrize("one_request", [True, False])
def test_what_a_policy_inside_a_tool_gave_up_on_is_no_proof_that_nothing_was_sent(one_request):
    guard, errors = Guard("memory://"), [TimeoutError(), REFUSED, REFUSED]

    @retry(QUICK, kind="idempotent_write")
    def request():
        raise errors.pop(0)

    @guard.tool(kind="write", retry=QUICK, one_request=one_request)
    def pay():
        request()

    for _ in range(2):
        with guard.step("chat", "pay"), pytest.raises(InDoubt):
            pay()


def test_plain_retries_in_a_turn_without_an_effect_are_counted_by_name():
    guard, calls = Guard("memory://"), []

    @retry(QUICK, kind="read")
    def fetch():
        calls.append(1)
        raise REFUSED

    with guard.turn("chat", "turn-7", budget=Budget(attempts=2)):
        for _ in range(2):
            with pytest.raises(GaveUp):
                fetch()
    assert len(calls) == 3  # the turn pays for retries, and bounds them: one in all


def test_plain_retries_end_with_their_turn():
    guard, clock = Guard("memory://"), FakeClock()
    guard.store._clock = clock

    class Busy(Exception):
        status_code, headers = 429, {"Retry-After": "20"}

    @retry(Retry(attempts=3, deadline_s=1000), kind="read")
    def fetch():
        raise Busy("slow down")

    with guard.turn("chat", "turn-7", budget=Budget(wall_s=60)) as turn:
        turn.repair()
        clock.advance(50)
        with pytest.raises(GaveUp, match=r"in 2\d[.\d]* s, when its turn is over") as caught:
            fetch()
    assert caught.value.retry_after_s == 20


def test_a_turn_is_a_place_like_a_step():
    guard = Guard("memory://")
    turn = guard.turn("chat", "turn-7")
    with turn, pytest.raises(RuntimeError, match="already entered"), turn:
        pass
    with pytest.raises(ContractViolation, match="scope"):
        guard.turn("", "turn-7")
    with pytest.raises(ContractViolation):
        guard.turn("chat", "2025-01-01T00:00:00.123456Z")
    turn.__exit__(None, None, None)  # not entered: nothing to leave


def test_turns_of_tenants_and_conversations_are_apart():
    guard = Guard("memory://")
    names = {guard.turn(s, "7", tenant=t).turn.name for s in ("a", "b") for t in ("x", "y", None)}
    assert len(names) == 6
    assert guard.turn("a", "7").turn.name == guard.turn("a", "7").turn.name


# ---------------------------------------------------------------- what the gate changes


def test_what_the_gate_never_retries_is_not_retried_whatever_it_says_of_itself(colour):
    bank = Bank(colour, rules={KeyError: Bucket.AUTH}, downstream="none", not_sent=())
    bank.errors = [KeyError("forbidden")]
    with pytest.raises(InDoubt):
        bank.pay()
    assert bank.sent == 1


def test_how_much_time_a_tool_has_left():
    guard, seen = Guard("memory://"), []

    @guard.tool(kind="write", retry=Retry(attempts=3, deadline_s=50))
    def pay():
        seen.append(
            (
                current_effect().remaining_s,
                current_effect().timeout_s(10),
                current_effect().timeout_s(1000),
            )
        )

    with guard.step("chat", "pay"):
        pay()
    left, short, long = seen[0]
    assert 0 < left <= 50
    assert short == 10
    assert 0 < long <= left


def test_an_inner_refusal_of_a_breaker_is_not_retried(colour):
    circuit = Circuit("inner")
    circuit.open()
    bank = Bank(colour, one_request=True)
    with pytest.raises(CircuitOpen) as refused:
        circuit.admit()
    bank.errors = [refused.value] * 3
    with pytest.raises(CircuitOpen):
        bank.pay()
    assert bank.sent == 1
    bank.errors = [NotSent("not yet")]
    assert bank.pay() == 3


# ---------------------------------------------------------------- what an earlier call has left


class Abandoned(BaseException):
    """The process is gone: nothing more is written."""


def crashed(bank):
    """A call whose owner vanishes while the request is under way; its lease ends."""
    clock = bank.guard.store._clock = FakeClock()
    apply = bank.guard.store.apply

    def gone(op):
        if type(op).__name__ in ("Claim", "ReadCell", "WriteCell"):
            return apply(op)
        raise Abandoned

    bank.errors = [TimeoutError()]
    bank.guard.store.apply = gone
    with pytest.raises(Abandoned):
        bank.pay()
    bank.guard.store.apply = apply
    clock.advance(3600)
    return clock


def test_an_open_circuit_does_not_hide_a_doubt(colour):
    circuit = Circuit("bank")
    bank = Bank(colour, breaker=circuit, downstream="none")
    bank.errors = [TimeoutError()]
    for _ in range(2):
        with pytest.raises(InDoubt):
            bank.pay()
        circuit.open()
    assert bank.sent == 1


def test_an_open_circuit_does_not_hide_that_a_vanished_owner_may_have_sent_it(colour):
    circuit = Circuit("bank")
    bank = Bank(colour, breaker=circuit, downstream="none")
    crashed(bank)
    circuit.open()
    with pytest.raises(InDoubt):
        bank.pay()
    assert bank.states() == {State.IN_DOUBT: 1}


def test_behind_an_open_circuit_an_unanswered_send_stays_one_and_costs_the_turn_nothing(colour):
    circuit = Circuit("bank")
    bank = Bank(colour, breaker=circuit)
    crashed(bank)
    circuit.open(for_s=30)
    # another attempt, after the one that crashed
    with bank.guard.turn("chat", "turn-7", budget=Budget(attempts=2)):
        with pytest.raises(GaveUp, match="may have run: an earlier send has no answer") as caught:
            bank.pay()
        assert 0 < caught.value.retry_after_s <= 30
        assert bank.sent == 1
        circuit.close()
        assert bank.pay() == 2  # at once: the claim was let go


def test_an_open_circuit_keeps_the_probe_back_too(colour):
    circuit = Circuit("bank")
    bank = Bank(colour, breaker=circuit, downstream="probe")
    asked = []

    def probe():
        asked.append(1)
        return CannotTell("not yet")

    bank._tool.probe(in_colour(colour, probe))
    bank.errors = [TimeoutError()]
    with pytest.raises(InDoubt):
        bank.pay()
    circuit.open()
    with pytest.raises(InDoubt):
        bank.pay()
    assert len(asked) == 1


def test_behind_an_open_circuit_a_store_that_is_gone_cannot_tell_what_was_sent(colour):
    circuit = Circuit("bank")
    bank = Bank(colour, breaker=circuit)
    circuit.open()
    silence(bank.guard.store)
    with pytest.raises(StoreUnavailable):
        bank.pay()


def test_a_turn_that_refuses_leaves_an_unanswered_send_for_the_next_one(colour):
    bank = Bank(colour)
    crashed(bank)
    with bank.guard.turn("chat", "turn-7", budget=Budget(steps=1)):
        assert bank.pay("other") == 2
        with pytest.raises(GaveUp, match="has taken its 1 steps"):
            bank.pay()
    assert bank.guard.store._records[next(iter(bank.guard.store._records))].sends == 1
    assert bank.pay() == 3


def test_what_certainly_did_not_happen_now_says_nothing_about_what_a_vanished_owner_sent(colour):
    bank = Bank(colour, one_request=True)
    crashed(bank)
    bank.errors = [REFUSED] * 3
    with pytest.raises(GaveUp, match="may have run: attempt 3 ended with ConnectionRefusedError"):
        bank.pay()


# ---------------------------------------------------------------- a probe finds nothing, and the
# tool runs again


class Probed(Bank):
    """A tool that outlives its lease, so that its probe is believed when it finds nothing."""

    def __init__(self, colour, **contract):
        self.clock = FakeClock()
        super().__init__(
            colour, MemoryStore(clock=self.clock), downstream=Downstream.probe(delay=0), **contract
        )
        self._tool.probe(in_colour(colour, lambda: NotFound()))

    def _plain(self):
        self.clock.advance(60)
        return super()._plain()


@pytest.mark.parametrize(
    ("error", "state"),
    [(Rejected("declined"), State.FAILED), (KeyboardInterrupt("declined"), State.IN_DOUBT)],
    ids=["refused", "interrupted"],
)
def test_a_run_after_a_negative_probe_ends_as_any_other(colour, error, state):
    bank = Probed(colour)
    bank.errors = [TimeoutError(), error]
    with pytest.raises(type(error), match="declined"):
        bank.pay()
    assert bank.states() == {state: 1}


def test_a_run_after_a_negative_probe_that_the_turn_refuses_did_not_run(colour):
    bank = Probed(colour)
    bank.errors = [TimeoutError()]
    with (
        bank.guard.turn("chat", "turn-7", budget=Budget(attempts=1)),
        pytest.raises(
            GaveUp,
            match=(
                r"did not run: attempt 1 ended with TimeoutError\. This step of turn turn-7 has had"
                r" its 1 attempt"
            ),
        ),
    ):
        bank.pay()
    assert bank.states() == {State.CLAIMED: 1}
    assert bank.pay() == 2


@pytest.mark.parametrize("bounds", [{"attempts": 2}, {"attempts": 9, "deadline_s": 1e-9}])
def test_a_run_after_a_negative_probe_is_an_attempt_like_any_other(colour, bounds):
    bank = Probed(colour, retry=Retry(base_s=0, cap_s=0, **bounds))
    bank.errors = [TimeoutError()] * 9
    with pytest.raises(InDoubt):
        bank.pay()
    assert bank.sent == (2 if bounds["attempts"] == 2 else 1)


def test_the_fallback_of_a_read_does_not_hide_a_mistake(colour):
    bank = Bank(colour, kind="read", downstream="none")
    bank.errors = [ContractViolation("called outside a step")]

    bank._tool.fallback(in_colour(colour, lambda error: "never mind"))
    with pytest.raises(ContractViolation, match="outside a step"):
        bank.call()


@pytest.mark.parametrize("value", [b"not ours", b"\x90", b"\x94\xa1x\x80\x80\x00"])
def test_a_budget_that_cannot_be_read_begins_anew_and_breaks_no_call(colour, value):
    """It was written by another version, or by somebody else; by now the record says that the
    request may have left.
    """
    bank = Bank(colour, one_request=True, budget=RetryBudget("bank", capacity=14, shared=True))
    turn = bank.guard.turn("chat", "turn-7", budget=Budget(attempts=2))
    for cell in (turn.turn.name, "retry-budget/bank"):
        bank.guard.store.apply(WriteCell(cell, 0, value, 1e6))
    bank.errors = [REFUSED, REFUSED]
    with turn:
        with pytest.raises(GaveUp, match=r"has had its 2 attempt"):
            bank.pay()
        assert bank.sent == 2
        bank.errors = [REFUSED]
        with pytest.raises(GaveUp, match="budget is empty"):
            bank.pay("another")


def test_what_a_turn_refuses_is_not_worth_repeating_in_it():
    bank = Bank("sync")
    with bank.guard.turn("chat", "turn-7", budget=Budget(steps=1, repairs=0)) as turn:
        bank.pay("a")
        with pytest.raises(GaveUp) as refused:
            bank.pay("b")
        with pytest.raises(GaveUp) as uncorrected:
            turn.repair()
    assert refused.value.as_model_error()["retriable"] is False
    assert "In another turn" in refused.value.corrective_action
    assert uncorrected.value.as_model_error()["retriable"] is False
    assert "key" not in uncorrected.value.corrective_action


@pytest.mark.parametrize(
    "names",
    [
        (("a\0b", "c", "1"), ("a", "b\0c", "1")),
        (("a", "b\0c", "1"), ("a", "b", "c\0001")),
        (("a", "b", "1"), ("b", "b", "1")),
    ],
)
def test_turns_whose_names_only_read_alike_do_not_share_a_budget(names):
    guard = Guard("memory://")
    for tenant, scope, turn in names:
        with guard.turn(scope, turn, tenant=tenant, budget=Budget(repairs=1)) as one:
            one.repair()


def test_steps_of_two_tenants_in_one_turn_are_no_attempts_of_each_other():
    guard, errors = Guard("memory://"), [REFUSED, REFUSED]

    @guard.tool(kind="write", downstream="key", one_request=True, retry=QUICK)
    def pay():
        if errors:
            raise errors.pop()
        return "paid"

    for tenant in ("acme", "globex"):
        with (
            guard.turn("chat", "turn-7", budget=Budget(attempts=2)),
            guard.step("chat", "pay", tenant=tenant),
        ):
            errors[:] = [REFUSED]
            assert pay() == "paid"
