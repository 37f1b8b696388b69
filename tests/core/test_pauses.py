"""A person pauses a tool: nothing new is sent, in any process, and nothing is lost."""

import subprocess
import sys

import msgspec
import pytest

from effectonce import (
    CircuitOpen,
    ContractViolation,
    GaveUp,
    Guard,
    InDoubt,
    Retry,
    State,
    StoreUnavailable,
    ToolPaused,
    current_effect,
)
from effectonce._core import pauses
from effectonce._core.ops import Cell, ReadCell, WriteCell
from effectonce._core.pauses import CELL, FRESH_S, Pause, Pauses, change, paused_in
from effectonce._drivers import drive
from effectonce.stores.memory import MemoryStore
from effectonce.workflows import Run
from tests.core.helpers import done, in_colour, silence

ANA = {"by": "ana", "reason": "the bank is down"}
REFUSED = ConnectionRefusedError(111, "Connection refused")


class Till:
    """One process: a guard, and a tool in one colour. What it sends is counted."""

    def __init__(self, store, colour="sync", **contract):
        self.guard, self.sent, self.errors = Guard(store, cache=0), [], []
        settings = {
            "kind": "write",
            "downstream": "key",
            "retry": Retry(attempts=3, base_s=0, cap_s=0),
            "one_request": True,
        } | contract

        def pay(order: str) -> str:
            current_effect().downstream_key  # noqa: B018  # sent with the request
            self.sent.append(order)
            if self.errors:
                error = self.errors.pop(0)
                raise error()
            return f"paid {order}"

        self.tool = self.guard.tool(name="pay", **settings)(in_colour(colour, pay))

    def pay(self, order):
        with self.guard.step("chat", order):
            return done(self.tool(order))


def test_a_paused_tool_sends_nothing_leaves_nothing_and_returns_what_is_known(any_store, colour):
    till = Till(any_store, colour)
    assert till.pay("o1") == "paid o1"
    till.guard.pause_tool("pay", **ANA)

    with pytest.raises(ToolPaused, match="pay is paused, by ana: the bank is down") as caught:
        till.pay("o2")

    assert (caught.value.code, caught.value.retriable) == ("TOOL_PAUSED", True)
    assert isinstance(caught.value, CircuitOpen)  # who has a fallback for one has it for the other
    assert till.pay("o1") == "paid o1"
    assert till.sent == ["o1"]
    assert till.guard.counts()[State.COMPLETED] == sum(till.guard.counts().values()) == 1

    assert till.guard.resume_tool("pay", **ANA)
    assert till.pay("o2") == "paid o2"


def test_a_pause_holds_in_every_process_of_the_store(any_store, colour, monkeypatch):
    monkeypatch.setattr(pauses, "FRESH_S", 0.0)  # as if two seconds went by between two calls
    here, there = Till(any_store, colour), Till(any_store, colour)
    assert there.pay("o1") == "paid o1"

    here.guard.pause_tool("pay", **ANA)
    with pytest.raises(ToolPaused):
        there.pay("o2")

    here.guard.resume_tool("pay", **ANA)
    assert there.pay("o2") == "paid o2"


PROCESS = """
import sys
from effectonce import Guard
guard = Guard(sys.argv[1])
guard.pause_tool("pay", by="ana", reason="the bank is down")
print(guard.paused_tools()["pay"].by)
"""


def test_another_process_pauses_it(tmp_path):
    url = f"sqlite:///{tmp_path}/effects.db"
    done = subprocess.run(
        [sys.executable, "-c", PROCESS, url], capture_output=True, text=True, check=True
    )

    assert done.stdout == "ana\n"
    with pytest.raises(ToolPaused):
        Till(url).pay("o1")


def test_a_process_that_is_busy_reads_the_pauses_every_two_seconds_and_no_other_call_pays_for_it():
    store, asked = MemoryStore(), []
    apply = store.apply
    store.apply = lambda op: asked.append(op) or apply(op)
    till = Till(store)

    for number in range(50):
        till.pay(f"o{number}")

    assert asked.count(ReadCell(CELL)) == 1
    assert FRESH_S == 2.0


