"""How the jobs of many callers share one transaction, and as few statements as possible.

`talk` holds all of this conversation and no waiting: it yields when it has sent something and is
resumed with the results, so that threads and event loops share it, like the engine's flows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Sequence
from operator import methodcaller
from typing import Any, TypeAlias

from psycopg.pq.abc import PGresult

from effectonce.stores._roundtrip import (
    CompareAndSwap,
    Finish,
    InsertFinished,
    InsertNew,
    Pipeline,
    Read,
    ReadOutcome,
    RoundTrip,
    SeeCell,
    SwapCell,
)
from effectonce.stores.postgres import binary
from effectonce.stores.postgres import shared_statements as batches
from effectonce.stores.postgres import statements as sql
from effectonce.stores.postgres.batch import LOOK_AGAIN, First, PendingQuery, recorded
from effectonce.stores.postgres.connection import PostgresConnection, ServerError

BATCH_MAX = 256
# Behind a pooler the next transaction may meet a session that has never heard of our statements,
# or has them already.
UNPREPARED = frozenset({"26000", "42P05", "0A000"})
LOCKED = "55P03"
# Short, about one row: these go together.
_SHARES = frozenset(
    {
        First,
        InsertNew,
        InsertFinished,
        CompareAndSwap,
        Finish,
        Read,
        ReadOutcome,
        SeeCell,
        SwapCell,
        Pipeline,
    }
)
_TOGETHER = sql.BoundStatement(sql.TOGETHER, ())
_place = methodcaller("place")
Talk: TypeAlias = Generator[float, list[PGresult], None]


class Habits:
    """What a store has learned about its server."""

    __slots__ = ("named",)

    def __init__(self, *, named: bool) -> None:
        self.named = named


class Shared:
    """Jobs that ask the same about different records: one statement for all of them."""

    def __init__(self, jobs: list[PendingQuery], query: sql.BoundStatement) -> None:
        self.jobs, self._queries = jobs, [query]

    def asks(self) -> list[sql.BoundStatement]:
        return self._queries

    def place(self) -> tuple[int, str, str]:
        return self.jobs[0].place()[0], "", ""

    def settle(self, results: list[PGresult]) -> None:
        """Rows come back only for jobs that have more to report than that all went well."""
        result: Any = results[-1]
        rows = {binary.unpack_place(result.get_value(row, 0)): row for row in range(result.ntuples)}
        well = True if type(self.jobs[0].exchange) is Finish else None
        for place, job in enumerate(self.jobs, 1):
            job.reply = _reply(job.exchange, result, rows[place]) if place in rows else well
            job.end()


def _reply(exchange: RoundTrip[Any], result: Any, row: int) -> Any:
    match exchange:
        case First(op):
            return recorded(result, row, op.request.fingerprint) or LOOK_AGAIN
        case ReadOutcome(request):
            return recorded(result, row, request.fingerprint)
        case _:
            return False


def shared(group: Iterable[PendingQuery]) -> list[PendingQuery | Shared]:
    """The jobs of one transaction in the fewest statements, in an order that avoids deadlocks."""
    births: dict[str, PendingQuery] = {}
    ends: dict[str, PendingQuery] = {}
    looks: list[PendingQuery] = []
    asking: list[PendingQuery | Shared] = []
    for job in group:
        exchange: Any = job.exchange
        kind = type(exchange)
        if kind is First and len(exchange.op.request.arguments) <= batches.ROW_MAX_B:
            first = births.setdefault(exchange.op.request.key, job)
        elif kind is Finish and len(exchange.op.outcome) <= batches.ROW_MAX_B:
            first = ends.setdefault(exchange.op.key, job)
        elif kind is ReadOutcome:
            looks.append(job)
            first = job
        else:
            first = None
        if first is not job:
            asking.append(job)
    for jobs, pack in (
        (list(births.values()), _bear),
        (list(ends.values()), _finish),
        (looks, _look),
    ):
        asking += [Shared(jobs, pack(jobs))] if len(jobs) > 1 else jobs
    return sorted(asking, key=_place) if len(asking) > 1 else asking


def _bear(jobs: list[Any]) -> sql.BoundStatement:
    return batches.bear_many(
        [j.exchange.op for j in jobs], [j.exchange.birth.packed for j in jobs], jobs[0].now
    )


def _finish(jobs: list[Any]) -> sql.BoundStatement:
    return batches.finish_many([j.exchange.op for j in jobs], jobs[0].now)


def _look(jobs: list[Any]) -> sql.BoundStatement:
    return batches.look_many([j.exchange.request for j in jobs], jobs[0].now)


def talk(wire: PostgresConnection, jobs: list[PendingQuery], habits: Habits) -> Talk:
    """Do these jobs, as many as possible in one transaction. Yields until when the results must
    be there.

    A job that waits for a locked row waits last, when it holds up no other job any more.
    """
    groups = deque(
        [(jobs, True)] if len(jobs) == 1 else [(group, len(group) == 1) for group in _groups(jobs)]
    )
    while groups:
        group, patient = groups.popleft()
        group = [job for job in group if not job.done]  # its time may be over
        if not group:
            continue
        named = habits.named
        try:
            asking: Sequence[PendingQuery | Shared] = group if len(group) == 1 else shared(group)
            queries = [query for each in asking for query in each.asks()]
        except UnicodeError as error:  # half of a surrogate pair is no text
            if len(group) > 1:
                groups.extendleft(([job], False) for job in reversed(group))
            else:
                group[0].refuse(error)
            continue
        wire.send(queries if patient else [_TOGETHER, *queries], named=named)
        try:
            results = yield min([job.give_up_at for job in group])
        except ServerError as error:
            if named and error.sqlstate in UNPREPARED:
                habits.named = False
                groups.appendleft((group, patient))
            elif len(group) > 1:
                # nothing of it was written, and it is not known which job was at fault
                groups.extendleft(([job], False) for job in reversed(group))
            elif not patient and error.sqlstate == LOCKED:
                groups.append((group, True))
            elif group[0].may_look_again(error):
                groups.appendleft((group, patient))
            else:
                group[0].refuse(error)
            continue
        at = len(results) - len(queries)
        for each in asking:
            end = at + len(each.asks())
            each.settle(results[at:end])
            at = end


def _groups(jobs: Iterable[PendingQuery]) -> list[list[PendingQuery]]:
    """Those that may share a transaction, ordered to avoid deadlocks; each of the others alone."""
    together: list[PendingQuery] = []
    alone: list[list[PendingQuery]] = []
    for job in jobs:
        if type(job.exchange) in _SHARES:
            together.append(job)
        else:
            alone.append([job])
    return [together, *alone] if together else alone
