"""Any policy, any errors, any durations, in virtual time: nothing begins after the deadline, and
delays at the cap are still spread.
"""

import random

from hypothesis import strategies as st
from tests.core.examples import examples

from effectonce import Bucket, Certainty, Jitter, Verdict
from effectonce._core.ops import Raised, Sleep
from effectonce._core.retry_flow import plain_call
from effectonce._core.retry_state import Env, Retrying, RetryState

SECONDS = st.floats(0, 100)
WORTHWHILE = (
    Bucket.RATE_LIMIT,
    Bucket.OVERLOADED,
    Bucket.SERVER_ERROR,
    Bucket.NO_ANSWER,
    Bucket.UNREACHABLE,
)
VERDICTS = st.builds(
    Verdict,
    st.sampled_from(WORTHWHILE),
    st.sampled_from(Certainty),
    st.just(""),
    st.none() | st.floats(0, 1000),
)


@st.composite
def policies(draw):
    base_s = draw(SECONDS)
    return {
        "attempts": draw(st.integers(1, 50)),
        "throttled_attempts": draw(st.integers(1, 50)),
        "deadline_s": draw(st.floats(0.001, 300)),
        "base_s": base_s,
        "throttled_base_s": draw(SECONDS),
        "cap_s": base_s + draw(SECONDS),
        "jitter": draw(st.sampled_from(Jitter)),
    }


@examples(
    policies(),
    st.lists(st.tuples(VERDICTS, st.floats(0, 5)), min_size=1, max_size=50),
    st.booleans(),
    st.integers(),
)
def test_nothing_begins_after_the_deadline_and_no_delay_is_shorter_than_asked(
    policy, failures, repeatable, seed
):
    now, left, sleeps, ends = 0.0, list(failures), [], []

    def classify(_):
        return left[0][0]

    env = Env(now=lambda: now, new_token=str, rng=random.Random(seed).random)
    patience = RetryState(Retrying(classify=classify, **policy), env, attempt=1)
    flow = plain_call(patience, RuntimeError(), repeatable=repeatable)
    try:
        op = next(flow)
        while True:
            if isinstance(op, Sleep):
                assert op.seconds >= (left[0][0].retry_after_s or 0.0)
                assert op.seconds <= policy["cap_s"] + policy["throttled_base_s"] + policy[
                    "base_s"
                ] + (left[0][0].retry_after_s or 0)
                now += op.seconds
                sleeps.append(op.seconds)
                op = flow.send(None)
            else:
                assert now < policy["deadline_s"], "an attempt began when its time was over"
                now += left.pop(0)[1] if len(left) > 1 else 0.0
                ends.append(now)
                op = flow.send(Raised(RuntimeError()))
    except StopIteration as done:
        over = done.value
    most = (
        policy["attempts"]
        if policy["attempts"] == 1
        else max(policy["attempts"], policy["throttled_attempts"])
    )
    assert over.attempts == len(ends) + 1 <= most
    assert over.attempts - patience.refusals <= policy["attempts"]
    assert sum(sleeps) < policy["deadline_s"] or not sleeps
