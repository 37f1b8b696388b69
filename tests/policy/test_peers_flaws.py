"""What the circuit breakers of others do wrong, each as a fact about ours."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from effectonce import Bucket, Certainty, CircuitOpen, NotSent, Phase, Rejected, Verdict
from effectonce.stores.memory import MemoryStore
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


def test_a_slow_call_does_not_keep_others_from_being_refused():
    subject, _ = half_open()
    probing, go_on = threading.Event(), threading.Event()

    @subject
    def call():
        probing.set()
        go_on.wait()

    prober = threading.Thread(target=call)
    prober.start()
    probing.wait()
    with pytest.raises(CircuitOpen):
        call()
    go_on.set()
    prober.join()

    assert subject.phase is Phase.CLOSED


def test_failures_of_async_functions_open_it():
    """Around `async def`, a breaker that looks at the coroutine instead of its end never opens."""
    subject, _ = circuit(consecutive=5)

    @subject
    async def call():
        await asyncio.sleep(0)
        raise DOWN

    async def main():
        return await asyncio.gather(*(call() for _ in range(10)), return_exceptions=True)

    ends = asyncio.run(main())

    assert subject.phase is Phase.OPEN
    assert all(isinstance(end, ConnectionRefusedError) for end in ends)


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


def test_twenty_concurrent_calls_at_the_half_open_instant_are_not_twenty_probes():
    subject, _ = half_open()

    permits = [subject.try_admit() for _ in range(20)]

    assert sum(not isinstance(permit, CircuitOpen) for permit in permits) == 1


def cancelled_call(subject):
    async def main():
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

    asyncio.run(main())


def test_a_cancelled_call_does_not_set_the_failures_back():
    subject, _ = circuit(consecutive=3)
    fail(subject, 2)

    cancelled_call(subject)
    row = subject.stats().failures_in_a_row
    fail(subject, 1)

    assert row == 2
    assert subject.phase is Phase.OPEN


def test_a_cancelled_call_does_not_count_as_a_failure():
    subject, _ = circuit(consecutive=1)

    cancelled_call(subject)

    assert subject.phase is Phase.CLOSED
    assert subject.stats().neutral == 1


def test_a_cancelled_probe_gives_its_permit_back():
    subject, _ = half_open()

    cancelled_call(subject)

    assert subject.phase is Phase.HALF_OPEN
    assert subject.stats().probes_out == 0
    assert not isinstance(subject.try_admit(), CircuitOpen)


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


def test_a_probe_that_was_not_made_after_all_gives_its_permit_back():
    subject, _ = half_open()

    subject.admit().released()

    assert subject.phase is Phase.HALF_OPEN
    assert (subject.stats().probes_out, subject.stats().neutral) == (0, 1)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a bug of our own"),
        Rejected("the bank says no"),
        NotSent("not even tried"),
        CircuitOpen("another circuit"),
        Verdict(Bucket.DECLINED, Certainty.REJECTED),
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


def test_a_stuck_probe_does_not_keep_the_circuit_half_open_for_ever():
    subject, clock = half_open(probe_lease_s=60.0)
    stuck = subject.admit()
    clock.advance(60.0)

    with subject.admit():
        pass
    stuck.failed(DOWN)

    assert subject.phase is Phase.CLOSED
    assert subject.stats().late == 1


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


def test_the_refusal_carries_the_time_to_the_next_probe():
    subject, clock = circuit(consecutive=1, open_s=10.0)
    fail(subject)
    clock.advance(4.0)

    assert subject.try_admit().retry_after_s == 6.0


def test_its_failures_are_classified_not_all_exceptions():
    subject, _ = circuit(consecutive=1)

    fail(subject, 100, Verdict(Bucket.SCHEMA, Certainty.REJECTED))

    assert subject.phase is Phase.CLOSED


def test_one_sick_process_does_not_open_everybodys():
    """A state that is shared as it is, is the state of whoever wrote last."""
    store = MemoryStore()
    (sick, _), (well, _), (third, _) = (
        circuit(node=name, shared=store, consecutive=1) for name in ("sick", "well", "third")
    )
    fail(sick)
    for one in (sick, well, third, well):
        one.share()

    assert sick.phase is Phase.OPEN
    assert (well.phase, third.phase) == (Phase.CLOSED, Phase.CLOSED)