def test_what_a_process_knows_is_good_for_two_seconds():
    store, known = MemoryStore(), Pauses(lambda tool, pause: ToolPaused(tool))
    drive(change("pay", "ana", "down"), store.apply)

    known.see(store.apply(ReadCell(CELL)), 100.0)
    paused = known.circuit("pay")
    assert isinstance(paused.refusal(), ToolPaused)
    assert paused.try_admit() is paused.refusal()
    assert known.circuit("refund") is None

    assert known.fresh_until == 102.0
    known.forget()
    assert known.fresh_until < 0


def test_a_tool_that_is_paused_between_two_attempts_is_not_tried_again(any_store, colour):
    till = Till(any_store, colour)

    def broken():
        till.guard.pause_tool("pay", **ANA)
        return REFUSED

    till.errors = [broken]
    with pytest.raises(ToolPaused):
        till.pay("o1")

    assert till.sent == ["o1"]
    assert till.guard.counts()[State.CLAIMED] == 1  # certainly not sent: the next caller may
    till.guard.resume_tool("pay", **ANA)
    assert till.pay("o1") == "paid o1"
    assert till.sent == ["o1", "o1"]


def test_what_may_have_been_sent_is_not_called_unsent_by_a_pause(any_store, colour):
    till = Till(any_store, colour, kind="irreversible", downstream="none", accept_store_loss=True)

    def lost():
        till.guard.pause_tool("pay", **ANA)
        return ConnectionResetError(104, "Connection reset by peer")

    till.errors = [lost]
    with pytest.raises(InDoubt):
        till.pay("o1")
    with pytest.raises(InDoubt):
        till.pay("o1")
    assert till.sent == ["o1"]


def test_a_fallback_speaks_for_a_paused_tool():
    till = Till("memory://")

    @till.tool.fallback
    def later(error: Exception, order: str) -> str:
        return f"later: {error.code}"

    till.guard.pause_tool("pay", **ANA)
    assert till.pay("o1") == "later: TOOL_PAUSED"


def test_tools_that_are_paused_are_listed_with_who_and_why(any_store):
    till = Till(any_store)
    till.guard.pause_tool("refund", by="bo", reason="a test")
    till.guard.pause_tool("pay", **ANA)
    till.guard.pause_tool("pay", by="bo", reason="the bank is still down")

    listed = till.guard.paused_tools()

    assert list(listed) == ["pay", "refund"]
    assert (listed["pay"].by, listed["pay"].reason) == ("bo", "the bank is still down")
    assert till.guard.resume_tool("pay", by="bo", reason="it is up")
    assert not till.guard.resume_tool("pay", by="bo", reason="it is up")
    assert list(till.guard.paused_tools()) == ["refund"]


def test_each_change_is_reported_to_observers():
    seen = []
    till = Till("memory://")
    till.guard.observe(seen.append)

    till.guard.pause_tool("pay", **ANA)
    till.guard.resume_tool("pay", by="bo", reason="it is up")
    till.guard.resume_tool("pay", by="bo", reason="it is up")

    assert [(e.name, e.tool, e.outcome, e.by, e.reason) for e in seen] == [
        ("paused", "pay", "paused", "ana", "the bank is down"),
        ("paused", "pay", "resumed", "bo", "it is up"),
    ]


@pytest.mark.parametrize("given", [{"by": "", "reason": "x"}, {"by": "ana", "reason": " "}])
def test_who_and_why_have_to_be_said(given):
    with pytest.raises(ContractViolation):
        Till("memory://").guard.pause_tool("pay", **given)


def test_two_persons_at_the_same_moment_both_pause_their_tool():
    """The slower one sees what the faster one wrote."""
    store = MemoryStore()
    flow = change("pay", "ana", "down")
    first = store.apply(flow.send(None))
    drive(change("refund", "bo", "down"), store.apply)
    reply = store.apply(flow.send(first))
    assert isinstance(reply, Cell)
    again = flow.send(reply)
    with pytest.raises(StopIteration):
        flow.send(store.apply(again))

    assert sorted(paused_in(store.apply(ReadCell(CELL)).value)) == ["pay", "refund"]


