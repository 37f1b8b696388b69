"""An exchange on its way to the server: what is asked for it, and what its results mean."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from psycopg.pq.abc import PGresult

from effectonce._core.effect_ref import reference_of
from effectonce._core.ops import Cell, Claim, Recorded
from effectonce._core.record import Record, State
from effectonce.stores import _rows
from effectonce.stores._births import Birth
from effectonce.stores._roundtrip import (
    CompareAndSwap,
    Due,
    DueNow,
    Finish,
    Forget,
    InsertFinished,
    InsertNew,
    Listed,
    ListedCells,
    Paged,
    Pipeline,
    Read,
    ReadOutcome,
    RoundTrip,
    Searched,
    SeeCell,
    SeenRecord,
    SwapCell,
)
from effectonce.stores.postgres import binary, pages
from effectonce.stores.postgres import cell_statements as cells
from effectonce.stores.postgres import shared_statements as batches
from effectonce.stores.postgres import statements as sql
from effectonce.stores.postgres.connection import ServerError

LOOK_AGAIN = object()  # neither written nor a known outcome: the whole picture is needed
ONE_BY_ONE = object()  # nothing was written, and each may do better alone


class First(RoundTrip[Any], frozen=True):
    """`InsertNew` for the first claim of an ordinary call, without its record."""

    op: Claim
    birth: Birth[batches.PackedArrays]


# Another writer was faster: a unique index, a serialisation failure or a deadlock decided so,
# and nothing was written.
RACED = frozenset({"23505", "40001", "40P01"})
_LOSES: dict[type, Any] = {
    First: LOOK_AGAIN,
    InsertNew: LOOK_AGAIN,
    InsertFinished: False,
    Finish: False,
    CompareAndSwap: False,
    Pipeline: ONE_BY_ONE,
}

_OUTCOMES = {str(state).encode(): state for state in (State.COMPLETED, State.FAILED)}


class UnreadableReply(Exception):
    """A row holds something that this release does not know."""


class PendingQuery:
    """One exchange of one caller."""

    __slots__ = ("done", "error", "exchange", "give_up_at", "notify", "now", "queries", "reply")

    def __init__(self, exchange: RoundTrip[Any], now: bytes | None, give_up_at: float) -> None:
        self.exchange, self.now, self.give_up_at = exchange, now, give_up_at
        self.queries: list[sql.BoundStatement] | None = None
        self.done = False
        self.reply: Any = None
        self.error: Exception | None = None
        self.notify: Callable[[None], object] | None = None

    def asks(self) -> list[sql.BoundStatement]:
        """What it asks where no other job asks with it."""
        if self.queries is None:
            self.queries = queries_of(self.exchange, self.now)
        return self.queries

    def settle(self, results: list[PGresult]) -> None:
        try:
            self.reply = reply_of(self.exchange, results)
        except _rows.UNREADABLE as error:
            self.error = UnreadableReply(
                f"it holds a record that this release cannot read ({error!r})"
            )
        self.end()

    def refuse(self, error: Exception) -> None:
        """It was not done, or that is not known."""
        if (
            isinstance(error, ServerError)
            and error.sqlstate in RACED
            and type(self.exchange) in _LOSES
        ):
            self.reply = _LOSES[type(self.exchange)]
        else:
            self.error = error
        self.end()

    def may_look_again(self, error: ServerError) -> bool:
        """Did a stricter isolation than ours refuse what may be asked again? It changed nothing."""
        return (
            error.sqlstate in RACED
            and type(self.exchange) not in _LOSES
            and time.monotonic() < self.give_up_at
        )

    def end(self) -> None:
        """Let its caller go on, unless its time was over and it has stopped waiting."""
        if self.done:
            return
        self.done = True
        if self.notify is not None:
            try:
                self.notify(None)
            except asyncio.InvalidStateError:  # its caller was cancelled, and waits no longer
                return

    def place(self) -> tuple[int, str, str]:
        """Its place in a transaction: one order everywhere, so two rarely wait for each other."""
        match self.exchange:
            case First(claim):
                return 0, claim.request.latch, claim.request.key
            case InsertNew(record) | InsertFinished(record):
                return 0, record.request.latch, record.request.key
            case CompareAndSwap(key, _, after):
                return 1, "" if after is None else after.request.latch, key
            case Finish(op):
                return 2, "", op.key
            case SwapCell(write):
                return 4, "", write.name  # many share it, so it is locked last
            case Pipeline():
                return 5, "", ""
            case _:
                return 3, "", ""


def result(job: PendingQuery) -> Any:
    """What came of a job that is done."""
    if job.error is not None:
        raise job.error
    return job.reply


# ---------------------------------------------------------------- one exchange


def queries_of(exchange: Any, now: bytes | None) -> list[sql.BoundStatement]:
    # of the two that an ordinary call needs: a pattern costs more than the query
    kind = type(exchange)
    if kind is First:
        return [sql.bear_first(exchange.op, exchange.birth.packed.parameters, now)]
    if kind is Finish:
        return [sql.finish(exchange.op, now)]
    match exchange:
        case InsertNew(record):
            return [sql.bear(record, now)]
        case InsertFinished(record):
            return [sql.enter(record, now)]
        case ReadOutcome(request):
            return [sql.look(request.key, now)]
        case Read(key, latch, after):
            return [sql.see(key, latch, after, now)]
        case CompareAndSwap(key, revision, after):
            return sql.swap(key, revision, after)
        case Due(limit):
            return [sql.due(limit, now)]
        case Listed(op):
            return [sql.listed(op)]
        case Searched(op):
            return [sql.searched(op)]
        case Paged(asked_for):
            return [pages.query(asked_for)]
        case SeeCell(name):
            return [cells.cell(name, now)]
        case SwapCell(write):
            return [cells.write_cell(write, now)]
        case ListedCells(asked):
            return [cells.listed_cells(asked, now)]
        case Forget(limit):
            return [cells.forget(limit, now)]
        case Pipeline(exchanges):
            return [query for each in exchanges for query in queries_of(each, now)]
        case _:
            return [sql.BoundStatement(sql.COUNTED, ())]


def reply_of(exchange: Any, results: list[PGresult]) -> Any:
    result: Any = results[-1]
    kind = type(exchange)
    if kind is First:
        return _born_or_recorded(result, exchange.op.request.fingerprint)
    if kind is Finish:
        return result.command_tuples == 1
    match exchange:
        case InsertFinished() | CompareAndSwap():
            return result.command_tuples == 1
        case ReadOutcome(request):
            return recorded(result, 0, request.fingerprint) if result.ntuples else None
        case InsertNew(record):
            return _born_or_recorded(result, record.request.fingerprint)
        case Read():
            return _seen(result)
        case Due():
            return _due(result)
        case Listed() | Searched():
            return tuple(sql.record(result, row, 0)[0] for row in range(result.ntuples))
        case Paged(asked_for):
            return pages.reply(asked_for, result)
        case SeeCell():
            return _cell(result)
        case SwapCell(write):
            stands = _cell(result)
            written = result.get_value(0, 3) == b"\x01"
            return None if written else LOOK_AGAIN if stands.revision == write.revision else stands
        case ListedCells():
            get = result.get_value
            return tuple(
                (binary.unpack_text(get(row, 0)), get(row, 1)) for row in range(result.ntuples)
            )
        case Forget():
            return result.command_tuples
        case Pipeline(exchanges):
            return tuple(
                [reply_of(each, [one]) for each, one in zip(exchanges, results, strict=True)]
            )
        case _:
            get = result.get_value
            return {
                _rows.STATES[get(n, 0).decode()]: binary.unpack_int(get(n, 1))
                for n in range(result.ntuples)
            }


def _born_or_recorded(result: Any, fingerprint: str) -> Any:
    return (
        None
        if result.get_value(0, 0) == b"\x01"
        else recorded(result, 0, fingerprint) or LOOK_AGAIN
    )


def recorded(result: Any, row: int, fingerprint: str) -> Recorded | None:
    """The outcome in this row, if it answers a request with this fingerprint."""
    get = result.get_value
    state = _OUTCOMES.get(get(row, 3))
    if state is not None and get(row, 2).decode() == fingerprint:
        now = binary.unpack_float(get(row, 1))
        remaining_s = binary.unpack_float(get(row, 6)) - now
        if remaining_s > 0:
            return Recorded(
                state,
                get(row, 4),
                now - binary.unpack_float(get(row, 5)),
                remaining_s,
                binary.unpack_text(get(row, 7)),
            )
    return None


def _cell(result: Any) -> Cell:
    now, value, revision = (result.get_value(0, n) for n in range(3))
    return (
        Cell(binary.unpack_float(now))
        if revision is None
        else Cell(binary.unpack_float(now), value, binary.unpack_int(revision))
    )


def _due(result: Any) -> DueNow:
    """One that cannot be read must not keep all others from being swept."""
    found: list[tuple[Record, int]] = []
    unreadable: list[str] = []
    for row in range(result.ntuples) if result.get_value(0, 1) is not None else ():
        try:
            found.append(sql.record(result, row, 1))
        except _rows.UNREADABLE:
            unreadable.append(reference_of(binary.unpack_text(result.get_value(row, 2))))
    return DueNow(binary.unpack_float(result.get_value(0, 0)), tuple(found), tuple(unreadable))


def _seen(result: Any) -> SeenRecord:
    found, revision = {}, 0
    for row in range(result.ntuples):
        role = result.get_value(row, 1)
        if role is not None:
            found[role], its = sql.record(result, row, 2)
            revision = its if role == b"record" else revision
    now = binary.unpack_float(result.get_value(0, 0))
    return SeenRecord(
        now, found.get(b"record"), revision, found.get(b"rival"), found.get(b"predecessor")
    )
