"""A person says that it will never be done."""

import pytest

from effectonce import ContractViolation, Guard, ReplayedFailure, State, current_effect
from effectonce._core import ops
from tests.dead_letters.shop import BY, QUICK

LEFT = {"by": "ada", "reason": "the customer has left"}


def test_what_was_never_sent_is_discarded_and_later_calls_get_that_as_a_failure(shop):
    key = shop.ask(shop.pay, "inv_1")
    shop.away = False

    shop.letters.discard(key, **LEFT)

    with (
        shop.guard.step("chat", "inv_1"),
        pytest.raises(ReplayedFailure, match="Discarded: the customer has left"),
    ):
        shop.pay("inv_1")
    assert (shop.effects, shop.letters.list()) == ([], ())
    letter = shop.letters.show(key)
    assert (letter.effect_state, letter.record.settled_by, len(letter.attempts)) == (
        "failed",
        "ada",
        4,
    )
    assert shop.letters.redrive(key, **BY).what == "failed"
    shop.letters.discard(key, **LEFT)  # the same again changes nothing


def test_a_transaction_that_never_happened_can_be_discarded(tmp_path, clock):
    guard = Guard(f"sqlite:///{tmp_path / 'effects.db'}", cache=0)

    @guard.tool(kind="write", downstream="transaction", retry=QUICK)
    def book():
        current_effect().connection.execute("SELECT 1")
        raise TimeoutError

    with pytest.raises(Exception, match="did not run"):
        guard.call(book, {}, key="a")
    (letter,) = guard.dead_letters.list()
    guard.dead_letters.discard(letter.key, **LEFT)

    assert guard.call(book, {}, key="a").status == "failed"
    guard.close()


def test_discarding_what_is_in_doubt_refutes_it(shop):
    key = shop.ask(shop.mail, "inv_1")

    shop.letters.discard(key, **LEFT)

    assert (shop.guard.find(key).state, shop.guard.find(key).settled_by) == (State.FAILED, "ada")


def test_what_may_have_happened_and_may_be_sent_again_is_not_discarded(shop, clock):
    key = shop.ask(shop.ship, "inv_1")

    with pytest.raises(ContractViolation, match="redrive it, and it is done once"):
        shop.letters.discard(key, **LEFT)
    clock.advance(3600)  # the downstream honours the key no more
    shop.letters.discard(key, **LEFT)
    assert shop.guard.find(key).state is State.FAILED


def test_what_cannot_be_discarded_says_why(shop, store):
    key = shop.ask(shop.pay, "inv_1")
    with pytest.raises(ContractViolation, match="needs a name"):
        shop.letters.discard(key, by="ada", reason="")
    with pytest.raises(ContractViolation, match="unknown to this store"):
        shop.letters.discard("0" * 40, **LEFT)
    store.apply(ops.Claim(shop.guard.find(key).request, "somebody", 30.0, dispatch=False))
    with pytest.raises(ContractViolation, match="in flight"):
        shop.letters.discard(key, **LEFT)
    shop.away = False
    done = shop.ask(shop.pay, "inv_2")
    with pytest.raises(ContractViolation, match="the effect is completed"):
        shop.letters.discard(done, **LEFT)


def test_what_changes_between_the_look_and_the_decision_is_told(shop, store):
    key = shop.ask(shop.pay, "inv_1")
    apply = store.apply

    def taken(op):
        if isinstance(op, ops.Refute):
            apply(ops.Claim(shop.guard.find(key).request, "somebody", 30.0, dispatch=True))
        return apply(op)

    store.apply = taken
    with pytest.raises(ContractViolation):
        shop.letters.discard(key, **LEFT)
    assert shop.guard.find(key).state is State.DISPATCHED
