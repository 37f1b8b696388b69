import pytest

from effectonce import Guard
from effectonce.stores.memory import MemoryStore
from effectonce.testing.clock import FakeClock
from tests.dead_letters.shop import Shop


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
def shop(guard):
    return Shop(guard)
