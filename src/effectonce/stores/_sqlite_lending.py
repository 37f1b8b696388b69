"""A transaction of SQLite that is lent to a tool, in both colours."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable

from effectonce._core.ops import Applied, Complete, Refused
from effectonce._core.transitions import Step
from effectonce.errors import StoreUnavailable
from effectonce.stores._sqlite_file import Connection


class Lent:
    """An open write transaction of one tool."""

    exclusive = True  # it holds the file's only write lock

    def __init__(
        self, held: Connection, change: Callable[[Complete], Step], unavailable: Callable[[BaseException], StoreUnavailable]
    ) -> None:
        self.held, self._change, self._unavailable = held, change, unavailable
        self.connection = held.db

    @property
    def broken(self) -> bool:
        return False  # a file does not hang up

    def complete(self, op: Complete, /) -> Applied | Refused:
        try:
            step = self._change(op)
        except sqlite3.Error as error:
            raise self._unavailable(error) from error
        return Applied(op.epoch) if step.changed else Refused(None if step.before is None else step.before.state)

    def commit(self) -> None:
        try:
            self.held.take_back()
            self.held.commit()
        except sqlite3.Error as error:
            lost = f"{self.held.path}: {error}. COMMIT failed; the record tells whether it was carried out all the same."
            raise StoreUnavailable(lost) from error


class AsyncLent:
    """The same for an async tool. Only COMMIT waits for the disk, so only that leaves the loop."""

    exclusive = True

    def __init__(self, lent: Lent) -> None:
        self._lent, self.connection, self.broken = lent, lent.connection, False

    async def complete(self, op: Complete, /) -> Applied | Refused:
        return self._lent.complete(op)

    async def commit(self) -> None:
        await asyncio.to_thread(self._lent.commit)


class Handover:
    """A transaction that is begun in a thread for a caller who may be gone when it is. Somebody has to end it, exactly once."""

    def __init__(self, begin: Callable[[], Lent], end: Callable[[Lent], None]) -> None:
        self._begin, self._end, self._lock = begin, end, threading.Lock()
        self._abandoned, self._begun = False, list[Lent]()

    def begin(self) -> Lent:
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
