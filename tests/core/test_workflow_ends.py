"""What a run that ends leaves behind: nothing that could still be done, and nothing that was
done and is not undone.
"""

import asyncio

import pytest

from effectonce import ContractViolation, Downstream, GaveUp, Guard, NotSent, Rejected, Retry
from effectonce._core.ops import Dispatch
from effectonce._core.record import State
from effectonce.errors import Cancelled, CodeChanged, InDoubt, InFlight, LeaseLost, StepFailed
from effectonce.stores.memory import MemoryStore
from effectonce.workflows import Run
from tests.core.helpers import done, in_a_loop, in_colour, named
from tests.core.workflows import booking, elsewhere, key_of

# ---------------------------------------------------------------- cancelled


def trips(guard, ledger, stop):
    book = booking(guard, ledger, stop)

    @guard.workflow
    def travel(run: Run, trip: str) -> None:
        run.step("visa", ledger.do, "visa")
        run.compensate("give it back", ledger.do, "no visa")
        run.step("book", book, trip)

    return travel


def atrips(guard, ledger, stop):
    async def do(what: str) -> None:
        ledger.do(what)

    @guard.workflow
    async def book(run: Run, trip: str) -> None:
        await run.step("hotel", do, "hotel")
        run.compensate("cancel hotel", do, "no hotel")
        if stop:
            raise stop.pop()
        await run.step("train", do, "train")

    @guard.workflow
    async def travel(run: Run, trip: str) -> None:
        await run.step("visa", do, "visa")
        run.compensate("give it back", do, "no visa")
        await run.step("book", book, trip)

    return lambda trip: asyncio.run(travel(trip))


@pytest.mark.parametrize("made", [trips, atrips])
def test_a_run_that_is_a_step_of_a_cancelled_one_undoes_what_it_did(guard, ledger, made):
    travel = made(guard, ledger, [KeyError(), KeyError()])
    for _ in range(2):
        with pytest.raises(KeyError):
            travel("t1")
    guard.workflows.cancel(key_of(guard, workflow="travel"), by="ann", reason="the customer called")

    with pytest.raises(StepFailed, match="was cancelled by ann: the customer called"):
        travel("t1")

    assert ledger.done == ["visa", "hotel", "no hotel", "no visa"]
    assert list(guard.workflows.runs("open")) == []


def test_a_cancellation_that_a_step_has_heard_of_is_written_on_it_once(guard, ledger):
    @guard.workflow
    def book(run: Run, trip: str) -> None:
        run.step("hotel", ledger.do, "hotel")
        raise KeyError("a bug")

    @guard.workflow
    def travel(run: Run, trip: str) -> None:
        run.step("book", book, trip)

    with pytest.raises(KeyError):
        travel("t1")
    guard.workflows.cancel(key_of(guard, workflow="travel"), by="ann", reason="the customer called")
    guard.workflows.cancel(key_of(guard, workflow="book"), by="bob", reason="he was faster")

    with pytest.raises(KeyError):
        travel("t1")  # nothing was left to do in it, so it came to its own error

    cancellations = [
        e
        for e in guard.find(key_of(guard, workflow="book")).evidence
        if b"bob" in e.outcome or b"ann" in e.outcome
    ]
    assert len(cancellations) == 1


def test_what_a_cancelled_run_counts_as_not_done_cannot_be_redriven(guard, ledger):
    away = [NotSent("no line")]

    @guard.tool(kind="write", retry=Retry(attempts=1))
    def pay(order: str) -> str:
        if away:
            raise away.pop()
        return ledger.do("pay")

    @guard.workflow
    def order(run: Run, n: str) -> None:
        run.step("pay", pay, n)

    with pytest.raises(GaveUp):
        order("o1")
    step = next(letter.key for letter in guard.dead_letters.list() if letter.tool == "pay")
    guard.workflows.cancel(key_of(guard, workflow="order"), by="ann", reason="the customer called")
    with pytest.raises(Cancelled):
        order("o1")

    assert guard.dead_letters.redrive(step, by="bob", reason="the line is back").what == "failed"
    assert ledger.done == []
    assert guard.counts() == {State.FAILED: 2}


def test_a_cancelled_run_that_is_resumed_while_it_compensates_was_cancelled_all_the_same(
    guard, ledger
):
    away, dead = [NotSent("no line")], [ConnectionError("dead")]

    @guard.tool(kind="write", retry=Retry(attempts=1))
    def pay(order: str) -> None:
        raise away[0]

    @guard.tool(kind="idempotent_write", retry=Retry(attempts=1))
    def undo(order: str) -> None:
        if dead:
            raise dead.pop()
        ledger.do("undone")

    @guard.workflow
    def order(run: Run, n: str) -> None:
        run.compensate("undo", undo, n)
        run.step("pay", pay, n)

    with pytest.raises(GaveUp):
        order("o1")
    guard.workflows.cancel(key_of(guard, workflow="order"), by="ann", reason="the customer called")
    with pytest.raises(Exception, match="dead"):
        order("o1")

    with pytest.raises(Cancelled):
        order("o1")
    assert ledger.done == ["undone"]


