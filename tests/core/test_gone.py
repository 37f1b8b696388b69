"""A record that vanishes while its tool runs (a failover, an eviction, a hand) was not taken
over: what is known is written down anew.
"""

import pytest

from effectonce import (
    GaveUp,
    Guard,
    InDoubt,
    PartialSuccess,
    Rejected,
    ReplayedFailure,
    Retry,
    State,
    current_effect,
)
from effectonce._core import ops
from tests.core.helpers import Ledger, done, in_colour, tool
from tests.flaky import FlakyStore

AT_ONCE = Retry(attempts=3, base_s=0, cap_s=0, deadline_s=0.01)
ONCE = Retry(attempts=1)


class Vanishing:
    """A tool during whose first run its record goes."""

    def __init__(self, colour, *script, store=None, spool=None, then=None, **contract):
        self.store, self.then, self.vanishes = store or FlakyStore(), then, 1
        self.guard, self.ledger = Guard(self.store, cache=0, spool=spool), Ledger(*script)

        def pay():
            return self.pay()

        self.tool = tool(self.guard, in_colour(colour, pay), name="pay", **contract)

    def pay(self):
        if self.vanishes:
            self.vanishes -= 1
            self.store.inner._records.clear()
            self.store.inner._open.clear()
        try:
            return self.ledger.pay()
        finally:
            if self.then:
                self.then(self.store)

    def call(self):
        with self.guard.step("chat", "pay"):
            return done(self.tool())

    @property
    def record(self):
        with self.guard.step("chat", "pay"):
            return self.guard.find(self.tool.explain().key)


def test_a_success_is_written_anew_and_replayed(colour):
    pay = Vanishing(colour)

    assert [pay.call() for _ in range(3)] == [{"receipt": 1}] * 3

    assert pay.ledger.effects == 1
    assert "gone" in pay.record.evidence[-1].note


@pytest.mark.parametrize(
    ("end", "raised"),
    [
        (("after", TimeoutError()), [InDoubt] * 3),
        (("before", Rejected("declined")), [Rejected, ReplayedFailure]),
        (
            ("after", PartialSuccess("half", done=1, corrective_action="mail")),
            [PartialSuccess, PartialSuccess],
        ),
    ],
    ids=["doubt", "refusal", "partial success"],
)
def test_how_it_ended_is_written_anew(colour, end, raised):
    pay = Vanishing(colour, end)

    for error in raised:
        with pytest.raises(error):
            pay.call()

    assert pay.ledger.effects == (end[0] == "after")


def test_a_refusal_after_an_unanswered_send_is_no_failure_although_the_record_forgot_that_send(
    colour,
):
    pay = Vanishing(colour, ("after", TimeoutError()), ("before", Rejected("?")), downstream="key")

    with pytest.raises(InDoubt, match="an earlier send may have landed"):
        pay.call()

    assert pay.record.state is State.IN_DOUBT


def test_a_send_under_a_key_goes_on_under_the_same_key():
    keys = []

    class Keyed(Vanishing):
        def pay(self):
            keys.append(current_effect().downstream_key)
            return super().pay()

    pay = Keyed("sync", ("after", TimeoutError()), downstream="key")

    assert pay.call() == {"receipt": 2}
    assert len(set(keys)) == 1


def away(store):
    store.fail(ops.Together, times=99)


def test_a_store_that_is_away_then_keeps_the_outcome_for_later(colour, tmp_path):
    pay = Vanishing(colour, spool=tmp_path, then=away, retry=AT_ONCE)

    assert pay.call() == {"receipt": 1}

    assert len(list(tmp_path.glob("*"))) == 1


def test_a_doubt_that_cannot_be_written_anew_is_still_raised(colour):
    pay = Vanishing(colour, ("after", TimeoutError()), then=away, retry=AT_ONCE)

    with pytest.raises(InDoubt):
        pay.call()


def test_another_caller_who_has_it_meanwhile_keeps_it():
    store = FlakyStore()

    def taken(store):
        first.then = None
        second.call()

    first = Vanishing("sync", store=store, then=taken)
    second = Vanishing("sync", store=store)
    second.vanishes, second.ledger = 0, Ledger()

    assert first.call() == {"receipt": 1}  # the recorded one, of the second

    assert second.ledger.effects == 1
    assert any(entry.is_result for entry in first.record.evidence)


def test_a_send_that_may_be_repeated_is_not_forgotten_with_its_record(colour):
    pay = Vanishing(
        colour, ("after", TimeoutError()), ("before", Rejected("?")), downstream="key", retry=ONCE
    )

    with pytest.raises(GaveUp):
        pay.call()
    assert (pay.record.state, pay.record.sends) == (State.DISPATCHED, 1)

    with pytest.raises(InDoubt, match="an earlier send may have landed"):
        pay.call()


@pytest.mark.parametrize("retry", ["at once", "later"])
def test_another_caller_who_has_it_before_it_is_sent_again_goes_on_with_it(retry):
    store = FlakyStore()

    def taken(_store):
        first.then = None
        second.call()

    first = Vanishing(
        "sync",
        ("after", TimeoutError()),
        store=store,
        then=taken,
        downstream="key",
        **{"retry": ONCE} if retry == "later" else {},
    )
    second = Vanishing("sync", store=store, downstream="key")
    second.vanishes = 0

    if retry == "later":
        with pytest.raises(GaveUp):
            first.call()

    assert first.call() == {"receipt": 1}  # that of the second


class OvertakenStore(FlakyStore):
    """The moment in which a caller learns that its record is gone, another caller claims it."""

    def __init__(self, when):
        super().__init__()
        self.when, self.overtake = when, None

    def apply(self, op):
        reply = super().apply(op)
        if isinstance(op, self.when) and reply == ops.Refused(None) and self.overtake:
            overtake, self.overtake = self.overtake, None
            overtake()
        return reply


@pytest.mark.parametrize(
    ("when", "script"),
    [(ops.Complete, ()), (ops.Dispatch, [("after", TimeoutError())])],
    ids=["when it has ended", "before it is sent again"],
)
def test_another_caller_who_claims_it_before_it_is_written_anew_keeps_it(when, script):
    store = OvertakenStore(when)
    first = Vanishing("sync", *script, store=store, downstream="key")
    second = Vanishing("sync", store=store, downstream="key")
    second.vanishes, store.overtake = 0, second.call

    assert first.call() == {"receipt": 1}

    assert second.ledger.effects == 1
    assert (first.record.state, first.record.sends) == (State.COMPLETED, 1)
