"""Facts about guarded calls. Most of them are bugs that somebody's library has or had: see the peers' column in docs/explanation."""

import dataclasses
import enum
import gc
import threading
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import msgspec
import pydantic
import pytest

from effectonce import (
    CannotTell,
    Conflict,
    ContractViolation,
    Delivered,
    Downstream,
    Expired,
    Found,
    GaveUp,
    Guard,
    InDoubt,
    InFlight,
    LeaseLost,
    NotFound,
    NotSent,
    OutOfOrder,
    PartialSuccess,
    Rejected,
    ReplayedFailure,
    ResultUnavailable,
    Retry,
    Stable,
    State,
    StoreUnavailable,
    TimeWindow,
    current_effect,
)
from effectonce._core import ops
from effectonce.stores.memory import MemoryStore
from effectonce.testing.clock import FakeClock
from tests.flaky import FlakyStore

QUICK = Retry(base_s=0, cap_s=0)


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def store(clock):
    return MemoryStore(clock=clock)


@pytest.fixture
def guard(store):
    return Guard(store, cache=0)


def tool(guard, function=None, **contract):
    """A tool called `pay` that counts, unless a function is given."""
    settings = {"kind": "write", "retry": QUICK, "wait_s": 0, "lease_s": 30} | contract
    return guard.tool(**settings)(function or (lambda: None))


class Ledger:
    """A downstream that counts, and raises what it is told to, before or after it counts."""

    def __init__(self, *script):
        self.effects, self.script = 0, list(script)

    def pay(self, before_or_after="ok", error=None):
        step = self.script.pop(0) if self.script else ("ok", None)
        if step[0] == "before":
            raise step[1]
        self.effects += 1
        if step[0] == "after":
            raise step[1]
        return {"receipt": self.effects}


# ---------------------------------------------------------------- replay


@pytest.mark.parametrize("value", [None, 0, 0.0, "", [], {}, False, b"", (), set(), frozenset()], ids=repr)
def test_a_falsy_result_replays_as_itself(guard, value):
    calls = []

    @guard.tool(kind="write")
    def pay():
        calls.append(1)
        return value

    with guard.step("chat", "pay"):
        first, second = pay(), pay()

    assert first == second == value
    assert type(second) is type(value)
    assert len(calls) == 1


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Line:
    sku: str
    price: Decimal


@dataclasses.dataclass
class Receipt:
    id: UUID
    at: datetime
    lines: list[Line]
    colour: Colour | None = None


class Model(pydantic.BaseModel):
    id: int
    lines: tuple[Line, ...] = ()


class Struct(msgspec.Struct):
    id: int
    when: date | None = None


RECEIPT = Receipt(UUID(int=7), datetime(2025, 3, 1, tzinfo=UTC), [Line("a", Decimal("1.10"))], Colour.RED)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ((1, "two", (3,)), tuple),
        ({1: "a", (2, 3): [b"\x00"]}, dict),
        ({"$": "not a tag", "nested": {"$": 1}}, dict),
        (Decimal("1.10"), Decimal),
        ([2**70, -(2**64), 1.5, True], list),
        ({"at": datetime(2025, 3, 1, 12, tzinfo=UTC), "on": date(2025, 3, 1), "for": timedelta(seconds=1.5)}, dict),
        ({"time": datetime(2025, 1, 1, 3, 4, 5).time(), "ids": {UUID(int=1)}}, dict),  # noqa: DTZ001
        (float("inf"), float),
        (Colour.RED, Colour),
        (RECEIPT, Receipt),
        ([RECEIPT, None], list[Receipt | None]),
        ({"a": Line("x", Decimal(2))}, dict[str, Line]),
        ((1, Line("x", Decimal(2))), tuple[int, Line]),
        (Model(id=3, lines=(Line("x", Decimal(2)),)), Model),
        (Struct(3, date(2025, 1, 1)), Struct),
    ],
    ids=lambda v: str(v)[:40],
)
def test_a_result_replays_equal_and_of_the_same_type(guard, value, hint):
    def pay():
        return value

    pay.__annotations__["return"] = hint
    guarded = guard.tool(kind="write")(pay)
    with guard.step("chat", "pay"):
        first, second = guarded(), guarded()

    assert first == second == value
    assert type(second) is type(value)


@pytest.mark.parametrize(
    "value", [object(), threading.Lock(), RECEIPT, "\ud800"], ids=["object", "lock", "undeclared", "surrogate"]
)
def test_a_result_that_cannot_be_stored_still_counts_as_done(guard, value):
    calls = []

    @guard.tool(kind="write")
    def pay():
        calls.append(1)
        return value

    with guard.step("chat", "pay"):
        assert pay() is value
        for _ in range(2):
            with pytest.raises(ResultUnavailable, match="was done"):
                pay()

    assert len(calls) == 1


def test_a_ten_megabyte_result_replays(guard):
    @guard.tool(kind="write")
    def fetch():
        return {"body": "x" * 10_000_000}

    with guard.step("chat", "fetch"):
        assert fetch() == fetch()