def test_a_write_whose_answer_was_lost_is_not_written_again():
    flow = change("pay", "ana", "down")
    flow.send(None)
    write = flow.send(Cell(5.0))
    with pytest.raises(StopIteration) as ended:
        flow.send(Cell(6.0, write.value, 1))  # the first try had arrived
    assert ended.value.value is None


def test_what_another_release_wrote_changes_nothing():
    store, known = MemoryStore(), Pauses(lambda tool, pause: ToolPaused(tool))
    drive(change("pay", "ana", "down"), store.apply)
    known.see(store.apply(ReadCell(CELL)), 0.0)
    revision = store.apply(ReadCell(CELL)).revision
    store.apply(WriteCell(CELL, revision, msgspec.msgpack.encode(["another"]), 60.0))

    known.see(store.apply(ReadCell(CELL)), 10.0)

    assert known.tools["pay"] == Pause("ana", "down", known.tools["pay"].at)


@pytest.mark.parametrize(("retriable", "asked"), [(True, 3), (False, 1)])
def test_a_store_that_does_not_say_what_is_paused_sends_nothing(colour, retriable, asked):
    """It is asked as often as for a claim, and not for both."""
    store, seen = MemoryStore(), []
    error = StoreUnavailable("no answer")
    error.retriable = retriable

    def silent(op):
        seen.append(op)
        raise error

    store.apply = silent
    till = Till(store, colour)
    with pytest.raises(StoreUnavailable):
        till.pay("o1")

    assert till.sent == []
    assert seen == [ReadCell(CELL)] * asked


def test_a_store_that_is_lost_behind_a_pause_says_so(colour):
    """What is known of the effect cannot be asked."""
    store = MemoryStore()
    till = Till(store, colour)
    till.guard.pause_tool("pay", **ANA)
    with pytest.raises(ToolPaused):
        till.pay("o1")
    silence(store)
    with pytest.raises(StoreUnavailable):
        till.pay("o1")
    assert till.sent == []


def test_a_store_that_is_lost_between_two_attempts_is_lost_to_the_next_attempt(colour, monkeypatch):
    monkeypatch.setattr(pauses, "FRESH_S", 0.0)
    store = MemoryStore()
    till = Till(store, colour)

    def lost():
        silence(store)
        return REFUSED

    till.errors = [lost]
    with pytest.raises(GaveUp, match="It had no effect"):
        till.pay("o1")
    assert till.sent == ["o1"]


class NoCells:
    """A store of a user's own that knows records alone."""

    def __init__(self):
        self.inner = MemoryStore()
        self.capabilities = self.inner.capabilities

    def apply(self, op):
        if isinstance(op, ReadCell | WriteCell):
            raise TypeError("what is a cell?")
        return self.inner.apply(op)

    def close(self): ...


def test_a_store_without_cells_works_as_before_and_says_that_it_cannot_pause():
    till = Till(NoCells())

    assert till.pay("o1") == "paid o1"
    assert till.guard.paused_tools() == {}
    with pytest.raises(ContractViolation, match="has no cells"):
        till.guard.pause_tool("pay", **ANA)


def test_a_paused_workflow_begins_no_run_and_goes_on_with_none():
    guard, done = Guard("memory://", cache=0), []

    @guard.tool(kind="write", downstream="key", one_request=True)
    def pay(order: str) -> str:
        current_effect().downstream_key  # noqa: B018
        done.append(order)
        return order

    @guard.workflow
    def settle(run: Run, order: str) -> str:
        return run.step("pay", pay, order)

    guard.pause_tool("pay", **ANA)
    with pytest.raises(ToolPaused, match="pay is paused"):
        settle("o2")
    guard.resume_tool("pay", **ANA)
    guard.pause_tool("settle", **ANA)
    for order in ("o2", "o3"):  # one that waits, and a new one
        with pytest.raises(ToolPaused, match="settle is paused"):
            settle(order)

    guard.resume_tool("settle", **ANA)
    assert (settle("o2"), settle("o3")) == ("o2", "o3")
    assert done == ["o2", "o3"]
