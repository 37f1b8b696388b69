"""What was seen to leave decides what an error says about the effect: the table of
`_core/observed_sends.py`, row by row.
"""

import itertools

import pytest

from effectonce import (
    CannotTell,
    Certainty,
    Found,
    Guard,
    NotFound,
    NotSent,
    Rejected,
    ResultUnavailable,
    Retry,
    current_effect,
)
from effectonce._core import ops
from effectonce._core.classification.verdicts import UNKNOWN, Basis, Bucket, Scope, Verdict
from effectonce._core.observed_sends import Seen, Sight, Sighting, attested, seen
from effectonce.stores.memory import MemoryStore
from tests.flaky import FlakyStore

UNSENT = Verdict(Bucket.UNREACHABLE, Certainty.NOT_SENT)
REFUSED = Verdict(Bucket.SCHEMA, Certainty.REJECTED, "a field is wrong")
NO_KEY = Verdict(Bucket.AUTH, Certainty.REJECTED)
BUSY = Verdict(Bucket.RATE_LIMIT, Certainty.REJECTED)
LOST = Verdict(Bucket.NO_ANSWER, Certainty.AMBIGUOUS)
DONE, OPEN = "done", None
ENDS = {"unsent": UNSENT, "refused": REFUSED, "lost": LOST, "done": DONE, "open": OPEN}


def sighted(end):
    sighting = Sighting("POST shop")
    if end == DONE:
        sighting.answered = True
    else:
        sighting.verdict = end
    return sighting


def sight(*ends):
    return seen([sighted(end) for end in ends], whole=True).sight


def test_a_request_that_says_only_when_it_is_asked_how_it_ended_is_asked():
    sighting = Sighting("gRPC /shop/Pay")
    assert seen([sighting], whole=True).sight is Sight.UNCLEAR

    sighting.look = lambda: setattr(sighting, "answered", True)
    assert seen([sighting], whole=True).sight is Sight.ANSWERED


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_requests_of_an_attempt_taken_together(count):
    for names in itertools.product(ENDS, repeat=count):
        left = [name for name in names if name != "unsent"]
        if not left:
            expected = Sight.NOTHING
        elif names == ("done",):  # no other was even tried
            expected = Sight.ANSWERED
        elif set(left) == {"refused"}:
            expected = Sight.REFUSED
        else:
            expected = Sight.UNCLEAR

        assert sight(*(ENDS[name] for name in names)) is expected, names


def test_an_attempt_without_requests_sent_nothing():
    assert sight() is Sight.NOTHING


def certainty(verdict, seen, *, repeatable=False):
    return attested(verdict, seen, repeatable=repeatable).certainty


def test_nothing_was_sent_only_if_nothing_can_have_gone_past():
    assert certainty(UNKNOWN, Seen(Sight.NOTHING, whole=True)) is Certainty.NOT_SENT
    assert certainty(UNKNOWN, Seen(Sight.NOTHING)) is Certainty.AMBIGUOUS
    assert certainty(UNKNOWN, None) is Certainty.AMBIGUOUS


def test_what_is_certain_already_stays_as_it_is():
    for verdict in (UNSENT, REFUSED):
        assert attested(verdict, Seen(Sight.UNCLEAR), repeatable=False) is verdict


def test_a_refusal_by_the_error_alone_is_recorded_if_it_is_final():
    by_itself = UNKNOWN.but(of_request=REFUSED)

    judged = attested(by_itself, Seen(Sight.NOTHING), repeatable=False)

    assert (judged.certainty, judged.final, judged.basis) == (Certainty.REJECTED, True, Basis.ERROR)
    assert certainty(UNKNOWN.but(of_request=BUSY), Seen(Sight.NOTHING)) is Certainty.AMBIGUOUS
    assert certainty(UNKNOWN.but(of_request=UNSENT), Seen(Sight.NOTHING)) is Certainty.AMBIGUOUS


