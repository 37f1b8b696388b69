"""Steps that may be repeated have no record until their end is known: what happens when that end
is not a result.
"""

import pytest
from msgspec.structs import replace

from effectonce import (
    Budget,
    CircuitOpen,
    GaveUp,
    Guard,
    NotSent,
    Retry,
    StoreUnavailable,
    current_effect,
)
from effectonce._core import ops
from effectonce._core.record import State
from effectonce.errors import LeaseLost
from effectonce.stores.memory import MemoryStore
from effectonce.workflows import Run
from tests.core.helpers import QUICK
from tests.core.workflows import Flaky, elsewhere, job, key_of, noting

RESET = ConnectionError("reset")


def flaky(guard, ledger, error=RESET):
    @guard.tool(kind="idempotent_write", name="note", retry=QUICK)
    def note(what: str) -> str:
        return failing(what)

    failing = Flaky(ledger, 1, error)
    return note


def one_step(guard, note):
    @guard.workflow
    def one(run: Run, n: int) -> str:
        return run.step("note", note, "noted")

    return one


class Refusing(MemoryStore):
    """Refuses the first write of this kind, as if somebody else had the record by then."""

    has_cells = False  # so it is not asked what is paused

    def __init__(self, kind):
        super().__init__()
        self.kind, self.asked = kind, []

    def apply(self, op, /):
        self.asked.append(type(op).__name__)
        if self.kind is not None and isinstance(op, self.kind):
            self.kind = None
            return ops.Refused(State.DISPATCHED)
        return super().apply(op)


@pytest.mark.parametrize(
    ("error", "said"), [(RESET, ["Attest"]), (NotSent("no line"), ["Unsend", "Attest"])]
)
def test_a_step_that_fails_gets_its_record_before_anything_is_said_about_it(ledger, error, said):
    store = Refusing(None)
    guard = Guard(store, cache=0)
    assert one_step(guard, flaky(guard, ledger, error))(1) == "noted"
    assert store.asked == ["Claim", "Claim", *said, "Dispatch", "Complete", "ReadCell", "Complete"]


def test_a_step_that_lost_its_record_between_two_attempts_claims_it_like_any_other(ledger):
    store = Refusing(ops.Dispatch)
    guard = Guard(store, cache=0)
    assert one_step(guard, flaky(guard, ledger))(1) == "noted"
    assert store.asked == [
        "Claim",
        "Claim",
        "Attest",
        "Dispatch",
        "Renew",
        "Claim",
        "Complete",
        "ReadCell",
        "Complete",
    ]
    assert ledger.done == ["noted"]


class AwayFor(MemoryStore):
    """Does not hear the claims of steps, for as long as it is told."""

    def __init__(self):
        super().__init__()
        self.away = True

    def apply(self, op, /):
        if self.away and isinstance(op, ops.Claim) and op.request.scope:
            raise StoreUnavailable("no answer")
        return super().apply(op)


def test_an_error_that_cannot_be_written_down_stops_the_run_and_is_told(ledger):
    store = AwayFor()
    guard = Guard(store, cache=0)

    @guard.tool(
        kind="idempotent_write", name="note", retry=Retry(attempts=3, base_s=0, deadline_s=0.05)
    )
    def note(what: str) -> str:
        return failing(what)

    failing = Flaky(ledger, 1, RESET)
    one = one_step(guard, note)
    with pytest.raises(GaveUp, match="reset"):
        one(1)
    store.away = False
    assert guard.workflows.resume(key_of(guard)) == "noted"
    assert ledger.done == ["noted"]


def test_an_error_of_a_step_that_somebody_else_has_done_meanwhile_is_nobodys(
    store, clock, ledger, guard
):
    other = Guard(store, cache=0)

    @job
    def swift(run: Run, n: int) -> str:
        return run.step("note", noting(other, ledger), "noted")

    @job
    def stalled(run: Run, n: int) -> str:
        clock.advance(31)
        assert elsewhere(other.workflow(swift), 1) == "noted"
        return run.step("note", flaky(guard, ledger), "noted")

    with pytest.raises(LeaseLost, match="is run by another worker by now"):
        guard.workflow(stalled)(1)
    assert ledger.done == ["noted"]
    assert guard.counts() == {State.COMPLETED: 2}


def test_a_step_that_its_turn_does_not_pay_for_leaves_no_record(ledger):
    store = Refusing(None)
    guard = Guard(store, cache=0)
    note = noting(guard, ledger)

    @guard.workflow
    def two(run: Run, n: int) -> None:
        run.step("note", note, 1)
        run.step("note", note, 2)

    with guard.turn("chat", "turn-7", budget=Budget(steps=1)), pytest.raises(GaveUp):
        two(1)
    assert ledger.done == [1]
    # the run, which waits, and its first step
    assert guard.counts() == {State.CLAIMED: 1, State.COMPLETED: 1}


class Shut:
    """A circuit that lets nothing through when it comes to it, as when somebody else has the
    last permit.
    """

    def refusal(self):
        return None

    def try_admit(self):
        return CircuitOpen("the bank is closed")


def test_a_step_that_its_circuit_keeps_back_was_not_sent(ledger):
    guard = Guard(MemoryStore(), cache=0)
    note = noting(guard, ledger)
    tool = note.__effectonce_tool__
    tool.plan = replace(tool.plan, retrying=replace(tool.plan.retrying, circuit=Shut()))
    with pytest.raises(CircuitOpen, match="the bank is closed"):
        one_step(guard, note)(1)
    assert ledger.done == []
    assert guard.counts() == {State.CLAIMED: 1}  # the run, which waits


@pytest.mark.parametrize(("kind", "beats"), [("idempotent_write", 1), ("write", 2)])
def test_only_what_has_a_record_is_kept_alive(kind, beats):
    guard, seen = Guard(MemoryStore(), cache=0), []

    @guard.tool(kind=kind)
    def note(what: str) -> str:
        seen.append(len(guard._house.heart.beats))  # the run's is one of them
        return what

    assert one_step(guard, note)(1) == "noted"
    assert seen == [beats]


def test_a_step_in_a_transaction_has_its_record_first_and_is_committed_with_its_end(tmp_path):
    """It may always be repeated, and is claimed all the same: its end is written by its own
    COMMIT.
    """
    guard = Guard(f"sqlite:///{tmp_path}/effects.db", cache=0, spool=tmp_path / "spool")

    @guard.tool(kind="write", downstream="transaction", retry=QUICK)
    def book(n: int) -> int:
        connection = current_effect().connection
        connection.execute("CREATE TABLE IF NOT EXISTS booked (n INTEGER)")
        connection.execute("INSERT INTO booked VALUES (?)", (n,))
        return n

    @guard.workflow
    def trip(run: Run, order: str) -> int:
        return run.step("book", book, 7)

    assert [trip("o1"), trip("o1")] == [7, 7]
    with guard.store.transaction() as transaction:
        assert transaction.connection.execute("SELECT n FROM booked").fetchall() == [(7,)]
    guard.close()
