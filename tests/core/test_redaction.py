"""Arguments that count and are never stored."""

from decimal import Decimal

import pytest

from effectonce import (
    CannotTell,
    Conflict,
    ContractViolation,
    Found,
    GaveUp,
    Guard,
    InDoubt,
    Keyring,
    NotSent,
    current_effect,
)
from effectonce._core.codec import Stored, decode
from effectonce._core.tagged_json import NotReadable
from effectonce.stores.memory import MemoryStore
from effectonce.stores.sqlite import SqliteStore
from tests.core.helpers import QUICK, Colour, Ledger, Line, done, in_colour, tool

CARD, SECRET = "4242424242424242", b"s" * 32


def charger(guard, ledger, **contract):
    """A tool that charges a card, and a call of it in its step."""

    @guard.tool(**({"kind": "write", "retry": QUICK, "redact": ["card_number"]} | contract))
    def charge(order: str, card_number: str, amount_minor: int = 5) -> dict:
        return ledger.pay()

    def call(card_number=CARD, step="charge"):
        with guard.step("chat", step):
            return guard.call(charge, {"order": "o_1", "card_number": card_number})

    return charge, call


@pytest.mark.parametrize(
    "keyring", [None, Keyring({"a": b"n" * 32})], ids=["in the clear", "sealed"]
)
def test_a_redacted_argument_is_nowhere_in_the_store(tmp_path, keyring):
    guard = Guard(SqliteStore(tmp_path / "effects.db"), secret=SECRET, keyring=keyring)
    charge, call = charger(guard, Ledger(("ok", None), ("after", TimeoutError("no answer"))))
    control, control_call = charger(guard, Ledger(), redact=[], name="control")

    shown = [guard.find(call(step=step).effect.key).request.arguments for step in ("one", "two")]
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    control_call()
    compared = b"".join(path.read_bytes() for path in tmp_path.iterdir())

    assert CARD.encode() not in stored
    assert (CARD.encode() in compared) is (keyring is None), "this test can tell"
    assert all(
        decode(arguments)
        == Stored("redacted", {"order": "o_1", "card_number": "[redacted]", "amount_minor": 5})
        for arguments in shown
    )


def test_a_redacted_argument_still_counts():
    guard, ledger = Guard("memory://", secret=SECRET), Ledger()
    _, call = charger(guard, ledger, identity=["order"])

    assert call().value == call().value == {"receipt": 1}
    with pytest.raises(Conflict):
        call("4000000000000002")
    assert ledger.effects == 1


def test_a_redacted_argument_that_is_identity_makes_another_effect():
    guard, ledger = Guard("memory://", secret=SECRET), Ledger()
    _, call = charger(guard, ledger)

    assert call().effect.key != call("4000000000000002").effect.key
    assert ledger.effects == 2


def test_a_redacted_volatile_argument_does_not_count_and_needs_no_secret():
    guard, ledger = Guard("memory://"), Ledger()
    charge, call = charger(guard, ledger, volatile=["card_number"])

    assert call().value == call("4000000000000002").value
    with guard.step("chat", "charge"):
        one, two = charge.explain("o_1", CARD), charge.explain("o_1", "4000000000000002")
    assert one.stripped == {"card_number": "[redacted]"}
    assert one.differences(two) == ("nothing differs: this is the same call",)


def test_a_redacted_argument_that_counts_needs_a_secret_in_tools_and_workflows():
    said = r"card_number would not be stored, but could be guessed .* secret="
    with pytest.raises(ContractViolation, match=said):
        charger(Guard("memory://"), Ledger())
    with pytest.raises(ContractViolation, match=said):
        Guard("memory://").workflow(redact=["card_number"])(lambda run, card_number: None)


def test_a_redacted_argument_that_the_tool_does_not_have_is_refused():
    with pytest.raises(
        ContractViolation,
        match=r"charge has no parameter 'card'; it has order, card_number, amount_minor",
    ):
        charger(Guard("memory://", secret=SECRET), Ledger(), redact=["card"])


def test_an_explanation_hides_redacted_arguments_and_still_tells_them_apart():
    guard = Guard("memory://", secret=SECRET)
    charge, _ = charger(guard, Ledger(), identity=["order"])

    with guard.step("chat", "charge"):
        one, same, two = (charge.explain("o_1", card) for card in (CARD, CARD, "4000000000000002"))

    assert CARD not in str(one)
    assert "card_number='[redacted " in str(one)
    assert one.differences(same) == ("nothing differs: this is the same call",)
    (difference,) = one.differences(two)
    assert difference.startswith("card_number differs: '[redacted ")
    assert CARD not in difference


def test_the_contract_says_what_is_redacted():
    charge, _ = charger(Guard("memory://", secret=SECRET), Ledger())

    assert charge.contract.redact == ("card_number",)


def test_a_probe_in_the_same_call_or_a_retry_gets_the_real_argument():
    guard, asked = Guard("memory://", secret=SECRET), []
    charge, call = charger(guard, Ledger(("after", TimeoutError())), downstream="probe")
    answers = [CannotTell(), Found({"receipt": 1})]

    @charge.probe
    def find(order, card_number, amount_minor=5):
        asked.append(card_number)
        return answers.pop(0)

    assert (call().status, call().value) == ("in_doubt", {"receipt": 1})
    assert asked == [CARD, CARD]


