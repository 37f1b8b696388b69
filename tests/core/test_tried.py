"""What a layer below tells about a request that it sent more than once: it can only take
certainty away.
"""

import pytest

from effectonce import (
    Bucket,
    Certainty,
    GaveUp,
    InDoubt,
    PartialSuccess,
    Scope,
    Verdict,
    classify,
    retry,
)
from effectonce._core.classification.classify import as_rules, classifier
from effectonce._core.classification.verdicts import Tried
from effectonce._core.endings import Fresh
from effectonce._core.ops import Invoke, Ok, Raised
from effectonce._core.retry_flow import whole_call
from effectonce._drivers import drive

REFUSED = Verdict(Bucket.UNREACHABLE, Certainty.NOT_SENT)
LOST = Verdict(Bucket.NO_ANSWER, Certainty.AMBIGUOUS)


def told(error, verdict, *, gave_up):
    error.effectonce_tried = Tried(verdict, 2, gave_up)
    return error


class Response:
    def __init__(self, status, **headers):
        self.status_code, self.headers = (
            status,
            {name.replace("_", "-"): value for name, value in headers.items()},
        )


def test_the_mark_says_it_in_a_word_or_two():
    assert [
        Tried(verdict, 2, gave_up).mark for verdict in (REFUSED, LOST) for gave_up in (False, True)
    ] == [
        "",
        "gave-up",
        "unsure",
        "gave-up, unsure",
    ]


def test_an_error_of_the_last_attempt_does_not_speak_for_those_before():
    last = ConnectionRefusedError(111, "Connection refused")
    assert classify(last).certainty is Certainty.NOT_SENT

    verdict = classify(told(last, REFUSED.but(certainty=Certainty.AMBIGUOUS), gave_up=False))

    assert (verdict.certainty, verdict.retryable) == (Certainty.AMBIGUOUS, True)
    assert "an earlier attempt may have landed" in verdict.why


def test_whoever_wraps_the_error_carries_it_on():
    wrapper = RuntimeError("connection error")
    wrapper.__cause__ = told(
        ConnectionRefusedError(111, "no"), REFUSED.but(certainty=Certainty.AMBIGUOUS), gave_up=True
    )

    verdict = classify(wrapper)

    assert (verdict.bucket, verdict.certainty, verdict.retryable) == (
        Bucket.UNREACHABLE,
        Certainty.AMBIGUOUS,
        False,
    )


def test_a_layer_that_gave_up_and_is_sure_leaves_the_certainty():
    verdict = classify(told(ConnectionRefusedError(111, "no"), REFUSED, gave_up=True))

    assert (verdict.certainty, verdict.retryable) == (Certainty.NOT_SENT, False)


def test_nothing_makes_an_error_more_certain():
    assert classify(told(TimeoutError(), REFUSED, gave_up=False)).certainty is Certainty.AMBIGUOUS


@pytest.mark.parametrize(
    ("mark", "certainty", "retryable"),
    [
        ("", Certainty.REJECTED, True),
        ("unsure", Certainty.AMBIGUOUS, True),
        ("gave-up", Certainty.REJECTED, False),
        ("gave-up, unsure", Certainty.AMBIGUOUS, False),
    ],
)
def test_a_response_says_it_in_its_headers(mark, certainty, retryable):
    verdict = classify(Response(429, x_effectonce_tried=mark))

    assert (verdict.bucket, verdict.certainty, verdict.retryable) == (
        Bucket.RATE_LIMIT,
        certainty,
        retryable,
    )


def test_what_a_layer_of_ours_says_is_heard_behind_any_number_of_headers():
    many = {f"x_{n}": "y" for n in range(300)}

    assert classify(Response(400, **many)).certainty is Certainty.REJECTED
    assert (
        classify(Response(400, **many, x_effectonce_tried="unsure")).certainty
        is Certainty.AMBIGUOUS
    )


def test_the_last_of_many_refusals_is_not_the_final_answer_to_the_request():
    locked = classify(Response(423, x_effectonce_tried="gave-up"))

    assert (locked.certainty, locked.retryable, locked.scope, locked.final) == (
        Certainty.REJECTED,
        False,
        Scope.HOST,
        False,
    )


