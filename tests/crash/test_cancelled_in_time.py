"""After `guard.workflows.cancel()` has returned, no step of the run begins: in another process,
in whatever state that is.
"""

import os
import signal
import subprocess
import sys
import textwrap
from contextlib import closing

import pytest

from effectonce import Guard
from effectonce.workflows import Run
from tests.core.workflows import Ledger, key_of
from tests.servers.redis import cluster, durable_server, emptied
from tests.tiers import long_except

RUNS = textwrap.dedent(
    """
    import asyncio, os, sys
    from effectonce import Guard
    from effectonce.workflows import Run

    guard, ledger = Guard(sys.argv[1], cache=0), open(sys.argv[2], "a", buffering=1)
    colour = sys.argv[3]

    def note(what: str) -> None:
        ledger.write(what + "\\n")

    async def anote(what: str) -> None:
        note(what)

    def wait():
        print("between two steps", flush=True)
        sys.stdin.readline()

    @guard.workflow(lease_s=600)
    def book(run: Run, trip: str) -> None:
        run.step("hotel", note, "hotel")
        run.compensate("no hotel", note, "no hotel")
        wait()
        run.step("train", note, "train")
        run.compensate("no train", note, "no train")
        run.step("ferry", note, "ferry")

    @guard.workflow(lease_s=600)
    async def abook(run: Run, trip: str) -> None:
        await run.step("hotel", anote, "hotel")
        run.compensate("no hotel", anote, "no hotel")
        wait()
        await asyncio.gather(run.step("train", anote, "train"), run.step("ferry", anote, "ferry"))

    @guard.workflow(lease_s=600)
    def travel(run: Run, trip: str) -> None:
        run.step("visa", note, "visa")
        run.compensate("no visa", note, "no visa")
        run.step("book", book, trip)
        run.step("guide", note, "guide")

    try:
        if colour == "async":
            asyncio.run(abook("t1"))
        else:
            (travel if colour == "a run in a run" else book)("t1")
    except Exception as error:
        print(type(error).__name__, flush=True)
    """
)


def redis_url(server):
    emptied(server)
    return server.url


STORES = {
    "sqlite": lambda request: f"sqlite:///{request.getfixturevalue('tmp_path')}/effects.db",
    "postgres": lambda request: request.getfixturevalue("database"),
    "redis": lambda request: redis_url(durable_server()),
    "redis cluster": lambda request: redis_url(cluster()),
}


@pytest.fixture(params=STORES)
def running(request, tmp_path):
    """A process that has done one step and waits before the next."""
    begun = []

    def run(colour):
        url, done = STORES[request.param](request), tmp_path / "ledger"
        command = [sys.executable, "-c", RUNS, url, str(done), colour]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ
        )
        begun.append(process)
        assert process.stdout.readline() == "between two steps\n"
        return process, url, done

    yield run
    for process in begun:
        process.kill()
        process.communicate()


@pytest.mark.cover(1)
@pytest.mark.parametrize(
    ("colour", "workflow", "left"),
    [
        ("sync", "book", ["hotel", "no hotel"]),
        ("async", "abook", ["hotel", "no hotel"]),
        ("a run in a run", "travel", ["visa", "hotel", "no hotel", "no visa"]),
    ],
)
@pytest.mark.parametrize("stopped", [False, True])
def test_no_step_begins_after_a_cancellation(running, colour, workflow, left, stopped):
    process, url, done = running(colour)
    if stopped:
        process.send_signal(signal.SIGSTOP)

    with closing(Guard(url, cache=0)) as guard:
        guard.workflows.cancel(
            key_of(guard, workflow=workflow), by="ann", reason="the customer called"
        )
        process.send_signal(signal.SIGCONT)
        told, _ = process.communicate("go on\n", timeout=60)

        assert done.read_text().split("\n")[:-1] == left
        assert told in ("Cancelled\n", "StepFailed\n")
        assert guard.workflows.summary(key_of(guard, "failed", workflow=workflow)).state == "failed"


@pytest.mark.parametrize(
    "running",
    long_except(["redis"], STORES),
    indirect=True,
)
def test_who_goes_on_with_a_cancelled_run_in_a_run_begins_nothing(running):
    """The process is killed, and the inner run is resumed on its own."""
    process, url, done = running("a run in a run")
    with closing(Guard(url, cache=0)) as guard:
        guard.workflows.cancel(
            key_of(guard, workflow="travel"), by="ann", reason="the customer called"
        )
        process.kill()

        inner = guard.workflows.summary(key_of(guard, workflow="book"))

    assert (inner.cancelled.by, inner.cancelled.reason) == ("ann", "the customer called")


# ---------------------------------------------------------------- in one process


def test_a_run_that_is_cancelled_during_its_last_step_is_compensated():
    guard, ledger = Guard("memory://", cache=0), Ledger()

    @guard.workflow
    def book(run: Run, trip: str) -> None:
        run.compensate("no hotel", ledger.do, "no hotel")
        run.step("hotel", cancelling)

    def cancelling() -> None:
        guard.workflows.cancel(
            key_of(guard, workflow="book"), by="ann", reason="the customer called"
        )
        ledger.do("hotel")

    with pytest.raises(Exception, match="was cancelled by ann"):
        book("t1")
    assert ledger.done == ["hotel", "no hotel"]


def test_a_function_that_catches_its_cancellation_does_not_complete():
    guard, ledger = Guard("memory://", cache=0), Ledger()

    @guard.workflow
    def book(run: Run, trip: str) -> str:
        run.step("hotel", ledger.do, "hotel")
        run.compensate("no hotel", ledger.do, "no hotel")
        guard.workflows.cancel(run.effect.key, by="ann", reason="the customer called")
        try:
            run.step("train", ledger.do, "train")
        except Exception:
            return "caught"
        return "done"

    with pytest.raises(Exception, match="was cancelled by ann"):
        book("t1")
    assert ledger.done == ["hotel", "no hotel"]


def test_a_step_of_another_store_does_not_begin_either():
    guard, other, ledger = Guard("memory://", cache=0), Guard("memory://", cache=0), Ledger()
    note = other.tool(kind="write", name="note")(ledger.do)

    @guard.workflow
    def book(run: Run, trip: str) -> None:
        run.step("hotel", note, "hotel")
        guard.workflows.cancel(run.effect.key, by="ann", reason="the customer called")
        run.step("train", note, "train")

    with pytest.raises(Exception, match="was cancelled by ann"):
        book("t1")
    assert ledger.done == ["hotel"]