@pytest.mark.parametrize("lease_s", [10, 300])
def test_a_step_that_its_owner_is_about_to_send_is_not_done_behind_a_cancelled_run(
    store, clock, ledger, lease_s, guard
):
    @guard.tool(kind="write", separate_dispatch=True, lease_s=lease_s)
    def pay(order: str) -> str:
        return ledger.do("pay")

    @guard.workflow(lease_s=10, wait_s=0)
    def order(run: Run, n: str) -> str:
        run.compensate("undo", ledger.do, "undo")
        return run.step("pay", pay, n)

    def meanwhile():
        """The run is lost, cancelled, and taken by somebody else."""
        clock.advance(60)
        guard.workflows.cancel(
            key_of(guard, workflow="order"), by="ann", reason="the customer called"
        )
        with pytest.raises(InFlight if lease_s == 300 else Cancelled):
            elsewhere(order, "o1")

    store.apply = Pausing(store.apply, Dispatch, meanwhile)
    with pytest.raises(LeaseLost):
        order("o1")

    if lease_s == 300:  # its owner woke up in time: it was done, and is undone
        with pytest.raises(Cancelled):
            order("o1")
        assert ledger.done == ["pay", "undo"]
    else:
        assert ledger.done == ["undo"]


class Pausing:
    """A store that is slow to answer one op: meanwhile things happen."""

    def __init__(self, apply, op, meanwhile):
        self._apply, self._op, self._meanwhile = apply, op, meanwhile

    def __call__(self, op, /):
        if isinstance(op, self._op) and self._meanwhile is not None:
            meanwhile, self._meanwhile = self._meanwhile, None
            meanwhile()
        return self._apply(op)


# ---------------------------------------------------------------- several errors in one


@pytest.mark.parametrize("bug", [False, True])
def test_a_task_group_whose_steps_failed_for_good_ends_the_run(guard, ledger, bug):
    async def sold_out() -> None:
        raise Rejected("sold out")

    async def undo() -> None:
        ledger.do("undo")

    async def broken() -> None:
        raise KeyError("a bug")

    @guard.workflow
    async def order(run: Run, n: int) -> None:
        run.compensate("undo", undo)
        async with asyncio.TaskGroup() as group:
            group.create_task(run.step("take", sold_out))
            if bug:
                group.create_task(broken())

    with pytest.raises(ExceptionGroup if bug else StepFailed):
        asyncio.run(order(1))

    assert ledger.done == ([] if bug else ["undo"])
    assert key_of(guard, "open" if bug else "failed")


def test_several_errors_in_one_end_a_sync_run_as_well(guard, ledger):
    @guard.workflow
    def order(run: Run, n: int) -> None:
        run.compensate("undo", ledger.do, "undo")
        raise ExceptionGroup(
            "all", [ExceptionGroup("some", [Rejected("sold out")]), Rejected("no room")]
        )

    with pytest.raises(Rejected, match="sold out"):
        order(1)
    assert ledger.done == ["undo"]


# ---------------------------------------------------------------- left behind


@in_a_loop
async def test_a_task_that_nobody_awaits_does_nothing_once_the_run_compensates(guard, ledger):
    async def pay() -> None:
        ledger.do("pay")

    async def undo() -> None:
        await asyncio.sleep(0)
        ledger.do("undo")

    left = []

    @guard.workflow
    async def order(run: Run, n: int) -> None:
        run.compensate("undo", undo)
        left.append(asyncio.ensure_future(run.step("pay", pay)))
        raise Rejected("sold out")

    with pytest.raises(Rejected):
        await order(1)
    with pytest.raises(
        ContractViolation,
        match=r"order eff_\w+ has ended without awaiting 1 pay\. Nothing was sent",
    ):
        await left[0]
    assert ledger.done == ["undo"]


@in_a_loop
async def test_a_task_that_nobody_awaits_does_nothing_once_the_run_has_stopped(guard, ledger):
    async def pay() -> None:
        ledger.do("pay")

    left = []

    @guard.workflow
    async def order(run: Run, n: int) -> None:
        left.append(asyncio.ensure_future(run.step("pay", pay)))

    with pytest.raises(ContractViolation, match="without awaiting 1 pay: it was not done"):
        await order(1)
    with pytest.raises(ContractViolation, match="has ended"):
        await left[0]
    assert ledger.done == []


def test_a_run_that_has_ended_does_nothing_for_who_has_kept_it(guard, ledger):
    kept = []

    @guard.workflow
    def order(run: Run, n: int) -> None:
        kept.append(run)

    order(1)

    with pytest.raises(ContractViolation, match="has ended"):
        kept[0].step("pay", ledger.do, "pay")
    assert ledger.done == []


# ---------------------------------------------------------------- steps in steps


