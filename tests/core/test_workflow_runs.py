"""Who runs a workflow, what it costs, what runs inside it; resuming all, cancelling, looking."""

import threading
from decimal import Decimal
from functools import partial

import pytest
from msgspec.structs import replace

from effectonce import ContractViolation, Guard, Rejected
from effectonce._core.failed_attempts import attempts_of
from effectonce._core.ops import Complete, Fail, Together
from effectonce._core.record import State
from effectonce.errors import Cancelled, LeaseLost, StepFailed
from effectonce.stores.memory import MemoryStore
from effectonce.workflows import Resumed, Run
from tests.core.helpers import QUICK, Line
from tests.core.workflows import (
    Flaky,
    booking,
    elsewhere,
    job,
    key_of,
    noting,
    refusing,
    registered,
    stopped_after,
)
from tests.flaky import FlakyStore

# ---------------------------------------------------------------- who runs it


def test_two_callers_of_one_run_get_one_result_and_one_of_them_ran_it(store, ledger):
    guards = [Guard(store, cache=0), Guard(store, cache=0)]
    inside, go_on, results = threading.Event(), threading.Event(), []

    def slow() -> str:
        inside.set()
        go_on.wait()
        return ledger.do("done")

    def order(run: Run, n: int) -> str:
        return run.step("slow", slow)

    orders = [guard.workflow(order) for guard in guards]
    callers = [
        threading.Thread(target=lambda each=each: results.append(each(1))) for each in orders
    ]
    callers[0].start()
    inside.wait()
    callers[1].start()
    assert guards[1].workflows.resume_all() == Resumed(running=1)
    go_on.set()
    for caller in callers:
        caller.join()
    assert results == ["done", "done"]
    assert ledger.done == ["done"]


def test_a_run_that_lost_its_lease_does_nothing_more(store, clock, ledger, guard):
    other = Guard(store, cache=0)

    @job
    def swift(run: Run, n: int) -> str:
        return run.step("first", ledger.do, "first")

    @job
    def stalled(run: Run, n: int) -> str:
        run.step("first", ledger.do, "first")
        clock.advance(31)  # stopped for longer than its lease
        assert elsewhere(other.workflow(swift), 1) == "first"
        run._look_at = 0  # so long that it looks again
        return run.step("second", ledger.do, "second")

    with pytest.raises(LeaseLost, match="is run by another worker by now"):
        guard.workflow(stalled)(1)
    assert ledger.done == ["first"]


@pytest.mark.parametrize("ending", ["done", "failed"])
def test_the_end_of_a_run_that_was_lost_changes_nothing(store, clock, ledger, ending, guard):
    other = Guard(store, cache=0)

    @job
    def swift(run: Run, n: int) -> str:
        return "the other's"

    @job
    def stalled(run: Run, n: int) -> str:
        clock.advance(31)
        assert elsewhere(other.workflow(swift), 1) == "the other's"
        if ending == "failed":
            raise Rejected("too late")
        return "mine"

    if ending == "failed":
        with pytest.raises(LeaseLost):
            guard.workflow(stalled)(1)
    else:
        assert guard.workflow(stalled)(1) == "the other's"
    assert Guard(store).workflow(swift)(1) == "the other's"


def test_a_repeatable_step_that_somebody_else_has_done_meanwhile_stops_the_run(
    store, clock, ledger, guard
):
    other = Guard(store, cache=0)

    @job
    def swift(run: Run, n: int) -> int:
        return run.step("note", noting(other, ledger), 1)

    @job
    def stalled(run: Run, n: int) -> int:
        clock.advance(31)
        assert elsewhere(other.workflow(swift), 1) == 1
        return run.step("note", noting(guard, ledger), 1) + run.step("second", ledger.do, 2)

    with pytest.raises(LeaseLost):
        guard.workflow(stalled)(1)
    assert ledger.done == [1, 1]  # it may be repeated, and was
    assert guard.counts() == {State.COMPLETED: 2}


# ---------------------------------------------------------------- what a step costs


class Counting(MemoryStore):
    """The reference, with what it was asked."""

    has_cells = False  # so it is not asked what is paused

    def __init__(self, **options):
        super().__init__(**options)
        self.asked = []

    def apply(self, op, /):
        self.asked.append(op)
        return super().apply(op)


def shape(op):
    return tuple(map(shape, op.ops)) if isinstance(op, Together) else type(op).__name__


