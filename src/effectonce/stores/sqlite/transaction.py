"""A transaction of SQLite that is lent to a tool, for sync and async tools.

The tool gets a connection that is opened for it alone and closed when it returns, so nothing
that it does to the connection outlives its call. What would end the transaction is refused on
the spot: by the methods of Python, and in SQL by an authorizer. SQLite itself may end a
transaction (`INSERT OR ROLLBACK`, a full disk); from then on the authorizer refuses everything,
and what Python would begin, too: it would be committed without its record.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from effectonce._core.ops import Applied, Complete, Refused
from effectonce._core.transitions import TransitionResult
from effectonce.errors import ContractViolation, StoreUnavailable
from effectonce.stores.sqlite.connection import SqliteConnection


class ToolConnection(sqlite3.Connection):
    """An ordinary connection, but for the end of its transaction."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise ContractViolation(
            "this transaction is not the tool's to end: its record is written in the same COMMIT,"
            " after the tool returns. Raise an error to roll back; use a SAVEPOINT for a part that"
            " may fail."
        )

    commit = rollback = close = executescript = set_authorizer = deserialize = _refuse

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> Any:
        if error is None:
            self._refuse()
        return False  # the error rolls everything back, once it has left the tool


class SqliteTransaction(SqliteConnection):
    """A connection of one tool, for one transaction."""

    def __init__(self, path: Path, busy_s: float) -> None:
        super().__init__(path, busy_s, ToolConnection, "IMMEDIATE")
        self._ours = False

    def begin(self) -> None:
        super().begin()
        sqlite3.Connection.set_authorizer(self.db, self._authorize)

    def _authorize(self, action: int, *_: Any) -> int:
        allowed = self._ours if action == sqlite3.SQLITE_TRANSACTION else self.db.in_transaction
        return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY

    def take_back(self) -> None:
        """The tool has returned. Whatever it set up is not meant for our statements."""
        db = self.db
        if not db.in_transaction:
            raise ContractViolation(
                "the transaction that was lent to the tool ended before the tool did (INSERT OR"
                " ROLLBACK, RAISE(ROLLBACK), a full disk). Nothing of it stays. Let the database"
                " error out of the tool: an error rolls back."
            )
        db.row_factory, db.text_factory = None, str
        db.set_trace_callback(None)
        db.set_progress_handler(None, 0)

    def commit(self) -> None:
        self._ours = True
        super().commit()

    def end(self) -> None:
        """Roll back what is not committed, and close it: a tool that kept it finds it closed."""
        self._ours = True
        # the tool closed it, and what is open ends with it
        with contextlib.suppress(sqlite3.Error):
            self.db.set_progress_handler(None, 0)  # the tool's own would stop this, too
            if self.db.in_transaction:
                # not by closing alone: a cursor that was kept would hold the lock
                self.db.execute("ROLLBACK")
        self.close()


class ToolTransaction:
    """An open write transaction of one tool."""

    exclusive = True  # it holds the file's only write lock

    def __init__(
        self,
        held: SqliteTransaction,
        change: Callable[[Complete], TransitionResult],
        unavailable: Callable[[BaseException], StoreUnavailable],
    ) -> None:
        self.held, self._change, self._unavailable = held, change, unavailable
        self.connection = held.db

    @property
    def broken(self) -> bool:
        return False  # a file does not hang up

    def complete(self, op: Complete, /) -> Applied | Refused:
        try:
            self.held.take_back()
            step = self._change(op)
        except sqlite3.Error as error:
            raise self._unavailable(error) from error
        return (
            Applied(op.epoch)
            if step.changed
            else Refused(None if step.before is None else step.before.state)
        )

    def commit(self) -> None:
        try:
            self.held.commit()
        except sqlite3.Error as error:
            lost = (
                f"{self.held.path}: {error}. COMMIT failed; the record shows whether it was carried"
                " out anyway."
            )
            raise StoreUnavailable(lost) from error


class AsyncLent:
    """The same for an async tool. Only COMMIT waits for the disk, so only that leaves the loop."""

    exclusive = True

    def __init__(self, lent: ToolTransaction) -> None:
        self._lent, self.connection, self.broken = lent, lent.connection, False

    async def complete(self, op: Complete, /) -> Applied | Refused:
        return self._lent.complete(op)

    async def commit(self) -> None:
        await asyncio.to_thread(self._lent.commit)


class Handover:
    """A transaction begun in a thread; its caller may be gone by then. It must end exactly once."""

    def __init__(
        self, begin: Callable[[], ToolTransaction], end: Callable[[ToolTransaction], None]
    ) -> None:
        self._begin, self._end, self._lock = begin, end, threading.Lock()
        self._abandoned, self._begun = False, list[ToolTransaction]()

    def begin(self) -> ToolTransaction:
        lent = self._begin()
        with self._lock:
            self._begun.append(lent)
            if self._abandoned:
                self._end(self._begun.pop())
        return lent

    def abandon(self) -> None:
        """The caller is gone. If the thread is not through yet, it ends what it begins."""
        with self._lock:
            self._abandoned = True
            for lent in self._begun:
                self._end(lent)
