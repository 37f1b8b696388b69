"""How a store behind a wire answers an op: see the record, decide by the table, swap it if it
did not change meanwhile.

Theory of operation. The protocol lives in the transition table and nowhere else, not in SQL and
not in Lua. A backend only performs exchanges. Each is one round trip and one atomic step on the
server:

  look     the outcome, if it is known: a read, for a call that was made before
  bear     insert a record that is not there; otherwise see it (T1, the first write of a call)
  finish   complete a record that is dispatched and owned by this token (T5, the second write)
  enter    insert a record that has its outcome already, if there is none of its key
  see      the record, the one that shares its latch, its predecessor, the time
  swap     replace the record that was seen, if it is still the same revision

and the same for cells, the small values that processes share: see, swap, list, and forget those
that are past their time.

So a first call costs two round trips and a replay one. Everything else sees and swaps, and
starts again if another writer was faster: whatever was decided on an older revision is thrown
away. Like the engine's flows, `answer` is one generator for sync and async.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import Any, Generic, TypeAlias, TypeVar, cast

from msgspec import Struct

from effectonce._core.effect_ref import reference_of
from effectonce._core.ops import (
    Applied,
    Browse,
    Cell,
    Claim,
    Complete,
    Find,
    ListCells,
    Op,
    ReadCell,
    Recorded,
    RecordOp,
    Refused,
    Search,
    Sweep,
    Swept,
    Tally,
    Together,
    WriteCell,
)
from effectonce._core.pages import Beside, Count, Paging, Recent, Refer
from effectonce._core.record import Record, Request, Scene, State
from effectonce._core.rules import TABLE, Table, latch_of
from effectonce._core.transitions import born_and_ended, transition
from effectonce.errors import StoreUnavailable

R = TypeVar("R", covariant=True)
T = TypeVar("T")
PATIENCE = 100  # how often a record may change under a decision; each time another writer succeeded


class RoundTrip(Struct, Generic[R], frozen=True):
    """One round trip."""

    def __iter__(self) -> Generator[RoundTrip[Any], Any, R]:
        reply: R = yield self
        return reply


Answering: TypeAlias = Generator[RoundTrip[Any], Any, R]


class SeenRecord(Struct, frozen=True):
    """Everything that a decision needs, as it was at one moment."""

    now: float  # the server's clock
    record: Record | None = None
    revision: int = 0  # 0: there is none
    # another effect of the same latch that was sent and has no outcome yet
    rival: Record | None = None
    predecessor: Record | None = None


class InsertNew(RoundTrip["SeenRecord | Recorded | None"], frozen=True):
    """Insert this record, which was born at time zero: the server adds its clock to every time
    that is set.

    Not if it is there already, and not if another effect of its latch was sent and has no
    outcome yet. None: it is born. `Recorded`: its outcome is known, the fingerprint is the same
    and its window is open. Anything else is `SeenRecord`.
    """

    record: Record


class ReadOutcome(RoundTrip["Recorded | None"], frozen=True):
    """The outcome, if known, with the same fingerprint and an open window. None says nothing."""

    request: Request


class Finish(RoundTrip[bool], frozen=True):
    """T5: complete the record if dispatched and of this token and epoch. False: look closer."""

    op: Complete


class InsertFinished(RoundTrip[bool], frozen=True):
    """Insert a record, born and ended at time zero: the server adds its clock. False: key taken."""

    record: Record


class Read(RoundTrip[SeenRecord], frozen=True):
    """The record of *key*; the rival of its latch, or of *latch* if there is no record; the
    record of *after*.
    """

    key: str
    latch: str = ""
    after: str = ""


class CompareAndSwap(RoundTrip[bool], frozen=True):
    """Replace revision *revision* of a record. False: it changed meanwhile, or *after* would be
    sent while a rival has no outcome.
    """

    key: str
    revision: int  # 0: insert it
    after: Record | None  # None: forget it


class SwapAll(RoundTrip["tuple[bool, ...]"], frozen=True):
    """Many swaps in one round trip; each succeeds or fails on its own."""

    swaps: tuple[CompareAndSwap, ...]


class DueNow(Struct, frozen=True):
    """Records whose `due_at` came, with revisions; references of those this release cannot read."""

    now: float
    records: tuple[tuple[Record, int], ...]
    unreadable: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        return len(self.records) + len(self.unreadable)


class Due(RoundTrip[DueNow], frozen=True):
    """What is due, as much of it as *limit* allows."""

    limit: int


class Listed(RoundTrip["tuple[Record, ...]"], frozen=True):
    op: Browse


class Searched(RoundTrip["tuple[Record, ...]"], frozen=True):
    op: Search


class Counted(RoundTrip["dict[State, int]"], frozen=True):
    pass


class Paged(RoundTrip[Any], frozen=True):
    """What pages ask for, as they ask for it."""

    op: Paging


class SeeCell(RoundTrip[Cell], frozen=True):
    name: str


class SwapCell(RoundTrip["Cell | None"], frozen=True):
    """None: written. Otherwise what stands there instead of the revision that was seen."""

    op: WriteCell


class ListedCells(RoundTrip["tuple[tuple[str, bytes], ...]"], frozen=True):
    op: ListCells


class Pipeline(RoundTrip["tuple[Any, ...]"], frozen=True):
    """Several of the above that are about one row each, in this order, in one round trip."""

    exchanges: tuple[RoundTrip[Any], ...]


_ONE_ROW = frozenset({InsertNew, Finish, Read, SeeCell, SwapCell})


class Forget(RoundTrip[int], frozen=True):
    """Remove cells past their time. A server that does so by itself has nothing to count."""

    limit: int


def answer(op: Op[R], table: Table = TABLE) -> Answering[R]:
    """Apply one op. Only tests pass another table."""
    reply: Any
    match op:
        case Claim():
            reply = yield from _claim(op, table)
        case Complete():
            reply = (
                Applied(op.epoch) if (yield Finish(op)) else (yield from _decide(op, table))
            )  # `yield from` costs a generator
        case Together():
            reply = yield from _together(op, table)
        case Find(key):
            reply = (yield from Read(key)).record
        case Browse():
            reply = yield from Listed(op)
        case Search():
            reply = yield from Searched(op)
        case Tally():
            reply = yield from Counted()
        case Count() | Recent() | Refer() | Beside():
            reply = yield from Paged(op)
        case Sweep():
            reply = yield from _sweep(op, table)
        case ReadCell(name):
            reply = yield from SeeCell(name)
        case WriteCell():
            reply = yield from SwapCell(op)
        case ListCells():
            reply = yield from ListedCells(op)
        case _:
            # what is left is about one record
            reply = yield from _decide(op, table)  # type: ignore[arg-type]
    return reply  # type: ignore[no-any-return]


def is_first(op: Claim) -> bool:
    """Is it an ordinary call's first claim? Only a record or a rival decides what becomes of it."""
    return op.dispatch and not op.again and not op.request.after


