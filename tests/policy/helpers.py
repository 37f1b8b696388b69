"""Circuits with a clock that is turned by hand, and blocks that are tried again."""

import asyncio

from effectonce import Breaker, Circuit, Phase
from effectonce.testing.clock import FakeClock

DOWN = ConnectionRefusedError(111, "Connection refused")  # the tables know it: unreachable


def circuit(name="bank", clock=None, **policy):
    runtime = {
        key: policy.pop(key) for key in ("rules", "on_change", "shared", "node") if key in policy
    }
    clock = FakeClock() if clock is None else clock
    made = Circuit(name, Breaker(**policy), clock=clock, rng=lambda: 0.0, **runtime)
    return made, clock


def fail(subject, times=1, error=DOWN):
    for _ in range(times):
        subject.admit().failed(error)


def half_open(**policy):
    """A circuit whose next call is a probe."""
    subject, clock = circuit(consecutive=1, **policy)
    fail(subject)
    clock.advance(subject.stats().retry_after_s)
    assert subject.phase is Phase.OPEN
    return subject, clock


def run_block(colour, body, retrier):
    """Try *body* as a block of this colour; it is given the attempt."""
    if colour == "sync":
        for attempt in retrier:
            with attempt:
                body(attempt)
        return

    async def main():
        async for attempt in retrier:
            async with attempt:
                body(attempt)

    asyncio.run(main())
