"""An exchange on its way to the server: what is asked for it, what its results mean, and how several share one transaction.

`talk` holds all of this conversation and no waiting: it yields when it has sent something and is resumed with the results, so that threads
and event loops share it, like the engine's flows.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import Any, TypeAlias

from psycopg.pq.abc import PGresult

from effectonce._core.ops import Cell, Recorded
from effectonce._core.records import Record, State
from effectonce.effect import reference_of
from effectonce.stores import _postgres_pages as pages
from effectonce.stores import _postgres_sql as sql
from effectonce.stores import _rows
from effectonce.stores._exchange import (
    Bear,
    Due,
    DueNow,
    Enter,
    Exchange,
    Finish,
    Forget,
    Listed,
    ListedCells,
    Look,
    Paged,
    Searched,
    See,
    SeeCell,
    Seen,
    Swap,
    SwapCell,
    Volley,
)
from effectonce.stores._postgres_wire import ServerError, Wire

BATCH_MAX = 256
LOOK_AGAIN = object()  # neither written nor a known outcome: the whole picture is needed
ONE_BY_ONE = object()  # nothing was written, and each may do better alone

# Somebody else was faster: a unique index, a serialisation failure or a deadlock decided so, and nothing was written.
RACED = frozenset({"23505", "40001", "40P01"})
# Behind a pooler the next transaction may meet a session that has never heard of our statements, or has them already.
UNPREPARED = frozenset({"26000", "42P05", "0A000"})
LOCKED = "55P03"
_LOSES: dict[type, Any] = {Bear: LOOK_AGAIN, Enter: False, Finish: False, Swap: False, Volley: ONE_BY_ONE}
_SHARES = frozenset(
    {Bear, Enter, Swap, Finish, See, Look, SeeCell, SwapCell, Volley}
)  # short, about one row: these go together

_OUTCOMES = {str(state).encode(): state for state in (State.COMPLETED, State.FAILED)}


class Unreadable(Exception):
    """A row holds something that this release does not know."""


class Job:
    """One exchange of one caller."""

    __slots__ = ("done", "error", "exchange", "give_up_at", "notify", "queries", "reply")

    def __init__(self, exchange: Exchange[Any], now: bytes | None, give_up_at: float) -> None:
        self.exchange, self.give_up_at = exchange, give_up_at
        self.queries = queries_of(exchange, now)
        self.done = False
        self.reply: Any = None
        self.error: Exception | None = None
        self.notify: Callable[[], None] | None = None

    def settle(self, results: list[PGresult]) -> None:
        try:
            self.reply = reply_of(self.exchange, results)
        except _rows.UNREADABLE as error:
            self.error = Unreadable(f"it holds a record that this release cannot read ({error!r})")
        self._tell()

    def refuse(self, error: Exception) -> None:
        """It was not done; or nobody knows."""
        if isinstance(error, ServerError) and error.sqlstate in RACED and type(self.exchange) in _LOSES:
            self.reply = _LOSES[type(self.exchange)]
        else:
            self.error = error
        self._tell()

    def may_look_again(self, error: ServerError) -> bool:
        """Was it something to ask again that a stricter isolation level than ours did not allow just now? It changed nothing."""
        return error.sqlstate in RACED and type(self.exchange) not in _LOSES and time.monotonic() < self.give_up_at

    def _tell(self) -> None:
        self.done = True
        if self.notify is not None:
            self.notify()

    def place(self) -> tuple[int, str, str]:
        """Where it stands in a transaction: in the same order everywhere, so that two of them rarely wait for each other."""
        match self.exchange:
            case Bear(record) | Enter(record):
                return 0, record.request.latch, record.request.key
            case Swap(key, _, after):
                return 1, "" if after is None else after.request.latch, key
            case Finish(op):
                return 2, "", op.key
            case SwapCell(write):
                return 4, "", write.name  # many share it, so it is locked last
            case Volley():
                return 5, "", ""
            case _:
                return 3, "", ""


def result(job: Job) -> Any:
    """What came of a job that is done."""
    if job.error is not None:
        raise job.error
    return job.reply


# ---------------------------------------------------------------- one exchange


def queries_of(exchange: Exchange[Any], now: bytes | None) -> list[sql.Query]:
    match exchange:
        case Bear(record):
            return [sql.bear(record, now)]
        case Finish(op):
            return [sql.finish(op, now)]
        case Enter(record):
            return [sql.enter(record, now)]
        case Look(request):
            return [sql.look(request.key, now)]
        case See(key, latch, after):
            return [sql.see(key, latch, after, now)]
        case Swap(key, revision, after):
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
            return [sql.cell(name, now)]
        case SwapCell(write):
            return [sql.write_cell(write, now)]
        case ListedCells(asked):
            return [sql.listed_cells(asked, now)]
        case Forget(limit):
            return [sql.forget(limit, now)]
        case Volley(exchanges):
            return [query for each in exchanges for query in queries_of(each, now)]
        case _:
            return [sql.Query(sql.COUNTED, ())]


def reply_of(exchange: Exchange[Any], results: list[PGresult]) -> Any:
    result: Any = results[-1]
    match exchange:
        case Bear(record):
            return _born_or_recorded(result, record.request.fingerprint)
        case Look(request):
            known = _born_or_recorded(result, request.fingerprint) if result.ntuples else None
            return None if known is LOOK_AGAIN else known
        case Enter() | Finish() | Swap():
            return result.command_tuples == 1
        case See():
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
            return tuple((sql.unpack_text(get(row, 0)), get(row, 1)) for row in range(result.ntuples))
        case Forget():
            return result.command_tuples
        case Volley(exchanges):
            return tuple([reply_of(each, [one]) for each, one in zip(exchanges, results, strict=True)])
        case _:
            get = result.get_value
            return {_rows.STATES[get(n, 0).decode()]: sql.unpack_int(get(n, 1)) for n in range(result.ntuples)}


def _born_or_recorded(result: Any, fingerprint: str) -> Any:
    get = result.get_value
    if get(0, 0) == b"\x01":
        return None
    state = _OUTCOMES.get(get(0, 3))
    if state is not None and get(0, 2).decode() == fingerprint:
        now = sql.unpack_float(get(0, 1))
        remaining_s = sql.unpack_float(get(0, 6)) - now
        if remaining_s > 0:
            return Recorded(state, get(0, 4), now - sql.unpack_float(get(0, 5)), remaining_s, sql.unpack_text(get(0, 7)))
    return LOOK_AGAIN


def _cell(result: Any) -> Cell:
    now, value, revision = (result.get_value(0, n) for n in range(3))
    return Cell(sql.unpack_float(now)) if revision is None else Cell(sql.unpack_float(now), value, sql.unpack_int(revision))


def _due(result: Any) -> DueNow:
    """One that cannot be read must not keep all others from being swept."""
    found: list[tuple[Record, int]] = []
    unreadable: list[str] = []
    for row in range(result.ntuples) if result.get_value(0, 1) is not None else ():
        try:
            found.append(sql.record(result, row, 1))
        except _rows.UNREADABLE:
            unreadable.append(reference_of(sql.unpack_text(result.get_value(row, 2))))
    return DueNow(sql.unpack_float(result.get_value(0, 0)), tuple(found), tuple(unreadable))


def _seen(result: Any) -> Seen:
    found, revision = {}, 0
    for row in range(result.ntuples):
        role = result.get_value(row, 1)
        if role is not None:
            found[role], its = sql.record(result, row, 2)
            revision = its if role == b"record" else revision
    now = sql.unpack_float(result.get_value(0, 0))
    return Seen(now, found.get(b"record"), revision, found.get(b"rival"), found.get(b"predecessor"))


# ---------------------------------------------------------------- many


class Habits:
    """What a store has learned about its server."""

    __slots__ = ("named",)

    def __init__(self, *, named: bool) -> None:
        self.named = named


_TOGETHER = sql.Query(sql.TOGETHER, ())
Talk: TypeAlias = Generator[float, list[PGresult], None]


def talk(wire: Wire, jobs: list[Job], habits: Habits) -> Talk:
    """Do these jobs, as many as possible in one transaction. Yields until when the results must be there.

    Whoever waits for a row that somebody else has locked waits last, when nobody is held up by it any more.
    """
    groups = deque([(jobs, True)] if len(jobs) == 1 else [(group, len(group) == 1) for group in _groups(jobs)])
    while groups:
        group, patient = groups.popleft()
        named = habits.named
        queries, give_up_at = group[0].queries, group[0].give_up_at
        if len(group) > 1:
            queries, give_up_at = [query for job in group for query in job.queries], min(job.give_up_at for job in group)
        wire.send(queries if patient else [_TOGETHER, *queries], named=named)
        try:
            results = yield give_up_at
        except ServerError as error:
            if named and error.sqlstate in UNPREPARED:
                habits.named = False
                groups.appendleft((group, patient))
            elif len(group) > 1:  # nothing of it was written, and nobody knows whose fault it was
                groups.extendleft(([job], False) for job in reversed(group))
            elif not patient and error.sqlstate == LOCKED:
                groups.append((group, True))
            elif group[0].may_look_again(error):
                groups.appendleft((group, patient))
            else:
                group[0].refuse(error)
            continue
        at = len(results) - len(queries)
        for job in group:
            job.settle(results[at : at + len(job.queries)])
            at += len(job.queries)


def _groups(jobs: Iterable[Job]) -> list[list[Job]]:
    """Those that may share a transaction, in an order that avoids deadlocks; and each of the others alone."""
    together: list[Job] = []
    alone: list[list[Job]] = []
    for job in jobs:
        if type(job.exchange) in _SHARES:
            together.append(job)
        else:
            alone.append([job])
    if len(together) > 1:
        together.sort(key=Job.place)
    return [together, *alone] if together else alone
