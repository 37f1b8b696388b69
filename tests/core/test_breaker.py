"""The breaker's machine and its policy, without time, threads or chance. What peers do wrong is
in tests/policy/test_peers_flaws.py.
"""

from math import inf

import pytest

from effectonce import Breaker, Bucket, Certainty, ContractViolation, Scope, Verdict
from effectonce._core.breaker.machine import (
    FREE,
    MOVES,
    UNHEALTHY,
    BreakerEvent,
    Machine,
    Phase,
    Sign,
    sign_of,
)
from effectonce._core.classification.classify import classifier
from effectonce.errors import CircuitOpen


def machine(*, rng=lambda: 0.0, **policy):
    return Machine(Breaker(**policy).limits, rng, 0.0)


def fail(subject, times, now=0.0, slow=0, retry_after_s=None):
    for _ in range(times):
        permit = subject.admit(now)
        subject.failed(subject.generation, permit, now, slow, retry_after_s)


def succeed(subject, times, now=0.0, slow=0):
    for _ in range(times):
        permit = subject.admit(now)
        subject.succeeded(subject.generation, permit, now, slow)


def opened(**policy):
    """A machine that has just opened, at 0."""
    subject = machine(consecutive=1, **policy)
    fail(subject, 1)
    return subject


# ---------------------------------------------------------------- when it opens


def fails(times, now=0.0):
    return lambda subject: fail(subject, times, now)


def succeeds(times, now=0.0, slow=0):
    return lambda subject: succeed(subject, times, now, slow)


