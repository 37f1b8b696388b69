"""A run does not end behind the back of steps that it did before: also where new code fails, or
returns, before it comes to them.
"""

import asyncio
import threading

import pytest

from effectonce import Guard, Rejected
from effectonce._core.ops import Claim
from effectonce._core.record import State
from effectonce.errors import Cancelled, CodeChanged, StepFailed
from effectonce.stores.memory import MemoryStore
from effectonce.workflows import Run
from tests.core.workflows import Ledger, elsewhere, job, key_of, refusing, registered


class Killed(BaseException):
    """This process is gone."""


def release(ledger, *names, ends):
    """A release of `job`: these steps, each with its compensation, and then *ends* is called."""

    def body(run: Run, n: int) -> str:
        for name in names:
            run.step(name, ledger.do, name)
            run.compensate(f"undo {name}", ledger.do, f"no {name}")
        return ends(run)

    return body


def arelease(ledger, *names, ends):
    async def do(what: str) -> str:
        return ledger.do(what)

    async def body(run: Run, n: int) -> str:
        for name in names:
            await run.step(name, do, name)
            run.compensate(f"undo {name}", do, f"no {name}")
        return ends(run)

    return body


def raising(error):
    def ends(run):
        raise error

    return ends


def call(store, body):
    """As another process would that has this release."""
    workflow = registered(Guard(store, cache=0), body)
    called = elsewhere(workflow, 1)
    return asyncio.run(called) if asyncio.iscoroutine(called) else called


both = pytest.mark.parametrize("made", [release, arelease], ids=["sync", "async"])


@both
@pytest.mark.parametrize("reached", [(), ("pack",)])
def test_new_code_that_fails_before_a_step_that_was_done_does_not_end_the_run(
    store, ledger, made, reached, guard
):
    with pytest.raises(KeyError):
        call(store, made(ledger, "pack", "send", ends=raising(KeyError("a bug"))))

    with pytest.raises(
        CodeChanged,
        match=r"fails \(Rejected: closed\), but step '\d \w+' was begun .* Nothing was compensated",
    ):
        call(store, made(ledger, *reached, ends=raising(Rejected("closed"))))

    assert ledger.done == ["pack", "send"]
    assert guard.workflows.summary(key_of(guard)).state == "waiting"
    with pytest.raises(Rejected):
        call(store, made(ledger, "pack", "send", ends=raising(Rejected("closed"))))
    assert ledger.done == ["pack", "send", "no send", "no pack"]
    assert guard.counts()[State.FAILED] == 1


@both
def test_new_code_that_returns_before_a_step_that_was_done_does_not_end_the_run(
    store, ledger, made
):
    with pytest.raises(KeyError):
        call(store, made(ledger, "pack", "send", ends=raising(KeyError("a bug"))))

    with pytest.raises(CodeChanged, match="'1 pack' was begun"):
        call(store, made(ledger, ends=lambda run: "done"))
    assert ledger.done == ["pack", "send"]


@both
def test_new_code_that_returns_what_was_being_compensated_does_not_end_the_run(store, ledger, made):
    """The process died when it had undone the last step: the run is not done, whatever the code
    of today thinks.
    """

    class Dies(Ledger):
        def do(self, what, result=None):
            if what == "no pack":
                raise Killed
            return super().do(what, result)

    dies = Dies()
    with pytest.raises(Killed):
        call(store, made(dies, "pack", "send", ends=raising(Rejected("closed"))))
    assert dies.done == ["pack", "send", "no send"]
    store._clock.advance(60)

    with pytest.raises(CodeChanged, match=r"'undo \d undo \w+' was begun"):
        call(store, made(ledger, "pack", "send", ends=lambda run: "done"))
    assert ledger.done == []


def test_a_step_that_was_done_beside_one_that_was_not_is_noticed(clock, ledger):
    """Of two at the same time the first left no trace: it may be repeated, so it is written down
    when it is done.
    """

    def both_at_once(run: Run, n: int) -> None:
        run.parallel(("look", look), ("pay", pay))

    class DiesFirst(MemoryStore):
        def apply(self, op, /):
            if isinstance(op, Claim) and op.request.step == "1 look":
                raise Killed
            return super().apply(op)

    store = DiesFirst(clock=clock)
    guard, paid = Guard(store, cache=0), threading.Event()

    def pay() -> None:
        ledger.do("pay")
        paid.set()

    @guard.tool(kind="idempotent_write", name="look")
    def look() -> None:
        paid.wait(60)
        raise ConnectionError

    with pytest.raises(Killed):
        elsewhere(registered(guard, both_at_once), 1)
    clock.advance(60)

    assert ledger.done == ["pay"]
    with pytest.raises(CodeChanged, match="'2 pay' was begun"):
        call(store, release(ledger, ends=lambda run: "done"))
    with pytest.raises(CodeChanged, match="'2 pay' was begun"):
        call(store, release(ledger, ends=raising(Rejected("closed"))))


def test_new_code_that_asks_for_a_step_and_does_not_await_it_does_not_end_the_run(store, ledger):
    async def do(what: str) -> str:
        return ledger.do(what)

    async def forgets(run: Run, n: int) -> None:
        run.step("pack", do, "pack").close()
        raise Rejected("closed")

    with pytest.raises(KeyError):
        call(store, arelease(ledger, "pack", ends=raising(KeyError("a bug"))))
    with pytest.raises(CodeChanged, match="'1 pack' was begun"):
        call(store, forgets)
    assert ledger.done == ["pack"]


def test_a_run_that_fails_where_it_failed_before_ends_as_before(store, ledger, guard):
    refuse = refusing(ledger)

    class Dies(Ledger):
        def do(self, what, result=None):
            if what == "no pack" and what not in self.done:
                super().do(what)
                raise Killed
            return super().do(what, result)

    dies = Dies()

    @job
    def body(run: Run, n: int) -> None:
        run.step("pack", dies.do, "pack")
        run.compensate(
            "undo pack", guard.tool(kind="idempotent_write", name="undo")(dies.do), "no pack"
        )
        run.step("sell", refuse)

    workflow = guard.workflow(body)
    with pytest.raises(Killed):
        elsewhere(workflow, 1)
    store._clock.advance(60)

    with pytest.raises(StepFailed, match="sold out"):
        elsewhere(workflow, 1)
    assert dies.done == ["pack", "no pack", "no pack"]


@both
def test_a_cancelled_run_whose_new_code_does_not_come_to_a_step_waits_for_a_correction(
    store, ledger, made, guard
):
    with pytest.raises(KeyError):
        call(store, made(ledger, "pack", "send", ends=raising(KeyError("a bug"))))
    guard.workflows.cancel(key_of(guard), by="ann", reason="the customer called")

    with pytest.raises(CodeChanged, match="'2 send' was begun"):
        call(store, made(ledger, "pack", ends=raising(Rejected("closed"))))
    assert ledger.done == ["pack", "send"]
    with pytest.raises(Cancelled):
        call(store, made(ledger, "pack", "send", "bill", ends=lambda run: "done"))
    assert ledger.done == ["pack", "send", "no send", "no pack"]
