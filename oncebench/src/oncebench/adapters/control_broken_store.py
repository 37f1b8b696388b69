"""Control: a small library that is right, with one bug of its store, by name. Each bug must be
found, or the run is void.
"""

from __future__ import annotations

import functools
import json
import sqlite3
import time
import uuid
from collections.abc import Callable
from contextlib import closing
from typing import Any

from oncebench.kit import Says, Setup, ToolFault

NAME = "broken store"
KIND = "control"
REQUIRES: tuple[str, ...] = ()
README = "what a store must not do"
LACKS = {
    "asks": "it asks no service",
    "conflict": "it does not compare arguments",
}
TABLE = """
CREATE TABLE IF NOT EXISTS records (
    key TEXT PRIMARY KEY, owner TEXT, lease_until REAL, result TEXT
)
"""


class MayHaveHappened(Exception):
    pass


class InFlight(Exception):
    pass


class Store:
    """A record is claimed by one owner; when it is done it has a result."""

    def __init__(self, setup: Setup) -> None:
        self._path, self._lease_s, self._bug = setup.folder / "once.db", setup.lease_s, setup.bug
        self._may_repeat = setup.temperament == "keys"
        with closing(self._open()) as file:
            file.execute(TABLE)

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=30, isolation_level=None)

    def claim(self, key: str, owner: str) -> str | None:
        """Its result, as JSON; None where the owner is to do it."""
        with closing(self._open()) as file:
            if self._bug != "the claim is not atomic":
                file.execute("BEGIN IMMEDIATE")
            query = "SELECT lease_until, result FROM records WHERE key = ?"
            found = file.execute(query, (key,)).fetchone()
            if self._bug == "the claim is not atomic":
                time.sleep(0.3)  # the gap is wide: what is to be seen is not how narrow it can be
            if found is not None:
                lease_until, result = found
                if result is not None:
                    return str(result)
                if lease_until > time.time() and self._bug != "the lease is ignored":
                    raise InFlight(key)
                sent = not self._may_repeat and lease_until <= time.time()
                if sent and self._bug != "what may have been sent is sent again":
                    raise MayHaveHappened(key)
            early = "null" if self._bug == "it is noted before it is done" else None
            row = (key, owner, time.time() + self._lease_s, early)
            file.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?)", row)
            if file.in_transaction:
                file.execute("COMMIT")
        return None

    def finish(self, key: str, owner: str, result: str) -> None:
        if self._bug == "the record is forgotten when it is done":
            self.release(key, owner)
        with closing(self._open()) as file:
            kept = "null" if self._bug == "the result is not kept" else result
            update = "UPDATE records SET result = ? WHERE key = ? AND owner = ?"
            file.execute(update, (kept, key, owner))

    def release(self, key: str, owner: str) -> None:
        if self._bug == "a claim is never released":
            return
        with closing(self._open()) as file:
            file.execute("DELETE FROM records WHERE key = ? AND owner = ?", (key, owner))


def open(setup: Setup) -> Callable[..., Any]:
    store = Store(setup)
    current: list[str] = [""]
    setup.key = lambda: current[0]

    def protect(tool: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(tool)
        def call(order: str, amount: Any, note: str = "") -> Any:
            current[0], owner = f"{tool.__module__} {order}", uuid.uuid4().hex
            known = store.claim(current[0], owner)
            if known is not None:
                return json.loads(known)
            try:
                result = tool(order, amount, note)
            except Exception as error:
                no = isinstance(error, ToolFault) or setup.bug == "any error is taken for a no"
                if no:
                    store.release(current[0], owner)
                raise
            store.finish(current[0], owner, json.dumps(result, default=repr))
            return result

        return call

    return protect


def said(error: Exception) -> Says:
    match error:
        case MayHaveHappened():
            return "unknown"
        case InFlight():
            return "busy"
        case _:
            return "raised"
