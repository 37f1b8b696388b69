"""A connection that is lent to a tool: its writes and its record in one COMMIT, which is not the
tool's to give.

psycopg's own `commit()`, `rollback()` and `close()` are refused on the spot. A COMMIT inside the
tool's SQL cannot be seen coming, so the server refuses it: a deferred trigger (migration 3) lets
a lent transaction commit only when we ask for it. A ROLLBACK cannot be refused. The transaction
carries a mark that ends with it (a setting made with `SET LOCAL`): if the mark is gone when the
record is to be written, the transaction that was lent is over. Until then psycopg begins only
transactions that write nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import weakref
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import Any, NoReturn

import psycopg
from psycopg import pq
from psycopg.pq.abc import PGconn, PGresult

from effectonce._core.ops import Applied, Complete, Refused
from effectonce._drivers import adrive, drive
from effectonce.errors import ContractViolation, StoreUnavailable
from effectonce.stores._roundtrip import RoundTrip, decide_once
from effectonce.stores.base import RolledBack
from effectonce.stores.postgres import statements as sql
from effectonce.stores.postgres.batch import RACED, PendingQuery, UnreadableReply, result
from effectonce.stores.postgres.connection import ConnectionLost, PostgresConnection, ServerError

Now = Callable[[], "bytes | None"]
Open = Callable[[float], PostgresConnection]
GONE = "Nothing of this transaction stays, and nothing was sent."
UNCONFIRMED = "The answer to COMMIT was lost; the record tells whether it was carried out."


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise ContractViolation(
        "this transaction is not the tool's to end: its record is written in the same COMMIT, after"
        " the tool returns. Raise an error to roll back; use connection.transaction() for a part"
        " that may fail."
    )


def lend(connection: Any) -> Any:
    """Take the end of the transaction out of the tool's hands."""
    # Not `cancel`: by it psycopg ends the query of a tool that is cancelled or interrupted.
    for name in ("commit", "rollback", "close"):
        setattr(connection, name, _refuse)
    # behind a pooler, what was prepared is gone after the transaction
    connection.prepare_threshold = None
    return connection


def _closed() -> PGconn:
    pgconn = pq.PGconn.connect_start(b"host=/nowhere")
    pgconn.finish()
    return pgconn


_CLOSED = _closed()


def _check_status(wire: PostgresConnection) -> None:
    """Is there a transaction in which a record can be written?"""
    if wire.pgconn.pipeline_status != pq.PipelineStatus.OFF:
        raise ContractViolation(
            "the tool left a pipeline open on the connection that was lent to it, so its record"
            " cannot be written. Nothing of it stays. Use the pipeline as a block: with"
            " connection.pipeline()."
        )
    match wire.pgconn.transaction_status:
        case pq.TransactionStatus.INTRANS:
            return
        case pq.TransactionStatus.INERROR:
            raise ContractViolation(
                "the tool caught a database error and went on, but the server has given its"
                " transaction up. Nothing of it stays. Let the error out, or put the part that may"
                " fail into connection.transaction()."
            )
        case _:
            _over()


def _over() -> NoReturn:
    raise ContractViolation(
        "the tool ended the transaction that was lent to it (ROLLBACK in its SQL, or a COMMIT that"
        " was refused). Nothing of that transaction stays. Take it out of the tool: its record is"
        " written in the same COMMIT, after the tool returns. Raise an error to roll back."
    )


def _check_mark(results: list[PGresult]) -> None:
    if results[0].get_value(0, 0) != b"1":
        _over()


def _check_committed(results: list[PGresult]) -> None:
    if results[-1].command_status != b"COMMIT":
        raise RolledBack(f"the server rolled back instead of committing. {GONE}")


