"""What a fork does to SQLite files that are open.

SQLite notes in the memory of a process which files its connections have locked. A child inherits
that memory and none of the locks: its own connection to such a file would be content with a lock
that is not there, and the first process to close the file would take its log away from under the
child. No process would see what the child wrote from then on, and its effects would run again.
So nothing is open during a fork; and where something must be, because a tool is using it, the
child is refused.
"""

from __future__ import annotations

import os
import threading
import weakref
from pathlib import Path
from typing import Any

from effectonce.errors import StoreUnavailable
from effectonce.stores.sqlite.connection import SqliteConnection

STORES: weakref.WeakSet[Any] = weakref.WeakSet()  # every SqliteStore of this process
_INHERITED: list[SqliteConnection] = []
_HELD: dict[int, list[Any]] = {}  # by thread: the locks that it holds while it forks


def check(path: Path) -> None:
    """May this process open that file?"""
    if any(inherited.file == path.resolve() for inherited in _INHERITED):
        raise StoreUnavailable(
            f"{path} was in use when this process was forked, and SQLite cannot share it with a"
            " child then. Nothing was sent. Call guard.close() before the fork, fork outside of a"
            " transaction, or start processes with 'spawn'."
        )


def before() -> None:
    """Close what is idle, open nothing until the fork is over. Wait, bounded, for work begun."""
    held = _HELD[threading.get_ident()] = []
    for store in sorted(STORES, key=id):  # in one order: two threads may fork
        wait_s = 2 * store._busy_s  # noqa: SLF001  # this module is a part of that class
        if store._lock._is_owned() or not store._lock.acquire(timeout=wait_s):  # noqa: SLF001
            continue
        held.append(store._lock)  # noqa: SLF001
        if store._opening.acquire(timeout=wait_s):  # noqa: SLF001
            held.append(store._opening)  # noqa: SLF001
            store._close_main()  # noqa: SLF001


def after_in_parent() -> None:
    for lock in _HELD.pop(threading.get_ident(), []):
        lock.release()


def after_in_child() -> None:
    """What is still open is the parent's, and not even closed here: SQLite would tidy up under
    the parent's feet.

    Its place in the queue is given up, though: a lock of the parent's would outlive it as long
    as the child holds its end.
    """
    _HELD.clear()
    for store in STORES:
        for connection in store._connections:  # noqa: SLF001
            connection.leave_queue()
            _INHERITED.append(connection)
        store._start()  # noqa: SLF001


os.register_at_fork(before=before, after_in_parent=after_in_parent, after_in_child=after_in_child)
