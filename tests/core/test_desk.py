"""The in-doubt desk: listing, reconciling one, and asking in the background."""

import asyncio
import itertools

import pytest

from effectonce import (
    CannotTell,
    ContractViolation,
    Found,
    Guard,
    InDoubt,
    Reconciled,
    State,
)
from effectonce._core import ops
from effectonce.recovery.in_doubt import InDoubtFilter
from effectonce.recovery.pace import ReconcilePace
from effectonce.recovery.reconciler import Reconciler
from tests.core.helpers import QUICK, in_a_loop, named, tool
from tests.flaky import FlakyStore

BY = {"by": "ada", "reason": "asked the bank"}


def doubt(guard, name="pay", count=1, **contract):
    """A tool that nobody answers, and effects of it in doubt."""

    def silent(n: int):
        raise TimeoutError

    pay = tool(guard, named(name, silent), downstream="probe", **contract)
    for n in range(count):
        with guard.step(name, n), pytest.raises(InDoubt):
            pay(n)
    return pay


def test_effects_in_doubt_are_listed_by_tool_and_age(guard, clock):
    doubt(guard, "pay", 2)
    clock.advance(60)
    doubt(guard, "ship", 2)

    def steps(**wanted):
        return sorted((r.request.scope, r.request.step) for r in guard.in_doubt(**wanted))

    assert len(steps()) == 4
    assert steps(tool="ship") == [("ship", "0"), ("ship", "1")]
    assert steps(older_than_s=60) == [("pay", "0"), ("pay", "1")]
    assert steps(tool="ship", older_than_s=60) == []
    assert len(steps(limit=3)) == 3
    assert steps(tenant="acme") == []


def test_one_tool_is_found_behind_many_effects_of_another(guard, clock):
    doubt(guard, "pay", 120)
    clock.advance(1)
    doubt(guard, "ship", 1)

    assert [record.request.terms.tool for record in guard.in_doubt(tool="ship", limit=1)] == [
        "ship"
    ]


def test_one_effect_is_reconciled_by_its_key(guard):
    pay = doubt(guard, count=3)
    asked = []
    pay.probe(lambda n: asked.append(n) or Found("receipt"))
    record = next(r for r in guard.in_doubt() if r.request.step == "1")

    assert guard.reconcile(key=record.request.key) == Reconciled(1, 0, 0)
    assert asked == [1]
    for key, said in ((record.request.key, "completed"), ("0" * 40, "unknown to this store")):
        with pytest.raises(ContractViolation, match=said):
            guard.reconcile(key=key)


def test_reconciling_takes_the_filters_of_the_list(guard, clock):
    for name in ("pay", "ship"):
        doubt(guard, name, 2).probe(lambda n: Found("receipt"))

    assert guard.reconcile(tool="ship", limit=1) == Reconciled(1, 0, 0)
    assert guard.reconcile(older_than_s=10) == Reconciled(0, 0, 0)
    clock.advance(10)
    assert guard.reconcile(older_than_s=10) == Reconciled(3, 0, 0)


@in_a_loop
async def test_async_tools_are_reconciled_in_their_colour(guard, clock):
    @guard.tool(kind="write", downstream="probe", retry=QUICK)
    async def pay(n: int):
        raise TimeoutError

    for n in range(130):
        async with guard.step("chat", n):
            with pytest.raises(InDoubt):
                await pay(n)

    @pay.probe
    async def find(n: int):
        return Found("receipt")

    key = guard.in_doubt()[0].request.key
    one = await guard.areconcile(key=key)
    with pytest.raises(ContractViolation, match="completed"):
        await guard.areconcile(key=key)
    assert (one, await guard.areconcile(limit=20), await guard.areconcile(limit=1000)) == (
        Reconciled(1, 0, 0),
        Reconciled(20, 0, 0),
        Reconciled(109, 0, 0),
    )


@pytest.mark.parametrize(
    "nameless",
    [{"by": " ", "reason": "x"}, {"by": "ada", "reason": ""}, {"by": None, "reason": "x"}],
)
def test_every_decision_needs_a_name_and_a_reason(guard, nameless):
    doubt(guard)
    key = guard.in_doubt()[0].request.key

    for decide in (
        lambda: guard.confirm(key, result=1, **nameless),
        lambda: guard.refute(key, **nameless),
    ):
        with pytest.raises(ContractViolation, match="needs a name"):
            decide()
    with pytest.raises(ContractViolation, match="needs a name"):
        guard.retry(key, **nameless)
    assert guard.find(key).state is State.IN_DOUBT


@pytest.mark.parametrize(
    "said",
    [{"by": "ad\udce4", "reason": "x"}, {"by": "ada", "reason": "caf\udce9"}],
    ids=["by", "reason"],
)
def test_what_a_person_says_has_to_be_text(guard, said):
    doubt(guard)
    key = guard.in_doubt()[0].request.key

    with pytest.raises(ContractViolation, match="is no Unicode text"):
        guard.refute(key, **said)
    assert guard.find(key).state is State.IN_DOUBT


def test_a_result_that_cannot_be_stored_settles_nothing(guard):
    doubt(guard)
    key = guard.in_doubt()[0].request.key

    with pytest.raises(ContractViolation, match="cannot be what later calls get"):
        guard.confirm(key, result=object(), **BY)
    assert guard.find(key).state is State.IN_DOUBT


