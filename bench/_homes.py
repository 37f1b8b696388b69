"""Where the stores of scale.py live: a file, a private PostgreSQL, private Redis servers. Each
gives out empty stores and weighs them.
"""

from __future__ import annotations

import itertools
import sqlite3
import sys
from pathlib import Path
from typing import Any, Protocol, Self

import psycopg

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.servers.postgres import Postgres
from tests.servers.redis import Server

from effectonce import Guard
from effectonce.stores.base import Store
from effectonce.stores.postgres import PostgresStore


class Home(Protocol):
    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def new(self) -> str:
        """The URL of a store with its tables and no records."""

    def weigh(self, url: str) -> int:
        """How many bytes a store takes, indexes and all."""


def _opened(url: str, store: Store | None = None) -> str:
    guard = Guard(store or url)
    guard.find("")
    guard.close()
    return url


class SqliteHome:
    def __init__(self, folder: Path) -> None:
        self._folder, self._names = folder, itertools.count()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for path in self._folder.glob("scale-*"):
            path.unlink()

    def new(self) -> str:
        return _opened(f"sqlite:///{self._folder}/scale-{next(self._names)}.db")

    def weigh(self, url: str) -> int:
        db = sqlite3.connect(url.removeprefix("sqlite:///"))
        ((pages,),), ((size,),) = (
            db.execute(f"PRAGMA {name}").fetchall() for name in ("page_count", "page_size")
        )
        db.close()
        return int(pages * size)


class PostgresHome:
    """One server that has room for everything, a database for each store."""

    def __init__(self, folder: Path) -> None:
        self._server = Postgres(
            under=folder.parent, shared_buffers="2GB", max_wal_size="8GB", checkpoint_timeout="1h"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.__exit__()

    def new(self) -> str:
        url = self._server.database()
        # not measured: a machine that is held up for some seconds spoils nothing here
        return _opened(url, PostgresStore(url, timeout_s=60.0))

    def weigh(self, url: str) -> int:
        with psycopg.connect(url, autocommit=True) as db:
            db.execute("VACUUM effectonce.effects")
            row: Any = db.execute("SELECT pg_total_relation_size('effectonce.effects')").fetchone()
        return int(row[0])


class RedisHome:
    """A server without a disk for each store: two stores on one would share its table of keys,
    and neither be small.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._servers = folder, dict[str, Server]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers.values():
            server.stop()

    def new(self) -> str:
        server = Server(self._folder / f"redis-{len(self._servers)}")
        self._servers[server.url] = server
        return _opened(server.url)

    def weigh(self, url: str) -> int:
        return int(self._servers[url].info()["used_memory"])


HOMES: dict[str, type[SqliteHome | PostgresHome | RedisHome]] = {
    "sqlite": SqliteHome,
    "postgres": PostgresHome,
    "redis": RedisHome,
}