@pytest.mark.parametrize("asks", ["step", "ask", "compensate"])
def test_a_step_asks_for_no_other_because_its_replay_does_not(guard, ledger, asks):
    @guard.workflow
    def order(run: Run, n: int) -> None:
        run.step("pay", lambda: getattr(run, asks)("mail", ledger.do, "mail"))

    with pytest.raises(
        InDoubt, match=r"'mail' of order eff_\w+ was asked for inside order\.pay eff_\w+"
    ):
        order(1)
    assert ledger.done == []


def test_a_run_asks_for_steps_wherever_its_function_goes(guard, ledger):
    @guard.workflow
    def inner(run: Run, n: int) -> None:
        run.step("mail", ledger.do, "inner")

    @guard.workflow
    def order(run: Run, n: int) -> None:
        run.step("inner", inner, n)
        elsewhere(run.step, "mail", ledger.do, "elsewhere")
        run.parallel(("mail", ledger.do, "a"), ("mail", ledger.do, "b"))

    order(1)

    assert sorted(ledger.done) == ["a", "b", "elsewhere", "inner"]


# ---------------------------------------------------------------- answers


def test_an_answer_that_cannot_be_written_down_is_not_acted_on_and_may_be_corrected(store, ledger):
    def deployed(answer):
        guard = Guard(store, cache=0)

        def decide() -> object:
            ledger.do("decide")
            return answer

        @guard.workflow(lease_s=1)
        def order(run: Run, n: int) -> str:
            run.ask("decide", decide)
            return run.step("pay", ledger.do, "pay")

        return order

    with pytest.raises(
        ContractViolation, match="this answer cannot be written down, so nothing is done with it: "
    ):
        deployed(object())(1)
    assert ledger.done == ["decide"]

    assert deployed({"pay": True})(1) == "pay"
    assert ledger.done == ["decide", "decide", "pay"]


# ---------------------------------------------------------------- beside other calls


@pytest.mark.parametrize("ends", ["completed", "failed"])
def test_a_run_ends_beside_another_call_of_its_step_that_is_in_doubt(guard, ledger, ends):
    @guard.tool(kind="write")
    def pay(order: str) -> None:
        raise ConnectionError("no answer")

    @guard.workflow
    def report(run: Run, n: int) -> str:
        run.step("write", ledger.do, "written")
        with guard.step("chat", "turn"), pytest.raises(InDoubt):
            pay("o1")
        if ends == "failed":
            raise Rejected("nothing to report")
        return "done"

    with guard.step("chat", "turn"):
        if ends == "completed":
            assert report(1) == "done"
        else:
            with pytest.raises(Rejected):
                report(1)

    assert key_of(guard, ends)


# ---------------------------------------------------------------- other stores


def test_changed_arguments_of_a_step_in_the_store_of_another_guard_are_noticed(guard, ledger):
    elsewhere_kept = Guard(MemoryStore(), cache=0)
    pay = elsewhere_kept.tool(
        kind="irreversible", downstream=Downstream.key(window=60), accept_store_loss=True
    )(named("pay", lambda amount: ledger.do(amount)))
    amounts = [1, 2]

    @guard.workflow
    def order(run: Run, n: int) -> None:
        run.step("pay", pay, amounts.pop(0))
        raise KeyError("a bug")

    with pytest.raises(KeyError):
        order(1)
    with pytest.raises(CodeChanged, match="'1 pay' has other arguments"):
        order(1)
    assert ledger.done == [1]


# ---------------------------------------------------------------- going on from the store alone


def test_a_run_is_not_gone_on_with_without_an_argument_that_it_was_begun_with(
    store, ledger, colour
):
    def deployed(body):
        guard = Guard(store, cache=0)
        guard.workflow(name="order")(in_colour(colour, body))
        return guard

    def before(run: Run, n: int, amount: int = 100) -> None:
        raise KeyError("a bug")

    def after(run: Run, n: int, sum_minor: int = 100) -> None:
        run.step("pay", ledger.do, sum_minor)

    with pytest.raises(KeyError):
        done(deployed(before).call("order", {"n": 1, "amount": 500}))
    guard = deployed(after)
    with pytest.raises(
        CodeChanged, match="it was begun with amount, which order does not take any more"
    ):
        done(guard.workflows.resume(key_of(guard)))

    assert ledger.done == []
    assert guard.counts() == {State.CLAIMED: 1}


def test_a_run_whose_arguments_are_not_stored_says_what_to_do(store):
    guard = Guard(store, cache=0, secret=b"s" * 32)

    @guard.workflow(redact=["card"])
    def order(run: Run, card: str) -> None:
        raise KeyError("a bug")

    with pytest.raises(KeyError):
        order("4242")

    with pytest.raises(
        ContractViolation,
        match=r"its arguments were redacted\. Nothing was sent\. Call order again",
    ):
        guard.workflows.resume(key_of(guard))
    assert guard.workflows.resume_all().waiting == 1