def test_a_decision_leaves_its_name_its_reason_and_what_was_known(guard):
    doubt(guard, count=2)
    confirmed, refuted = (record.request.key for record in guard.in_doubt())
    for key in (confirmed, refuted):
        guard.store.apply(ops.Attest(key, "late", b'v1 ok "receipt"'))
    guard.confirm(confirmed, result="receipt", **BY)
    guard.refute(refuted, **BY)
    guard.store.apply(ops.Attest(refuted, "later still", b'v1 ok "receipt"'))

    for key, notes in ((confirmed, ["late"]), (refuted, ["late", "later still"])):
        record = guard.find(key)
        assert (record.settled_by, record.reason) == ("ada", "asked the bank")
        assert [entry.note for entry in record.evidence if entry.is_result] == notes


# ---------------------------------------------------------------- in the background


def reconciler(guard, **settings):
    return Reconciler(guard._desk, InDoubtFilter(), ReconcilePace(per_s=1e9, **settings))


def test_a_round_asks_about_everything_once(guard):
    doubt(guard, count=130).probe(lambda n: Found("receipt") if n % 2 else CannotTell())
    doubt(guard, "ship", 2)

    background = reconciler(guard)
    assert background.round() == background.reconciled == Reconciled(65, 65, 2)


def test_what_cannot_be_told_is_asked_less_and_less_often(guard, clock):
    """By the record, not by a memory: each round is that of a new process."""
    asked = []
    doubt(guard).probe(lambda n: asked.append(clock()) or CannotTell())

    for _ in range(60):
        reconciler(guard, every_s=60, at_least_every_s=600).round()
        clock.advance(30)

    waits = [round(after - before) for before, after in itertools.pairwise(asked)]
    assert waits == [60, 60, 120, 240, 480, 600]


def test_a_round_asks_no_more_than_it_may_and_the_next_one_goes_on(guard, clock):
    asked = []
    doubt(guard, count=7).probe(lambda n: asked.append(n) or CannotTell())
    background = reconciler(guard, per_round=3)

    assert background.round() == Reconciled(0, 3, 0)
    assert background.left == 7
    background.round()
    background.round()
    assert len(set(asked)) == len(asked) == 7


def test_a_round_ends_when_its_time_is_over(guard):
    doubt(guard, count=3).probe(lambda n: Found("receipt"))
    pace = ReconcilePace(per_s=1e9, round_s=10)
    background = Reconciler(guard._desk, InDoubtFilter(), pace, itertools.count(0, 4).__next__)

    assert background.round().settled < 3


def test_a_started_reconciler_asks_at_once_and_stops_when_told(guard):
    doubt(guard, count=3).probe(lambda n: Found("receipt"))

    with guard.reconciler(every_s=3600, per_s=1e9) as background:
        assert background.start() is background
        while guard.in_doubt():
            pass
    assert background.reconciled == Reconciled(3, 0, 0)
    background.stop()


def test_a_reconciler_that_is_stopped_ends_after_the_probe_that_it_asks(guard):
    doubt(guard, count=3).probe(lambda n: Found("receipt"))
    background = guard.reconciler(per_s=0.001, tool="pay")
    background.stop()

    assert background.round() == Reconciled(1, 0, 0)


def test_what_a_person_settles_while_its_probe_is_asked_stays_settled_and_the_others_are_asked(
    guard,
):
    key = []

    def asked(n: int):
        if key:
            guard.refute(key.pop(), **BY)
        return Found("receipt")

    doubt(guard, count=3).probe(asked)
    key.append(guard.in_doubt()[0].request.key)
    (refuted,) = key

    assert guard.reconcile() == Reconciled(2, 1, 0)
    assert guard.find(refuted).state is State.FAILED
    assert [entry.note for entry in guard.find(refuted).evidence][
        -1
    ] == "an owner that had lost its lease reports success"


def test_a_reconciler_outlives_a_mistake_and_tells_it(clock, caplog):
    class Mistaken(FlakyStore):
        mistakes = 1

        def apply(self, op, /):
            if isinstance(op, ops.Browse) and self.mistakes:
                self.mistakes -= 1
                raise ValueError("a row that nobody can read")
            return super().apply(op)

    guard = Guard(Mistaken(clock=clock), cache=0)
    doubt(guard).probe(lambda n: Found("receipt"))

    with guard.reconciler(every_s=3600, per_s=1e9) as background:
        pass
    assert isinstance(background.failure, ValueError)
    assert "a round of effectonce-reconciler failed" in caplog.text
    with background:
        while guard.counts() == {State.IN_DOUBT: 1}:
            pass
    assert (background.reconciled, background.failure) == (Reconciled(1, 0, 0), None)


def test_async_tools_are_asked_by_a_task(clock):
    store = FlakyStore(clock=clock)
    guard = Guard(store, cache=0)

    @guard.tool(kind="write", downstream="probe", retry=QUICK)
    async def pay(n: int):
        raise TimeoutError

    doubt(guard, "ship").probe(lambda n: pytest.fail("it is not of this colour"))

    async def main():
        for n in range(3):
            async with guard.step("chat", n):
                with pytest.raises(InDoubt):
                    await pay(n)

        in_vain, second_round = [], asyncio.Event()

        @pay.probe
        async def find(n: int):
            if n < 2:
                return Found("receipt")
            in_vain.append(n)
            if len(in_vain) == 2:
                second_round.set()
            return CannotTell()

        background = guard.reconciler(every_s=0, per_s=1e9, at_least_every_s=3600)
        store.fail(ops.Browse, times=1)
        task = asyncio.ensure_future(background.run())
        await second_round.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return background, await background.around()

    background, again = asyncio.run(main())
    assert (background.reconciled.settled, background.failure) == (2, None)
    assert (again.settled, again.skipped) == (0, 1)


def test_a_reference_instead_of_a_key_is_told_as_one(guard):
    with pytest.raises(ContractViolation, match="eff_0123456789ab is a reference: give the key"):
        guard.confirm("eff_0123456789ab", result=None, by="ada", reason="seen")