def test_a_step_that_may_be_repeated_is_written_once_and_at_once(ledger):
    store = Counting()
    guard = Guard(store, cache=0)
    note = noting(guard, ledger)

    @guard.workflow
    def three(run: Run, n: int) -> int:
        return run.ask("look", lambda: 0) + run.step("note", note, 1) + run.step("note", note, 2)

    assert three(1) == 3
    assert [shape(op) for op in store.asked] == [
        "Claim",
        *[("Claim", "Complete")] * 3,
        "ReadCell",
        "Complete",
    ]


def test_any_other_step_is_claimed_before_it_is_done(ledger):
    store = Counting()
    guard = Guard(store, cache=0)

    @guard.workflow
    def two(run: Run, n: int) -> None:
        run.step("pay", ledger.do, 1)
        run.step("pay", ledger.do, 2)

    two(1)
    assert [shape(op) for op in store.asked] == [
        "Claim",
        *[("Claim", "ReadCell"), "Complete"] * 2,
        "ReadCell",
        "Complete",
    ]


def test_who_goes_on_with_a_run_claims_every_step_before_it_is_done(ledger):
    store, stop = Counting(), [KeyError()]
    guard = Guard(store, cache=0)
    note = noting(guard, ledger)

    @guard.workflow
    def one(run: Run, n: int) -> int:
        if stop:
            raise stop.pop()
        return run.step("note", note, 1)

    with pytest.raises(KeyError):
        one(1)
    store.asked.clear()
    assert one(1) == 1
    *asked, left, end = [shape(op) for op in store.asked]
    assert asked == ["Claim", ("Renew", "Find"), ("Claim", "ReadCell"), "Complete"]
    # what it did before, and does not come to now
    assert (set(left), end) == ({"ReadCell", "Find"}, "Complete")


def test_a_repeatable_step_that_fails_at_first_is_claimed_then(guard, ledger):
    flaky = Flaky(ledger, 2, ConnectionError("reset"))

    @guard.tool(kind="idempotent_write", retry=QUICK)
    def note(what: str) -> str:
        return flaky(what)

    @guard.workflow
    def one(run: Run, n: int) -> str:
        return run.step("note", note, "noted")

    assert one(1) == "noted"
    assert guard.workflows.summary(key_of(guard, "completed")).steps[0].sends == 3


def test_what_went_out_together_is_repeated_together(ledger):
    store = FlakyStore()
    store.fail(Together, "unacknowledged", times=2)
    guard = Guard(store, cache=0)
    note = noting(guard, ledger)

    @guard.workflow
    def two(run: Run, n: int) -> int:
        return run.step("note", note, 1) + run.step("note", note, 2)

    assert two(1) == 3
    assert ledger.done == [1, 2]


@pytest.mark.parametrize(("kind", "end"), [(Complete, "done"), (Fail, "failed")])
def test_an_end_that_the_store_cannot_be_told_is_told_by_the_next_call(kind, end):
    store = FlakyStore()
    store.fail(kind, "unacknowledged", times=3)
    guard = Guard(store, cache=0)

    @guard.workflow
    def order(run: Run, n: int) -> str:
        if end == "failed":
            raise Rejected("sold out")
        return "done"

    if end == "failed":
        with pytest.raises(Rejected):
            order(1)
    else:
        assert order(1) == "done"
    assert guard.counts() == {State.COMPLETED if end == "done" else State.FAILED: 1}


# ---------------------------------------------------------------- in parallel, and inside each
# other


def test_steps_at_the_same_time_are_told_apart_by_their_place(guard):
    meet, stop = threading.Barrier(3), [KeyError()]
    done = []

    def work(n: int) -> int:
        meet.wait()
        done.append(n)
        return n

    @guard.workflow
    def three(run: Run, n: int) -> list[int]:
        found = run.parallel(("work", work, 1), ("work", work, 2), ("work", work, 3))
        if stop:
            raise stop.pop()
        return found

    with pytest.raises(KeyError):
        three(1)
    assert three(1) == [1, 2, 3]
    assert sorted(done) == [1, 2, 3]


def test_of_steps_at_the_same_time_the_first_failure_in_their_order_counts(guard, ledger):
    def fail(why: str) -> None:
        raise Rejected(why)

    @guard.workflow
    def three(run: Run, n: int) -> None:
        run.parallel(("a", ledger.do, "a"), ("b", fail, "second"), ("c", fail, "third"))

    with pytest.raises(StepFailed, match="second"):
        three(1)
    assert ledger.done == ["a"]