def test_whether_it_was_replayed_is_always_answerable(guard):
    @guard.tool(kind="write")
    def pay(amount: int):
        return amount

    with guard.step("chat", "pay"):
        first, second = guard.call(pay, {"amount": 5}), guard.call("pay", {"amount": 5})

    assert (first.replayed, second.replayed) == (False, True)
    assert first.unwrap() == second.unwrap() == 5
    assert first.effect == second.effect


# ---------------------------------------------------------------- ambiguous and definite errors


@pytest.mark.parametrize(
    "error",
    [TimeoutError("slow"), ConnectionResetError("reset"), BrokenPipeError(), OSError("disk"), ValueError("bad JSON in a 200")],
)
def test_an_ambiguous_error_after_the_effect_is_never_repeated(guard, error):
    ledger = Ledger(("after", error))

    @guard.tool(kind="write", retry=QUICK)
    def pay():
        return ledger.pay()

    with guard.step("chat", "pay"):
        for _ in range(4):
            with pytest.raises(InDoubt, match="It was not retried"):
                pay()

    assert ledger.effects == 1


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), SystemExit(1), MemoryError(), GeneratorExit()], ids=lambda e: type(e).__name__
)
def test_an_interruption_after_the_effect_is_ambiguous(guard, error):
    ledger = Ledger(("after", error))

    @guard.tool(kind="write", retry=QUICK)
    def pay():
        return ledger.pay()

    with guard.step("chat", "pay"):
        with pytest.raises(InDoubt if isinstance(error, Exception) else type(error)):
            pay()
        with pytest.raises(InDoubt):
            pay()

    assert ledger.effects == 1


@pytest.mark.parametrize("error", [NotSent("no template", retryable=False), ConnectionRefusedError(), KeyError("declared")])
def test_an_error_before_the_effect_does_not_wedge_the_key(guard, error):
    ledger = Ledger(("before", error))

    @guard.tool(kind="write", retry=Retry(attempts=1), not_sent=[KeyError])
    def pay():
        return ledger.pay()

    with guard.step("chat", "pay"):
        with pytest.raises((NotSent, GaveUp, KeyError)):
            pay()
        assert pay() == {"receipt": 1}
        assert pay() == {"receipt": 1}


def test_what_was_not_sent_is_tried_again_within_the_call(guard):
    ledger = Ledger(("before", ConnectionRefusedError()), ("before", NotSent()))

    @guard.tool(kind="irreversible", downstream="key", retry=QUICK)
    def pay():
        return ledger.pay() | {"attempt": current_effect().attempt}

    with guard.step("chat", "pay"):
        assert pay() == {"receipt": 1, "attempt": 3}


def test_attempts_are_bounded_and_the_last_error_is_told(guard):
    ledger = Ledger(*[("before", NotSent("no route"))] * 9)

    @guard.tool(kind="write", retry=QUICK)
    def pay():
        return ledger.pay()

    with guard.step("chat", "pay"), pytest.raises(GaveUp, match="3 attempts failed, the last with NotSent: no route") as caught:
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

    @guard.tool(kind="write", retry=QUICK)
    def pay():
        return ledger.pay()

    with guard.step("chat", "pay"):
        assert pay() == {"receipt": 1}


def test_a_rejection_after_an_ambiguous_send_is_a_doubt(guard):
    ledger = Ledger(("after", TimeoutError()), ("before", Rejected("duplicate")))

    @guard.tool(kind="write", downstream="key", retry=QUICK)
    def pay():
        return ledger.pay()

    with guard.step("chat", "pay"):
        with pytest.raises(InDoubt, match="an earlier send may have landed"):
            pay()
        with pytest.raises(InDoubt):
            pay()


def test_an_exhausted_call_under_a_key_may_simply_be_repeated(guard):
    ledger = Ledger(*[("after", TimeoutError())] * 3)

    @guard.tool(kind="write", downstream="key", retry=QUICK)
    def pay():
        return ledger.pay()

    with guard.step("chat", "pay"):
        with pytest.raises(GaveUp, match="Calling again is safe") as caught:
            pay()
        assert caught.value.retriable
        assert pay() == {"receipt": 4}  # this downstream counts repeats: a real one would honour the key


def test_a_partial_success_keeps_its_corrective_action(guard):
    calls = []

    @guard.tool(kind="write")
    def transfer():
        calls.append(1)
        raise PartialSuccess("debited, not credited", done={"debited": True}, corrective_action="call credit(account) next")

    with guard.step("chat", "transfer"):
        for _ in range(2):
            with pytest.raises(PartialSuccess) as caught:
                transfer()
            assert caught.value.done == {"debited": True}
            assert caught.value.as_model_error()["corrective_action"] == "call credit(account) next"
    assert len(calls) == 1


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

    tool(guards[1], _named("pay", lambda: attempt("B", lambda: None)), downstream="key")
    tool(guards[0], _named("pay", lambda: attempt("A", b)), downstream="key")

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

    tool(guards[0], _named("pay", a), downstream="key")
    tool(guards[1], _named("pay", lambda: effects.append("B")), downstream="key")
    tool(guards[2], _named("pay", lambda: effects.append("C")), downstream="key")

    with guards[0].step("chat", "pay"), pytest.raises(NotSent):
        guards[0].call("pay", {})
    with guards[2].step("chat", "pay"):
        assert guards[2].call("pay", {}).replayed

    assert effects == ["A", "B"]


