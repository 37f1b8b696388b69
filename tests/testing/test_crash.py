"""Crash points are reached by whatever passes them."""

import signal

import pytest

from effectonce import Guard
from effectonce._core.ops import Claim, Complete, Together
from effectonce.stores.memory import MemoryStore
from effectonce.testing.conformance.bench import request
from effectonce.testing.crash import CrashingStore


@pytest.fixture
def struck():
    """How often this process was struck, by a signal that it survives."""
    strikes = []
    before = signal.signal(signal.SIGUSR1, lambda *_: strikes.append(1))
    yield strikes
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("at", ["before the claim", "claimed", "completed"])
def test_several_ops_at_once_pass_the_points_of_each(struck, at):
    store = CrashingStore(MemoryStore(), at=at, how=signal.SIGUSR1)

    store.apply(
        Together((Claim(request(), "t", 30.0, dispatch=True), Complete("k", "t", 1, b"done")))
    )

    assert len(struck) == 1


def test_a_step_of_a_workflow_that_may_be_repeated_passes_them_too(struck):
    guard = Guard(CrashingStore(MemoryStore(), at="completed", how=signal.SIGUSR1))

    @guard.tool(kind="idempotent_write")
    def note(n: int) -> int:
        return n

    @guard.workflow(identity=["order"])
    def deliver(run, order: str) -> str:
        for n in range(3):
            run.step(f"note {n}", note, n)
        return order

    deliver("o_1")
    assert len(struck) == 4, "three steps, and the run itself"