def test_a_workflow_may_be_a_step_of_another(guard, ledger):
    stop = [KeyError()]

    @guard.workflow
    def inner(run: Run, n: int) -> int:
        run.step("first", ledger.do, "inner 1")
        if stop:
            raise stop.pop()
        run.step("second", ledger.do, "inner 2")
        return n

    @guard.workflow
    def outer(run: Run, n: int) -> int:
        run.step("before", noting(guard, ledger), "before")
        return run.step("inner", inner, n) + 1

    with pytest.raises(KeyError):
        outer(1)
    assert outer(1) == 2
    assert ledger.done == ["before", "inner 1", "inner 2"]


def test_a_guarded_tool_that_is_called_directly_is_protected_by_its_arguments(guard, ledger):
    note, stop = noting(guard, ledger), [KeyError()]

    @guard.workflow
    def order(run: Run, n: int) -> str:
        note("mail")
        if stop:
            raise stop.pop()
        return note("mail")

    with pytest.raises(KeyError):
        order(1)
    assert order(1) == "mail"
    assert ledger.done == ["mail"]


# ---------------------------------------------------------------- resuming all, cancelling, looking


def test_all_open_runs_are_resumed(guard, ledger):
    broken = [True]

    @guard.workflow
    def order(run: Run, n: int) -> int:
        run.step("first", ledger.do, n)
        if broken:
            raise KeyError("not today")
        if n == 2:
            raise Rejected("never")
        return n

    for n in range(300):
        with pytest.raises(KeyError):
            order(n)
    broken.clear()

    assert guard.workflows.resume_all() == Resumed(completed=299, failed=1)
    assert guard.workflows.resume_all() == Resumed()
    assert len(ledger.done) == 300


def test_runs_of_workflows_that_are_not_registered_here_are_left_alone(store, ledger):
    with pytest.raises(KeyError):
        registered(Guard(store), stopped_after(ledger, "pack"))(1)
    other = Guard(store)

    assert other.workflows.resume_all() == Resumed(unknown=1)
    with pytest.raises(ContractViolation, match="no workflow 'job' is registered here, only none"):
        other.workflows.resume(key_of(other))
    with pytest.raises(ContractViolation, match="not a run"):
        other.workflows.summary("nothing")


def test_a_cancelled_run_undoes_what_was_done_and_goes_no_further(guard, ledger):
    book = booking(guard, ledger, [KeyError()])
    with pytest.raises(KeyError):
        book("t1")
    key = key_of(guard)
    heard = []
    guard.observe(heard.append)
    guard.workflows.cancel(key, by="ann", reason="the customer called")
    guard.workflows.cancel(key, by="bob", reason="so did he")  # again changes nothing
    assert [(event.name, event.by, event.reason) for event in heard] == [
        ("cancelled", "ann", "the customer called")
    ]
    assert guard.dead_letters.show(key).late_results == ()

    with pytest.raises(Cancelled, match="was cancelled by ann: the customer called"):
        book("t1")
    assert ledger.done == ["hotel", "no hotel"]
    summary = guard.workflows.summary(key)
    assert (summary.state, summary.cancelled.by) == ("failed", "ann")
    assert [(s.position, s.name, s.state) for s in summary.compensations] == [
        ("undo 1", "cancel hotel", "completed")
    ]
    with pytest.raises(ContractViolation, match=r"book eff_\w+ has ended already"):
        guard.workflows.cancel(key, by="ann", reason="again")
    with pytest.raises(ContractViolation, match="needs a name"):
        guard.workflows.cancel(key, by=" ", reason="again")


def test_a_run_that_is_running_hears_of_its_cancellation(guard, ledger):
    @guard.workflow
    def book(run: Run, trip: str) -> None:
        run.step("hotel", ledger.do, "hotel")
        guard.workflows.cancel(run.effect.key, by="ann", reason="the customer called")
        run._look_at = 0  # it looks every ten seconds
        run.step("train", ledger.do, "train")

    with pytest.raises(Cancelled):
        book("t1")
    assert ledger.done == ["hotel"]