def test_an_owner_whose_successor_is_still_at_work_is_told_so(store, clock):
    guard, other = Guard(store, cache=0), Guard(store, cache=0)
    pending = []

    def a():
        clock.advance(31)
        with other.step("chat", "pay"):
            request = other._tool("pay").prepare((), {}).request
        pending.append(store.apply(ops.Claim(request, "b", 30, dispatch=True)))
        return "A's result"

    tool(other, _named("pay", lambda: None), downstream="key")
    tool(guard, _named("pay", a), downstream="key")

    with guard.step("chat", "pay"), pytest.raises(LeaseLost) as caught:
        guard.call("pay", {})

    assert isinstance(pending[0], ops.Held)
    assert caught.value.value == "A's result"


def test_late_evidence_settles_what_was_given_up_for_lost(store, clock):
    guard, other = Guard(store, cache=0), Guard(store, cache=0)

    def a():
        clock.advance(31)
        with other.step("chat", "pay"):
            assert other.call("pay", {}).status == "in_doubt"
        return "it did happen"

    tool(other, _named("pay", lambda: None))
    tool(guard, _named("pay", a))

    with guard.step("chat", "pay"):
        assert guard.call("pay", {}).value == "it did happen"
    with other.step("chat", "pay"):
        outcome = other.call("pay", {})
    assert (outcome.value, outcome.settled_by) == ("it did happen", "late evidence")


def _named(name, function):
    function.__name__ = name
    function.__qualname__ = name
    return function


# ---------------------------------------------------------------- conflict


def test_the_same_key_with_other_arguments_is_a_conflict_fresh_and_in_flight(store):
    guard = Guard(store, cache=0)
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
    assert "1" not in caught.value.as_model_error().get("message", "").replace(caught.value.effect.reference, "")


def test_the_same_key_with_other_arguments_is_a_conflict_after_a_reclaim(store, clock):
    guard = Guard(store, cache=0)

    @guard.tool(kind="write", downstream="key", identity=["invoice"], wait_s=0)
    def pay(invoice: str, amount: int):
        return amount

    with guard.step("chat", "pay"):
        request = guard._tool(pay).prepare(("inv_1", 1), {}).request
        store.apply(ops.Claim(request, "dead", 30, dispatch=True))
        clock.advance(31)
        with pytest.raises(Conflict):
            pay("inv_1", 2)
        assert pay("inv_1", 1) == 1


def test_the_same_key_with_other_arguments_is_a_conflict_after_waiting():
    store = MemoryStore()
    guard, outcome, entered, leave = Guard(store, cache=0), [], threading.Event(), threading.Event()

    @guard.tool(kind="write", identity=["invoice"])
    def pay(invoice: str, amount: int):
        entered.set()
        leave.wait(30)
        return amount

    def first():
        with guard.step("chat", "pay"):
            outcome.append(pay("inv_1", 1))

    thread = threading.Thread(target=first)
    thread.start()
    entered.wait(30)
    with guard.step("chat", "pay"), pytest.raises(Conflict):
        pay("inv_1", 2)
    leave.set()
    thread.join()
    assert outcome == [1]


def test_a_waiting_caller_gets_the_result_of_the_one_in_flight():
    guard, entered, leave, calls, outcomes = Guard("memory://"), threading.Event(), threading.Event(), [], []

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


def test_a_caller_that_will_not_wait_is_told_when_to_come_back(guard, clock):
    @guard.tool(kind="write", wait_s=0)
    def pay():
        with guard.step("chat", "pay"), pytest.raises(InFlight) as caught:
            pay()
        return caught.value

    with guard.step("chat", "pay"):
        told = pay.__wrapped__ and guard.call(pay, {}).value
    assert told.retry_after_s == 30
    assert told.as_model_error() == {
        "code": "RETRY_IN_FLIGHT",
        "retriable": True,
        "message": str(told),
        "corrective_action": "Repeat the same call after retry_after_s to get its result.",
        "operation": told.effect.reference,
        "retry_after_s": 30.0,
    }


# ---------------------------------------------------------------- keys


def test_one_call_has_one_key_however_it_is_written(guard):
    calls = []

    @guard.tool(kind="write")
    def pay(invoice: int, currency: str = "EUR"):
        calls.append(1)

    with guard.step("chat", "pay"):
        pay(1)
        pay(invoice=1)
        pay(1, "EUR")
        pay(currency="EUR", invoice=1)

    assert len(calls) == 1


def test_delimiters_inject_nothing(guard):
    calls = []

    @guard.tool(kind="write")
    def pay(a: str, b: str):
        calls.append((a, b))

    for scope, step in (("a|b", "c"), ("a", "b|c"), ("a:b", "c"), ("a", "b:c"), ("a/b", "c"), ("a", "b/c")):
        with guard.step(scope, step):
            pay("x", "y")
    with guard.step("chat", "pay"):
        pay("a|b", "c")
        pay("a", "b|c")

    assert len(calls) == 8


