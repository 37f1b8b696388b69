"""Delays: full jitter that survives the cap, and a deadline that is never overslept."""

import random

import pytest

from effectonce import Bucket, NotSent, Rejected, Retry, Verdict
from effectonce._core.backoff import Jitter, delay, full_jitter
from effectonce._core.classification.classify import Certainty, classifier
from effectonce._core.ops import Invoke, Raised, Sleep
from effectonce._core.retry_flow import plain_call
from effectonce._core.retry_state import Env, Retrying, RetryState
from effectonce._drivers import drive
from effectonce._runtime.plain_performers import Plain
from effectonce.retries.retry import retrying


def test_the_ceiling_doubles_from_the_base_up_to_the_cap():
    ceilings = [full_jitter(attempt, 0.5, 20.0, lambda: 1.0) for attempt in (1, 2, 3, 6, 7, 5000)]
    assert ceilings == [0.5, 1.0, 2.0, 16.0, 20.0, 20.0]


@pytest.mark.parametrize("jitter", [Jitter.FULL, Jitter.EQUAL])
def test_the_ceiling_grows_by_the_multiplier(jitter):
    ceilings = [
        delay(jitter, attempt, 0.0, 0.5, 20.0, lambda: 1.0, multiplier=3.0)
        for attempt in (1, 2, 3, 4, 5, 5000)
    ]
    still = [
        delay(jitter, attempt, 0.0, 0.5, 20.0, lambda: 1.0, multiplier=1.0)
        for attempt in (1, 2, 5000)
    ]

    assert ceilings == [0.5, 1.5, 4.5, 13.5, 20.0, 20.0]
    assert still == [0.5, 0.5, 0.5]


def test_a_tool_waits_as_its_multiplier_says():
    clock = VirtualTime()

    flow = plain_call(
        patience(clock, base_s=0.25, multiplier=4.0, attempts=4), TimeoutError(), repeatable=True
    )
    _, delays = clock.run(flow, iter(lambda: Raised(TimeoutError()), None))

    assert delays == [0.25, 1.0, 4.0]
    assert retrying(Retry(multiplier=4.0), classifier((), ()), None, None).multiplier == 4.0


@pytest.mark.parametrize(
    ("bucket", "delay_s"),
    [("rate_limit", 4.0), ("overloaded", 4.0), ("server_error", 0.5), ("unreachable", 0.5)],
)
def test_who_was_told_to_slow_down_begins_with_a_longer_pause(bucket, delay_s):
    verdict = Verdict(Bucket(bucket), Certainty.NOT_SENT)
    how = Retrying(
        attempts=3,
        throttled_attempts=3,
        deadline_s=60.0,
        base_s=0.5,
        throttled_base_s=4.0,
        cap_s=20.0,
        jitter=Jitter.FULL,
        classify=lambda _: verdict,
    )
    patience = RetryState(how, Env(now=lambda: 0.0, new_token=str, rng=lambda: 1.0), attempt=1)

    then = drive(patience.after(RuntimeError(), verdict, repeatable=False), Plain(None))

    assert then.delay_s == delay_s


def test_delays_are_spread_even_at_the_cap():
    rng = random.Random(1)
    delays = [full_jitter(50, 0.5, 20.0, rng.random) for _ in range(2000)]
    assert len(set(delays)) > 1900
    assert min(delays) < 1
    assert 19 < max(delays) <= 20


@pytest.mark.parametrize(
    ("error", "certainty", "retryable"),
    [
        (ConnectionRefusedError(), Certainty.AMBIGUOUS, True),
        (TimeoutError(), Certainty.AMBIGUOUS, True),
        (ConnectionResetError(), Certainty.AMBIGUOUS, True),
        (BrokenPipeError(), Certainty.AMBIGUOUS, True),
        (OSError(), Certainty.AMBIGUOUS, False),
        (ValueError(), Certainty.AMBIGUOUS, False),
        (KeyboardInterrupt(), Certainty.AMBIGUOUS, False),
        (NotSent(), Certainty.NOT_SENT, True),
        (Rejected(), Certainty.REJECTED, False),
        (Rejected(retryable=True), Certainty.REJECTED, True),
        (KeyError(), Certainty.NOT_SENT, False),
        (LookupError(), Certainty.REJECTED, False),
    ],
    ids=repr,
)
def test_certainty_and_retryability_are_two_questions(error, certainty, retryable):
    verdict = classifier((KeyError,), (LookupError,))(error)
    assert (verdict.certainty, verdict.retryable) == (certainty, retryable)


def test_only_a_tool_itself_can_say_that_nothing_was_sent():
    """A refused connection may be the second request of the tool, or an inner retry after a
    time-out.
    """
    import socket

    for error in (socket.gaierror(), ConnectionRefusedError()):
        assert classifier((), ())(error).certainty is Certainty.AMBIGUOUS
        declared = classifier((OSError,), ())(error)
        assert (declared.certainty, declared.retryable) == (Certainty.NOT_SENT, True)


class VirtualTime:
    def __init__(self):
        self.now = 0.0

    def run(self, flow, answers):
        """Drive a flow in virtual time; returns its ending and the delays."""
        delays, op = [], next(flow)
        while True:
            if isinstance(op, Sleep):
                self.now += op.seconds
                delays.append(op.seconds)
            reply = next(answers) if isinstance(op, Invoke) else None
            try:
                op = flow.send(reply)
            except StopIteration as done:
                return done.value, delays


def patience(clock, *, rng=lambda: 1.0, **changes):
    """What one call has whose first attempt has just failed."""
    settings = {
        "attempts": 100,
        "throttled_attempts": 100,
        "deadline_s": 10.0,
        "base_s": 1.0,
        "throttled_base_s": 1.0,
        "cap_s": 4.0,
        "jitter": Jitter.FULL,
        "classify": classifier((), (), one_request=True),
    }
    env = Env(now=lambda: clock.now, new_token=lambda: "t", rng=rng)
    return RetryState(Retrying(**settings | changes), env, attempt=1)


def test_no_attempt_starts_after_the_deadline():
    clock = VirtualTime()

    flow = plain_call(patience(clock), TimeoutError(), repeatable=True)
    ending, delays = clock.run(flow, iter(lambda: Raised(TimeoutError()), None))

    assert "too late" in ending.why
    assert delays == [1.0, 2.0, 4.0]
    assert clock.now < 10
