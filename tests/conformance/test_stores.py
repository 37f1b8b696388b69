"""Every store, bare and sealed, both colours, one suite.

The small tier runs each check on every plain store in sync mode, once in async mode, and once on
a sealed store or on a cluster. Checks in which many race run on every plain store in async mode
too: their callers share statements.
"""

import pytest
from tests.servers import redis

from effectonce import Keyring
from effectonce.stores.encrypted import Sealed
from effectonce.stores.memory import MemoryStore
from effectonce.stores.postgres import PostgresStore
from effectonce.stores.redis import RedisStore
from effectonce.stores.sqlite import SqliteStore
from effectonce.testing.conformance import CHECKS, MODES, Bench

RING = Keyring({"2026-11": b"n" * 32})
PLACES = {
    "memory": lambda _: None,
    "sqlite": lambda asked: asked.getfixturevalue("tmp_path") / "effects.db",
    "postgres": lambda asked: asked.getfixturevalue("postgres").emptied(),
    "redis": lambda _: redis.emptied(redis.server()).url,
    "redis cluster": lambda _: redis.emptied(redis.cluster()).url,
}
PLACES |= {f"sealed {name}": PLACES[name] for name in ("memory", "sqlite")}
STORES = {
    "memory": lambda _, clock: MemoryStore(clock=clock),
    "sqlite": lambda path, clock: SqliteStore(path, clock=clock),
    "sealed memory": lambda _, clock: Sealed(MemoryStore(clock=clock), RING),
    "sealed sqlite": lambda path, clock: Sealed(SqliteStore(path, clock=clock), RING),
    "postgres": lambda url, clock: PostgresStore(url, clock=clock),
    "redis": lambda url, clock: RedisStore(url, clock=clock),
    "redis cluster": lambda url, clock: RedisStore(url, clock=clock),
}
PLAIN = ("memory", "sqlite", "postgres", "redis")
LAYERED = ("sealed memory", "sealed sqlite", "redis cluster")


def is_small(check, backend, mode):
    """Tell whether the small tier runs this check on this store in this mode."""
    number = CHECKS.index(check)
    if backend in LAYERED:
        return (backend, mode) == (LAYERED[number % 3], MODES[number // 3 % 2])
    races = check.__name__.startswith("of_many")
    return mode == "sync" or races or backend == PLAIN[number % 4]


def case(check, backend, mode):
    marks = () if is_small(check, backend, mode) else pytest.mark.long
    return pytest.param(check, backend, mode, id=f"{check.__name__}-{backend}-{mode}", marks=marks)


@pytest.mark.parametrize(
    ("check", "backend", "mode"),
    [case(check, backend, mode) for check in CHECKS for backend in STORES for mode in MODES],
)
def test_conformance(check, backend, mode, request):
    place = PLACES[backend](request)
    with Bench(lambda clock: STORES[backend](place, clock), mode) as bench:
        check(bench)


def test_the_suite_is_not_empty():
    assert len(CHECKS) >= 60
