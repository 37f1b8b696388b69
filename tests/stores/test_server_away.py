"""The server is away at the worst moments, and workers' clocks are wrong: on each store behind a
wire.
"""

import threading
import time

import pytest

from effectonce import Guard, Retry, State, StoreUnavailable
from effectonce._core import ops
from effectonce.stores.postgres import PostgresStore
from effectonce.stores.redis import RedisStore
from effectonce.testing.conformance.bench import LEASE_S, request
from tests.servers import redis
from tests.servers.postgres import Postgres

DAY_S = 86_400.0


class RedisServer:
    def __init__(self, folder):
        self.server = redis.Server(folder / "redis", fsync="always")
        self.start, self.stop = self.server.start, self.server.stop

    def store(self):
        return RedisStore(self.server.url)


class PostgresServer:
    def __init__(self, _):
        self.server = Postgres()
        self.url, self.start, self.stop = (
            self.server.database(),
            self.server.start,
            self.server.kill,
        )

    def store(self):
        return PostgresStore(self.url)


@pytest.fixture(params=[PostgresServer, RedisServer], ids=["postgres", "redis"])
def server(request, tmp_path):
    one = request.param(tmp_path)
    yield one
    one.stop()


class Watching:
    """A store that tells what became of each op, and lets a test act on it."""

    def __init__(self, store, then):
        self.inner, self.then, self.capabilities = store, then, store.capabilities
        self.log = []

    def apply(self, op):
        try:
            reply = self.inner.apply(op)
        except StoreUnavailable:
            self._note(op, "away")
            raise
        self._note(op, "answered")
        return reply

    def _note(self, op, what):
        self.log.append((type(op).__name__, what))
        self.then(self.log)

    async def aapply(self, op):
        raise NotImplementedError

    def close(self):
        self.inner.close()


def test_away_before_the_claim_nothing_is_sent(server):
    store, calls = server.store(), []
    guard = Guard(store, cache=0)

    @guard.tool(kind="write")
    def pay():
        calls.append(1)

    server.stop()
    with guard.step("chat", "pay"):
        with pytest.raises(StoreUnavailable, match="was not run"):
            pay()
        assert calls == []
        server.start()
        pay()
    assert calls == [1]
    store.close()


def test_away_until_the_deadline_the_outcome_is_kept_here_and_settled_later(server, tmp_path):
    store, calls = server.store(), []
    guard = Guard(store, cache=0, spool=tmp_path / "spool")

    @guard.tool(kind="write", retry=Retry(attempts=3, deadline_s=0.2))
    def pay():
        calls.append(1)
        server.stop()
        return "receipt"

    with guard.step("chat", "pay"):
        outcome = guard.call(pay, {})
        assert (outcome.value, outcome.recorded) == ("receipt", False)
        server.start()
        guard.spool.settle()
        again = guard.call(pay, {})
    assert (again.value, again.replayed, calls) == ("receipt", True, [1])
    store.close()


def test_away_while_the_heart_beats_the_lease_is_renewed_when_it_is_back(server):
    beaten = threading.Event()

    def come_back(log):
        beats = [what for name, what in log if name == "Renew"]
        if beats.count("away") == 1 and beats[-1] == "away":
            server.start()
        if "away" in beats and beats[-1] == "answered":
            beaten.set()

    store, calls = Watching(server.store(), come_back), []
    guard = Guard(store, cache=0)

    @guard.tool(kind="write", lease_s=0.6)
    def pay():
        calls.append(1)
        server.stop()
        assert beaten.wait(30)
        return "receipt"

    with guard.step("chat", "pay"):
        assert guard.call(pay, {}).recorded
        assert guard.call(pay, {}).replayed
    assert calls == [1]
    store.close()


@pytest.mark.parametrize("ahead_s", [DAY_S, -DAY_S], ids=["a day ahead", "a day behind"])
def test_a_worker_whose_clock_is_a_day_off_lives_by_the_stores(server, monkeypatch, ahead_s):
    right, wrong, true_time = server.store(), server.store(), time.time
    token = right.apply(ops.Claim(request(), "right", LEASE_S, dispatch=True))
    assert isinstance(token, ops.Held)

    monkeypatch.setattr(time, "time", lambda: true_time() + ahead_s)
    busy = wrong.apply(ops.Claim(request(), "wrong", LEASE_S, dispatch=True))
    assert isinstance(busy, ops.Busy)
    assert 0 < busy.retry_after_s <= LEASE_S
    held = wrong.apply(ops.Claim(request("other"), "wrong", LEASE_S, dispatch=True))
    wrong.apply(ops.Complete("other", "wrong", held.epoch, b"done"))
    monkeypatch.undo()

    known = right.apply(ops.Claim(request("other"), "right", LEASE_S, dispatch=True))
    assert (known.state, known.outcome) == (State.COMPLETED, b"done")
    assert 0 <= known.age_s < 60
    assert isinstance(right.apply(ops.Complete("k", "right", 1, b"done")), ops.Applied)
    right.close()
    wrong.close()
