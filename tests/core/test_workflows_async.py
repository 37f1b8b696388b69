"""The same facts in the other colour."""

import asyncio
import contextvars

import pytest

from effectonce import Guard, Rejected, ReplayedFailure
from effectonce.errors import CodeChanged, LeaseLost, StepFailed
from effectonce.workflows import Resumed, Run
from tests.core.helpers import QUICK, in_a_loop
from tests.core.workflows import job, key_of


@in_a_loop
async def test_an_async_run_goes_on_where_it_was(guard, ledger):
    stop = [KeyError()]

    async def do(what: str) -> str:
        return ledger.do(what)

    note = guard.tool(kind="idempotent_write", name="note", retry=QUICK)(do)

    @guard.workflow
    async def ship(run: Run, order: str) -> list[str]:
        plan = await run.ask("plan", do, "plan")
        packed = await asyncio.gather(*(run.step("pack", note, f"pack {n}") for n in range(3)))
        both = await run.parallel(("left", do, "left"), ("right", do, "right"))
        if stop:
            raise stop.pop()
        return [plan, *packed, *both, await run.step("send", do, "send")]

    with pytest.raises(KeyError):
        await ship("o1")
    everything = ["plan", "pack 0", "pack 1", "pack 2", "left", "right", "send"]
    assert await ship("o1") == everything
    assert await ship("o1") == everything
    assert sorted(ledger.done) == sorted(everything)


@in_a_loop
async def test_an_async_run_compensates(guard, ledger):
    async def do(what: str) -> str:
        return ledger.do(what)

    async def refuse() -> None:
        raise Rejected("sold out")

    @guard.workflow
    async def book(run: Run, trip: str) -> None:
        run.compensate("undo async", do, "undo async")
        run.compensate("undo sync", ledger.do, "undo sync")
        await run.step("ferry", refuse)

    with pytest.raises(StepFailed):
        await book("t1")
    with pytest.raises(ReplayedFailure):
        await book("t1")
    assert ledger.done == ["undo sync", "undo async"]


@in_a_loop
async def test_async_runs_are_resumed_and_cancelled_and_changes_noticed(guard, ledger):
    broken = [True]

    async def do(what: str) -> str:
        return ledger.do(what)

    @guard.workflow(identity=["n"])
    async def order(run: Run, n: int) -> int:
        await run.step("first", do, f"first {n}")
        if broken:
            raise KeyError("not today")
        await run.step("second" if n != 7 else "another", do, f"second {n}")
        return n

    @guard.workflow
    def sync_order(run: Run, n: int) -> int:
        raise KeyError("not today")

    for n in range(5):
        with pytest.raises(KeyError):
            await order(n)
    with pytest.raises(KeyError):
        sync_order(1)
    runs = [record.request.key for record in guard.workflows.runs(workflow="order")]
    guard.workflows.cancel(runs[0], by="ann", reason="enough")
    broken.clear()

    assert await guard.workflows.aresume_all() == Resumed(completed=4, failed=1, unknown=1)
    assert len(ledger.done) == 9
    assert guard.workflows.resume_all(workflow="order") == Resumed()


@in_a_loop
async def test_an_async_run_notices_changed_code_lost_leases_and_steps_that_are_gone(
    store, clock, ledger
):
    async def do(what: str) -> str:
        return ledger.do(what)

    def deployed(*names, ends=False):
        @job
        async def body(run: Run, n: int) -> str:
            for name in names:
                await run.step(name, do, name)
            if not ends:
                raise KeyError("deployed")
            return "done"

        return Guard(store, cache=0).workflow(body)

    with pytest.raises(KeyError):
        await deployed("pack", "send")(1)
    with pytest.raises(CodeChanged, match="1 wrap"):
        await deployed("wrap")(1)
    with pytest.raises(CodeChanged, match="2 send"):
        await deployed("pack", ends=True)(1)
    again = deployed("pack", "send", ends=True)
    guard = Guard(store, cache=0)
    guard.workflows._known["job"] = again.__effectonce_tool__.performing.__self__
    assert await guard.workflows.resume(key_of(guard)) == "done"
    assert ledger.done == ["pack", "send"]


@in_a_loop
async def test_an_async_run_that_lost_its_lease_does_nothing_more(store, clock, ledger):
    guard, other = Guard(store, cache=0), Guard(store, cache=0)

    async def do(what: str) -> str:
        return ledger.do(what)

    note, its_note = (
        g.tool(kind="idempotent_write", name="note", retry=QUICK)(do) for g in (guard, other)
    )

    @job
    async def swift(run: Run, n: int) -> str:
        return await run.step("note", its_note, "note")

    @job
    async def stalled(run: Run, n: int) -> str:
        clock.advance(31)
        task = asyncio.get_running_loop().create_task(
            other.workflow(swift)(1), context=contextvars.Context()
        )
        assert await task == "note"
        await run.step("note", note, "note")
        return await run.step("second", do, "second")

    with pytest.raises(LeaseLost):
        await guard.workflow(stalled)(1)
    assert ledger.done == ["note", "note"]