def test_two_tools_of_one_name_are_refused(guard):
    tool(guard, _named("pay", lambda: "a"))
    other = _named("pay", lambda: "b")
    other.__module__ = "another.module"

    with pytest.raises(ContractViolation, match="two tools are called 'pay'"):
        tool(guard, other)


def test_tenants_never_meet(guard):
    calls = []

    @guard.tool(kind="write")
    def pay(amount: int):
        calls.append(amount)
        return len(calls)

    for tenant in ("alice", "bob"):
        with guard.step("chat", "pay", tenant=tenant):
            assert pay(1) == pay(1)
    assert guard.call(pay, {"amount": 1}, key="k").value == 3
    assert len(calls) == 3


def test_a_business_key_needs_no_step_and_belongs_to_its_tool(guard):
    calls = []

    @guard.tool(kind="write")
    def weekly_email(user: str):
        calls.append("email")

    @guard.tool(kind="write")
    def weekly_sms(user: str):
        calls.append("sms")

    key = ("user_123", "2025-W12")
    for _ in range(2):
        guard.call(weekly_email, {"user": "ada"}, key=key)
        guard.call(weekly_sms, {"user": "ada"}, key=key)
    with pytest.raises(Conflict):
        guard.call(weekly_email, {"user": "bob"}, key=key)

    assert calls == ["email", "sms"]


def test_the_ordinal_tells_a_retry_from_a_wish(guard):
    booked = []

    @guard.tool(kind="write")
    def book(flight: str):
        booked.append(flight)
        return f"booking {len(booked)}"

    with guard.step("chat"):
        assert book("LH1") == "booking 1"
        assert book("LH1") == "booking 1"  # crashed before the model saw it: a retry
    shown = [Delivered("book", {"flight": "LH1"})]
    with guard.step("chat", delivered=shown):
        assert book("LH2") == "booking 2"  # another flight
        assert book("LH1") == "booking 3"  # the model saw the first and asks for a second
    with guard.step("chat", delivered=[*shown, Delivered("other", {})]):
        assert book("LH1") == "booking 3"


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ("attempt-2", "a count of attempts"),
        ("pay retry 3", "a count of attempts"),
        ("1765432100", "a Unix timestamp"),
        ("pay-1765432100123", "a Unix timestamp"),
        ("2025-03-01T10:00:00Z", "a time of day"),
        (datetime(2025, 3, 1, tzinfo=UTC), "a time of day"),
        ("9f3a0c52-5f0e-4c1a-9a51-0b6a1f6f2c11", "a random UUID"),
        (UUID("9f3a0c52-5f0e-4c1a-9a51-0b6a1f6f2c11"), "a random UUID"),
        ("call_a1B2c3D4e5F6", "the id of one call"),
        ("toolu_01A09q90qw90lq917835lq9", "the id of one call"),
        ("mail-ada@example.test", "a personal identifier"),
        (1.5, "must be made of strings"),
        (True, "must be made of strings"),
        ("", "is empty"),
    ],
)
def test_a_key_that_changes_on_every_attempt_is_refused_with_the_reason(guard, step, reason):
    with pytest.raises(ContractViolation, match=reason):
        guard.step("chat", step)
    tool(guard, _named("pay", lambda: None))
    with pytest.raises(ContractViolation, match=reason):
        guard.call("pay", {}, key=("weekly", step))


@pytest.mark.parametrize(
    "step", ["refund", 7, date(2025, 3, 1), "2025-W12", "ord_1234567", Stable("call_a1B2c3D4e5F6"), UUID(int=5)]
)
def test_a_stable_step_id_is_accepted(guard, step):
    guard.step("9f3a0c52-5f0e-4c1a-9a51-0b6a1f6f2c11", step)


@pytest.mark.parametrize("name", ["attempt", "timestamp", "request_id", "tool_call_id", "nonce"])
def test_a_parameter_that_changes_on_every_attempt_must_be_declared(guard, name):
    source = f"def pay(invoice, {name}): pass"
    scope = {}
    exec(source, scope)

    with pytest.raises(ContractViolation, match="changes on every attempt"):
        guard.tool(kind="write")(scope["pay"])
    with pytest.raises(ContractViolation, match="changes on every attempt"):
        guard.tool(kind="write", identity=["invoice", name])(scope["pay"])
    guard.tool(kind="write", volatile=[name])(scope["pay"])
    guard.tool(kind="write", identity=["invoice", Stable(name)])(scope["pay"])


def test_a_key_is_never_a_parameter(guard):
    def pay(invoice, idempotency_key):
        pass

    with pytest.raises(ContractViolation, match="never a parameter"):
        guard.tool(kind="write")(pay)


