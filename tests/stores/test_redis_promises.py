"""A server that is set up anew while we are connected to it is held to what it promised."""

import asyncio

import pytest

from effectonce import Guard, Retry, StoreUnavailable
from effectonce.stores.redis import RedisStore, connection
from tests.servers import redis
from tests.stores.helpers import aguarded, guarded

QUICK = Retry(attempts=3, deadline_s=0.1)
EVICTS, FORGETS = ("maxmemory-policy", "allkeys-lru"), ("appendonly", "no")


@pytest.fixture
def server(tmp_path):
    """A durable server that a test may spoil."""
    one = redis.Server(tmp_path / "private", fsync="always")
    yield one
    one.stop()


@pytest.fixture
def store(server):
    store = RedisStore(server.url)
    yield store
    store.close()


@pytest.fixture(params=["sync", "async"])
def calling(request, store):
    """A caller of an irreversible tool, sync or async, and what the tool did."""
    calls, loop = [], asyncio.new_event_loop()
    guard, call = (guarded if request.param == "sync" else aguarded)(
        store, calls, kind="irreversible", retry=QUICK
    )
    yield (
        guard,
        call if request.param == "sync" else (lambda *args: loop.run_until_complete(call(*args))),
        calls,
    )
    store.close()
    loop.close()


def later(monkeypatch):
    """So much time has passed that the server is asked again."""
    monkeypatch.setattr(connection, "FACTS_S", -1.0)


@pytest.mark.parametrize(
    ("setting", "said"),
    [(EVICTS, "would drop records"), (FORGETS, "can forget what it acknowledged")],
)
def test_a_server_that_stops_keeping_its_promise_is_refused_before_anything_is_sent(
    server, calling, monkeypatch, setting, said
):
    _, call, calls = calling
    call("before")
    server.ask("CONFIG", "SET", *setting)
    later(monkeypatch)

    with pytest.raises(StoreUnavailable, match=said):
        call("after")

    assert calls == ["before"]


def test_a_server_that_is_put_right_is_used_again(server, calling, monkeypatch):
    _, call, calls = calling
    call("before")
    later(monkeypatch)
    server.ask("CONFIG", "SET", *EVICTS)
    with pytest.raises(StoreUnavailable):
        call("after")

    server.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")

    assert call("after") == {"receipt": 2}
    assert call("before") == {"receipt": 1}


def test_nothing_is_asked_again_from_call_to_call(server, calling):
    _, call, _ = calling
    call("before")
    asked = server.info()["total_commands_processed"]
    call("again")
    processed = int(server.info()["total_commands_processed"]) - int(asked)

    server.ask("CONFIG", "SET", *EVICTS)

    assert call("after") == {"receipt": 3}
    assert processed < 20


@pytest.mark.parametrize(
    ("setting", "said"),
    [(EVICTS, "would drop records"), (FORGETS, "can forget what it acknowledged")],
)
def test_health_and_declarations_look_at_the_server_as_it_is_now(server, store, setting, said):
    calls = []
    guard, call = guarded(store, calls, kind="irreversible", retry=QUICK)
    call()
    assert guard.health().ok
    server.ask("CONFIG", "SET", *setting)

    health = guard.health()
    assert not health.ok
    assert said in health.error
    with pytest.raises(StoreUnavailable, match=said):
        Guard(store).tool(kind="irreversible")(lambda invoice: invoice)


def test_a_server_that_comes_back_with_another_configuration_is_refused(tmp_path, store, server):
    calls = []
    _, call = guarded(store, calls, kind="irreversible", retry=QUICK)
    call()
    server.ask("CONFIG", "SET", *FORGETS)
    server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    with pytest.raises(StoreUnavailable, match="can forget what it acknowledged"):
        call("after")
    assert calls == ["inv_1"]