@pytest.mark.parametrize(
    ("policy", "before", "last", "why"),
    [
        (
            {"consecutive": 3},
            [fails(2), succeeds(1), fails(2)],
            fails(1),
            "3 failures in a row",
        ),
        (
            {"consecutive": 3, "window_s": 60.0},
            [fails(1), fails(1, 1000.0)],
            fails(1, 2000.0),  # however long ago the first was
            "3 failures in a row",
        ),
        (
            {"failures": 5, "window_s": 60.0},
            [step for now in (0, 15, 30, 45) for step in (fails(1, now), succeeds(100, now))],
            fails(1, 60.0),
            "5 failures in 60 s",
        ),
        (
            {"failures": 3, "window_calls": 10},
            # when the third comes, the first has left the window
            [fails(1), succeeds(4), fails(1), succeeds(4), fails(1)],
            fails(1),
            "3 failures among the last 10 calls",
        ),
        (
            {"rate": 0.5, "window_calls": 10, "minimum": 10},
            [succeeds(100), fails(4)],
            fails(1),
            "5 of 10 calls failed",
        ),
        (
            {"rate": 0.5, "window_s": 10.0, "minimum": 4},
            [succeeds(100), fails(3, 5.0)],
            fails(1, 10.0),  # the hundred successes are too old by now
            "4 of 4 calls failed",
        ),
        (
            {"slow_rate": 0.5, "slow_s": 2.0, "window_calls": 10, "minimum": 4},
            [succeeds(2), succeeds(1, slow=1)],
            succeeds(1, slow=1),
            "2 of 4 calls took 2 s or longer",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_last_call_that_a_condition_asks_for_opens_it_and_none_before(
    policy, before, last, why
):
    subject = machine(**policy)

    for step in before:
        step(subject)
    phase = subject.phase
    last(subject)

    assert (phase, subject.phase) == (Phase.CLOSED, Phase.OPEN)
    assert subject.why == why


def test_the_window_of_failures_is_exact_and_not_in_steps():
    late, timely = machine(failures=2, window_s=60.0), machine(failures=2, window_s=60.0)

    fail(late, 1, 5.0)
    fail(late, 1, 65.1)
    fail(timely, 1, 5.0)
    fail(timely, 1, 65.0)

    assert (late.phase, timely.phase) == (Phase.CLOSED, Phase.OPEN)


def test_a_condition_that_is_given_is_the_only_one():
    alone = [
        Breaker(failures=9),
        Breaker(rate=0.5),
        Breaker(slow_rate=0.5, slow_s=1),
        Breaker(consecutive=9),
        Breaker(),
    ]

    assert [policy.limits.consecutive for policy in alone] == [None, None, None, 9, 5]


def test_a_success_never_opens_it():
    subject = machine(rate=0.5, window_s=30.0, minimum=10)

    fail(subject, 9)
    succeed(subject, 1)

    assert subject.phase is Phase.CLOSED


def test_what_says_nothing_does_not_interrupt_a_row_of_failures():
    subject = machine(consecutive=2)

    fail(subject, 1)
    subject.released(subject.generation, subject.admit(0.0))
    fail(subject, 1)

    assert subject.phase is Phase.OPEN
    assert subject.neutral == 1


@pytest.mark.parametrize(
    "policy",
    [{"rate": 0.5, "window_calls": 4, "minimum": 4}, {"failures": 4, "window_s": 1000.0}],
    ids=str,
)
def test_after_it_has_closed_it_counts_from_zero(policy):
    subject = machine(open_s=10.0, **policy)
    fail(subject, 4)

    succeed(subject, 1, now=10.0)
    fail(subject, 3, now=10.0)

    assert subject.phase is Phase.CLOSED
    assert subject.window is None or subject.window.calls == 3


# ---------------------------------------------------------------- half-open


def test_open_it_refuses_until_its_time_is_up():
    subject = opened(open_s=10.0)

    assert subject.admit(9.9) is None
    assert subject.wait_s(9.9) == pytest.approx(0.1)
    assert subject.admit(10.0) is not None
    assert subject.phase is Phase.HALF_OPEN


def test_half_open_it_lets_exactly_the_permitted_probes_through():
    subject = opened(probes=3)

    permits = [subject.admit(10.0) for _ in range(1000)]

    assert sum(permit is not None for permit in permits) == 3
    assert subject.refused == 997


def test_a_permit_that_does_not_come_back_is_lent_to_another_when_its_lease_ends():
    subject = opened(probe_lease_s=60.0)

    assert subject.admit(10.0) is not None
    assert subject.admit(69.9) is None
    assert subject.wait_s(69.9) == pytest.approx(0.1)
    assert subject.admit(70.0) is not None
    assert subject.admit(70.0) is None


def test_what_a_probe_says_after_its_lease_is_still_true():
    subject = opened(probe_lease_s=60.0)
    slow_probe = subject.admit(10.0)
    subject.admit(70.0)

    subject.failed(subject.generation, slow_probe, 75.0, 0, None)

    assert subject.phase is Phase.OPEN


def test_a_probe_that_says_nothing_gives_its_permit_back():
    subject = opened()
    permit = subject.admit(10.0)

    subject.released(subject.generation, permit)

    assert subject.phase is Phase.HALF_OPEN
    assert subject.wait_s(10.0) == 0.0
    assert subject.admit(10.0) is not None


@pytest.mark.parametrize(
    ("last", "phase", "why"),
    [
        (succeeds(1, 10.0), Phase.CLOSED, ""),
        (fails(1, 10.0), Phase.OPEN, "a probe failed"),
        (succeeds(1, 10.0, slow=1), Phase.OPEN, "a probe was slow"),
    ],
    ids=["success", "failure", "slow"],
)
def test_it_closes_after_the_successes_that_were_asked_for_and_opens_at_anything_else(
    last, phase, why
):
    subject = opened(successes=3, slow_rate=0.5, slow_s=1.0)

    succeed(subject, 2, now=10.0)
    before = subject.phase
    last(subject)

    assert (before, subject.phase) == (Phase.HALF_OPEN, phase)
    assert phase is Phase.CLOSED or subject.why == why


# ---------------------------------------------------------------- generations


def test_a_late_success_of_an_older_generation_does_not_close_it():
    subject = machine(consecutive=1)
    old = subject.generation
    fail(subject, 1)
    subject.admit(10.0)

    subject.succeeded(old, FREE, 10.0, 0)

    assert subject.phase is Phase.HALF_OPEN
    assert subject.late == 1


def test_a_late_failure_of_an_older_generation_does_not_open_it_again():
    subject = opened()
    old = subject.generation
    succeed(subject, 1, now=10.0)

    subject.failed(old, FREE, 11.0, 0, None)
    subject.released(old, FREE)

    assert subject.phase is Phase.CLOSED
    assert subject.in_a_row == 0
    assert (subject.late, subject.neutral) == (2, 0)


# ---------------------------------------------------------------- the open time


def open_times(count, **policy):
    """The first open times of a dependency whose probes all fail."""
    subject, now, times = machine(consecutive=1, **policy), 0.0, []
    for _ in range(count):
        fail(subject, 1, now=now)
        times.append(subject.until - now)
        now = subject.until
    return times


def test_the_open_time_grows_up_to_its_maximum():
    assert open_times(5, open_s=10.0, open_max_s=60.0, growth=2.0) == [10.0, 20.0, 40.0, 60.0, 60.0]


def test_it_does_not_overflow_however_often_it_opens():
    assert open_times(2000, open_s=1.0, open_max_s=60.0, growth=10.0)[-1] == 60.0


def test_the_open_time_is_spread_also_at_its_maximum():
    draws = iter([0.0, 0.25, 0.5, 0.75, 1.0])

    times = open_times(5, open_s=60.0, open_max_s=60.0, jitter=0.2, rng=lambda: next(draws))

    assert times == pytest.approx([60.0, 57.0, 54.0, 51.0, 48.0])


def test_the_dependency_may_ask_for_a_longer_open_time_and_gets_it():
    subject = machine(consecutive=2, open_s=10.0, jitter=0.5, rng=lambda: 0.5)

    fail(subject, 2, retry_after_s=100.0)

    # never earlier than it asked, and spread over its callers
    assert subject.until == pytest.approx(125.0)


@pytest.mark.parametrize(("retry_after_s", "until"), [(1.0, 10.0), (1e9, 3600.0)])
def test_a_retry_after_neither_shortens_the_open_time_nor_lasts_for_years(retry_after_s, until):
    subject = machine(consecutive=1, open_s=10.0, retry_after_max_s=3600.0)

    fail(subject, 1, retry_after_s=retry_after_s)

    assert subject.until == until


@pytest.mark.parametrize(("fails_again", "open_s"), [(15.0, 20.0), (20.0, 10.0)])
def test_a_dependency_that_flaps_is_left_alone_for_longer_unless_it_was_well_for_long(
    fails_again, open_s
):
    subject = machine(consecutive=1, open_s=10.0, growth=2.0)
    fail(subject, 1, now=0.0)
    succeed(subject, 1, now=10.0)

    fail(subject, 1, now=fails_again)

    assert subject.until == fails_again + open_s


# ---------------------------------------------------------------- by hand


@pytest.mark.parametrize("phase", Phase)
def test_a_hand_moves_it_from_anywhere(phase):
    assert {
        MOVES[phase, event]
        for event in (
            BreakerEvent.OPEN_BY_HAND,
            BreakerEvent.CLOSE_BY_HAND,
            BreakerEvent.DISABLE_BY_HAND,
        )
    } == {
        Phase.FORCED_OPEN,
        Phase.CLOSED,
        Phase.DISABLED,
    }


def test_forced_open_it_stays_so_whatever_time_it_is():
    subject = machine()

    subject.open(0.0, None)

    assert subject.admit(1e9) is None
    assert subject.wait_s(1e9) is None
    assert subject.phase is Phase.FORCED_OPEN


def test_opened_for_some_time_it_probes_afterwards():
    subject = machine()

    subject.open(0.0, 5.0)

    assert subject.admit(4.9) is None
    assert subject.admit(5.0) is not None
    assert subject.phase is Phase.HALF_OPEN


def test_disabled_it_lets_everything_pass_and_counts_nothing():
    subject = machine(consecutive=1, rate=0.1, minimum=1)

    subject.disable(0.0)
    fail(subject, 10)
    succeed(subject, 10)
    subject.passed(10)

    assert subject.phase is Phase.DISABLED
    assert (subject.failed_calls, subject.succeeded_calls, subject.window.calls) == (0, 0, 0)
    assert subject.counts_until(0.0) == inf


def test_closed_by_hand_it_forgets_how_long_it_was_open():
    subject = machine(consecutive=1, open_s=10.0, growth=2.0)
    fail(subject, 1)
    subject.close(1.0)

    fail(subject, 1, now=1.0)

    assert subject.until == 11.0


def test_what_is_not_in_the_table_changes_nothing():
    subject = machine()
    subject.open(0.0, None)

    subject.follow(1.0, 10.0, "others say so")

    assert subject.phase is Phase.FORCED_OPEN
    assert subject.until == inf


# ---------------------------------------------------------------- calls that are only counted


def test_calls_that_go_well_need_only_be_counted_until_something_depends_on_each():
    plain, failing = machine(consecutive=3), machine(consecutive=3)
    fail(failing, 1)

    assert plain.counts_until(0.0) == inf
    assert failing.counts_until(0.0) == -inf
    assert opened().counts_until(0.0) == -inf
    assert machine(rate=0.5, window_calls=10).counts_until(0.0) == inf
    assert machine(rate=0.5, window_s=30.0).counts_until(7.0) == 9.0


def test_counted_calls_are_in_the_window():
    calls = machine(rate=0.5, window_calls=10, minimum=1)
    spell = machine(rate=0.5, window_s=10.0, minimum=1)

    for subject in (calls, spell):
        subject.counts_until(0.0)
        subject.passed(7)
        fail(subject, 1)

        assert (subject.window.calls, subject.window.failed) == (8, 1)
        assert subject.succeeded_calls == 7
        assert subject.phase is Phase.CLOSED


def test_what_is_counted_too_late_goes_nowhere_but_into_the_statistics():
    subject = opened(rate=0.5, window_s=10.0)

    subject.passed(3)
    subject.close(0.0)
    subject.passed(2)

    assert subject.succeeded_calls == 5
    assert subject.window.calls == 0


# ---------------------------------------------------------------- what counts


@pytest.mark.parametrize("bucket", Bucket)
def test_only_what_says_something_about_the_dependency_counts(bucket):
    expected = (
        Sign.FAILURE
        if bucket in UNHEALTHY
        else Sign.SUCCESS
        if bucket is Bucket.OK
        else Sign.NEUTRAL
    )

    assert sign_of(Verdict(bucket, Certainty.AMBIGUOUS)) is expected


def test_an_error_of_our_own_process_is_not_the_dependencys():
    assert (
        sign_of(Verdict(Bucket.UNREACHABLE, Certainty.NOT_SENT, scope=Scope.PROCESS))
        is Sign.NEUTRAL
    )


def test_an_error_of_a_whole_host_counts_whatever_its_bucket():
    assert sign_of(Verdict(Bucket.UNKNOWN, Certainty.AMBIGUOUS, scope=Scope.HOST)) is Sign.FAILURE


@pytest.mark.parametrize(
    ("policy", "bucket", "sign"),
    [
        ({"counts_as_failure": UNHEALTHY | {Bucket.RATE_LIMIT}}, Bucket.RATE_LIMIT, Sign.FAILURE),
        ({"counts_as_success": frozenset({Bucket.DECLINED})}, Bucket.DECLINED, Sign.SUCCESS),
    ],
)
def test_a_bucket_counts_as_the_policy_says(policy, bucket, sign):
    policy, verdict = Breaker(**policy), Verdict(bucket, Certainty.REJECTED)

    assert sign_of(verdict, policy.counts_as_failure, policy.counts_as_success) is sign


# ---------------------------------------------------------------- the policy, the error


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ({"consecutive": 0}, "consecutive=0: it takes at least one to open"),
        ({"failures": 0}, "failures=0: it takes at least one to open"),
        ({"failures": 9, "window_calls": 8}, "they never fit the window"),
        ({"failures": 9, "window_calls": 0}, "at least one call"),
        ({"rate": 0.0}, "a share of the calls"),
        ({"rate": 50}, "a share of the calls"),
        ({"slow_rate": 1.5, "slow_s": 1.0}, "a share of the calls"),
        ({"slow_rate": 0.5}, "one needs the other"),
        ({"slow_s": 1.0}, "one needs the other"),
        ({"slow_rate": 0.5, "slow_s": 0.0}, "how many seconds are slow"),
        ({"rate": 0.5, "window_s": 0.0}, "the window must be positive"),
        ({"rate": 0.5, "minimum": 0}, "at least one call"),
        ({"window_calls": 10}, "needs failures, a rate"),
        ({"rate": 0.5, "window_calls": 5, "minimum": 10}, "never opens"),
        ({"open_s": 0.0}, "need 0 < open_s"),
        ({"open_s": 10.0, "open_max_s": 5.0}, "need 0 < open_s"),
        ({"growth": 0.5}, "grows up to tenfold"),
        ({"jitter": 1.5}, "jitter=1.5"),
        ({"retry_after_max_s": -1.0}, "cannot be negative"),
        ({"probes": 0}, "would never close"),
        ({"probe_lease_s": 0.0}, "a probe needs some time"),
        ({"successes": 0}, "at least one to close"),
        ({"refresh_s": 0.0}, "an exchange needs some time"),
        ({"quorum": 1.0}, "a share of the processes"),
        ({"counts_as_failure": {"overloaded"}}, "give sets of Bucket"),
        ({"counts_as_success": {Bucket.OVERLOADED}}, "both as failure and as success"),
        ({"counts_as_failure": {Bucket.CANCELLED}}, "cannot count as one"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_with_a_sentence(policy, says):
    with pytest.raises(ContractViolation, match=says):
        Breaker(**policy)


def test_a_refusal_says_that_nothing_was_sent_and_is_not_retried_in_this_step():
    verdict = CircuitOpen("refused", retry_after_s=12.0).effectonce_verdict

    assert (verdict.bucket, verdict.certainty) == (Bucket.CIRCUIT_OPEN, Certainty.NOT_SENT)
    assert verdict.retry_after_s == 12.0
    assert not verdict.retryable


def test_a_refusal_inside_a_tool_says_that_nothing_was_sent_only_if_the_tool_makes_one_request():
    """Another request may have left before: a refusal of the second one would make a retry look
    harmless.
    """
    refusal = CircuitOpen("refused")

    assert classifier((), (), one_request=True)(refusal).certainty is Certainty.NOT_SENT
    assert classifier((), ())(refusal).certainty is Certainty.AMBIGUOUS
    assert not classifier((), ())(refusal).retryable
