"""A probe beside a key: asked when sending again under the key cannot settle it."""

import pytest

from effectonce import (
    CannotTell,
    ContractViolation,
    Downstream,
    Found,
    GaveUp,
    InDoubt,
    NotFound,
    Rejected,
    Retry,
    State,
    current_effect,
)
from effectonce._core.ops import Find
from tests.core.helpers import QUICK, Ledger, in_a_loop, named, tool

DAY_S = 86_400.0
LOST = ("after", TimeoutError("no answer"))
UNSENT = ("before", TimeoutError("no answer"))


class Keyed:
    """A downstream that stores its answer under the key, whatever it is."""

    def __init__(self, error, *, done):
        self.error, self.done, self.effects, self.requests = error, done, 0, 0

    def pay(self):
        current_effect().downstream_key  # noqa: B018  # sent with the request
        self.requests += 1
        self.effects = int(self.done)
        raise self.error


def paying(guard, ledger, find, **contract):
    """A sync tool with a probe, as a function without arguments."""
    settings = {"kind": "irreversible", "downstream": Downstream.key(window=DAY_S)} | contract
    made = tool(guard, named("pay", lambda: ledger.pay()), accept_store_loss=True, **settings)
    made.probe(find)
    return made


def once(make):
    """Call a tool in its step."""
    guard, pay = make
    with guard.step("chat", "pay"):
        return guard.call(pay, {})


def stored_error():
    error = RuntimeError("500")
    error.status_code = 500
    return error


@pytest.mark.parametrize("kind", ["write", "irreversible", "idempotent_write"])
def test_a_lost_answer_is_asked_for_under_the_key_first(guard, kind):
    ledger, asked = Ledger(LOST), []
    pay = paying(guard, ledger, lambda: asked.append(1), kind=kind)

    outcome = once((guard, pay))

    assert (outcome.status, outcome.settled_by, asked) == ("succeeded", "", [])


@pytest.mark.parametrize("kind", ["write", "irreversible", "idempotent_write"])
def test_what_the_probe_finds_ends_the_call_when_the_retries_are_used_up(guard, kind):
    bank = Keyed(stored_error(), done=True)
    pay = paying(guard, bank, lambda: Found({"receipt": 7}), kind=kind)

    outcome = once((guard, pay))

    assert (outcome.value, outcome.settled_by) == ({"receipt": 7}, "probe")
    sent = bank.requests
    assert once((guard, pay)).replayed
    assert (bank.effects, bank.requests) == (1, sent)
    record = guard.store.apply(Find(outcome.effect.key))
    assert record.state is State.COMPLETED
    assert [entry.note for entry in record.evidence]  # how the attempts ended


@in_a_loop
async def test_the_same_for_an_async_tool(guard):
    bank = Keyed(stored_error(), done=True)

    @guard.tool(kind="write", downstream="key", retry=QUICK)
    async def pay():
        return bank.pay()

    @pay.probe
    async def find():
        return Found({"receipt": 7})

    async with guard.step("chat", "pay"):
        first = await guard.call(pay, {})
        assert (first.value, first.settled_by) == ({"receipt": 7}, "probe")
        assert await pay() == {"receipt": 7}
    assert bank.effects == 1


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (NotFound(), "did not find it, which is no proof"),
        (CannotTell("closed"), r"could not tell \(closed\)"),
        (RuntimeError("down"), "the probe failed .*down"),
    ],
    ids=repr,
)
def test_what_the_probe_does_not_find_is_sent_again_under_its_key(guard, answer, said):
    ledger = Ledger(*[UNSENT] * 3)

    def find():
        if isinstance(answer, Exception):
            raise answer
        return answer

    pay = paying(guard, ledger, find)

    with pytest.raises(GaveUp, match=said) as gave_up:
        once((guard, pay))
    assert isinstance(gave_up.value.__cause__, TimeoutError)
    assert gave_up.value.retriable
    assert once((guard, pay)).value == {"receipt": 1}
    assert ledger.effects == 1


@pytest.mark.parametrize("kind", ["write", "irreversible"])
def test_after_the_window_the_probe_is_asked_and_nothing_is_sent(guard, clock, kind):
    bank, answers = Keyed(stored_error(), done=True), [CannotTell(), NotFound()]
    pay = paying(guard, bank, lambda: answers.pop(0) if answers else Found("r_7"), kind=kind)
    with pytest.raises(GaveUp):
        once((guard, pay))
    sent = bank.requests

    clock.advance(DAY_S)
    with pytest.raises(InDoubt, match="did not find it"):
        once((guard, pay)).unwrap()
    outcome = once((guard, pay))

    assert (outcome.value, outcome.settled_by) == ("r_7", "probe")
    assert (bank.requests, bank.effects) == (sent, 1)


