"""What stops a run, and that it stays stopped; steps that nobody waits for; functions that look
alike.
"""

import asyncio
import functools
import gc

import pytest

from effectonce import (
    Bucket,
    Certainty,
    ContractViolation,
    GaveUp,
    Guard,
    Rejected,
    Retry,
    StoreUnavailable,
    Verdict,
)
from effectonce._core.ops import Claim, Complete, Find, Renew, Search, Tally, Together
from effectonce._core.record import State
from effectonce.errors import Cancelled, StepFailed
from effectonce.stores.memory import MemoryStore
from effectonce.workflows import Run
from tests.core.helpers import QUICK, done, in_colour
from tests.core.workflows import key_of


class Deaf(MemoryStore):
    """The reference, which does not answer to some ops as long as it is told so."""

    def __init__(self, clock):
        super().__init__(clock=clock)
        self.kinds = ()

    def apply(self, op, /):
        asked = op.ops if isinstance(op, Together) else (op,)
        if any(isinstance(each, self.kinds) for each in asked):
            raise StoreUnavailable("no answer")
        return super().apply(op)


# ---------------------------------------------------------------- stopping


def test_a_run_that_could_not_ask_whether_it_is_still_ours_does_nothing_more(clock, ledger):
    store = Deaf(clock)
    guard = Guard(store, cache=0)

    @guard.workflow
    def order(run: Run, n: int) -> None:
        run._look_at, store.kinds = 0, (Renew,)  # so long that it looks again
        with pytest.raises(StoreUnavailable):
            run.step("first", ledger.do, "first")
        store.kinds = ()
        run.step("second", ledger.do, "second")

    with pytest.raises(StoreUnavailable):
        order(1)
    assert ledger.done == []


@pytest.mark.parametrize("again", [False, True], ids=["first to have it", "after somebody else"])
def test_an_answer_that_the_store_could_not_be_told_is_not_acted_on(clock, ledger, again):
    store = Deaf(clock)
    guard = Guard(store, cache=0)
    answers, stop = iter(["refund", "charge", "nothing"]), [KeyError()] if again else []

    @guard.tool(kind="read", retry=Retry(attempts=3, deadline_s=0.001))
    def decide() -> str:
        return ledger.do(next(answers))

    @guard.workflow
    def act(run: Run, chat: str) -> str:
        if stop:
            raise stop.pop()
        decision = run.ask("decide", decide)
        store.kinds = ()
        return run.step("act", ledger.do, f"did {decision}")

    if again:
        with pytest.raises(KeyError):
            act("c1")
    store.kinds = (Complete,)
    with pytest.raises(
        StoreUnavailable, match="was done, but its result could not be written to the store"
    ):
        act("c1")
    assert ledger.done == ["refund"]

    store.kinds = ()
    clock.advance(31)
    assert act("c1") == "did charge"
    assert ledger.done == ["refund", "charge", "did charge"]


def test_a_step_that_was_cancelled_in_the_middle_stops_the_run_even_if_the_workflow_goes_on(
    guard, ledger
):
    started = asyncio.Event()

    async def pay() -> None:
        ledger.do("pay")
        started.set()
        await asyncio.Event().wait()

    async def ship() -> None:
        ledger.do("ship")

    @guard.workflow
    async def order(run: Run, n: int) -> None:
        paying = asyncio.ensure_future(run.step("pay", pay))
        await started.wait()
        paying.cancel()  # as `asyncio.wait_for` does
        with pytest.raises(asyncio.CancelledError):
            await paying
        await run.step("ship", ship)

    with pytest.raises(
        GaveUp,
        match=(
            r"step 1 pay of order eff_\w+ was interrupted \(CancelledError\) and may have happened"
        ),
    ):
        asyncio.run(order(1))
    assert ledger.done == ["pay"]
    assert guard.counts() == {State.CLAIMED: 1, State.IN_DOUBT: 1}


# ---------------------------------------------------------------- an error that is no end


def ending_on_anything(guard, store, ledger, colour, away_at):
    """Pays and ships; the store does not answer the claims of one of its steps, the first time."""
    away = [away_at]

    def begins(name):
        store.kinds = (Claim,) if away == [name] and away.pop() else ()

    def order(run: Run, n: int) -> str:
        run.step("pay", ledger.do, "paid")
        run.compensate("undo", in_colour(colour, ledger.do), "paid back")
        begins(run._count == 1 and "ship")
        run.step("ship", ledger.do, "shipped")
        if away_at == "undo":
            begins("undo")
            raise KeyError("sold out")
        return "done"

    made = guard.workflow(ends_on=[Exception])(in_colour(colour, order))
    return lambda: done(made(1))