def test_a_refusal_that_may_be_lifted_is_recorded_only_where_nothing_can_be_repeated():
    by_itself = UNKNOWN.but(of_request=NO_KEY)

    assert attested(by_itself, Seen(Sight.NOTHING), repeatable=False).scope is Scope.REQUEST
    assert attested(by_itself, Seen(Sight.NOTHING), repeatable=True) is by_itself


def test_a_witnessed_refusal_is_what_its_answer_says():
    whole, partly = Seen(Sight.REFUSED, True, "", BUSY), Seen(Sight.REFUSED, False, "", BUSY)

    assert attested(UNKNOWN, whole, repeatable=False) == BUSY.but(basis=Basis.WITNESSED)
    assert attested(UNKNOWN, partly, repeatable=False) is UNKNOWN
    assert attested(UNKNOWN, Seen(Sight.REFUSED, False, "", REFUSED), repeatable=False).final


def test_an_answer_with_success_is_the_effect_unless_it_can_be_asked_for_again():
    answered = Seen(Sight.ANSWERED, request="POST shop")

    assert certainty(UNKNOWN, answered) is Certainty.ACTED
    assert attested(UNKNOWN, answered, repeatable=True) is UNKNOWN
    assert attested(UNKNOWN, Seen(Sight.UNCLEAR), repeatable=False) is UNKNOWN


def test_done_before_is_done_if_it_was_sent_before_under_a_key():
    conflict = Verdict(Bucket.CONFLICT, Certainty.ACTED, "it exists")
    resent = Seen(Sight.DONE_BEFORE, False, "", conflict, repeated=True)

    def basis(seen, **how):
        return attested(conflict, seen, **{"repeatable": True} | how).basis

    assert basis(resent) is Basis.WITNESSED
    assert basis(Seen(Sight.NOTHING), sent_before=True) is Basis.WITNESSED
    assert basis(Seen(Sight.DONE_BEFORE), sent_before=True) is Basis.WITNESSED
    for nothing_before in (Seen(Sight.DONE_BEFORE), Seen(Sight.NOTHING), None):
        assert basis(nothing_before) is Basis.ERROR
    assert basis(resent, repeatable=False) is Basis.ERROR
    assert basis(Seen(Sight.UNCLEAR), sent_before=True) is Basis.ERROR


def test_done_before_is_about_one_request_alone():
    first, second = Sighting("POST shop"), Sighting("POST shop")
    first.verdict = Verdict(Bucket.CONFLICT, Certainty.ACTED, "it exists")

    assert seen([first], whole=False).sight is Sight.DONE_BEFORE
    assert seen([first], whole=False, alone=False).sight is Sight.UNCLEAR
    assert seen([first, second], whole=False).sight is Sight.UNCLEAR


# ---------------------------------------------------------------- calls


BUG = ValueError("bad sku")


class Tool:
    """A tool that fails after its requests ended like this, in its first run; and then returns."""

    def __init__(self, *ends, error=BUG, store=None, probe=None, **contract):
        self.runs, self.guard = 0, Guard(store or MemoryStore(), cache=0)
        declared = {"kind": "write", "through": "protected"} | contract

        def pay(order: int) -> str:
            self.runs += 1
            if self.runs > 1:
                return "paid"
            current_effect().requests.extend(sighted(end) for end in ends)
            raise error

        self.tool = self.guard.tool(**declared)(pay)
        if probe is not None:
            self.tool.probe(lambda order: probe)

    def call(self):
        with self.guard.step("chat", "pay"):
            try:
                return self.tool(1)
            except BaseException as error:  # whatever comes out is looked at
                return type(error).__name__

    @property
    def record(self):
        with self.guard.step("chat", "pay"):
            return self.guard.find(self.tool.explain(1).key)