def test_the_downstream_key_is_short_stable_and_gives_nothing_away():
    seen = []

    for secret in (b"", b"", b"secret"):
        guard = Guard("memory://", secret=secret)

        @guard.tool(kind="write", downstream="key")
        def pay(iban: str):
            effect = current_effect()
            seen.append(effect.downstream_key)
            assert effect.key not in effect.downstream_key
            assert (effect.attempt, effect.epoch) == (1, 1)

        with guard.step("chat", "pay"):
            pay("DE89 3704 0044 0532 0130 00")

    assert seen[0] == seen[1] != seen[2]
    assert all(len(key) <= 255 and key.isascii() and "DE89" not in key for key in seen)


def test_outside_a_tool_there_is_no_current_effect():
    with pytest.raises(LookupError, match="only inside a tool"):
        current_effect()


def test_explain_says_what_was_hashed_and_why_two_calls_differ(guard):
    @guard.tool(kind="write", identity=["invoice"], volatile=["note"])
    def pay(invoice: str, amount: int, note: str = ""):
        pass

    with guard.step("chat", "pay"):
        one, two = pay.explain("inv_1", 5, "a"), pay.explain("inv_1", 6, "b")
        other = pay.explain("inv_2", 5)
        same = pay.explain("inv_1", 5, note="a")
    with guard.step("chat", "again"):
        again = pay.explain("inv_1", 5, "a")

    assert (one.hashed, one.matched, one.stripped) == ({"invoice": "inv_1"}, {"amount": 5}, {"note": "a"})
    assert one.differences(two) == (
        "amount differs: 5 and 6, so the second call is a conflict",
        "note differs: 'a' and 'b', which is ignored: it is volatile",
    )
    assert one.key == two.key != other.key
    assert one.differences(same) == ("nothing differs: this is the same call",)
    assert "two effects" in one.differences(other)[0]
    assert "place differs" in one.differences(again)[0]
    assert "hashed    invoice='inv_1'" in str(one)
    assert guard.counts() == {}


# ---------------------------------------------------------------- contracts and validation


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"amount": "5", "to": "ada"}, "'amount' does not fit"),
        ({"amount": True, "to": "ada"}, "'amount' does not fit"),
        ({"amount": 5}, "missing a required argument: 'to'"),
        ({"amount": 5, "to": "ada", "key": "x"}, "unexpected keyword argument 'key'"),
        ({"amount": 5, "to": object()}, "'to' does not fit"),
    ],
)
def test_a_call_that_does_not_fit_claims_nothing(guard, arguments, reason):
    @guard.tool(kind="write")
    def pay(amount: int, to: str):
        pytest.fail("it must not run")

    with guard.step("chat", "pay"), pytest.raises(ContractViolation, match=reason):
        guard.call(pay, arguments)
    assert guard.counts() == {}


def test_enums_and_models_fit_their_hints(guard):
    @guard.tool(kind="write")
    def pay(colour: Colour, receipt: Receipt, struct: Struct, model: Model, many: list[Colour], *rest: int, **more: str):
        return len(rest)

    with guard.step("chat", "pay"):
        assert pay(Colour.RED, RECEIPT, Struct(1), Model(id=1), [Colour.RED], 1, 2, a="b") == 2
        assert pay(Colour.RED, RECEIPT, Struct(1), Model(id=1), [Colour.RED], 1, 2, a="b") == 2
    assert guard.counts() == {State.COMPLETED: 1}


def test_an_argument_without_identity_is_refused_before_any_claim(guard):
    @guard.tool(kind="write")
    def pay(thing):
        pytest.fail("it must not run")

    with guard.step("chat", "pay"):
        for thing in (object(), float("nan"), "\ud800"):
            with pytest.raises(ContractViolation, match="Nothing was sent"):
                pay(thing)
    assert guard.counts() == {}


def test_outside_a_step_a_write_is_refused(guard):
    tool(guard, _named("pay", lambda: None))
    with pytest.raises(ContractViolation, match="outside a step"):
        guard.call("pay", {})


def test_a_permission_is_checked_before_the_claim_and_before_a_replay(guard):
    @guard.tool(kind="write", permission="payments:write")
    def pay():
        return "paid"

    with guard.step("chat", "pay", permissions={"payments:write"}):
        assert pay() == "paid"
    with guard.step("chat", "pay"), pytest.raises(ContractViolation, match="needs the permission"):
        pay()


def test_a_tool_that_moved_on_refuses_an_older_caller(guard):
    tool(guard, _named("pay", lambda: None), version="2")
    with pytest.raises(ContractViolation, match="version 2, not 1"):
        guard.call("pay", {}, key="k", version="1")


@pytest.mark.parametrize(
    ("contract", "reason"),
    [
        ({"kind": "maybe"}, "kind='maybe'"),
        ({"downstream": "hope"}, "downstream='hope'"),
        ({"downstream": "transaction"}, "no transactions"),
        ({"kind": "irreversible"}, "this store can forget"),
        ({"kind": "irreversible", "downstream": "probe"}, "this store can forget"),
        ({"kind": "irreversible", "downstream": "key", "dedup": TimeWindow(seconds=5)}, "cannot guard an irreversible"),
        ({"identity": ["nobody"]}, "no parameter 'nobody'"),
        ({"volatile": ["nobody"]}, "no parameter 'nobody'"),
        ({"window": -1}, "window must be positive"),
        ({"lease_s": 0}, "lease"),
        ({"wait_s": -1}, "waiting"),
    ],
)
def test_a_contract_that_cannot_be_kept_is_refused_at_decoration(guard, contract, reason):
    with pytest.raises(ContractViolation, match=reason):
        tool(guard, _named("pay", lambda: None), **contract)