def test_a_summary_tells_what_a_run_has_done(guard, ledger):
    @guard.workflow(identity=["trip"])
    def book(run: Run, trip: str, guests: int, line: Line) -> None:
        run.step("hotel", ledger.do, "hotel")
        for n in range(20):
            run.step(f"guest {n}", ledger.do, n)
        run.step("ferry", refusing(ledger))

    with pytest.raises(StepFailed):
        book("t1", 20, Line("LH1", Decimal(1)))
    summary = guard.workflows.summary(key_of(guard, "failed"))

    assert (summary.workflow, summary.state, summary.runs) == ("book", "failed", 1)
    assert summary.arguments == {
        "trip": "t1",
        "guests": 20,
        "line": {"sku": "LH1", "price": Decimal(1)},
    }
    assert [step.position for step in summary.steps] == [str(n) for n in range(1, 23)]
    assert (summary.steps[0].name, summary.steps[0].state, summary.steps[0].sends) == (
        "hotel",
        "completed",
        1,
    )
    assert (summary.steps[-1].state, summary.steps[-1].error) == ("failed", "Rejected: sold out")
    assert "sold out" in summary.error
    assert summary.ended_at is not None
    assert (summary.totals.steps, summary.totals.completed, summary.totals.failed_attempts) == (
        22,
        21,
        1,
    )
    assert summary.steps[-1].attempts[0].error == "Rejected"


def test_the_summary_of_a_run_that_waits_says_what_stopped_it_and_for_how_long(
    guard, ledger, clock
):
    @guard.workflow
    def book(run: Run, trip: str) -> None:
        run.step("hotel", ledger.do, "hotel")
        clock.advance(5)
        raise KeyError("no such train")

    for _ in range(2):
        with pytest.raises(KeyError):
            book("t1")
    summary = guard.workflows.summary(key_of(guard))

    assert (summary.state, summary.runs) == ("waiting", 2)
    assert "no such train" in summary.error
    assert [attempt.error for attempt in summary.attempts] == ["KeyError", "KeyError"]
    assert summary.totals.elapsed_s == 10


def test_a_summary_shows_what_can_be_read(guard, ledger, store):
    @guard.workflow
    def book(run: Run, trip: str) -> None:
        run.step("ferry", refusing(ledger))

    with pytest.raises(StepFailed):
        book("t1")
    (record,) = guard.workflows.runs("failed")
    step = guard.workflows.summary(record.request.key).steps[0]
    broken, settled = replace(record, outcome=b"v9 ???"), replace(record, settled_by="ann")

    assert step.attempts[0].error == "Rejected"
    assert attempts_of(broken) == attempts_of(settled) == []
    assert attempts_of(replace(record, outcome=b'v1 ok ""')) == []


# ---------------------------------------------------------------- mistakes


def test_a_step_needs_a_name_and_a_function(guard):
    @guard.workflow
    def order(run: Run, n: int) -> None:
        if n == 1:
            run.step("", print)
        if n == 3:
            run.step("half a pair: \ud800", print)
        run.step("print", "not a function")

    with pytest.raises(ContractViolation, match="has no name"):
        order(1)
    with pytest.raises(ContractViolation, match="is no Unicode text"):
        order(3)
    with pytest.raises(ContractViolation, match="is not a function"):
        order(2)


def test_any_callable_may_be_a_step(guard, ledger):
    @guard.workflow
    def order(run: Run, n: int) -> list[object]:
        return [
            run.step("partial", partial(ledger.do, "p")),
            run.step("flaky", Flaky(ledger, 0, None), "f"),
            run.ask("builtin", len, "abc"),
        ]

    assert order(1) == ["p", "f", 3]


def test_a_run_that_waits_is_a_dead_letter_and_redriving_it_is_resuming_it(guard, ledger):
    stop = [KeyError("a bug")]

    @guard.workflow
    def order(run: Run, n: int) -> str:
        run.step("pay", ledger.do, "pay")
        if stop:
            raise stop.pop()
        return run.step("send", ledger.do, "send")

    with pytest.raises(KeyError):
        order(1)
    (letter,) = guard.dead_letters.list()
    assert (letter.tool, letter.error, letter.effect_state) == (
        "order",
        "KeyError",
        "never_started",
    )

    with pytest.raises(ContractViolation, match="cancel it"):
        guard.dead_letters.discard(letter.key, by="ann", reason="enough")

    redriven = guard.dead_letters.redrive(letter.key, by="ann", reason="the bug is fixed")

    assert (redriven.what, redriven.value) == ("done", "send")
    assert guard.dead_letters.list() == ()
    assert ledger.done == ["pay", "send"]