class OpenTransaction:
    """What sync and async know about one open transaction."""

    def __init__(
        self, wire: PostgresConnection, connection: Any, where: str, now: Now, timeout_s: float
    ) -> None:
        self.wire, self.connection = wire, connection
        self._where, self._now, self._timeout_s = where, now, timeout_s

    @property
    def broken(self) -> bool:
        return self.wire.pgconn.status != pq.ConnStatus.OK

    def give_up_at(self) -> float:
        return time.monotonic() + self._timeout_s

    def job(self, exchange: RoundTrip[Any]) -> PendingQuery:
        return PendingQuery(exchange, self._now(), self.give_up_at())

    def unavailable(self, error: Exception, known: str) -> StoreUnavailable:
        return StoreUnavailable(f"{self._where}: {error}. {known}")

    def refused(self, error: Exception) -> Refused:
        """Another caller was faster: this transaction is over. Otherwise it could not be asked."""
        if isinstance(error, ServerError) and error.sqlstate in RACED:
            return Refused(None)
        raise self.unavailable(error, GONE) from error

    def uncommitted(self, error: Exception) -> StoreUnavailable:
        """A server that refuses COMMIT has rolled back; a silent one may have done either."""
        if isinstance(error, ServerError):
            return RolledBack(f"{self._where}: {error}. {GONE}")
        return self.unavailable(error, UNCONFIRMED)


class TransactionPool:
    """Connections for tools' transactions: a bounded number for threads, as many for each loop."""

    def __init__(self, open_wire: Open, where: str, now: Now, timeout_s: float, limit: int) -> None:
        self._open, self._where, self._now, self._timeout_s, self._limit = (
            open_wire,
            where,
            now,
            timeout_s,
            limit,
        )
        self._idle: list[PostgresConnection] = []
        # as a semaphore that a signal handler may ask, too
        self._places: SimpleQueue[None] = SimpleQueue()
        for _ in range(limit):
            self._places.put(None)
        self._loop_places: weakref.WeakKeyDictionary[
            asyncio.AbstractEventLoop, asyncio.Semaphore
        ] = weakref.WeakKeyDictionary()

    def begin(self) -> OpenTransaction:
        give_up_at = time.monotonic() + self._timeout_s
        try:
            self._places.get(timeout=self._timeout_s)
        except Empty:
            raise self._crowded() from None
        wire = self._take()
        try:
            if wire is None:
                wire = self._open(give_up_at)
            connection = lend(psycopg.Connection(wire.pgconn))
            connection.read_only = True  # what psycopg would begin after ours is over
            wire.ask_simple(sql.BEGIN, give_up_at)
        except BaseException:
            self._places.put(None)
            _close(wire)
            raise
        return self._loan(wire, connection)

    def end(self, loan: OpenTransaction) -> None:
        """Roll back what is not committed. A session that a tool used is reset before reuse."""
        try:
            for command in _ending(loan.wire):
                loan.wire.ask_simple(command, loan.give_up_at())
            self._give_back(loan.wire)
        except (ConnectionLost, ServerError):
            loan.wire.close()
        except BaseException:
            loan.wire.close()
            raise
        finally:
            self._places.put(None)

    async def abegin(self) -> OpenTransaction:
        give_up_at = time.monotonic() + self._timeout_s
        places = self._places_of(asyncio.get_running_loop())
        try:
            async with asyncio.timeout(self._timeout_s):
                await places.acquire()
        except TimeoutError:
            raise self._crowded() from None
        wire = self._take()
        try:
            if wire is None:
                wire = await asyncio.to_thread(self._open, give_up_at)
            connection = lend(psycopg.AsyncConnection(wire.pgconn))
            await connection.set_read_only(True)  # as above
            wire.send_simple(sql.BEGIN)
            await areceive(wire, give_up_at)
        except BaseException:
            places.release()
            _close(wire)
            raise
        return self._loan(wire, connection)

    async def aend(self, loan: OpenTransaction) -> None:
        try:
            for command in _ending(loan.wire):
                loan.wire.send_simple(command)
                await areceive(loan.wire, loan.give_up_at())
            self._give_back(loan.wire)
        except (ConnectionLost, ServerError):
            loan.wire.close()
        except BaseException:
            loan.wire.close()
            raise
        finally:
            self._places_of(asyncio.get_running_loop()).release()

    def _places_of(self, loop: asyncio.AbstractEventLoop) -> asyncio.Semaphore:
        return self._loop_places.setdefault(loop, asyncio.Semaphore(self._limit))

    def _loan(self, wire: PostgresConnection, connection: Any) -> OpenTransaction:
        return OpenTransaction(wire, connection, self._where, self._now, self._timeout_s)

    def _crowded(self) -> ConnectionLost:
        return ConnectionLost(
            f"all {self._limit} connections for transactions were busy for {self._timeout_s:g} s"
        )

    def _take(self) -> PostgresConnection | None:
        while self._idle:
            with contextlib.suppress(IndexError):  # another thread took the last one
                wire = self._idle.pop()
                if not wire.stale():
                    return wire
                wire.close()
        return None

    def _give_back(self, wire: PostgresConnection) -> None:
        if wire.fd >= 0:
            self._idle.append(wire)

    def close(self) -> None:
        while (wire := self._take()) is not None:
            wire.close()