def test_a_store_that_is_away_is_no_end_even_if_any_error_is(clock, ledger, colour):
    store = Deaf(clock)
    order = ending_on_anything(Guard(store, cache=0), store, ledger, colour, "ship")

    with pytest.raises(StoreUnavailable):
        order()
    store.kinds = ()
    assert store.apply(Tally()) == {State.CLAIMED: 1, State.COMPLETED: 1}

    assert order() == "done"
    assert ledger.done == ["paid", "shipped"]


def test_a_run_has_not_failed_before_it_is_compensated(clock, ledger, colour):
    store = Deaf(clock)
    order = ending_on_anything(Guard(store, cache=0), store, ledger, colour, "undo")

    with pytest.raises(StoreUnavailable):
        order()
    store.kinds = ()
    assert store.apply(Tally()) == {State.CLAIMED: 1, State.COMPLETED: 2}

    with pytest.raises(KeyError, match="sold out"):
        order()
    assert ledger.done == ["paid", "shipped", "paid back"]
    assert store.apply(Tally()) == {State.FAILED: 1, State.COMPLETED: 3}


def test_a_run_that_did_everything_is_not_undone_because_the_store_is_away(clock, ledger):
    store, stop = Deaf(clock), [KeyboardInterrupt()]
    guard = Guard(store, cache=0)

    @guard.workflow(ends_on=[Exception])
    def order(run: Run, n: int) -> str:
        run.compensate("undo", ledger.do, "paid back")
        run.step("pay", ledger.do, "paid")
        if stop:
            raise stop.pop()
        store.kinds = (Find,) * (ledger.done == ["paid"])  # whether there was more to it
        ledger.do("all done")
        return "done"

    with pytest.raises(KeyboardInterrupt):
        order(1)
    with pytest.raises(StoreUnavailable):
        order(1)

    store.kinds = ()
    assert order(1) == "done"
    assert ledger.done == ["paid", "all done", "all done"]


def test_an_error_that_would_be_a_refusal_elsewhere_ends_no_run_that_does_not_say_so(guard, ledger):
    class Forbidden(Exception):
        effectonce_verdict = Verdict(Bucket.UNKNOWN, Certainty.REJECTED, "refused")

    stop = [Forbidden()]

    @guard.workflow
    def order(run: Run, n: int) -> str:
        run.step("pay", ledger.do, "paid")
        run.compensate("undo", ledger.do, "paid back")
        if stop:
            raise stop.pop()  # outside a step
        return "done"

    with pytest.raises(Forbidden):
        order(1)
    assert order(1) == "done"
    assert ledger.done == ["paid"]


# ---------------------------------------------------------------- waiting for steps


def test_what_is_under_way_beside_a_failure_lands_before_anything_is_compensated(guard, ledger):
    go_on = asyncio.Event()

    async def refuse() -> None:
        raise Rejected("sold out")

    async def slow() -> None:
        await go_on.wait()
        ledger.do("paid")

    async def undo() -> None:
        ledger.do("paid back")

    @guard.workflow
    async def order(run: Run, n: int) -> None:
        run.compensate("undo", undo)
        try:
            await asyncio.gather(run.step("refuse", refuse), run.step("slow", slow))
        except StepFailed:
            go_on.set()
            raise

    with pytest.raises(StepFailed, match="sold out"):
        asyncio.run(order(1))
    assert ledger.done == ["paid", "paid back"]


def test_a_run_does_not_end_before_its_steps(guard, ledger):
    async def slow() -> None:
        for _ in range(20):  # turns of the loop
            await asyncio.sleep(0)
        ledger.do("paid")

    tasks = []

    @guard.workflow
    async def order(run: Run, n: int) -> str:
        tasks.append(asyncio.ensure_future(run.step("slow", slow)))
        await asyncio.sleep(0)
        ledger.do("returns")
        return "done"

    assert asyncio.run(order(1)) == "done"
    assert ledger.done == ["returns", "paid"]
    assert guard.counts() == {State.COMPLETED: 2}