def test_identity_and_volatile_exclude_each_other(guard):
    with pytest.raises(ContractViolation, match="both identity and volatile"):
        guard.tool(kind="write", identity=["a"], volatile=["a"])(lambda a: a)


@pytest.mark.parametrize("bad", [{"attempts": 0}, {"base_s": 2, "cap_s": 1}, {"deadline_s": 0}])
def test_a_retry_policy_is_checked(bad):
    with pytest.raises(ContractViolation):
        Retry(**bad)


def test_policies_that_make_no_sense_are_refused():
    with pytest.raises(ContractViolation, match="downstream='none'"):
        Downstream.key(window=0)
    with pytest.raises(ContractViolation, match="end some day"):
        TimeWindow(seconds=float("inf"))
    for name in ("key", "probe", "none", "transaction"):
        assert Downstream.of(name).capability == name
    assert Downstream.key(window=timedelta(hours=1)).window_s == 3600


@pytest.mark.parametrize("url", ["", "effects.db", "sqlite:effects.db", "mongodb://x", "memory://x", "sqlite:///"])
def test_a_url_that_names_no_store_is_refused(url):
    with pytest.raises(ContractViolation, match="is not the URL of a store"):
        Guard(url)


def test_the_wrong_colour_is_a_type_error_at_decoration(guard):
    sync = tool(guard, _named("pay", lambda: None), downstream="probe")

    async def probe():
        return NotFound()

    with pytest.raises(TypeError, match="both must have one colour"):
        sync.probe(probe)
    with pytest.raises(TypeError, match="both must have one colour"):
        sync.fallback(probe)

    def generate():
        yield 1

    with pytest.raises(TypeError, match="is a generator"):
        guard.tool(kind="write")(generate)


def test_a_sync_tool_that_returns_a_coroutine_has_sent_nothing(guard):
    async def inner():
        pytest.fail("it must not run")

    pay = tool(guard, _named("pay", lambda: inner()))
    with guard.step("chat", "pay"), pytest.raises(NotSent, match="async def"):
        pay()
    gc.collect()
    with guard.step("chat", "pay"):
        assert guard.find(pay.explain().key).sends == 0


def test_a_probe_needs_a_downstream_that_can_be_asked(guard):
    with pytest.raises(ContractViolation, match="downstream='probe'"):
        tool(guard, _named("pay", lambda: None)).probe(lambda: NotFound())


def test_a_stranger_is_not_a_tool_of_this_guard(guard):
    with pytest.raises(ContractViolation, match="not a tool of this guard"):
        guard.call(print, {})


def test_settling_needs_a_name_and_a_reason(guard):
    with pytest.raises(ContractViolation, match="somebody will ask"):
        guard.refute("k", by=" ", reason="x")


def test_tenant_and_scope_say_something(guard):
    for bad in (lambda: Guard("memory://", tenant=""), lambda: guard.step(""), lambda: guard.step("a", tenant="")):
        with pytest.raises(ContractViolation, match="must be a text that says something"):
            bad()


def test_a_step_is_entered_once_at_a_time(guard):
    step = guard.step("chat", "pay")
    with step, pytest.raises(RuntimeError, match="already entered"):
        step.__enter__()
    with step:
        pass


# ---------------------------------------------------------------- windows, expiry, sequences


def test_an_expired_key_is_refused_and_never_run_again(guard, clock):
    calls = []

    @guard.tool(kind="write", window=timedelta(hours=1))
    def pay():
        calls.append(1)

    with guard.step("chat", "pay"):
        pay()
        clock.advance(3601)
        for _ in range(2):
            with pytest.raises(Expired, match="Nothing was sent"):
                pay()
            guard.sweep()
    assert len(calls) == 1


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


def test_a_time_window_lets_a_repeat_through_after_a_crash(guard, clock, store):
    @guard.tool(kind="write", dedup=TimeWindow(seconds=60), retry=QUICK)
    def notify(user: str):
        return user

    store.apply(ops.Claim(guard._tool(notify).prepare(("ada",), {}).request, "dead", 30, dispatch=True))
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


# ---------------------------------------------------------------- probes and settling


def test_a_probe_settles_a_timeout_within_the_call(guard):
    ledger = Ledger(("after", TimeoutError()))

    @guard.tool(kind="write", downstream="probe", retry=QUICK)
    def pay(invoice: str):
        return ledger.pay()

    @pay.probe
    def find(invoice: str):
        assert (invoice, current_effect().epoch) == ("inv_1", 3)
        return Found({"receipt": ledger.effects}) if ledger.effects else NotFound()

    with guard.step("chat", "pay"):
        outcome = guard.call(pay, {"invoice": "inv_1"})
        assert (outcome.value, outcome.settled_by) == ({"receipt": 1}, "probe")
        assert pay("inv_1") == {"receipt": 1}
    assert ledger.effects == 1


