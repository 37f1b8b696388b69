"""What is said about a call that waits for a person, was approved, or was rejected."""

import contextlib

import pytest

from effectonce import ApprovalNeeded, EffectOnceError, NotSent, Rejected, Retry
from effectonce._core.ops import Search
from effectonce.approvals._standing import apart, standing_of
from effectonce.views.effects import as_data, now_of, shown_state, verdict
from effectonce.views.history import attempts_of, gave_up
from effectonce.views.status import look
from effectonce.views.text import Screen
from effectonce.views.timeline import facts_of, timeline

HOUR = 3600.0


class Bank:
    """Does what the test says."""

    def __init__(self, guard):
        self.guard, self.does = guard, lambda: "done"

        @guard.tool(kind="write", approval=True, retry=Retry(attempts=1), wait_s=0)
        def refund(payment: str) -> str:
            return self.does()

        self.refund = refund

    def ask(self, asked_by="agent-7"):
        with (
            self.guard.step("chat", 1, asked_by=asked_by),
            contextlib.suppress(EffectOnceError, Rejected, TimeoutError),
        ):
            self.refund("pay_1")
        return self.record

    def fails_after_its_approval(self, error):
        def does():
            raise error

        self.does = does
        self.ask()
        self.approve()
        self.ask()

    def approve(self, **how):
        self.guard.approvals.approve(self.key, **{"by": "ada", "reason": "it came back"} | how)
        return self.record

    def reject(self, **how):
        self.guard.approvals.reject(self.key, **{"by": "grace", "reason": "not today"} | how)
        return self.record

    @property
    def key(self):
        return self.guard.store.apply(Search(limit=1))[0].request.key

    @property
    def record(self):
        return self.guard.find(self.key)

    def said(self):
        return verdict(self.record, now_of(self.guard))

    def story(self):
        return [what for _, _, what in timeline(self.record, now_of(self.guard), Screen())]

    def facts(self):
        return dict(facts_of(self.record, now_of(self.guard), Screen()))

    def data(self):
        return as_data(self.record, now_of(self.guard))


@pytest.fixture
def bank(guard):
    return Bank(guard)


def test_what_waits_is_no_dead_letter_however_long(bank, clock):
    bank.ask()
    clock.advance(10 * HOUR)

    assert bank.guard.dead_letters.list() == ()
    assert bank.guard.dead_letters.foresee(bank.key).why == "it waits for an approval"


def test_what_was_approved_and_not_used_is_a_dead_letter_while_it_is_good(bank, clock):
    bank.ask()
    bank.approve()
    assert bank.guard.dead_letters.list() == ()

    clock.advance(HOUR)  # no caller came: a person can redrive it
    assert [letter.key for letter in bank.guard.dead_letters.list()] == [bank.key]
    clock.advance(30 * HOUR)  # it has expired, and waits for a person again
    assert bank.guard.dead_letters.list() == ()


def test_what_was_approved_can_be_sent_by_redriving_it(bank):
    bank.ask()
    bank.approve()

    redriven = bank.guard.dead_letters.redrive(bank.key, by="ada", reason="the agent is gone")

    assert (redriven.what, redriven.value) == ("done", "done")


def test_a_call_that_gave_up_after_its_approval_is_a_dead_letter_until_that_ends(bank, clock):
    bank.fails_after_its_approval(NotSent("no connection"))
    clock.advance(1)

    (letter,) = bank.guard.dead_letters.list()
    assert [attempt.error for attempt in letter.attempts] == ["NotSent"]
    assert letter.reason == ""
    assert "its owner gave up" in bank.said() or "ada approved it" in bank.said()
    clock.advance(30 * HOUR)
    assert bank.guard.dead_letters.list() == ()
    assert look(bank.guard)["waiting_approval"] == 1


def test_what_waits_says_so_and_by_whom_it_was_asked_for(bank, clock):
    bank.ask()
    clock.advance(HOUR)

    assert bank.said() == "It waits for a person to approve it. Nothing was sent."
    assert bank.facts()["asked by"] == "agent-7"
    assert bank.facts()["sends"] == "none"
    assert {"reason", "settled by", "owner"}.isdisjoint(bank.facts())
    assert bank.story() == ["approval was asked for by agent-7"]
    assert shown_state(bank.record, clock()) == "needs_approval"
    data = bank.data()
    assert (data["state"], data["reason"], data["attempts"]) == ("claimed", None, [])
    approval = data["approval"]
    assert (approval["state"], approval["asked_by"], approval["by"]) == ("waiting", "agent-7", None)


