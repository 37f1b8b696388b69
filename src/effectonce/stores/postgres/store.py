"""PostgreSQL: durable, for many machines, and a tool's own rows can commit together with its
record.

Theory of operation. Every op is answered by exchanges (see `_roundtrip`), and every exchange is
one round trip and one transaction of the server. The server decides races, by a primary key, by
a unique index of pending outcomes, and by the revision of a row; it never decides about the
protocol. Several exchanges that wait at the same time share a round trip and a commit (see
`pool.py`).

Nothing is remembered in a session: a transaction pooler may lend us another one each time.
Commits are durable whatever the defaults of the server, the role or the database are; a server
that could lose what it acknowledged is refused. Connections are made when they are first needed,
in the process and on the loop that needs them, and one that did not answer in time is thrown
away.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any, TypeVar

from effectonce._core.ops import (
    Applied,
    Browse,
    Claim,
    Complete,
    Dispatch,
    Find,
    ListCells,
    Op,
    ReadCell,
    Search,
    Tally,
)
from effectonce._core.pauses import LOOK
from effectonce._drivers import adrive, drive
from effectonce.errors import ContractViolation, StoreUnavailable
from effectonce.stores._roundtrip import (
    Answering,
    Due,
    Finish,
    InsertNew,
    Pipeline,
    Read,
    ReadOutcome,
    RoundTrip,
    SeeCell,
    SwapAll,
    SwapCell,
    answer,
    go_on,
    is_first,
)
from effectonce.stores._urls import ENCODE, safe_message, shown
from effectonce.stores.base import (
    DUE_SHOWN,
    LARGE_B,
    Capabilities,
    Finding,
    StoreUnusable,
    TooLarge,
    clock_finding,
    due_finding,
    size_b,
)
from effectonce.stores.postgres import binary

try:
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
except ImportError as missing:
    raise ImportError(
        "the PostgreSQL store needs psycopg 3. Install it: pip install 'effectonce[postgres]'"
    ) from missing

from effectonce.stores._births import Births
from effectonce.stores.postgres import shared_statements as batches
from effectonce.stores.postgres.batch import (
    LOOK_AGAIN,
    ONE_BY_ONE,
    First,
    PendingQuery,
    UnreadableReply,
    result,
)
from effectonce.stores.postgres.connection import (
    ConnectionLost,
    PostgresConnection,
    ServerError,
    connect,
)
from effectonce.stores.postgres.pipeline import Habits
from effectonce.stores.postgres.pool import LoopPool, ThreadPool
from effectonce.stores.postgres.schema import Unfit, facts, lasts, prepare
from effectonce.stores.postgres.transaction import (
    LentAsyncConnection,
    PostgresTransaction,
    TransactionPool,
)

R = TypeVar("R")
FAILURES = (ConnectionLost, ServerError, Unfit, UnreadableReply)
_BEFORE_A_SEND = (Claim, Dispatch)
# Beyond a limit of the server (54000, or its allocator's own words), out of memory, or its
# statement_timeout.
_FOR_ITS_SIZE = frozenset({"54000", "XX000", "53200", "57014"})
_READS = (Find, Browse, Search, Tally, ReadCell, ListCells)


class PostgresStore:
    """One PostgreSQL database shared by every process of every machine that has its URL."""

    has_cells = True

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = 5.0,
        connections: int = 2,
        transactions: int = 16,
        prepared: bool = True,
        accept_fsync_off: bool = False,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """Open nothing yet.

        At most *connections* are used by all threads together, as many again by each event loop,
        and *transactions* by tools that run inside one. Two are enough for most: while they are
        busy, waiting calls share the next round trip, which beats a connection each.
        `prepared=False` is for poolers that refuse prepared statements outright; others are
        noticed. With `accept_fsync_off=True` a server that may lose records is accepted, and the
        store no longer calls itself durable. Only tests pass a *clock*.
        """
        try:
            self._conninfo = make_conninfo(
                url, client_encoding="utf8", fallback_application_name="effectonce"
            )
        except ProgrammingError as error:
            raise ContractViolation(
                f"{shown(url)!r} is not the URL of a PostgreSQL database:"
                f" {safe_message(error, url)}"
            ) from None  # the cause quotes the URL
        self.where = _where(url)
        self.capabilities = Capabilities(durable=not accept_fsync_off, transactions=True)
        self._timeout_s, self._limits, self._clock = timeout_s, (connections, transactions), clock
        self._accept_fsync_off = accept_fsync_off
        self._habits = Habits(named=prepared)
        self._births = Births(batches.pack_birth)
        self._start()
        _STORES.add(self)

    def _start(self) -> None:
        """Everything that must not cross a fork."""
        connections, transactions = self._limits
        self._wires: weakref.WeakSet[PostgresConnection] = weakref.WeakSet()
        self._crew = ThreadPool(self._open, self._habits, connections)
        self._lanes: dict[asyncio.AbstractEventLoop, LoopPool] = {}
        self._lanes_lock = threading.Lock()
        self._lending = TransactionPool(
            self._open, self.where, self._now, self._timeout_s, transactions
        )

    def _open(self, give_up_at: float) -> PostgresConnection:
        wire = connect(self._conninfo, give_up_at)
        try:
            prepare(wire, give_up_at, accept_fsync_off=self._accept_fsync_off)
        except BaseException:
            wire.close()
            raise
        self._wires.add(wire)
        return wire

    def _now(self) -> bytes | None:
        return None if self._clock is None else binary.pack_float(self._clock())

    # ------------------------------------------------------------ sync and async

    def apply(self, op: Op[R], /) -> R:
        give_up_at = time.monotonic() + self._timeout_s
        try:
            exchange = self._ordinary(op)
            if exchange is None:
                return drive(answer(op), lambda more: self._perform(more, give_up_at))
            job = PendingQuery(exchange, self._now(), give_up_at)
            self._crew.do([job])
            reply = _reply_from(exchange, result(job))
            return (
                drive(_rest(op, job), lambda more: self._perform(more, give_up_at))
                if reply is None
                else reply
            )
        except FAILURES as error:
            raise self._unanswered(error, op) from error

    def _ordinary(self, op: Any) -> RoundTrip[Any] | None:
        """The first exchange of an ordinary call's op: most need no other. None: another op."""
        kind = type(op)  # `isinstance` costs more where it says no
        if kind is Complete:
            return Finish(op)
        if kind is not Claim or op.request.after:
            return None
        return (
            First(op, self._births.of(op))
            if is_first(op)
            else ReadOutcome(op.request)
            if op.again
            else None
        )

    def _perform(self, exchange: RoundTrip[Any], give_up_at: float) -> Any:
        if isinstance(exchange, SwapAll):
            jobs = [PendingQuery(swap, None, give_up_at) for swap in exchange.swaps]
            if jobs:
                self._crew.do(jobs)
            return tuple(result(job) for job in jobs)
        job = PendingQuery(exchange, self._now(), give_up_at)
        self._crew.do([job])
        reply = result(job)
        rest = _unfinished(exchange, reply)
        return reply if rest is None else drive(rest, lambda more: self._perform(more, give_up_at))

    async def aapply(self, op: Op[R], /) -> R:
        give_up_at = time.monotonic() + self._timeout_s
        lanes = self._lanes_of(asyncio.get_running_loop())
        try:
            exchange = self._ordinary(op)
            if exchange is None:
                return await adrive(
                    answer(op), lambda more: self._aperform(more, give_up_at, lanes)
                )
            job = PendingQuery(exchange, self._now(), give_up_at)
            await lanes.do_one(job)
            reply = _reply_from(exchange, result(job))
            return (
                await adrive(_rest(op, job), lambda more: self._aperform(more, give_up_at, lanes))
                if reply is None
                else reply
            )
        except FAILURES as error:
            raise self._unanswered(error, op) from error

    async def _aperform(self, exchange: RoundTrip[Any], give_up_at: float, lanes: LoopPool) -> Any:
        if isinstance(exchange, SwapAll):
            jobs = [PendingQuery(swap, None, give_up_at) for swap in exchange.swaps]
            if jobs:
                await lanes.do(jobs)
            return tuple(result(job) for job in jobs)
        job = PendingQuery(exchange, self._now(), give_up_at)
        await lanes.do([job])
        reply = result(job)
        rest = _unfinished(exchange, reply)
        return (
            reply
            if rest is None
            else await adrive(rest, lambda more: self._aperform(more, give_up_at, lanes))
        )

    def _lanes_of(self, loop: asyncio.AbstractEventLoop) -> LoopPool:
        lanes = self._lanes.get(loop)
        if lanes is None:
            with self._lanes_lock:
                for old in [old for old in self._lanes if old.is_closed()]:
                    self._lanes.pop(old).close()
                lanes = self._lanes[loop] = LoopPool(
                    loop, self._open, self._habits, self._limits[0]
                )
        return lanes

    def examine(self) -> tuple[Finding, ...]:
        """What the server promises, how far its clock is from ours, and what is due. A server
        that no record may be trusted to is refused.
        """
        try:
            wire = self._open(time.monotonic() + self._timeout_s)
            try:
                about = facts(wire, time.monotonic() + self._timeout_s)
            finally:
                wire.close()
            before_s = time.time()
            due = self._perform(Due(DUE_SHOWN), time.monotonic() + self._timeout_s)
        except FAILURES as error:
            raise self._unavailable(error, "Nothing was changed.") from error
        return (
            *about,
            clock_finding(due.now - (before_s + time.time()) / 2),
            due_finding(due.count, due.unreadable),
        )

    def close(self) -> None:
        """Close every connection that is not in use. A later call opens new ones."""
        self._crew.close()
        self._lending.close()
        with self._lanes_lock:
            while self._lanes:
                self._lanes.popitem()[1].close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # the interpreter may be half gone
            self.close()

    def _unanswered(self, error: Exception, op: Op[Any]) -> StoreUnavailable:
        """Is it the size of its value that an op failed for? Then it will fail again."""
        value_b = size_b(op)
        if value_b <= LARGE_B:
            return self._unavailable(error, _known(op))
        large = f"{self.where}: a value of {value_b / 1e6:,.0f} MB"
        if isinstance(error, ServerError) and error.sqlstate in _FOR_ITS_SIZE:
            return TooLarge(f"{large} was refused: {error}. Nothing of it was written.")
        more = "Give it more time (timeout_s=), or store less."
        return StoreUnavailable(f"{large} was not written: {error}. {_known(op)} {more}")

    def _unavailable(self, error: Exception, known: str) -> StoreUnavailable:
        remedy = f" {error.remedy}" if isinstance(error, Unfit) else ""
        kind = StoreUnusable if lasts(error) else StoreUnavailable
        return kind(f"{self.where}: {error}. {known}{remedy}")

    # ------------------------------------------------------------ transactions

    @contextlib.contextmanager
    def transaction(self) -> Iterator[PostgresTransaction]:
        """The tool's writes and its record in one COMMIT, on a connection of its own."""
        try:
            loan = self._lending.begin()
        except FAILURES as error:
            raise self._unavailable(error, "Nothing was sent.") from error
        lent = PostgresTransaction(loan)
        try:
            yield lent
        finally:
            lent.take_back()
            self._lending.end(loan)

    @contextlib.asynccontextmanager
    async def atransaction(self) -> AsyncIterator[LentAsyncConnection]:
        try:
            loan = await self._lending.abegin()
        except FAILURES as error:
            raise self._unavailable(error, "Nothing was sent.") from error
        lent = LentAsyncConnection(loan)
        try:
            yield lent
        finally:
            lent.take_back()
            await self._lending.aend(loan)


