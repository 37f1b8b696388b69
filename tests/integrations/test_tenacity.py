"""The building blocks in the real tenacity, both colours, with a sleep and a clock that a test
holds.
"""

import asyncio
import time
from datetime import timedelta

import httpx
import pytest
import tenacity

from effectonce import Bucket, Certainty, ContractViolation, NotSent, Rule, Verdict
from effectonce.integrations.tenacity import retry_if_safe, stop_at_deadline, wait_full_jitter

REQUEST = httpx.Request("POST", "http://127.0.0.1/")
NO_ANSWER = httpx.ReadTimeout("no answer", request=REQUEST)
UNREACHABLE = httpx.ConnectError("refused", request=REQUEST)
FULL = lambda: 1.0


def answered(status, **headers):
    response = httpx.Response(
        status,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
        request=REQUEST,
    )
    return httpx.HTTPStatusError(str(status), request=REQUEST, response=response)


class Runs:
    """A function that fails as it is told and then succeeds, retried by tenacity in one colour.
    What it slept is noted, not slept.
    """

    def __init__(self, colour, *errors):
        self.colour, self.errors = colour, list(errors)
        self.attempts, self.slept = 0, []

    def clock(self):
        return time.monotonic() + sum(self.slept)

    def _attempt(self):
        self.attempts += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"

    async def _aattempt(self):
        return self._attempt()

    async def _asleep(self, seconds):
        self.slept.append(seconds)

    def retried(self, **blocks):
        blocks = {"stop": tenacity.stop_after_attempt(9), "reraise": True} | blocks
        if self.colour == "sync":
            return tenacity.Retrying(sleep=self.slept.append, **blocks)(self._attempt)
        return asyncio.run(tenacity.AsyncRetrying(sleep=self._asleep, **blocks)(self._aattempt))


@pytest.fixture(params=["sync", "async"])
def failing(request):
    return lambda *errors: Runs(request.param, *errors)


def given_up(runs, error, **blocks):
    with pytest.raises(type(error)) as caught:
        runs.retried(**blocks)
    assert caught.value is error


# ---------------------------------------------------------------- retry=


@pytest.mark.parametrize("error", [answered(503), answered(429), UNREACHABLE, NO_ANSWER], ids=str)
@pytest.mark.parametrize("kind", ["read", "idempotent_write"])
def test_what_may_be_repeated_is_tried_again_after_what_may_pass(failing, kind, error):
    runs = failing(error, error)
    assert runs.retried(retry=retry_if_safe(kind)) == "done"
    assert runs.attempts == 3


@pytest.mark.parametrize("kind", ["read", "idempotent_write", "write", "irreversible"])
@pytest.mark.parametrize(
    "error", [answered(401), answered(422), answered(404), ValueError("mine")], ids=str
)
def test_what_is_final_or_not_known_is_never_tried_again(failing, kind, error):
    runs = failing(error)
    given_up(runs, error, retry=retry_if_safe(kind, one_request=True))
    assert runs.attempts == 1


@pytest.mark.parametrize("kind", ["write", "irreversible"])
def test_a_write_that_may_have_happened_is_not_tried_again(failing, kind):
    for one_request in (False, True):
        runs = failing(NO_ANSWER)
        given_up(runs, NO_ANSWER, retry=retry_if_safe(kind, one_request=one_request))
        assert runs.attempts == 1


def test_a_write_is_tried_again_if_the_error_proves_that_nothing_happened(failing):
    for error, one_request in (
        (UNREACHABLE, True),
        (answered(429), True),
        (NotSent("the queue is full"), False),
    ):
        runs = failing(error)
        assert runs.retried(retry=retry_if_safe("write", one_request=one_request)) == "done"


def test_who_says_nothing_about_a_function_gets_the_safe_choice(failing):
    runs = failing(NO_ANSWER)
    given_up(runs, NO_ANSWER, retry=retry_if_safe(one_request=True))
    assert runs.attempts == 1