def test_what_was_approved_says_by_whom_and_for_how_long(bank, clock):
    bank.ask()
    clock.advance(60)
    bank.approve(valid_s=2 * HOUR)

    assert bank.said() == (
        "ada approved it, and no call has used that yet. The next call with these arguments sends"
        " it, if it comes within 2 h."
    )
    assert bank.facts()["approved by"].startswith("ada, until ")
    assert bank.story() == [
        "approval was asked for by agent-7",
        "approved by ada: it came back",
        "the approval ends",
    ]
    assert shown_state(bank.record, clock()) == "approved"
    data = bank.data()
    assert (data["settled_by"], data["window_until"], data["evidence"]) == (None, None, [])
    assert data["approval"]["state"] == "approved"
    assert data["approval"]["until"] is not None


def test_an_approval_that_ended_says_so(bank, clock):
    bank.ask()
    bank.approve(valid_s=60)
    clock.advance(60 + 5 * 60)

    assert bank.said() == (
        "It waits for a person: ada approved it, and that ended 5 min ago before a call used it."
        " Nothing was sent."
    )
    assert bank.story()[-1] == "the approval ended, unused"
    assert bank.data()["approval"]["state"] == "expired"
    (need,) = look(bank.guard)["needs_you"]
    assert (need["why"], need["for_s"]) == ("waiting for approval", 300.0)


def test_what_was_rejected_says_by_whom(bank):
    bank.ask()
    bank.reject()

    assert bank.said() == "It did not happen: rejected by grace. Every later call gets that."
    assert bank.facts()["rejected by"] == "grace: not today"
    assert "settled by" not in bank.facts()
    assert bank.story()[1] == "rejected by grace: not today"
    assert bank.data()["approval"]["state"] == "rejected"


def test_what_happened_after_an_approval_says_so_and_who_approved_it(bank):
    bank.ask()
    bank.approve()
    bank.ask()

    assert bank.said() == "It happened. Every later call gets the stored result."
    assert bank.facts()["approved by"] == "ada: it came back"
    assert {"settled by", "reason"}.isdisjoint(bank.facts())
    assert bank.story()[:2] == [
        "approval was asked for by agent-7",
        "approved by ada: it came back",
    ]
    assert bank.data()["approval"]["state"] == "used"


def test_who_approved_it_did_not_say_that_it_failed(bank):
    bank.fails_after_its_approval(Rejected("the account is closed"))

    assert bank.said() == (
        "It did not happen: the downstream refused it. Every later call gets this failure."
    )
    assert "settled by" not in bank.facts()
    assert [attempt.error for attempt in attempts_of(bank.record)] == ["Rejected"]


def test_who_approved_it_did_not_settle_its_doubt(bank):
    bank.fails_after_its_approval(TimeoutError("no answer"))

    assert str(bank.record.state) == "in_doubt"
    assert "settled by" not in bank.facts()
    assert bank.facts()["approved by"] == "ada: it came back"
    bank.guard.refute(bank.key, by="grace", reason="the bank has nothing")
    assert bank.said() == "It did not happen: grace says so. Every later call gets this failure."
    assert bank.facts()["settled by"] == "grace"


def test_an_approval_is_no_attempt(bank):
    bank.ask()
    bank.approve()

    assert attempts_of(bank.record) == []
    assert not gave_up(bank.record)


def test_a_status_counts_what_waits_and_it_needs_a_person(bank, clock):
    bank.ask()
    clock.advance(10 * HOUR)

    status = look(bank.guard)
    assert (status["waiting_approval"], status["given_up"], status["dead_letters"]) == (1, 0, 0)
    (need,) = status["needs_you"]
    assert (need["tool"], need["why"], need["for_s"]) == ("refund", "waiting for approval", 36000.0)
    bank.approve()
    assert look(bank.guard)["needs_you"] == []


def test_an_effect_without_an_approval_stands_nowhere(guard, clock):
    @guard.tool(kind="write")
    def pay(to: str) -> str:
        return "paid"

    with guard.step("chat", 1):
        pay("ada")
    (record,) = guard.store.apply(Search())

    assert standing_of(record, clock()) is None
    assert apart(record) is record


def test_a_name_may_have_a_colon_in_it(bank):
    bank.ask()
    bank.approve(by="acme: ada", reason="fine: go")

    standing = standing_of(bank.record, now_of(bank.guard))
    assert (standing.by, standing.reason) == ("acme: ada", "fine: go")


def test_a_call_at_work_does_not_wait_when_its_approval_ends(bank, clock):
    seen = []

    def slow():
        clock.advance(20)
        seen.extend(bank.guard.approvals.waiting())
        return "done"

    bank.does = slow
    bank.ask()
    bank.approve(valid_s=10)
    bank.ask()

    assert seen == []
    assert bank.said().startswith("It happened")


def test_nothing_of_it_needs_a_person_who_may_not_see_it(guard):
    bank = Bank(guard)
    with guard.step("chat", 1, tenant="acme"), pytest.raises(ApprovalNeeded):
        bank.refund("pay_1")

    assert look(guard, "acme")["waiting_approval"] == 1
    assert look(guard, "other")["waiting_approval"] == 0