def _reply_from(exchange: Any, reply: Any) -> Any:
    """The reply to an ordinary op, if this exchange was enough for it; otherwise None."""
    kind = type(exchange)
    if kind is First and reply is None:
        return exchange.birth.reply
    if kind is Finish:
        return Applied(exchange.op.epoch) if reply else None
    return None if reply is LOOK_AGAIN else reply


def _rest(op: Op[R], job: PendingQuery) -> Answering[R]:
    """How to answer an ordinary op for which its first exchange was not enough."""
    rest = _unfinished(job.exchange, job.reply)
    reply = job.reply if rest is None else (yield from rest)
    answering = answer(op)
    next(answering)  # the exchange that this is the reply to
    return (yield from go_on(answering, reply))


def _unfinished(exchange: RoundTrip[Any], reply: Any) -> Answering[Any] | None:
    """How to go on where this was no reply, because another writer was faster. None: it was one."""
    if reply is None or isinstance(reply, bool):  # most replies are one value
        return None
    match exchange:
        case Pipeline(exchanges) if reply is ONE_BY_ONE:
            return _alone(exchanges)
        case Pipeline(exchanges) if LOOK_AGAIN in reply:
            return _more_closely(exchanges, reply)
        case SwapCell(op) if reply is LOOK_AGAIN:
            return iter(SeeCell(op.name))
        case First(op) if reply is LOOK_AGAIN:
            return iter(Read(op.request.key, op.request.latch))
        case InsertNew(record) if reply is LOOK_AGAIN:
            return iter(Read(record.request.key, record.request.latch, record.request.after))
        case _:
            return None


