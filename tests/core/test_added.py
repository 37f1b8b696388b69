"""A tool gets another parameter while calls are under way: what was asked for before the deploy,
and is asked for again after it.
"""

import pytest

from effectonce import Conflict, ContractViolation, GaveUp, Guard, NotSent, Retry
from effectonce._runtime.step import Delivered
from tests.core.helpers import named


@pytest.fixture
def paid():
    return []


@pytest.fixture
def before(store, paid):
    """The old release: it knows one currency, and does not speak of it."""

    def make(**contract):
        return Guard(store).tool(kind="write", **contract)(
            named("pay", lambda invoice: paid.append((invoice, "EUR")))
        )

    return make


@pytest.fixture
def after(store, paid):
    """The new one. *standard* is what it takes if nobody says anything."""

    def make(standard="EUR", **contract):
        def pay(invoice, currency=standard):
            paid.append((invoice, currency))

        guard = Guard(store)
        return guard, guard.tool(kind="write", **contract)(pay)

    return make


LATER = {"added": {"currency": "EUR"}}


def test_what_says_what_was_meant_before_is_the_same_call(before, after, paid):
    old = before()
    guard, new = after(**LATER)

    with guard.step("chat", "pay"):
        old(1)
        new(1)
        new(1, "EUR")
        new(1, "USD")

    assert paid == [(1, "EUR"), (1, "USD")]


def test_it_stays_so_when_the_default_changes(before, after, paid):
    old = before()
    guard, new = after("USD", **LATER)

    with guard.step("chat", "pay"):
        old(1)
        new(1, "EUR")
        new(1)

    assert paid == [(1, "EUR"), (1, "USD")]


def test_where_it_is_not_in_the_key_another_value_is_a_conflict(before, after, paid):
    old = before(identity=["invoice"])
    guard, new = after(identity=["invoice"], **LATER)

    with guard.step("chat", "pay"):
        old(1)
        new(1)
        with pytest.raises(Conflict):
            new(1, "USD")

    assert paid == [(1, "EUR")]


def test_without_a_word_it_is_another_call(before, after, paid):
    """What the option is there for."""
    old = before()
    guard, new = after()

    with guard.step("chat", "pay"):
        old(1)
        new(1)

    assert paid == [(1, "EUR"), (1, "EUR")]


def test_what_the_model_was_shown_before_counts_as_the_same_wish(before, after, paid):
    guard, new = after(**LATER)

    with guard.step("chat"):
        new(1)
    with guard.step("chat", delivered=[Delivered("pay", {"invoice": 1})]):
        new(1)
        new(1, "EUR")

    assert paid == [(1, "EUR")] * 2  # the second is a wish of its own, and asked for twice


def test_an_old_letter_is_redriven_with_what_it_meant(store, after, paid):
    def closed(invoice):
        raise NotSent("the bank is closed")

    old = Guard(store)
    pay = old.tool(kind="write", retry=Retry(attempts=1))(named("pay", closed))
    with old.step("chat", "pay"), pytest.raises(GaveUp):
        pay(1)
    guard, _ = after("USD", **LATER)

    (redriven,) = guard.dead_letters.redrive_all(by="ada", reason="it is open again", dry_run=False)

    assert (redriven.what, paid) == ("done", [(1, "EUR")])


def test_a_run_goes_on_after_its_workflow_and_a_step_have_got_another_parameter(store, paid):
    class Killed(BaseException):
        pass

    def refund(invoice):
        paid.append(("refund", invoice))

    def refund_later(invoice, currency="EUR"):
        paid.append(("refund", invoice, currency))

    old, new = Guard(store), Guard(store)

    @old.workflow(name="settle")
    def settle(run, invoice):
        run.step("refund", old.tool(kind="write", name="refund")(refund), invoice)
        raise Killed

    @new.workflow(name="settle", added={"note": ""})
    def settle_later(run, invoice, note=""):
        run.step("refund", new.tool(kind="write", name="refund", **LATER)(refund_later), invoice)
        run.step("tell", paid.append, ("told", invoice, note))

    with pytest.raises(Killed):
        settle(1)
    settle_later(1)

    assert paid == [("refund", 1), ("told", 1, "")]


@pytest.mark.parametrize(
    ("contract", "told"),
    [
        ({"added": {"amount": 1}}, "has no parameter 'amount'"),
        ({"added": ["currency"]}, "such as added="),
        ({"added": {"currency": object()}}, "no stable identity"),
        ({"volatile": ["currency"], **LATER}, "cannot be both added and volatile"),
    ],
    ids=["unknown", "no mapping", "no data", "volatile"],
)
def test_what_cannot_be_meant_is_refused(after, contract, told):
    with pytest.raises(ContractViolation, match=told):
        after(**contract)