def test_a_step_that_nobody_awaits_is_not_told_as_done(guard, ledger, colour):
    async def pay() -> None:
        ledger.do("pay")

    forgotten = []

    def order(run: Run, n: int) -> str:
        forgotten.append(run.step("pay", pay))
        return "paid"

    with pytest.raises(ContractViolation, match="without awaiting 1 pay: it was not done"):
        done(guard.workflow(in_colour(colour, order))(1))
    forgotten.pop().close()
    assert guard.counts() == {State.CLAIMED: 1}  # it waits for a correction


def test_nobody_would_wait_for_steps_of_the_other_colour(guard, ledger):
    async def later() -> None:
        ledger.do("later")

    @guard.workflow
    def at_once(run: Run, n: int) -> None:
        run.parallel(("later", later))

    @guard.workflow
    def undoing(run: Run, n: int) -> None:
        run.compensate("later", later)

    @guard.workflow
    async def mixed(run: Run, n: int) -> None:
        await run.parallel(("now", ledger.do, "now"), ("later", later))

    for each in (at_once, undoing):
        with pytest.raises(
            ContractViolation, match=r"is def, but .*later is async def: it would not be awaited"
        ):
            each(1)
    with pytest.raises(ContractViolation, match="mixed is async def, but 1 now is def"):
        asyncio.run(mixed(1))
    assert ledger.done == []


# ---------------------------------------------------------------- tools and functions as steps


def test_a_repeatable_tool_that_dispatches_on_its_own_is_a_step_like_any_other(guard, ledger):
    note = guard.tool(kind="idempotent_write", name="note", separate_dispatch=True, retry=QUICK)(
        ledger.do
    )

    @guard.workflow
    def order(run: Run, n: int) -> int:
        return run.step("note", note, n)

    assert order(1) == 1
    assert ledger.done == [1]


def test_a_step_in_the_store_of_another_guard_is_undone_when_its_run_is_cancelled(guard, ledger):
    elsewhere, stop = Guard(MemoryStore(), cache=0), [KeyError()]
    pay = elsewhere.tool(kind="write", name="pay")(ledger.do)

    @guard.workflow
    def order(run: Run, n: int) -> None:
        run.step("pay", pay, "paid")
        run.compensate("undo", ledger.do, "paid back")
        if stop:
            raise stop.pop()
        run.step("ship", ledger.do, "shipped")

    with pytest.raises(KeyError):
        order(1)
    guard.workflows.cancel(key_of(guard), by="ann", reason="the customer called")

    with pytest.raises(Cancelled):
        order(1)
    assert ledger.done == ["paid", "paid back"]


def test_functions_of_one_code_keep_their_own_defaults(guard):
    @guard.workflow
    def order(run: Run, n: int) -> list[int]:
        return [run.step("item", lambda item=item: item) for item in range(3)]

    assert order(1) == [0, 1, 2]
    stored = {
        r.request.step: r.request.arguments for r in guard.store.apply(Search()) if r.request.step
    }
    assert stored == {f"{n + 1} item": b'v1 ok {"item":%d}' % n for n in range(3)}


def test_functions_behind_one_decorator_keep_their_own_parameters(guard):
    def decorated(function):
        @functools.wraps(function)
        def call(*args):
            return function(*args)

        return call

    @decorated
    def one(a: int) -> int:
        return a

    @decorated
    def two(a: int, b: int) -> int:
        return a + b

    @guard.workflow
    def order(run: Run, n: int) -> list[int]:
        return [run.step("add", one, 1), run.step("add", two, 1, 2), run.step("add", one, 3)]

    assert order(1) == [1, 3, 3]


def test_functions_that_are_made_for_every_run_are_forgotten_with_it(guard):
    @guard.workflow
    def order(run: Run, n: int) -> int:
        return run.ask("ask", functools.partial(abs, n)) + run.step(
            "step", functools.partial(abs, -n)
        )

    def known() -> int:
        gc.collect()
        return len(guard._house.watch._tools)

    order(1)
    before = known()
    for n in range(2, 6):
        order(n)

    assert known() == before


def test_a_function_that_does_not_tell_its_parameters_is_refused(guard):
    @guard.workflow
    def order(run: Run, n: int) -> int:
        return run.step("number", max, 1, 2)

    with pytest.raises(ContractViolation, match=r"does not tell its parameters\. Nothing was sent"):
        order(1)
