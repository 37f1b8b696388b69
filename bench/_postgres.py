"""The contenders of calls.py on PostgreSQL: the raw floor, the usual drivers, and a private
server to meet on.

The floor is libpq itself: two prepared statements by `exec_prepared` for a first call, one for a
replay, on one connection, durable commits. The usual way is a pool of asyncpg, or psycopg.
"""

from __future__ import annotations

import itertools
import sys
import threading
from pathlib import Path

import asyncpg
import psycopg
from _stores import HOT, STEPPED, STORED, key_of

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.servers.postgres import Postgres

__all__ = ["AsyncpgPool", "BareLibpq", "BarePsycopg", "Postgres"]

CLAIM = "INSERT INTO bare (key, state) VALUES ($1, 0)"
COMPLETE = "UPDATE bare SET state = 1, result = $2 WHERE key = $1"
STEP = "INSERT INTO bare (key, state, result) VALUES ($1, 1, $2)"
REPLAY = "SELECT result FROM bare WHERE key = $1"
SCHEMA = (
    "CREATE TABLE IF NOT EXISTS bare (key bytea PRIMARY KEY, state int NOT NULL, result bytea) WITH"
    " (fillfactor = 70)"
)
NUMBERS = itertools.count()


class BareLibpq:
    """The floor: libpq, one connection, one lock."""

    def __init__(self, url: str) -> None:
        self._db = psycopg.connect(url, autocommit=True)
        self._db.execute(SCHEMA)
        self._pg, self._lock = self._db.pgconn, threading.Lock()
        for name, statement in (
            (b"claim", CLAIM),
            (b"complete", COMPLETE),
            (b"replay", REPLAY),
            (b"step", STEP),
        ):
            self._pg.prepare(name, statement.encode())
        self._hot = [self.first() for _ in range(HOT)]
        self._reads = itertools.count()

    def first(self) -> bytes:
        key = key_of(next(NUMBERS))
        with self._lock:
            self._pg.exec_prepared(b"claim", [key], [1], 1)
        with self._lock:
            self._pg.exec_prepared(b"complete", [key, STORED], [1, 1], 1)
        return key

    def replay(self) -> bytes | None:
        with self._lock:
            return self._pg.exec_prepared(
                b"replay", [self._hot[next(self._reads) % HOT]], [1], 1
            ).get_value(0, 0)

    def step(self) -> None:
        with self._lock:
            self._pg.exec_prepared(b"step", [key_of(next(NUMBERS)), STEPPED], [1, 1], 1)

    def close(self) -> None:
        self._db.close()


class BarePsycopg:
    """The usual driver in sync code: one psycopg connection, one lock."""

    def __init__(self, url: str) -> None:
        self._db = psycopg.connect(url, autocommit=True)
        self._db.execute(SCHEMA)
        self._lock, self._reads = threading.Lock(), itertools.count()
        self._hot = [self.first() for _ in range(HOT)]

    def first(self) -> bytes:
        key = key_of(next(NUMBERS))
        with self._lock:
            self._db.execute("INSERT INTO bare (key, state) VALUES (%s, 0)", (key,))
        with self._lock:
            self._db.execute("UPDATE bare SET state = 1, result = %s WHERE key = %s", (STORED, key))
        return key

    def replay(self) -> bytes:
        with self._lock:
            key = self._hot[next(self._reads) % HOT]
            row = self._db.execute("SELECT result FROM bare WHERE key = %s", (key,)).fetchone()
        return row[0]  # type: ignore[index]

    def step(self) -> None:
        with self._lock:
            self._db.execute(
                "INSERT INTO bare (key, state, result) VALUES (%s, 1, %s)",
                (key_of(next(NUMBERS)), STEPPED),
            )

    def close(self) -> None:
        self._db.close()


class AsyncpgPool:
    """The usual way in async code: a pool of ten connections."""

    def __init__(self, url: str) -> None:
        self._url, self._reads = url, itertools.count()
        self._hot: list[bytes] = []

    async def open(self) -> None:
        self._pool = await asyncpg.create_pool(self._url, min_size=10, max_size=10)
        await self._pool.execute(SCHEMA)
        self._hot = [await self.first() for _ in range(HOT)]

    async def first(self) -> bytes:
        key = key_of(next(NUMBERS))
        await self._pool.execute(CLAIM, key)
        await self._pool.execute(COMPLETE, key, STORED)
        return key

    async def replay(self) -> bytes:
        return await self._pool.fetchval(REPLAY, self._hot[next(self._reads) % HOT])

    async def step(self) -> None:
        await self._pool.execute(STEP, key_of(next(NUMBERS)), STEPPED)

    async def close(self) -> None:
        await self._pool.close()