@pytest.mark.parametrize("answer", [NotFound(), CannotTell("closed"), CannotTell(), None, RuntimeError("down")], ids=repr)
def test_a_probe_that_proves_nothing_leaves_the_doubt(guard, answer):
    ledger = Ledger(("after", TimeoutError()))

    @guard.tool(kind="write", downstream="probe", retry=QUICK)
    def pay():
        return ledger.pay()

    @pay.probe
    def find():
        if isinstance(answer, Exception):
            raise answer
        return answer

    with guard.step("chat", "pay"):
        for _ in range(3):
            with pytest.raises(InDoubt):
                pay()
    assert guard.reconcile() == type(guard.reconcile())(settled=0, in_doubt=1, skipped=0)
    assert ledger.effects == 1


def test_a_declared_delay_bound_turns_not_found_into_a_re_run(guard, clock):
    ledger = Ledger(("before", TimeoutError()))

    @guard.tool(kind="write", downstream=Downstream.probe(delay=60), retry=QUICK)
    def pay():
        return ledger.pay()

    @pay.probe
    def find():
        return Found("?") if ledger.effects else NotFound()

    with guard.step("chat", "pay"):
        with pytest.raises(InDoubt):
            pay()
        clock.advance(89)
        with pytest.raises(InDoubt):
            pay()
        clock.advance(2)
        assert guard.reconcile().in_doubt == 1  # asking alone never sends
        assert pay() == {"receipt": 1}


def test_effects_in_doubt_are_reconciled_in_the_background(store, clock):
    worker = Guard(store, cache=0)
    silent = tool(worker, _named("pay", lambda invoice: (_ for _ in ()).throw(TimeoutError())), downstream="probe")
    for invoice in ("inv_1", "inv_2"):
        with worker.step("chat", f"pay {invoice}"), pytest.raises(InDoubt):
            silent(invoice)
    assert worker.reconcile().skipped == 2

    desk = Guard(store, cache=0)
    pay = tool(desk, _named("pay", lambda invoice: pytest.fail("asking must not send")), downstream="probe")
    pay.probe(lambda invoice: Found(f"receipt of {invoice}") if invoice == "inv_1" else CannotTell())
    assert desk.reconcile() == type(desk.reconcile())(settled=1, in_doubt=1, skipped=0)
    with desk.step("chat", "pay inv_1"):
        assert pay("inv_1") == "receipt of inv_1"


def test_a_person_settles_what_nobody_else_can(guard):
    @guard.tool(kind="write", retry=QUICK)
    def pay(invoice: int):
        raise TimeoutError

    def doubt(invoice):
        with guard.step("chat", f"pay {invoice}"):
            return guard.call(pay, {"invoice": invoice}).effect.key

    confirmed, refuted = doubt(1), doubt(2)
    assert [record.request.key for record in guard.in_doubt()] == sorted([confirmed, refuted])
    guard.confirm(confirmed, result={"receipt": 9}, by="ada", reason="on the statement")
    guard.refute(refuted, by="ada", reason="not on the statement")
    with guard.step("chat", "pay 1"):
        outcome = guard.call(pay, {"invoice": 1})
        assert (outcome.value, outcome.settled_by) == ({"receipt": 9}, "ada")
    with guard.step("chat", "pay 2"), pytest.raises(ReplayedFailure, match="not on the statement"):
        pay(2)
    with pytest.raises(ContractViolation, match="nothing to settle: the effect is completed"):
        guard.refute(confirmed, by="ada", reason="changed my mind")
    with pytest.raises(ContractViolation, match="unknown to this store"):
        guard.refute("0" * 40, by="ada", reason="typo")


def test_a_person_may_retry_only_where_the_key_is_honoured(guard, clock):
    @guard.tool(kind="write", retry=QUICK)
    def mail():
        raise TimeoutError

    ledger = Ledger(("after", TimeoutError()), ("before", Rejected("?")))

    @guard.tool(kind="write", downstream=Downstream.key(window=3600), retry=QUICK)
    def pay():
        return ledger.pay()

    with guard.step("chat", "mail"):
        key = guard.call(mail, {}).effect.key
    with pytest.raises(ContractViolation, match="could do it twice"):
        guard.retry(key, by="ada", reason="please")
    with guard.step("chat", "pay"):
        key = guard.call(pay, {}).effect.key
        guard.retry(key, by="ada", reason="the bank says it is fine")
        assert pay() == {"receipt": 2}