def test_an_error_proves_nothing_about_a_function_that_makes_many_requests(failing):
    runs = failing(UNREACHABLE)
    given_up(runs, UNREACHABLE, retry=retry_if_safe("write"))
    assert runs.attempts == 1


def test_a_rule_knows_better(failing):
    error = ValueError("the lock is taken")
    rules = [Rule(ValueError, Verdict(Bucket.CONFLICT, Certainty.REJECTED))]
    assert failing(error).retried(retry=retry_if_safe("write", rules=rules)) == "done"


@pytest.mark.parametrize("error", [asyncio.CancelledError(), KeyboardInterrupt()], ids=repr)
def test_who_was_told_to_stop_stops(error):
    runs = Runs("sync", error)
    given_up(runs, error, retry=retry_if_safe("read"))
    assert runs.attempts == 1


def test_a_result_is_not_tried_again(failing):
    runs = failing()
    assert runs.retried(retry=retry_if_safe("read")) == "done"
    assert runs.attempts == 1


# ---------------------------------------------------------------- wait=


def test_delays_double_up_to_the_cap_and_are_spread_there_too(failing):
    for draw in (1.0, 0.25):
        runs = failing(*[NO_ANSWER] * 6)
        runs.retried(
            retry=retry_if_safe("read"), wait=wait_full_jitter(1, 8, rng=lambda draw=draw: draw)
        )
        assert runs.slept == [ceiling * draw for ceiling in (1, 2, 4, 8, 8, 8)]


def test_it_waits_as_long_as_the_downstream_asks(failing):
    runs = failing(answered(429, retry_after="7"), answered(429, retry_after="0.1"), answered(503))
    runs.retried(retry=retry_if_safe("read"), wait=wait_full_jitter(1, 8, rng=FULL))
    assert runs.slept == [8, 2, 4]


def test_a_rule_says_how_long_to_wait(failing):
    rules = [Rule(ValueError, Verdict(Bucket.RATE_LIMIT, Certainty.REJECTED, retry_after_s=30.0))]
    runs = failing(ValueError("slow down"))
    runs.retried(
        retry=retry_if_safe("read", rules=rules), wait=wait_full_jitter(1, 8, rules=rules, rng=FULL)
    )
    assert runs.slept == [31]


def test_a_result_that_somebody_else_wants_again_waits_too(failing):
    runs = failing()
    runs.retried(
        retry=tenacity.retry_if_result(lambda _: runs.attempts < 3),
        wait=wait_full_jitter(1, 8, rng=FULL),
    )
    assert runs.slept == [1, 2]


# ---------------------------------------------------------------- stop=


def test_it_never_sleeps_past_the_deadline(failing):
    runs = failing(*[NO_ANSWER] * 9)
    blocks = {"retry": retry_if_safe("read"), "wait": wait_full_jitter(4, 4, rng=FULL)}
    given_up(runs, NO_ANSWER, stop=stop_at_deadline(10, clock=runs.clock), **blocks)
    assert runs.slept == [4, 4]


def test_a_delay_that_does_not_fit_is_not_slept_at_all(failing):
    error = answered(429, retry_after="60")
    runs = failing(error)
    stop = tenacity.stop_after_attempt(3) | stop_at_deadline(
        timedelta(seconds=30), clock=runs.clock
    )
    given_up(runs, error, retry=retry_if_safe("read"), wait=wait_full_jitter(1, 8), stop=stop)
    assert (runs.attempts, runs.slept) == (1, [])


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: retry_if_safe("reed"), "kind='reed': choose one of read, "),
        (lambda: wait_full_jitter(5, 1), "need 0 <= base_s <= cap_s"),
        (lambda: wait_full_jitter(-1, 1), "need 0 <= base_s <= cap_s"),
        (lambda: stop_at_deadline(0), "a call needs some time"),
        (lambda: stop_at_deadline(float("nan")), "a call needs some time"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(make, said):
    with pytest.raises(ContractViolation, match=said):
        make()