def _close(wire: PostgresConnection | None) -> None:
    if wire is not None:
        wire.close()


def _ending(wire: PostgresConnection) -> Iterator[str]:
    """What puts a session that a tool has used back as it was."""
    match wire.pgconn.transaction_status:
        case pq.TransactionStatus.IDLE:
            pass
        case pq.TransactionStatus.INTRANS | pq.TransactionStatus.INERROR:
            yield "ROLLBACK"
        case _:  # in the middle of something: it is not known what its next answer will be about
            wire.close()
            return
    yield "DISCARD ALL"


class _Lent:
    """What sync and async open transactions share."""

    exclusive = False  # until its record is written, it holds no lock that a renewal would wait for

    def __init__(self, loan: OpenTransaction) -> None:
        self._loan = loan
        self.connection = loan.connection

    def take_back(self) -> None:
        """A tool that kept the connection finds it closed."""
        self.connection.pgconn = _CLOSED

    @property
    def broken(self) -> bool:
        return self._loan.broken


class PostgresTransaction(_Lent):
    """An open transaction of a sync tool."""

    def complete(self, op: Complete, /) -> Applied | Refused:
        loan = self._loan
        _check_status(loan.wire)
        try:
            _check_mark(loan.wire.ask([sql.BoundStatement(sql.LENT, ())], loan.give_up_at()))
            return drive(decide_once(op), self._perform)
        except (ConnectionLost, ServerError, UnreadableReply) as error:
            return loan.refused(error)

    def _perform(self, exchange: RoundTrip[Any]) -> Any:
        job = self._loan.job(exchange)
        job.settle(self._loan.wire.ask(job.asks(), job.give_up_at))
        return result(job)

    def commit(self) -> None:
        try:
            _check_committed(self._loan.wire.ask_simple(sql.COMMIT, self._loan.give_up_at()))
        except (ConnectionLost, ServerError) as error:
            raise self._loan.uncommitted(error) from error


class LentAsyncConnection(_Lent):
    """The same for an async tool."""

    async def complete(self, op: Complete, /) -> Applied | Refused:
        loan = self._loan
        _check_status(loan.wire)
        try:
            loan.wire.send([sql.BoundStatement(sql.LENT, ())], named=False)
            _check_mark(await areceive(loan.wire, loan.give_up_at()))
            return await adrive(decide_once(op), self._perform)
        except (ConnectionLost, ServerError, UnreadableReply) as error:
            return loan.refused(error)

    async def _perform(self, exchange: RoundTrip[Any]) -> Any:
        job = self._loan.job(exchange)
        self._loan.wire.send(job.asks(), named=False)
        job.settle(await areceive(self._loan.wire, job.give_up_at))
        return result(job)

    async def commit(self) -> None:
        try:
            self._loan.wire.send_simple(sql.COMMIT)
            _check_committed(await areceive(self._loan.wire, self._loan.give_up_at()))
        except (ConnectionLost, ServerError) as error:
            raise self._loan.uncommitted(error) from error


async def areceive(wire: PostgresConnection, give_up_at: float) -> list[PGresult]:
    """Wait on the running loop until the results are there."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(wire.fd, ready.set)
    try:
        async with asyncio.timeout(max(0.0, give_up_at - time.monotonic())):
            while (results := wire.receive()) is None:
                if not wire.flushed:
                    loop.add_writer(wire.fd, ready.set)
                await ready.wait()
                ready.clear()
                loop.remove_writer(wire.fd)
        return results
    except TimeoutError:
        raise ConnectionLost("no answer in time") from None
    finally:
        loop.remove_reader(wire.fd)
        loop.remove_writer(wire.fd)
