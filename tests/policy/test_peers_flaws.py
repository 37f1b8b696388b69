"""What the circuit breakers of others do wrong, each as a fact about ours."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from effectonce import Bucket, Certainty, CircuitOpen, NotSent, Phase, Rejected, Verdict
from tests.core.helpers import in_a_loop
from tests.policy.helpers import DOWN, circuit, fail, half_open


def test_eight_threads_are_inside_at_once():
    """A breaker that holds its lock during the call lets them in one by one."""
    subject, _ = circuit()
    inside = threading.Barrier(8, timeout=30)

    @subject
    def call():
        return inside.wait()

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(lambda _: call(), range(8))) == list(range(8))


def test_a_coroutine_that_a_sync_function_returns_is_not_taken_for_a_success():
    subject, _ = half_open()

    async def call():
        raise DOWN

    @subject
    def called_by():
        return call()

    with pytest.raises(TypeError, match="guard the async def"):
        called_by()

    assert subject.phase is Phase.HALF_OPEN


@in_a_loop
async def test_a_cancelled_call_does_not_count_as_a_failure():
    subject, _ = circuit(consecutive=1)

    started = asyncio.Event()

    @subject
    async def call():
        started.set()
        await asyncio.sleep(3600)

    task = asyncio.create_task(call())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert subject.phase is Phase.CLOSED
    assert subject.stats().neutral == 1


class StoppedByAnotherLibrary(BaseException):
    """Not every loop is asyncio's."""


@pytest.mark.parametrize(
    "stop",
    [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError, StoppedByAnotherLibrary],
)
def test_being_stopped_says_nothing_about_the_dependency(stop):
    subject, _ = circuit(consecutive=1, counts_as_failure=frozenset({Bucket.UNKNOWN}))

    @subject
    def call():
        raise stop

    with pytest.raises(stop):
        call()

    assert subject.phase is Phase.CLOSED
    assert subject.stats().neutral == 1


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a bug of our own"),
        Rejected("the bank says no"),
        NotSent("not even tried"),
        CircuitOpen("another circuit"),
        Verdict(Bucket.DECLINED, Certainty.REJECTED),
        Verdict(Bucket.SCHEMA, Certainty.REJECTED),
        Verdict(Bucket.QUOTA, Certainty.REJECTED),
        Verdict(Bucket.AUTH, Certainty.REJECTED),
        Verdict(Bucket.RATE_LIMIT, Certainty.REJECTED),
        Verdict(Bucket.CONTROL_FLOW, Certainty.AMBIGUOUS),
    ],
    ids=lambda error: getattr(error, "bucket", type(error).__name__),
)
def test_an_error_that_does_not_count_neither_closes_nor_opens_a_half_open_circuit(error):
    subject, _ = half_open()

    fail(subject, 1, error)

    assert subject.phase is Phase.HALF_OPEN
    assert subject.stats().probes_out == 0


def test_a_success_that_began_before_it_opened_does_not_close_it():
    subject, clock = circuit(consecutive=1)
    before = subject.try_admit()
    fail(subject)
    clock.advance(10.0)
    probe = subject.admit()

    before.succeeded()
    phase = subject.phase
    probe.failed(DOWN)

    assert phase is Phase.HALF_OPEN
    assert subject.phase is Phase.OPEN
    assert subject.stats().late == 1