def _alone(exchanges: Iterable[RoundTrip[Any]]) -> Answering[tuple[Any, ...]]:
    replies = []
    for exchange in exchanges:
        replies.append((yield from exchange))  # noqa: PERF401  # a comprehension cannot yield
    return tuple(replies)


def _more_closely(
    exchanges: Iterable[RoundTrip[Any]], replies: Iterable[Any]
) -> Answering[tuple[Any, ...]]:
    answered = []
    for exchange, reply in zip(exchanges, replies, strict=True):
        rest = _unfinished(exchange, reply)
        answered.append(reply if rest is None else (yield from rest))
    return tuple(answered)


def _known(op: Op[Any]) -> str:
    """What a caller may still rely on when its op was not answered."""
    if isinstance(op, _BEFORE_A_SEND) or op is LOOK:
        return "Nothing was sent."
    if isinstance(op, _READS):
        return "Nothing was changed."
    return "Whether this was written is not known; repeating it is safe."


def _where(url: str) -> str:
    """The database as an error may name it: without a password. A part of one that was taken for
    a host or a port is refused.
    """
    parts = conninfo_to_dict(url)
    host, port, name = (str(parts.get(part, "")) for part in ("host", "port", "dbname"))
    path = url.partition("://")[2].partition("/")[2].partition("?")[0]
    if "@" in host or re.fullmatch(r"[\d,]*", port) is None or ("@" in name and "@" in path):
        raise ContractViolation(f"{shown(url)!r} is not the URL of a PostgreSQL database: {ENCODE}")
    return f"postgresql://{host}{f':{port}' if port else ''}/{name}"


# ---------------------------------------------------------------- fork

_STORES: weakref.WeakSet[PostgresStore] = weakref.WeakSet()
_INHERITED: list[Any] = []


def _after_fork() -> None:
    """Give the child its own connections. A word on the parent's would end them for the parent."""
    for store in _STORES:
        for wire in store._wires:  # noqa: SLF001  # the same module's
            wire.leave()
            _INHERITED.append(wire)
        _INHERITED.append((store._crew, store._lanes, store._lending))  # noqa: SLF001
        store._start()  # noqa: SLF001


os.register_at_fork(after_in_child=_after_fork)