@pytest.mark.parametrize(
    ("ends", "contract", "said", "runs"),
    [
        ((), {}, ["ValueError", "paid"], 2),
        ((UNSENT, UNSENT), {}, ["ValueError", "paid"], 2),
        ((), {"through": ()}, ["InDoubt", "InDoubt"], 1),
        ((UNSENT,), {"through": ()}, ["InDoubt", "InDoubt"], 1),
        ((REFUSED,), {}, ["ValueError", "ReplayedFailure"], 1),
        ((REFUSED,), {"through": ()}, ["ValueError", "ReplayedFailure"], 1),
        ((NO_KEY,), {}, ["ValueError", "paid"], 2),
        ((NO_KEY,), {"through": ()}, ["ValueError", "ReplayedFailure"], 1),
        ((BUSY,), {"through": ()}, ["InDoubt", "InDoubt"], 1),
        ((DONE,), {}, ["ResultUnavailable", "ResultUnavailable"], 1),
        ((DONE,), {"through": ()}, ["ResultUnavailable", "ResultUnavailable"], 1),
        ((DONE, DONE), {}, ["InDoubt", "InDoubt"], 1),
        ((DONE, REFUSED), {}, ["InDoubt", "InDoubt"], 1),
        ((LOST,), {}, ["InDoubt", "InDoubt"], 1),
        ((OPEN,), {}, ["InDoubt", "InDoubt"], 1),
    ],
)
def test_what_comes_of_an_error(ends, contract, said, runs):
    tool = Tool(*ends, **contract)

    assert [tool.call(), tool.call()] == said
    assert tool.runs == runs


def test_a_tool_that_may_be_repeated_is_asked_for_its_result_again():
    tool = Tool(DONE, kind="idempotent_write")

    assert [tool.call(), tool.call()] == ["GaveUp", "paid"]


@pytest.mark.parametrize(
    ("probe", "said"),
    [
        (Found("from the shop"), "from the shop"),
        (NotFound(), "ResultUnavailable"),
        (CannotTell(), "ResultUnavailable"),
    ],
)
def test_a_probe_may_have_the_result_that_the_tool_lost_and_never_lets_it_run_again(probe, said):
    tool = Tool(DONE, downstream="probe", probe=probe)

    assert [tool.call(), tool.call()] == [said, said]
    assert tool.runs == 1


def test_who_interrupts_a_tool_that_was_answered_is_heard_and_it_is_done():
    tool = Tool(DONE, error=KeyboardInterrupt())

    assert [tool.call(), tool.call()] == ["KeyboardInterrupt", "ResultUnavailable"]
    assert tool.runs == 1


@pytest.mark.parametrize("decided", [False, True])
def test_a_success_that_its_owner_reports_too_late_settles_the_doubt_unless_a_person_has(
    guard, store, clock, decided
):
    @guard.tool(kind="write")
    def pay(order: int) -> str:
        effect = current_effect()
        effect.requests.append(sighted(DONE))
        clock.advance(1000)
        store.apply(ops.Claim(guard.find(effect.key).request, "another caller", 30, dispatch=True))
        if decided:
            guard.confirm(effect.key, result="receipt", by="ada", reason="the bank says so")
        raise ValueError("my own parsing")

    with guard.step("chat", "pay"):
        for _ in range(2):
            if decided:
                assert pay(1) == "receipt"
            else:
                with pytest.raises(ResultUnavailable, match="POST shop was answered with success"):
                    pay(1)


def test_a_success_that_the_store_does_not_take_is_done_all_the_same():
    store = FlakyStore()
    store.fail(ops.Complete, times=10_000)
    tool = Tool(DONE, store=store, retry=Retry(deadline_s=0.05))

    assert tool.call() == "ResultUnavailable"


def test_a_tool_that_says_what_its_error_means_is_believed():
    assert Tool(DONE, DONE, error=NotSent("nothing left", retryable=False)).call() == "NotSent"
    assert Tool(LOST, error=Rejected("no")).call() == "Rejected"
