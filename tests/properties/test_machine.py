"""Random histories: each store against the reference, and the reference against what a record
may never do.
"""

import pytest
from hypothesis import HealthCheck, settings
from tests.servers import redis

from effectonce import Keyring
from effectonce.stores.encrypted import Sealed
from effectonce.stores.memory import MemoryStore
from effectonce.stores.postgres import PostgresStore
from effectonce.stores.redis import RedisStore
from effectonce.stores.sqlite import SqliteStore
from effectonce.testing.machine import store_machine

PROGRAMS = settings(
    max_examples=60,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)

TestSqlite = store_machine(
    lambda clock, path: SqliteStore(path / "effects.db", clock=clock)
).TestCase
TestSqlite.settings = PROGRAMS

TestSealed = store_machine(
    lambda clock, path: Sealed(
        SqliteStore(path / "effects.db", clock=clock), Keyring({"2026-11": b"n" * 32})
    )
).TestCase
TestSealed.settings = PROGRAMS

TestMemory = store_machine(lambda clock, _: MemoryStore(clock=clock)).TestCase
TestMemory.settings = PROGRAMS

TestRedis = store_machine(
    lambda clock, _: RedisStore(redis.emptied(redis.server()).url, clock=clock)
).TestCase
TestRedis.settings = PROGRAMS

SERVER = []
TestPostgres = store_machine(
    lambda clock, _: PostgresStore(SERVER[0].emptied(), clock=clock)
).TestCase
TestPostgres.settings = PROGRAMS
pytest.mark.usefixtures("the_server")(TestPostgres)


@pytest.fixture(scope="module")
def the_server(postgres):
    """Hypothesis makes its own instances, so they find the server here."""
    SERVER[:] = [postgres]
