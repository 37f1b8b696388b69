"""One connection to PostgreSQL: queries go out, results come in, and waiting in between is left
to the caller.

`send` and `receive` never block, so that threads and event loops share them. One query travels
as it is; several travel in libpq's pipeline mode with a single Sync at the end: one round trip,
and outside a transaction one commit, all or nothing.

A connection that did not answer in time is never used again: its late answer would be taken for
the answer to the next question.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Sequence
from typing import Any

from psycopg import OperationalError, pq
from psycopg.pq.abc import PGconn, PGresult

from effectonce.stores.postgres.statements import BoundStatement

READING, WRITING = pq.PollingStatus.READING, pq.PollingStatus.WRITING
_FAILED, _SYNC = pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.PIPELINE_SYNC
_FINE = frozenset({pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK})
_GOING = "57P"  # the server shuts down, crashes or starts: the connection is as good as gone
FRESH_S = 0.01
ALONE = (None,)  # one result, which prepares nothing


class ConnectionLost(Exception):
    """The connection is gone or was given up. What the server did last is not known."""


class ServerError(Exception):
    """The server refused: the transaction of this query is rolled back."""

    def __init__(self, result: PGresult) -> None:
        field = result.error_field
        self.sqlstate = (field(pq.DiagnosticField.SQLSTATE) or b"").decode()
        super().__init__(
            (field(pq.DiagnosticField.MESSAGE_PRIMARY) or result.error_message)
            .decode(errors="replace")
            .strip()
        )


class PostgresConnection:
    """One connection. Not for two callers at a time."""

    def __init__(self, pgconn: PGconn) -> None:
        self.pgconn = pgconn
        pgconn.nonblocking = 1
        self.fd = pgconn.socket
        self.flushed = True
        self._prepared: set[bytes] = set()
        # for each result that is still to come: the name that it prepares
        self._preparing: Sequence[bytes | None] = ()
        self._results: list[PGresult] = []
        self._pipeline = False
        self._answered_at = -FRESH_S
        self._poller = select.poll()
        self._poller.register(self.fd, select.POLLIN)

    def send(self, queries: Sequence[BoundStatement], *, named: bool) -> None:
        """Ask everything at once; `receive` has the results when they are all there."""
        try:
            if len(queries) == 1 and (not named or queries[0].statement.name in self._prepared):
                self._preparing = ALONE
                self._ask(queries[0], named=named)
            else:
                self.pgconn.enter_pipeline_mode()
                self._pipeline, self._preparing = True, (preparing := list[bytes | None]())
                for query in queries:
                    name = query.statement.name
                    if named and name not in self._prepared and name not in preparing:
                        self.pgconn.send_prepare(name, query.statement.sql, query.statement.types)
                        preparing.append(name)
                    self._ask(query, named=named)
                    preparing.append(None)
                self.pgconn.pipeline_sync()
            self.flushed = not self.pgconn.flush()
        except OperationalError as error:
            raise ConnectionLost(libpq_message(error)) from None

    def send_simple(self, sql: str) -> None:
        """Ask by the simple protocol: several statements, no parameters."""
        try:
            self._preparing = ALONE
            self.pgconn.send_query(sql.encode())
            self.flushed = not self.pgconn.flush()
        except OperationalError as error:
            raise ConnectionLost(libpq_message(error)) from None

    def _ask(self, query: BoundStatement, *, named: bool) -> None:
        statement, parameters = query.statement, query.parameters
        if named:
            self.pgconn.send_query_prepared(statement.name, parameters, statement.formats, 1)
        else:
            self.pgconn.send_query_params(
                statement.sql, parameters, statement.types, statement.formats, 1
            )

    def receive(self) -> list[PGresult] | None:
        """The results of everything asked; None: not yet. Raises what the server refused."""
        pgconn = self.pgconn
        try:
            if not self.flushed:
                self.flushed = not pgconn.flush()
            pgconn.consume_input()
            while not pgconn.is_busy():
                result = pgconn.get_result()
                if result is None:
                    if not self._pipeline or pgconn.status != pq.ConnStatus.OK:
                        return self._received()
                elif self._pipeline and result.status == _SYNC:
                    pgconn.exit_pipeline_mode()
                    self._pipeline = False
                    return self._received()
                else:
                    self._results.append(result)
        except OperationalError as error:
            raise ConnectionLost(libpq_message(error)) from None
        return None

    def _received(self) -> list[PGresult]:
        results, self._results = self._results, []
        self._answered_at = time.monotonic()
        if len(results) == 1 and results[0].status in _FINE:
            return results
        failed = next((ServerError(result) for result in results if result.status == _FAILED), None)
        if self.pgconn.status != pq.ConnStatus.OK or (
            failed is not None and failed.sqlstate.startswith(_GOING)
        ):
            raise ConnectionLost(str(failed or "the connection was closed"))
        # the simple protocol has more results than questions
        for name, result in zip(self._preparing, results, strict=False):
            if name is not None and result.status == pq.ExecStatus.COMMAND_OK:
                self._prepared.add(name)
        if failed is not None:
            raise failed
        names = self._preparing
        return [result for n, result in enumerate(results) if n >= len(names) or names[n] is None]

    def wait(self, give_up_at: float) -> list[PGresult]:
        """Block until the results are there."""
        while True:
            left_s = give_up_at - time.monotonic()
            if left_s <= 0 or not (
                self._poller.poll(left_s * 1000) if self.flushed else self._ready(left_s * 1000)
            ):
                raise ConnectionLost("no answer in time")
            results = self.receive()
            if results is not None:
                return results

    def _ready(self, left_ms: float) -> bool:
        """To read, or to write what is left."""
        self._poller.modify(self.fd, select.POLLIN | select.POLLOUT)
        ready = self._poller.poll(left_ms)
        self._poller.modify(self.fd, select.POLLIN)
        return bool(ready)

    def ask(
        self, queries: Sequence[BoundStatement], give_up_at: float, *, named: bool = False
    ) -> list[PGresult]:
        self.send(queries, named=named)
        return self.wait(give_up_at)

    def ask_simple(self, sql: str, give_up_at: float) -> list[PGresult]:
        self.send_simple(sql)
        return self.wait(give_up_at)

    def stale(self) -> bool:
        """Did the server send anything unasked? Then it hangs up. Not asked if it just answered."""
        return time.monotonic() - self._answered_at > FRESH_S and bool(self._poller.poll(0))

    def close(self) -> None:
        self.fd = -1
        self.pgconn.finish()

    def leave(self) -> None:
        """In a forked child: give up the socket silently. The connection is the parent's."""
        # closed before the fork, or lost: then its number may be another file's
        with contextlib.suppress(OperationalError):
            os.close(self.pgconn.socket)


def connect(conninfo: str, give_up_at: float) -> PostgresConnection:
    """Connect within the time left. Looking up names blocks: do not call it on an event loop."""
    pgconn = pq.PGconn.connect_start(conninfo.encode())
    try:
        while (status := pgconn.connect_poll()) != pq.PollingStatus.OK:
            if status not in (READING, WRITING):
                raise ConnectionLost(libpq_message(pgconn))
            poller = select.poll()
            poller.register(pgconn.socket, select.POLLIN if status == READING else select.POLLOUT)
            left_s = give_up_at - time.monotonic()
            if left_s <= 0 or not poller.poll(left_s * 1000):
                raise ConnectionLost("no connection in time")
        return PostgresConnection(pgconn)
    except BaseException:
        pgconn.finish()
        raise


def libpq_message(source: Any) -> str:
    """What libpq says about it, in one line."""
    text = (
        str(source)
        if isinstance(source, Exception)
        else source.error_message.decode(errors="replace")
    )
    return (
        "; ".join(line.strip() for line in text.splitlines() if line.strip()).rstrip(".?")
        or "the connection was closed"
    )