def test_a_refusal_that_nothing_was_tried_after_is_final():
    assert classify(Response(400)).final


def test_who_gave_up_has_no_final_answer_either():
    conflict = Verdict(Bucket.CONFLICT, Certainty.REJECTED)

    assert not GaveUp("it is locked", verdict=conflict).effectonce_verdict.final


@pytest.mark.parametrize("declared", ["not_sent", "rejected"])
def test_what_a_tool_declares_about_its_errors_holds_for_one_attempt(declared):
    types = {"not_sent": (), "rejected": ()} | {declared: (OSError,)}
    judge = classifier(types["not_sent"], types["rejected"], one_request=True)
    sure = {"not_sent": Certainty.NOT_SENT, "rejected": Certainty.REJECTED}[declared]

    assert judge(OSError()).certainty is sure
    assert judge(told(OSError(), REFUSED, gave_up=False)).certainty is sure
    assert judge(told(OSError(), LOST, gave_up=False)).certainty is Certainty.AMBIGUOUS


@pytest.mark.parametrize("declared", ["not_sent", "rejected"])
def test_what_a_tool_declares_about_an_error_that_wraps_a_lost_answer_is_not_believed(declared):
    types = {"not_sent": (), "rejected": ()} | {declared: (LookupError,)}
    judge = classifier(types["not_sent"], types["rejected"], one_request=True)
    wrapper = LookupError("not paid")
    wrapper.__context__ = told(OSError(), LOST, gave_up=False)

    assert judge(LookupError("not paid")).certainty is not Certainty.AMBIGUOUS
    assert judge(wrapper).certainty is Certainty.AMBIGUOUS


@pytest.mark.parametrize(
    ("verdict", "certainty"), [(REFUSED, Certainty.REJECTED), (LOST, Certainty.AMBIGUOUS)]
)
def test_a_rule_speaks_for_one_attempt(verdict, certainty):
    rules = {LookupError: Verdict(Bucket.SCHEMA, Certainty.REJECTED)}
    judge = classifier((), (), rules=as_rules(rules))

    assert classify(told(LookupError(), verdict, gave_up=False), rules=rules).certainty is certainty
    assert judge(told(LookupError(), verdict, gave_up=False)).certainty is certainty


@pytest.mark.parametrize(
    ("verdict", "certainty"), [(REFUSED, Certainty.NOT_SENT), (LOST, Certainty.AMBIGUOUS)]
)
def test_whoever_wraps_a_layer_that_gave_up_says_no_more_than_that_layer(verdict, certainty):
    inner = GaveUp("no connection", verdict=verdict)
    inner.__cause__ = ConnectionRefusedError(111, "no")
    outer = RuntimeError("could not pay")
    outer.__cause__ = inner

    judged = classify(outer)

    assert (judged.bucket, judged.certainty, judged.retryable) == (
        Bucket.UNREACHABLE,
        certainty,
        False,
    )


@pytest.mark.parametrize(
    "ours",
    [InDoubt("it may have happened"), PartialSuccess("half of it", corrective_action="look")],
)
def test_whoever_wraps_what_may_have_happened_does_not_make_it_a_refusal(ours):
    ours.__cause__ = ConnectionRefusedError(111, "no")
    outer = RuntimeError("could not pay")
    outer.__cause__ = ours

    assert classify(outer).certainty is Certainty.AMBIGUOUS


@pytest.mark.parametrize(
    ("answers", "attempts"), [([Ok(7)], 1), ([Raised(TimeoutError()), Ok(7)], 2)]
)
def test_a_whole_call_begins_with_its_first_attempt(answers, attempts):
    patience, _ = retry(kind="read", base_s=0.0).patience("bank", 0.0, attempt=0)
    patience.give_up_at = float("inf")
    left = iter(answers)

    ended = drive(
        whole_call(patience, repeatable=True),
        lambda op: next(left) if isinstance(op, Invoke) else None,
    )

    assert (ended, patience.attempt) == (Fresh(7), attempts)