def _claim(op: Claim, table: Table) -> Answering[Any]:
    if op.request.after:
        return (yield from _decide(op, table))  # whether it is its turn has to be seen first
    if op.again:
        known = yield ReadOutcome(op.request)
        if known is not None:
            return known
    if op.request.terms.approval:
        return (yield from _decide(op, table))  # it is born with who asks for it
    born = transition(None, op, Scene(0.0), table)
    assert born.after is not None
    found = yield InsertNew(born.after)
    if found is None:
        return born.reply
    return found if isinstance(found, Recorded) else (yield from _decide(op, table, found))


def _decide(op: RecordOp, table: Table, seen: SeenRecord | None = None) -> Answering[Any]:
    latch, after = (op.request.latch, op.request.after) if isinstance(op, Claim) else ("", "")
    for _ in range(PATIENCE):
        seen = seen or (yield from Read(op.key, latch, after))
        step = transition(seen.record, op, _scene(seen, op), table)
        if not step.changed or (yield from CompareAndSwap(op.key, seen.revision, step.after)):
            return step.reply
        seen = None
    raise StoreUnavailable(
        f"the record of {reference_of(op.key)} changed {PATIENCE} times while it was being decided"
        " about. Nothing was written."
    )


def decide_once(op: Complete, table: Table = TABLE) -> Answering[Applied | Refused]:
    """Complete a record inside a tool's own transaction. Only a change counts: if it is done
    already, the tool's writes must not stay.

    A heartbeat that was under way when the tool returned may change the record under this
    decision, like any other write.
    """
    state: State | None = None
    for _ in range(PATIENCE):
        seen = yield from Read(op.key)
        state = None if seen.record is None else seen.record.state
        step = transition(seen.record, op, _scene(seen, op), table)
        if not step.changed:
            break
        if (yield from CompareAndSwap(op.key, seen.revision, step.after)):
            return Applied(op.epoch)
    return Refused(state)


def _scene(seen: SeenRecord, op: RecordOp) -> Scene:
    return Scene(seen.now, seen.rival if latch_of(seen.record, op) else None, seen.predecessor)


def _together(op: Together, table: Table) -> Answering[tuple[Any, ...]]:
    """The first exchanges of all ops go out together; most ops need no second one."""
    once = born_and_ended(op, Scene(0.0), table)
    if once is not None and (yield InsertFinished(cast(Record, once.after))):
        return cast("tuple[Any, ...]", once.reply)
    answers = [answer(each, table) for each in op.ops]
    exchanges = tuple([next(answering) for answering in answers])
    at_once = all(type(exchange) in _ONE_ROW for exchange in exchanges)
    first = (yield from Pipeline(exchanges)) if at_once else (None,) * len(answers)
    replies = []
    for answering, exchange, reply in zip(answers, exchanges, first, strict=True):
        replies.append((yield from go_on(answering, reply if at_once else (yield exchange))))
    return tuple(replies)


def go_on(answering: Answering[T], reply: Any) -> Answering[T]:
    """The rest of an answer whose first exchange was replied to."""
    try:
        while True:
            reply = yield answering.send(reply)
    except StopIteration as done:
        end: T = done.value
        return end


def _sweep(op: Sweep, table: Table) -> Answering[Swept]:
    seen, asked = (yield from Due(op.limit)), op.limit
    # they stay due: look behind them
    while seen.unreadable and seen.count >= asked and len(seen.records) < op.limit:
        asked *= 2
        seen = yield from Due(asked)
    due = seen.records[: op.limit]
    steps = [(transition(record, op, Scene(seen.now), table), revision) for record, revision in due]
    swaps = tuple(
        CompareAndSwap(s.before.request.key, revision, s.after)
        for s, revision in steps
        if s.changed and s.before
    )
    done = yield from SwapAll(swaps)
    ends = (
        State.ABSENT if swap.after is None else swap.after.state
        for swap, well in zip(swaps, done, strict=True)
        if well
    )
    counts = Counter(ends)
    cells = (yield from Forget(op.limit - len(due))) if len(due) < op.limit else 0
    return Swept(
        counts[State.IN_DOUBT],
        counts[State.TOMBSTONE],
        counts[State.ABSENT],
        cells,
        seen.unreadable,
    )
