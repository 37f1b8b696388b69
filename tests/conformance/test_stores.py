"""Every store, bare and sealed, both colours, one suite."""

import pytest
from tests.servers import redis

from effectonce import Keyring
from effectonce.stores._sealed import Sealed
from effectonce.stores.memory import MemoryStore
from effectonce.stores.postgres import PostgresStore
from effectonce.stores.redis import RedisStore
from effectonce.stores.sqlite import SqliteStore
from effectonce.testing.conformance import CHECKS, COLOURS, Bench

RING = Keyring({"2026-11": b"n" * 32})
OPENERS = {
    "memory": lambda _, clock: MemoryStore(clock=clock),
    "sqlite": lambda asked, clock: SqliteStore(asked.getfixturevalue("tmp_path") / "effects.db", clock=clock),
    "sealed memory": lambda _, clock: Sealed(MemoryStore(clock=clock), RING),
    "sealed sqlite": lambda asked, clock: Sealed(
        SqliteStore(asked.getfixturevalue("tmp_path") / "effects.db", clock=clock), RING
    ),
    "postgres": lambda asked, clock: PostgresStore(asked.getfixturevalue("postgres").emptied(), clock=clock),
    "redis": lambda _, clock: RedisStore(redis.emptied(redis.server()).url, clock=clock),
    "redis cluster": lambda _, clock: RedisStore(redis.emptied(redis.cluster()).url, clock=clock),
}


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("backend", OPENERS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_conformance(check, backend, colour, request):
    with Bench(lambda clock: OPENERS[backend](request, clock), colour) as bench:
        check(bench)


def test_the_suite_is_not_empty():
    assert len(CHECKS) >= 60