def test_a_doubt_whose_arguments_were_redacted_is_skipped_when_reconciling(colour):
    guard = Guard(MemoryStore(), secret=SECRET)

    def lose(card_number: str):
        raise TimeoutError

    contract = {"downstream": "probe", "redact": ["card_number"]}
    charge = tool(guard, in_colour(colour, lose), **contract)
    charge.probe(in_colour(colour, lambda card_number: CannotTell()))

    with pytest.raises(InDoubt), guard.step("chat", "charge"):
        done(charge(CARD))

    asked = done(guard.areconcile() if colour == "async" else guard.reconcile())
    assert (asked.settled, asked.in_doubt, asked.skipped) == (0, 0, 1)
    (record,) = guard.in_doubt()
    with pytest.raises(NotReadable, match="its arguments were redacted"):
        guard._tool(charge).signature.decode(record.request.arguments)


def test_a_tool_with_redacted_arguments_may_have_others_that_cannot_be_stored():
    guard = Guard("memory://", secret=SECRET)

    @guard.tool(kind="write", volatile=["thing"], redact=["card_number"])
    def charge(thing, card_number: str):
        return 1

    with guard.step("chat", "charge"):
        key = guard.call(charge, {"thing": object(), "card_number": CARD}).effect.key

    stored = decode(guard.find(key).request.arguments)
    assert stored == Stored(
        "redacted", {"thing": "[not stored: a object]", "card_number": "[redacted]"}
    )


def test_any_number_of_models_are_stored_and_sent_again():
    guard, sent = Guard("memory://"), []

    @guard.tool(kind="write", retry=QUICK)
    def order(*lines: Line, **colours: Colour):
        sent.append((lines, colours))
        if len(sent) <= QUICK.attempts:
            raise NotSent("the shop is closed")

    asked = ((Line("a", Decimal(1)), Line("b", Decimal(2))), {"ribbon": Colour.RED})
    with guard.step("chat", "order"), pytest.raises(GaveUp) as gave_up:
        order(*asked[0], **asked[1])

    assert (
        guard.dead_letters.redrive(gave_up.value.effect.key, by="ada", reason="it is open").what
        == "done"
    )
    assert sent == [asked] * (QUICK.attempts + 1)


def test_one_argument_that_cannot_be_stored_hides_no_other():
    guard = Guard("memory://")

    @guard.tool(kind="write", downstream="probe", retry=QUICK, volatile=["session"])
    def refund(session: object, payment: str):
        raise TimeoutError

    with guard.step("chat", "refund"):
        key = guard.call(refund, {"session": object(), "payment": "pay_7"}).effect.key

    letter = guard.dead_letters.show(key)
    assert letter.arguments == {"session": "[not stored: a object]", "payment": "pay_7"}
    refund.probe(lambda session, payment: pytest.fail("it must not be asked without its session"))
    assert guard.reconcile().skipped == 1
    assert (
        "session could not be stored" in guard.dead_letters.redrive(key, by="ada", reason="now").why
    )


def test_an_argument_that_only_says_redacted_is_an_argument():
    guard = Guard("memory://")

    @guard.tool(kind="write")
    def note(text: str):
        return 1

    with guard.step("chat", "note"):
        key = guard.call(note, {"text": "[redacted]"}).effect.key

    assert guard._tool(note).signature.decode(guard.find(key).request.arguments) == {
        "text": "[redacted]"
    }


def test_what_is_printed_of_an_effect_names_it_by_its_reference_and_holds_no_secret():
    guard, seen = Guard("memory://", secret=SECRET), []
    guard.observe(seen.append)

    @guard.tool(kind="write", retry=QUICK, redact=["card_number"])
    def charge(order: str, card_number: str) -> str:
        inner("o_1")
        return repr(current_effect())

    @guard.tool(kind="write", retry=QUICK)
    def inner(order: str) -> str:
        if order == "o_2":
            raise TimeoutError("no answer")
        return order

    with guard.step("chat", "charge"):
        done = guard.call(charge, {"order": "o_1", "card_number": CARD})
    with guard.step("chat", "doubtful"):
        lost = guard.call(inner, {"order": "o_2"})
    shown = [done, done.effect, lost, lost.error, vars(lost.error)["effect"], guard._house, *seen]

    printed = [repr(thing) for thing in shown] + [
        str(guard._house.secret),
        f"{guard._house.secret}",
        done.value,
    ]
    keys = {event.effect.key for event in seen if event.effect is not None}
    assert len(keys) == 3
    for text in printed:
        assert CARD not in text
        assert "ssss" not in text
        assert not any(key in text for key in keys), text
    assert repr(done.effect) == f"<EffectRef charge {done.effect.reference} (chat/charge)>"
    assert done.effect.reference in repr(done)
    assert (
        done.value == f"<Effect charge {done.effect.reference} (chat/charge), attempt 1, epoch 1>"
    )