def test_a_fallback_answers_for_a_tool_that_cannot(guard):
    @guard.tool(kind="write", retry=QUICK)
    def pay(invoice: str):
        raise TimeoutError

    @pay.fallback
    def explain(error, invoice):
        return f"{error.code} for {invoice}"

    with guard.step("chat", "pay"):
        assert pay("inv_1") == "OUTCOME_UNKNOWN for inv_1"
        with pytest.raises(ContractViolation):
            pay(5)
    assert guard.counts() == {State.IN_DOUBT: 1}


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
    broken = tool(guard, _named("broken", lambda: 1 / 0), kind="read")
    slow = tool(guard, _named("slow", lambda: (_ for _ in ()).throw(TimeoutError())), kind="read")
    with pytest.raises(ZeroDivisionError):
        broken()
    with pytest.raises(GaveUp):
        slow()
    slow.fallback(lambda error: "stale")
    assert slow() == "stale"


# ---------------------------------------------------------------- the store fails


@pytest.mark.parametrize("how", ["lost", "unacknowledged"])
def test_a_store_that_is_down_sends_nothing(how):
    store = FlakyStore()
    guard, calls = Guard(store, cache=0), []
    pay = tool(guard, _named("pay", lambda: calls.append(1)))
    store.fail(ops.Claim, how, times=3)

    with guard.step("chat", "pay"):
        with pytest.raises(StoreUnavailable, match="was not run"):
            pay()
        assert calls == []


def test_a_claim_whose_acknowledgement_was_lost_is_still_ours():
    store = FlakyStore()
    guard, calls = Guard(store, cache=0), []
    pay = tool(guard, _named("pay", lambda: calls.append(1)))
    store.fail(ops.Claim, "unacknowledged", times=2)

    with guard.step("chat", "pay"):
        pay()
    assert (calls, store.log) == ([1], ["Claim", "Claim", "Claim", "Complete"])


@pytest.mark.parametrize("how", ["lost", "unacknowledged"])
def test_a_store_error_after_the_effect_is_repeated_until_it_is_written(how):
    store = FlakyStore()
    guard, calls = Guard(store, cache=0), []
    pay = tool(guard, _named("pay", lambda: calls.append(1) or "receipt"))
    store.fail(ops.Complete, how, times=4)

    with guard.step("chat", "pay"):
        assert pay() == "receipt"
        assert guard.call(pay, {}).replayed
    assert calls == [1]


def test_an_effect_whose_outcome_could_not_be_written_is_never_run_again(clock):
    store = FlakyStore(clock=clock)
    guard, calls = Guard(store, cache=0), []
    pay = tool(guard, _named("pay", lambda: calls.append(1) or "receipt"), retry=Retry(deadline_s=0.05))
    store.fail(ops.Complete, times=10_000)

    with guard.step("chat", "pay"):
        outcome = guard.call(pay, {})
        assert (outcome.value, outcome.recorded) == ("receipt", False)
        clock.advance(31)
        with pytest.raises(InDoubt):
            pay()
    assert calls == [1]


def test_a_dispatch_that_could_not_be_written_sends_nothing():
    store = FlakyStore()
    guard, calls = Guard(store, cache=0), []
    pay = tool(guard, _named("pay", lambda: calls.append(1)), separate_dispatch=True)
    store.fail(ops.Dispatch, times=3)

    with guard.step("chat", "pay"):
        with pytest.raises(StoreUnavailable):
            pay()
        assert calls == []


def test_a_doubt_that_cannot_be_asked_about_is_told_as_a_store_failure(clock):
    store = FlakyStore(clock=clock)
    guard = Guard(store, cache=0)
    pay = tool(guard, _named("pay", lambda: (_ for _ in ()).throw(TimeoutError())), downstream="probe")
    pay.probe(lambda: Found(1))
    store.fail(ops.Inquire, times=3)
    with guard.step("chat", "pay"):
        with pytest.raises(InDoubt):
            pay()
        store.fail(ops.Inquire, times=3)
        with pytest.raises(StoreUnavailable):
            pay()
        assert pay() == 1


# ---------------------------------------------------------------- the process cache


def test_known_outcomes_are_replayed_without_the_store():
    store = FlakyStore()
    guard = Guard(store)
    pay = tool(guard, _named("pay", lambda: {"receipt": 1}))
    with guard.step("chat", "pay"):
        first = pay()
        first["receipt"] = "changed by the caller"
        assert pay() == {"receipt": 1}
    assert store.log == ["Claim", "Complete"]


def test_the_cache_is_bounded_checks_the_request_and_ends_with_the_window(store, clock):
    writer, reader = Guard(store), Guard(store, cache=2)
    for guard in (writer, reader):
        tool(guard, _named("pay", lambda invoice, amount: amount), identity=["invoice"], window=3600)

    def call(guard, invoice, amount=1):
        with guard.step("chat", f"pay {invoice}"):
            return guard.call("pay", {"invoice": invoice, "amount": amount})

    for invoice in range(3):
        call(writer, invoice)
        assert call(reader, invoice).replayed
    assert len(reader._house.cache._entries) == 2
    with pytest.raises(Conflict):
        call(reader, 2, amount=2)


def test_only_known_outcomes_are_cached(store):
    guard = Guard(store)
    pay = tool(guard, _named("pay", lambda: (_ for _ in ()).throw(TimeoutError())))
    with guard.step("chat", "pay"), pytest.raises(InDoubt):
        pay()
    assert not guard._house.cache._entries