@pytest.mark.parametrize("kind", ["write", "irreversible"])
def test_not_found_after_the_window_never_runs_it_again(guard, clock, kind):
    bank = Keyed(stored_error(), done=False)
    pay = paying(guard, bank, NotFound, kind=kind)
    with pytest.raises(GaveUp):
        once((guard, pay))
    sent = bank.requests

    for _ in range(3):
        clock.advance(100 * DAY_S)
        with pytest.raises(InDoubt, match="did not find it"):
            once((guard, pay)).unwrap()
    assert guard.reconcile().in_doubt == 1
    assert bank.requests == sent


def test_a_doubt_after_the_window_is_settled_in_the_background(guard, clock):
    bank, answers = Keyed(stored_error(), done=True), [CannotTell()]
    pay = paying(guard, bank, lambda: answers.pop() if answers else Found("r_7"))
    with pytest.raises(GaveUp):
        once((guard, pay))

    clock.advance(DAY_S)
    guard.sweep()

    assert guard.reconcile().settled == 1
    assert once((guard, pay)).value == "r_7"


def test_a_refusal_after_a_lost_send_is_asked_about(guard):
    """An earlier send may have landed: the refusal does not speak for it."""
    ledger = Ledger(LOST, ("before", Rejected("no such account")))
    pay = paying(guard, ledger, lambda: Found("r_1"))

    outcome = once((guard, pay))

    assert (outcome.value, outcome.settled_by, ledger.effects) == ("r_1", "probe", 1)


def test_a_probe_knows_that_it_is_not_in_doubt_yet(guard):
    seen = []

    def find():
        seen.append((current_effect().in_doubt_s, current_effect().sent_at > 0))
        return CannotTell()

    pay = paying(guard, Keyed(stored_error(), done=True), find)
    with pytest.raises(GaveUp):
        once((guard, pay))

    assert seen == [(0.0, True)]


def test_an_interrupted_probe_leaves_it_to_the_next_call(guard):
    bank, answers = Keyed(stored_error(), done=True), [KeyboardInterrupt()]

    def find():
        if answers:
            raise answers.pop()
        return Found("r_1")

    pay = paying(guard, bank, find)

    with pytest.raises(KeyboardInterrupt):
        once((guard, pay))
    assert once((guard, pay)).value == "r_1"


def test_a_call_that_was_interrupted_asks_nothing(guard):
    ledger, asked = Ledger(("after", KeyboardInterrupt())), []
    pay = paying(guard, ledger, lambda: asked.append(1))

    with pytest.raises(KeyboardInterrupt):
        once((guard, pay))

    assert asked == []


def test_a_key_that_was_never_read_does_not_help_and_the_probe_is_asked(guard):
    def send():
        raise TimeoutError

    made = guard.tool(kind="write", downstream="key", retry=Retry(attempts=3))(named("p", send))
    made.probe(lambda: Found("r_1"))

    assert once((guard, made)).value == "r_1"


def test_a_downstream_that_helps_with_nothing_cannot_be_asked(guard):
    made = tool(guard, named("pay", lambda: None), downstream="none")

    with pytest.raises(ContractViolation, match="downstream='probe' or 'key'"):
        made.probe(NotFound)


# ---------------------------------------------------------------- what it is called with


def pay(order: str, amount: int = 100, *, note: str = "") -> str:
    return order


@pytest.mark.parametrize(
    "probe",
    [
        lambda order: NotFound(),
        lambda order, amount, *, comment="": NotFound(),
        lambda order, total, *, note: NotFound(),  # called with amount=100
        lambda order, amount, region, *, note: NotFound(),
    ],
)
def test_a_probe_or_a_fallback_that_cannot_be_called_as_its_tool_is_refused_at_once(guard, probe):
    """Otherwise it would fail with TypeError at each doubt, and each would need a person."""
    guarded = guard.tool(kind="write", downstream="key")(pay)

    with pytest.raises(ContractViolation, match=r"the probe of pay takes .* and is called as pay"):
        guarded.probe(probe)
    with pytest.raises(ContractViolation, match=r"the fallback of pay takes .*"):
        guarded.fallback(lambda error, order: "later")


@pytest.mark.parametrize(
    "probe",
    [
        lambda *args, **kwargs: NotFound(),
        lambda order, amount, note: NotFound(),
        lambda order, amount=1, *, note="", region="eu": NotFound(),
        type("Asks", (), {"__call__": lambda self, order, amount, *, note: NotFound()})(),
        dict,  # written in C: it says nothing of what it takes
    ],
)
def test_whatever_takes_its_arguments_may_be_a_probe(guard, probe):
    guarded = guard.tool(kind="write", downstream="key")(pay)

    assert guarded.probe(probe) is probe
    assert guarded.fallback(lambda error, *args, **kwargs: "later")


def test_a_tool_that_takes_any_arguments_has_a_probe_that_does(guard):
    @guard.tool(kind="write", downstream="key", identity=["more"])
    def send(to: str, /, *more: str, **others: str) -> None: ...

    send.probe(lambda to, *more, **others: NotFound())
    with pytest.raises(ContractViolation):
        send.probe(lambda: NotFound())
