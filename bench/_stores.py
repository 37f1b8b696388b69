"""The contenders of calls.py: guarded tools, and the same writes and reads by hand with the same
driver.

A first call is two durable writes with a 1 kB result between them, a replay is one read of it.
The floor keeps them in a rowid table with a unique key, WAL, synchronous=FULL, over one shared
connection: the cheapest way to do it by hand.
"""

from __future__ import annotations

import itertools
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiosqlite
import orjson

from effectonce import Guard

RESULT: dict[str, Any] = {  # a few fields and a text, as tools answer models
    "id": "re_8f14e45fceea167a",
    "status": "succeeded",
    "amount": 4200,
    "currency": "eur",
    "lines": [{"sku": "SKU-0001", "quantity": 2}, {"sku": "SKU-0007", "quantity": 1}],
    "message": (
        "The amount was refunded to the card that was charged. It may take five to ten days to"
        " appear there. " * 8
    ),
}
STORED = orjson.dumps(RESULT)
HOT = 128  # records that replays choose from

SCHEMA = (
    "CREATE TABLE effects (id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, state INTEGER NOT"
    " NULL, result BLOB)"
)
CLAIM = "INSERT INTO effects (key, state) VALUES (?, 0)"
COMPLETE = "UPDATE effects SET state = 1, result = ? WHERE key = ?"
REPLAY = "SELECT result FROM effects WHERE key = ?"
STEP = "INSERT INTO effects (key, state, result) VALUES (?, 1, ?)"
STEPPED = b"17"  # what a step of a workflow returns
PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA wal_autocheckpoint = 1000",
)


def key_of(number: int) -> bytes:
    return b"%016d" % number


def create(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(SCHEMA)
    db.close()


def connect(path: Path, timeout_s: float = 30.0) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=timeout_s)
    for pragma in PRAGMAS:
        db.execute(pragma)
    return db


def settle(folder: Path, *ops: Callable[[], Any], times: int = 300) -> None:
    """Until SQLite's logs in a folder are written over. While they grow, every fsync costs more:
    a long-lived process does not live so.
    """
    size = -1
    while (now := sum(log.stat().st_size for log in folder.glob("*-wal"))) > size:
        size = now
        for op in ops:
            for _ in range(times):
                op()


class BareDict:
    """The floor of the memory store: a dict and a lock."""

    def __init__(self, _: Path) -> None:
        self._lock, self._records, self._numbers, self._reads = (
            threading.Lock(),
            {},
            itertools.count(),
            itertools.count(),
        )

    def first(self) -> None:
        key = key_of(next(self._numbers))
        with self._lock:
            self._records[key] = None
        with self._lock:
            self._records[key] = STORED

    def replay(self) -> bytes:
        with self._lock:
            return self._records[key_of(next(self._reads) % HOT)]

    def step(self) -> None:
        with self._lock:
            self._records[key_of(next(self._numbers))] = STEPPED

    def close(self) -> None:
        pass


class BareAsyncDict:
    """The same for async code: nothing ever waits."""

    def __init__(self, path: Path) -> None:
        self._bare = BareDict(path)

    async def open(self) -> None:
        pass

    async def first(self) -> None:
        self._bare.first()

    async def replay(self) -> bytes:
        return self._bare.replay()

    async def close(self) -> None:
        pass


class BareSqlite:
    """The floor in sync code: one connection, one lock, autocommit."""

    def __init__(self, path: Path) -> None:
        create(path)
        self._db, self._lock, self._numbers, self._reads = (
            connect(path),
            threading.Lock(),
            itertools.count(),
            itertools.count(),
        )

    def first(self) -> None:
        key = key_of(next(self._numbers))
        with self._lock:
            self._db.execute(CLAIM, (key,))
        with self._lock:
            self._db.execute(COMPLETE, (STORED, key))

    def replay(self) -> bytes:
        with self._lock:
            return self._db.execute(REPLAY, (key_of(next(self._reads) % HOT),)).fetchone()[0]

    def step(self) -> None:
        with self._lock:
            self._db.execute(STEP, (key_of(next(self._numbers)), STEPPED))

    def close(self) -> None:
        self._db.close()


class BareAiosqlite:
    """The floor in async code: one shared aiosqlite connection, autocommit."""

    def __init__(self, path: Path) -> None:
        create(path)
        self._path, self._numbers, self._reads = path, itertools.count(), itertools.count()

    async def open(self) -> None:
        self._db = await aiosqlite.connect(self._path, isolation_level=None)
        for pragma in PRAGMAS:
            await self._db.execute_fetchall(pragma)

    async def first(self) -> None:
        key = key_of(next(self._numbers))
        await self._db.execute_insert(CLAIM, (key,))
        await self._db.execute_insert(COMPLETE, (STORED, key))

    async def replay(self) -> bytes:
        ((stored,),) = await self._db.execute_fetchall(REPLAY, (key_of(next(self._reads) % HOT),))
        return stored

    async def step(self) -> None:
        await self._db.execute_insert(STEP, (key_of(next(self._numbers)), STEPPED))

    async def close(self) -> None:
        await self._db.close()


class Guarded:
    """Ours, in sync code. Each first call is a new step, as in a conversation that goes on."""

    def __init__(self, store: str, cache: int = 0) -> None:
        self.guard = Guard(store, cache=cache)
        self._numbers, self._reads = itertools.count(), itertools.count()

        @self.guard.tool(kind="write", identity=["order_id", "amount"])
        def refund(
            order_id: str, amount: int, currency: str = "eur", note: str = ""
        ) -> dict[str, Any]:
            return RESULT

        self._refund = refund

    def first(self) -> None:
        self._call(next(self._numbers))

    def replay(self) -> dict[str, Any]:
        return self._call(next(self._reads) % HOT)

    def _call(self, number: int | str) -> dict[str, Any]:
        with self.guard.step("conv_42", f"step-{number}"):
            return self._refund(order_id="ord_17", amount=4200, note="arrived broken")

    def close(self) -> None:
        self.guard.close()


class AsyncGuarded:
    """Ours, in async code."""

    def __init__(self, store: str, cache: int = 0) -> None:
        self.guard = Guard(store, cache=cache)
        self._numbers, self._reads = itertools.count(), itertools.count()

        @self.guard.tool(kind="write", identity=["order_id", "amount"])
        async def refund(
            order_id: str, amount: int, currency: str = "eur", note: str = ""
        ) -> dict[str, Any]:
            return RESULT

        self._refund = refund

    async def open(self) -> None:
        pass

    async def first(self) -> None:
        await self._call(next(self._numbers))

    async def replay(self) -> dict[str, Any]:
        return await self._call(next(self._reads) % HOT)

    async def _call(self, number: int) -> dict[str, Any]:
        with self.guard.step("conv_42", f"step-{number}"):
            return await self._refund(order_id="ord_17", amount=4200, note="arrived broken")

    async def close(self) -> None:
        self.guard.close()
