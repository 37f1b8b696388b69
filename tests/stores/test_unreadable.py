"""Records that this release cannot read: a newer one wrote them, or somebody else did. They are
left alone, and keep nobody up.
"""

import asyncio
import sqlite3

import pytest

from effectonce import Guard, Swept
from effectonce._core import ops
from effectonce._core.effect_ref import reference_of
from effectonce.stores.postgres import PostgresStore
from effectonce.stores.redis import RedisStore
from effectonce.stores.sqlite import SqliteStore
from effectonce.testing.clock import FakeClock
from effectonce.testing.conformance.bench import WINDOW_S, request
from tests.servers import redis

UNREAD, READ = [f"a{n}" for n in range(5)], [f"b{n}" for n in range(7)]


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def due(request, tmp_path):
    """A store with twelve records that are due. Five of them, more than a batch, came first and
    cannot be read.
    """
    clock = FakeClock()
    match request.param:
        case "sqlite":
            store = SqliteStore(tmp_path / "effects.db", clock=clock)
        case "postgres":
            url = request.getfixturevalue("postgres").emptied()
            store = PostgresStore(url, clock=clock)
        case _:
            server = redis.emptied(redis.server())
            store = RedisStore(server.url, clock=clock)
    for key in (*UNREAD, *READ):
        complete(store, key)
        clock.advance(1)
    spoilt = "SET terms = replace(terms, '\"write\"', '\"wrote\"') WHERE key LIKE 'a%'"
    match request.param:
        case "sqlite":
            with sqlite3.connect(tmp_path / "effects.db") as somebody:
                somebody.execute(f"UPDATE effects {spoilt}")
            somebody.close()
        case "postgres":
            request.getfixturevalue("postgres").execute(f"UPDATE effectonce.effects {spoilt}", url)
        case _:
            for name in [name for name in server.ask("KEYS", "*") if b":r:a" in name]:
                server.ask("SET", name, server.ask("GET", name).replace(b"write", b"wrote"))
    clock.advance(WINDOW_S)
    yield store
    store.close()


def complete(store, key):
    store.apply(ops.Claim(request(key), f"of {key}", 30.0, dispatch=True))
    store.apply(ops.Complete(key, f"of {key}", 1, b"done"))


def test_they_keep_no_other_from_being_swept_and_are_told_once(due, caplog):
    sweeper = Guard(due).sweeper(batch=2, pause_s=0)

    first, second = sweeper.round(), sweeper.round()

    assert first == Swept(0, len(READ), 0, unreadable=first.unreadable)
    assert (
        sorted(first.unreadable)
        == sorted(second.unreadable)
        == [reference_of(key) for key in UNREAD]
    )
    assert sweeper.swept.total == len(READ)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "5 records are due and left as they are" in caplog.text
    assert [due.apply(ops.Find(key)).state for key in READ] == ["tombstone"] * len(READ)


def test_an_async_sweep_goes_on_as_well(due):
    async def sweep():
        return [await due.aapply(ops.Sweep(4)) for _ in range(2)]

    first, second = asyncio.run(sweep())

    assert (first.buried, second.buried) == (4, 3)
    assert len(second.unreadable) == len(UNREAD)


def test_who_examines_the_store_is_told_what_to_do(due):
    finding = next(finding for finding in Guard(due).health().findings if finding.subject == "due")

    assert finding.found == "12 records"
    assert finding.advice.startswith(
        f"5 of them cannot be read by this release, such as {reference_of('a0')[:4]}"
    )
