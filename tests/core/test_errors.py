"""What an error says about the effect, and what is done about it."""

import pickle
import traceback
from pathlib import Path

import pytest

from effectonce import (
    CircuitOpen,
    ContractViolation,
    Downstream,
    EffectOnceError,
    GaveUp,
    Guard,
    InDoubt,
    LeaseLost,
    NotSent,
    PartialSuccess,
    Rejected,
    ReplayedFailure,
    Retry,
    current_effect,
)
from effectonce._core.effect_ref import EffectRef
from tests.core.helpers import QUICK, Ledger, named, tool

ROOT = Path(__file__).parent.parent.parent

# ---------------------------------------------------------------- ambiguous and definite errors


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError("slow"),
        ConnectionResetError("reset"),
        BrokenPipeError(),
        OSError("disk"),
        ValueError("bad JSON in a 200"),
        MemoryError(),
        KeyboardInterrupt(),
        SystemExit(1),
        GeneratorExit(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_ambiguous_error_or_an_interruption_after_the_effect_is_never_repeated(guard, error):
    ledger = Ledger(("after", error))
    pay = tool(guard, ledger.pay)

    with guard.step("chat", "pay"):
        if not isinstance(error, Exception):
            with pytest.raises(type(error)):
                pay()
        for _ in range(4):
            with pytest.raises(InDoubt, match="It was not retried"):
                pay()

    assert ledger.effects == 1


@pytest.mark.parametrize(
    "error",
    [NotSent("no template", retryable=False), ConnectionRefusedError(), KeyError("declared")],
)
def test_an_error_before_the_effect_does_not_wedge_the_key(guard, error):
    ledger = Ledger(("before", error))
    pay = tool(
        guard, ledger.pay, retry=Retry(attempts=1), not_sent=[KeyError, ConnectionRefusedError]
    )

    with guard.step("chat", "pay"):
        with pytest.raises((NotSent, GaveUp, KeyError)):
            pay()
        assert pay() == {"receipt": 1}
        assert pay() == {"receipt": 1}


def test_what_was_not_sent_is_tried_again_within_the_call(guard):
    ledger = Ledger(("before", ConnectionRefusedError()), ("before", NotSent()))

    @guard.tool(kind="write", downstream="key", retry=QUICK, not_sent=[ConnectionRefusedError])
    def pay():
        return ledger.pay() | {"attempt": current_effect().attempt}

    with guard.step("chat", "pay"):
        assert pay() == {"receipt": 1, "attempt": 3}


def test_attempts_are_bounded_and_the_last_error_is_told(guard):
    ledger = Ledger(*[("before", NotSent("no route"))] * 9)
    pay = tool(guard, ledger.pay)

    with (
        guard.step("chat", "pay"),
        pytest.raises(
            GaveUp, match=r"attempt 3 ended with NotSent: no route\. It was tried 3 times"
        ) as caught,
    ):
        pay()
    assert len(ledger.script) == 6
    assert caught.value.retriable


def test_a_definite_failure_is_raised_as_itself_and_replayed_as_a_failure(guard):
    calls = []

    class CardDeclined(Exception):
        pass

    @guard.tool(kind="write", rejected=[CardDeclined])
    def pay():
        calls.append(1)
        raise CardDeclined("insufficient funds")

    with guard.step("chat", "pay"):
        with pytest.raises(CardDeclined):
            pay()
        with pytest.raises(ReplayedFailure, match="insufficient funds") as caught:
            pay()

    assert len(calls) == 1
    assert caught.value.error_type.endswith("CardDeclined")
    assert guard.call(pay, {}, key="other").status == "failed"


def test_a_retryable_rejection_is_never_stored_as_the_outcome(guard):
    ledger = Ledger(("before", Rejected("429", retryable=True)))
    pay = tool(guard, ledger.pay)

    with guard.step("chat", "pay"):
        assert pay() == {"receipt": 1}


def test_an_exhausted_call_under_a_key_may_simply_be_repeated(guard):
    ledger = Ledger(*[("after", TimeoutError())] * 3)
    pay = tool(guard, ledger.pay, downstream="key")

    with guard.step("chat", "pay"):
        with pytest.raises(GaveUp, match="Calling again is safe") as caught:
            pay()
        assert caught.value.retriable
        # this downstream counts repeats: a real one would honour the key
        assert pay() == {"receipt": 4}


def test_a_partial_success_keeps_its_corrective_action(guard):
    calls = []

    @guard.tool(kind="write")
    def transfer():
        calls.append(1)
        raise PartialSuccess(
            "debited, not credited",
            done={"debited": True},
            corrective_action="call credit(account) next",
        )

    with guard.step("chat", "transfer"):
        for _ in range(2):
            with pytest.raises(PartialSuccess) as caught:
                transfer()
            assert caught.value.done == {"debited": True}
            assert caught.value.as_model_error()["corrective_action"] == "call credit(account) next"
    assert len(calls) == 1


# ---------------------------------------------------------------- reads


def test_a_read_is_the_bare_function_and_retries_freely(guard):
    calls = []

    @guard.tool(kind="read", retry=QUICK)
    def balance(account: str):
        calls.append(account)
        if len(calls) < 3:
            raise TimeoutError
        return 100

    assert balance("a") == 100
    assert calls == ["a"] * 3
    assert guard.counts() == {}
    with pytest.raises(ContractViolation, match="it has no record"):
        guard.call(balance, {"account": "a"})


def test_a_read_that_never_works_is_told_by_its_own_error_or_gives_up(guard):
    broken = tool(guard, named("broken", lambda: 1 / 0), kind="read")
    slow = tool(guard, named("slow", lambda: (_ for _ in ()).throw(TimeoutError())), kind="read")
    with pytest.raises(ZeroDivisionError):
        broken()
    with pytest.raises(GaveUp):
        slow()
    slow.fallback(lambda error: "stale")
    assert slow() == "stale"


def test_what_was_not_sent_after_an_ambiguous_send_may_still_have_happened(guard):
    ledger = Ledger(("after", TimeoutError()), ("before", NotSent()), ("before", NotSent()))
    pay = tool(guard, ledger.pay, downstream="key")

    with guard.step("chat", "pay"):
        with pytest.raises(GaveUp, match="may have run"):
            pay()
        assert guard.find(pay.explain().key).sends == 1


def test_a_window_that_closes_between_two_attempts_leaves_a_doubt(guard, clock):
    ledger = Ledger(("after", TimeoutError()))

    @guard.tool(kind="write", downstream=Downstream.key(window=100), retry=QUICK)
    def pay():
        try:
            return ledger.pay()
        finally:
            clock.advance(95)

    with guard.step("chat", "pay"), pytest.raises(InDoubt):
        pay()
    assert ledger.effects == 1


def test_what_an_inner_call_says_about_its_effect_says_nothing_about_the_outer_one(guard):
    ledger = []

    @guard.tool(kind="write", retry=Retry(attempts=1))
    def mail(how: str):
        raise {
            "not sent": NotSent("no template", retryable=False),
            "refused": Rejected("no such customer"),
        }[how]

    @guard.tool(kind="write", retry=QUICK)
    def pay(invoice: str, how: str):
        ledger.append(invoice)
        mail(how)

    for how in ("not sent", "refused"):
        with guard.step("chat", f"pay {how}"):
            for _ in range(2):
                with pytest.raises(InDoubt):
                    pay(f"inv {how}", how)
    assert ledger == ["inv not sent", "inv refused"]


def test_a_text_that_cannot_be_encoded_does_not_keep_a_doubt_from_being_written(tmp_path):
    guard = Guard(f"sqlite:///{tmp_path}/effects.db", cache=0)

    @guard.tool(kind="write", retry=QUICK)
    def pay():
        raise ValueError("\ud800")

    with guard.step("chat", "pay"), pytest.raises(InDoubt):
        pay()
    assert guard.counts() == {"in_doubt": 1}
    guard.close()


def test_an_exception_with_slots_is_raised_as_itself(guard):
    class Tight(Rejected):
        __slots__ = ()

        def __setattr__(self, name, value):
            if name == "effectonce_of":
                raise AttributeError(name)
            super().__setattr__(name, value)

    pay = tool(guard, named("pay", lambda: (_ for _ in ()).throw(Tight("no"))))
    with guard.step("chat", "pay"), pytest.raises(Tight):
        pay()


# ---------------------------------------------------------------- across processes


@pytest.mark.parametrize(
    "error",
    [
        GaveUp("enough", retry_after_s=3.0),
        CircuitOpen("open", circuit="bank", retry_after_s=2.0),
        PartialSuccess("half", corrective_action="refund it", done=["a"]),
        ReplayedFailure("failed", error_type="Declined", error_message="no"),
        InDoubt("unknown", effect=EffectRef("pay", "0123456789abcdef")),
        LeaseLost("late", value=7),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_is_the_same_in_another_process(error):
    there = pickle.loads(pickle.dumps(error))
    assert (type(there), str(there), there.args) == (type(error), str(error), error.args)
    assert there.__dict__ == error.__dict__
    assert there.as_model_error() == error.as_model_error()


def test_a_traceback_says_what_to_do(guard):
    @guard.tool(kind="write", retry=Retry(attempts=1))
    def mail(to: str):
        raise TimeoutError("no answer")

    with guard.step("chat", "mail"), pytest.raises(InDoubt) as doubt:
        mail("ada")

    told = "".join(traceback.format_exception(doubt.value))
    assert doubt.value.corrective_action in told
    assert f"effectonce effect show {doubt.value.effect.reference}" in told
    # a model has no terminal
    assert "effectonce effect show" not in str(doubt.value.as_model_error())


def test_a_corrective_action_of_its_own_is_the_one_that_is_told():
    told = "".join(traceback.format_exception(GaveUp("no", corrective_action="End this turn.")))

    assert told.endswith("[effectonce:gave-up]\nEnd this turn.\n")


@pytest.mark.parametrize("error", [TimeoutError(), KeyboardInterrupt()])
def test_an_error_that_says_nothing_is_told_by_its_name(guard, error):
    @guard.tool(kind="write", retry=QUICK)
    def mail(to: str):
        raise error

    with guard.step("chat", "mail"):
        for _ in range(2):
            with pytest.raises((InDoubt, KeyboardInterrupt)) as doubt:
                mail("ada")
    assert f"({type(error).__name__})" in str(doubt.value)


def test_a_refusal_that_says_nothing_is_told_by_its_name(guard):
    @guard.tool(kind="write", retry=QUICK)
    def mail(to: str):
        raise Rejected

    with guard.step("chat", "mail"):
        with pytest.raises(Rejected):
            mail("ada")
        with pytest.raises(ReplayedFailure, match=r"with Rejected\. It was not tried again"):
            mail("ada")


def test_a_partial_success_that_is_too_large_keeps_what_can_be_read(guard):
    done = ["room " * 1000] * 4000

    def pay():
        raise PartialSuccess("some rooms", done=done, corrective_action="rent the others")

    paying = tool(guard, pay)
    for _ in range(2):
        with guard.step("chat", "pay"), pytest.raises(PartialSuccess, match="some rooms") as raised:
            paying()

    assert len(raised.value.done) == 10_000


@pytest.mark.parametrize(
    ("downstream", "code", "retriable"),
    [("key", "GAVE_UP", True), ("none", "OUTCOME_UNKNOWN", False)],
)
def test_what_became_of_upstream_timeout_is_in_the_reference(downstream, code, retriable):
    guard = Guard("memory://")

    @guard.tool(kind="write", downstream=downstream, retry=Retry(attempts=1))
    def pay():
        assert current_effect().downstream_key
        raise TimeoutError("the bank said nothing")

    with pytest.raises(EffectOnceError) as caught, guard.step("chat", "pay"):
        pay()

    assert (caught.value.code, caught.value.retriable) == (code, retriable)
    page = (ROOT / "docs" / "reference" / "errors.md").read_text()
    assert code in page.partition("`UPSTREAM_TIMEOUT`")[2].partition("\n\nA guarded call")[0]
