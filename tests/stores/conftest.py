"""Servers and stores that several files of tests use."""

import pytest

from effectonce.stores.memory import MemoryStore
from effectonce.stores.postgres import PostgresStore
from effectonce.stores.redis import RedisStore
from effectonce.stores.sqlite import SqliteStore
from tests.servers import redis
from tests.servers.proxy import Proxy


@pytest.fixture
def server():
    """An empty Redis server."""
    return redis.emptied(redis.server())


@pytest.fixture
def private(tmp_path):
    """A Redis server that a test may spoil."""
    one = redis.Server(tmp_path / "private")
    yield one
    one.stop()


@pytest.fixture
def proxy(postgres):
    """A proxy in front of the PostgreSQL server."""
    with Proxy(postgres.socket) as proxy:
        yield proxy


@pytest.fixture
def open_store(request, tmp_path):
    """Open the empty store of a kind, with a clock of the test's. The test's end closes it."""
    opened = []

    def opening(kind, clock=None, **options):
        if clock is not None or kind in ("postgres", "redis"):
            options["clock"] = clock
        match kind:
            case "memory":
                store = MemoryStore(**options)
            case "sqlite":
                store = SqliteStore(tmp_path / "effects.db", **options)
            case "postgres":
                store = PostgresStore(request.getfixturevalue("postgres").emptied(), **options)
            case "redis":
                store = RedisStore(redis.emptied(redis.server()).url, **options)
        opened.append(store)
        return store

    yield opening
    for store in opened:
        store.close()
