"""Random histories: each store against the reference, and the reference against what a record
may never do.
"""

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from tests.core.examples import two_tiers
from tests.servers import redis

from effectonce import Keyring
from effectonce.stores.encrypted import Sealed
from effectonce.stores.memory import MemoryStore
from effectonce.stores.postgres import PostgresStore
from effectonce.stores.redis import RedisStore
from effectonce.stores.sqlite import SqliteStore
from effectonce.testing.machine import store_machine

KEYRING = Keyring({"2026-11": b"n" * 32})
STORES = {
    "memory": lambda clock, _: MemoryStore(clock=clock),
    "sqlite": lambda clock, path: SqliteStore(path / "effects.db", clock=clock),
    "sealed": lambda clock, path: Sealed(SqliteStore(path / "effects.db", clock=clock), KEYRING),
    "redis": lambda clock, _: RedisStore(redis.emptied(redis.server()).url, clock=clock),
}


def compare(open_store, number):
    """Compare a store with the reference over *number* programs."""
    programs = settings(max_examples=number, stateful_step_count=60, print_blob=True)
    run_state_machine_as_test(store_machine(open_store), settings=programs)


@two_tiers(10, 60)
@pytest.mark.parametrize("store", STORES)
def test_a_store_does_as_the_reference(store, number):
    compare(STORES[store], number)


@two_tiers(10, 60)
def test_postgres_does_as_the_reference(postgres, number):
    compare(lambda clock, _: PostgresStore(postgres.emptied(), clock=clock), number)
