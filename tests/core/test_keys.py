"""Where a key comes from, and what it may not be made of."""

import dataclasses
from contextlib import nullcontext
from datetime import UTC, date, datetime
from uuid import UUID, uuid4

import msgspec
import pydantic
import pytest

from effectonce import (
    Conflict,
    ContractViolation,
    Delivered,
    GaveUp,
    Guard,
    NotSent,
    Retry,
    Stable,
    current_effect,
)
from effectonce._core.keys import HOME_LENGTH
from effectonce.integrations._agent_tools import AgentTools
from tests.core.helpers import named, tool

COMPOSED, DECOMPOSED = "Zo\u00eb", "Zoe\u0308"


@dataclasses.dataclass
class Customer:
    name: str


@pytest.mark.parametrize(
    "wrapped",
    [str, lambda text: {text: [text, "z"], "f": 1}, Customer],
    ids=["text", "dict", "model"],
)
@pytest.mark.parametrize(("nfc", "runs"), [(True, 1), (False, 2)])
def test_a_text_in_two_compositions_is_one_effect_if_the_tool_says_so(guard, wrapped, nfc, runs):
    calls = []

    @guard.tool(kind="write", nfc=nfc)
    def greet(name: object):
        calls.append(name)

    with guard.step("chat", "greet"):
        greet(wrapped(DECOMPOSED))
        greet(wrapped(COMPOSED))

    assert calls[0] == wrapped(DECOMPOSED)
    assert len(calls) == runs


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

    for scope, step in (
        ("a|b", "c"),
        ("a", "b|c"),
        ("a:b", "c"),
        ("a", "b:c"),
        ("a/b", "c"),
        ("a", "b/c"),
    ):
        with guard.step(scope, step):
            pay("x", "y")
    with guard.step("chat", "pay"):
        pay("a|b", "c")
        pay("a", "b|c")

    assert len(calls) == 8


def test_two_tools_of_one_name_are_refused(guard):
    tool(guard, named("pay", lambda: "a"))
    other = named("pay", lambda: "b")
    other.__module__ = "another.module"

    with pytest.raises(ContractViolation, match="two tools are called 'pay'"):
        tool(guard, other)


def test_two_tools_of_one_name_in_guards_that_share_keys_are_told(store, caplog):
    def mail(to: str):
        return "mail"

    def text(to: str):
        return "text"

    guards = [
        Guard(store),
        Guard(store),
        Guard(store),
        Guard(store, tenant="acme"),
        Guard("memory://"),
    ]
    for guard, function in zip(guards, [mail, mail, text, mail, text], strict=True):
        guard.tool(kind="write", name="send")(function)

    for guard, coloured in zip(guards, [False, True, False, True, False], strict=True):
        AgentTools(guard, {"pay": {"kind": "write"}}, None)._tool(
            "pay", asynchronous=coloured
        )  # what runs the tools of a framework

    (told,) = [record.getMessage() for record in caplog.records]
    assert "mail and" in told
    assert "the second is not run and gets the result of the first" in told


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
    tool(guard, named("pay", lambda: None))
    with pytest.raises(ContractViolation, match=reason):
        guard.call("pay", {}, key=("weekly", step))


