import pytest

from effectonce import Guard
from effectonce.stores.memory import MemoryStore
from effectonce.stores.sqlite import SqliteStore
from effectonce.testing.clock import FakeClock
from tests.core.workflows import Ledger
from tests.servers import redis


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def store(clock):
    return MemoryStore(clock=clock)


@pytest.fixture
def guard(store):
    return Guard(store, cache=0)


@pytest.fixture
def ledger():
    """The steps that the workflows of a test have done, in order."""
    return Ledger()


@pytest.fixture(params=["sync", "async"])
def colour(request):
    return request.param


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
def any_store(request, tmp_path, store):
    """Each store, empty."""
    match request.param:
        case "memory":
            return store
        case "sqlite":
            return SqliteStore(tmp_path / "effects.db")
        case "postgres":
            return request.getfixturevalue("database")
        case "redis":
            return redis.emptied(redis.server()).url
