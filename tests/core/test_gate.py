"""The gate: which error leads to what, for every bucket, certainty and kind of call."""

import itertools

import pytest

from effectonce import Action, Bucket, Certainty, Verdict, advise
from effectonce._core.classification.verdicts import RETRYABLE
from effectonce._core.decisions import GATE, GOES_ON, NEVER, gate

CERTAIN = (Certainty.NOT_SENT, Certainty.REJECTED)
EVERY = list(
    itertools.product(
        Bucket, Certainty, (None, True, False), (None, 3.0), (False, True), (False, True)
    )
)


def decided(bucket, certainty, retry, retry_after_s, repeatable, probe):
    verdict = Verdict(bucket, certainty, retry_after_s=retry_after_s, retry=retry)
    return verdict, gate(verdict, repeatable=repeatable, probe=probe).action


@pytest.mark.parametrize(("bucket", "certainty"), list(itertools.product(Bucket, Certainty)))
def test_nothing_goes_on_that_may_have_happened_and_must_not_be_repeated(bucket, certainty):
    for case in EVERY:
        if case[:2] != (bucket, certainty):
            continue
        verdict, action = decided(*case)
        if action in GOES_ON:
            assert verdict.retryable
            assert certainty in CERTAIN or case[4], "a second effect"
            assert (action is Action.RETRY) is (certainty in CERTAIN)
        elif certainty not in CERTAIN and not case[4]:
            assert action is (Action.RECONCILE if case[5] else Action.ESCALATE)


@pytest.mark.parametrize(
    "bucket", ["auth", "not_found", "schema", "content_policy", "declined", "config"]
)
def test_the_never_retry_list_wins_over_every_table_and_rule(bucket):
    for certainty in CERTAIN:
        assert decided(Bucket(bucket), certainty, True, 1.0, True, True)[1] is Action.FAIL
    assert not NEVER & RETRYABLE


def test_what_certainly_did_not_happen_is_tried_again_whether_or_not_a_probe_could_be_asked():
    for repeatable, probe in itertools.product((False, True), repeat=2):
        assert (
            decided(Bucket.UNREACHABLE, Certainty.NOT_SENT, None, None, repeatable, probe)[1]
            is Action.RETRY
        )


def test_only_an_answer_to_this_very_request_is_final():
    """What is about the account, the host or this process says nothing about tomorrow, and is
    never stored as an outcome.
    """
    final = {bucket for bucket in Bucket if Verdict(bucket, Certainty.REJECTED).final}
    assert not final & {
        Bucket.AUTH,
        Bucket.QUOTA,
        Bucket.RATE_LIMIT,
        Bucket.CIRCUIT_OPEN,
        Bucket.CONFIG,
        Bucket.CANCELLED,
    }
    assert final >= {
        Bucket.DECLINED,
        Bucket.NOT_FOUND,
        Bucket.SCHEMA,
        Bucket.CONTENT_POLICY,
        Bucket.TOOL_ERROR,
    }
    assert not any(
        Verdict(bucket, certainty).final
        for bucket in Bucket
        for certainty in set(Certainty) - {Certainty.REJECTED}
    )


@pytest.mark.parametrize(
    ("bucket", "action"),
    [
        (Bucket.PARSE, Action.REPAIR),
        (Bucket.CONTEXT_LENGTH, Action.SHORTEN),
        (Bucket.TOOL_ERROR, Action.REPLAN),
        (Bucket.CIRCUIT_OPEN, Action.HAND_BACK),
        (Bucket.QUOTA, Action.ESCALATE),
        (Bucket.CONTROL_FLOW, Action.LET_THROUGH),
        (Bucket.CANCELLED, Action.LET_THROUGH),
        (Bucket.AUTH, Action.FAIL),
        (Bucket.CONTENT_POLICY, Action.FAIL),
        (Bucket.UNKNOWN, Action.FAIL),
        (Bucket.RATE_LIMIT, Action.RETRY),
    ],
)
def test_a_call_without_effects_does_what_its_bucket_says(bucket, action):
    assert gate(Verdict(bucket, Certainty.REJECTED), repeatable=True).action is action


def test_a_quota_that_says_when_it_is_full_again_is_waited_for_by_who_called():
    assert (
        gate(
            Verdict(Bucket.QUOTA, Certainty.REJECTED, retry_after_s=3600.0), repeatable=True
        ).action
        is Action.HAND_BACK
    )


def test_every_row_is_reached():
    reached = {
        id(gate(Verdict(b, c, retry_after_s=s, retry=r), repeatable=k, probe=p))
        for b, c, r, s, k, p in EVERY
    }
    assert reached == {id(row) for row in GATE}


@pytest.mark.parametrize(
    ("error", "contract", "action"),
    [
        (TimeoutError(), {}, Action.ESCALATE),
        (TimeoutError(), {"downstream": "key"}, Action.RESEND),
        (TimeoutError(), {"kind": "read"}, Action.RESEND),
        (TimeoutError(), {"downstream": "probe"}, Action.RECONCILE),
        (ConnectionRefusedError(), {}, Action.ESCALATE),
        (ConnectionRefusedError(), {"one_request": True}, Action.RETRY),
        (ValueError(), {"kind": "read"}, Action.FAIL),
    ],
)
def test_a_harness_can_ask_for_advice(error, contract, action):
    advice = advise(error, **contract)
    assert advice.action is action
    assert advice.why
    assert advice.retry_after_s is None


def test_advice_tells_how_long_to_wait():
    class Busy(Exception):
        status_code, headers = 429, {"Retry-After": "7"}

    assert advise(Busy(), kind="read").retry_after_s == 7