@pytest.mark.parametrize(
    "step",
    [
        "refund",
        7,
        date(2025, 3, 1),
        "2025-W12",
        "ord_1234567",
        Stable("call_a1B2c3D4e5F6"),
        UUID(int=5),
    ],
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


class Order(pydantic.BaseModel):
    number: int
    request_id: str = ""
    id: UUID = pydantic.Field(default_factory=uuid4)
    lines: list[int] = []


@dataclasses.dataclass
class Mail:
    to: str
    order: Order | None = None
    made: datetime = dataclasses.field(default_factory=datetime.now)
    answer_to: "Mail | None" = None


class Ping(msgspec.Struct):
    host: str
    nonce: str = msgspec.field(default_factory=lambda: "any")


def test_fields_of_models_that_change_on_every_attempt_are_told(guard, caplog):
    @guard.tool(kind="write")
    def send(mail: Mail, ping: Ping | None = None, order: Order | None = None):
        return 1

    @guard.tool(kind="write", identity=[Stable("mail")], volatile=["order"])
    def vouched(mail: Mail, order: Order, lines: list[Ping]):
        return 1

    told = [record.getMessage() for record in caplog.records]
    assert [message.partition(" looks like")[0] for message in told] == [
        "send: mail.order.request_id",
        "send: mail.order.id",
        "send: mail.made",
        "send: ping.nonce",
        "send: order.request_id",
        "send: order.id",
    ]
    assert told[0].endswith(
        "looks like the id of one call and is in the key: a retry that makes it anew is another"
        " effect. Pass it as an argument of its own that is volatile, or vouch for it with"
        " identity=[Stable('mail'), ...]."
    )


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


@pytest.mark.parametrize(
    ("error", "before"), [(TimeoutError, [False, True, True]), (NotSent, [False, False, False])]
)
def test_a_tool_can_tell_whether_an_earlier_send_may_have_landed(guard, error, before):
    seen = []

    @guard.tool(kind="write", downstream="key", retry=Retry(attempts=2, base_s=0.0))
    def pay(invoice: int):
        current_effect().downstream_key  # noqa: B018  # sent with the request
        seen.append(current_effect().sent_before)
        if len(seen) < 3:
            raise error

    with guard.step("chat", "pay"):
        with pytest.raises(GaveUp):
            pay(1)
        pay(1)

    assert seen == before


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

    assert (one.hashed, one.matched, one.stripped) == (
        {"invoice": "inv_1"},
        {"amount": 5},
        {"note": "a"},
    )
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


def test_calls_with_arguments_that_are_no_data_are_told_apart_as_well(guard):
    @guard.tool(kind="write", volatile=["session"])
    def pay(session: object, invoice: str): ...

    session = object()
    with guard.step("chat", "pay"):
        one, same, two = (
            pay.explain(session, "inv_1"),
            pay.explain(session, "inv_1"),
            pay.explain(object(), "inv_2"),
        )

    assert one.differences(same) == ("nothing differs: this is the same call",)
    assert [sentence.partition(" differs")[0] for sentence in one.differences(two)] == [
        "invoice",
        "session",
    ]


def test_a_sequence_lives_in_one_home(guard):
    @guard.tool(kind="write")
    def pay(invoice: int): ...

    with guard.sequence("account/42", 2):
        request = guard._tools["pay"].prepare((1,), {}).request

    assert request.key[:HOME_LENGTH] == request.after[:HOME_LENGTH]
    assert request.key != request.after


def test_each_request_of_an_effect_has_a_key_of_its_own_and_the_same_on_every_attempt(guard):
    runs = []

    @guard.tool(kind="write", downstream="key", retry=Retry(attempts=3, base_s=0.0))
    def pay(invoice: int):
        effect = current_effect()
        places = [
            ("POST", "/pay"),
            ("PATCH", "/pay"),
            ("POST", "/mail"),
            ("POST", "/pay", 1),
            ("POST", "/pay", "1"),
        ]
        runs.append([effect.downstream_key, *(effect.request_key(*place) for place in places)])
        assert effect.request_key("post", "/pay") == effect.request_key("POST", "/pay")
        if len(runs) < 2:
            raise NotSent

    with guard.step("chat", "pay"):
        pay(1)

    assert runs[0] == runs[1]
    assert len(set(runs[0])) == 6


def first_release(payment: str):
    return "done"


def with_currency(payment: str, currency: str = "EUR"):
    return "done again"


def renamed(payment: str):
    return "done again"


@pytest.mark.parametrize(
    ("old", "new", "function", "then"),
    [
        (
            {},
            {"version": "2", "downstream": "key", "window": 5, "retry": Retry(attempts=9)},
            first_release,
            "done",
        ),
        ({}, {}, renamed, "done again"),
        ({}, {"name": "first_release"}, renamed, "done"),
        ({}, {"name": "first_release"}, with_currency, "done again"),
        ({}, {"name": "first_release", "volatile": ["currency"]}, with_currency, "done"),
        (
            {"identity": ["payment"]},
            {"identity": ["payment"], "name": "first_release"},
            with_currency,
            Conflict,
        ),
        (
            {"identity": ["payment"]},
            {"identity": ["payment"], "volatile": ["currency"], "name": "first_release"},
            with_currency,
            "done",
        ),
    ],
    ids=[
        "contract",
        "function",
        "name kept",
        "parameter",
        "volatile",
        "identity",
        "identity and volatile",
    ],
)
def test_what_a_release_may_change_without_another_key(store, old, new, function, then):
    before, after = Guard(store), Guard(store)
    first, again = (
        before.tool(kind="write", **old)(first_release),
        after.tool(kind="write", **new)(function),
    )
    with before.step("chat", "refund"):
        first("pay_7")

    with after.step("chat", "refund"), pytest.raises(then) if then is Conflict else nullcontext():
        assert again("pay_7") == then
