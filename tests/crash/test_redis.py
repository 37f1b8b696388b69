"""Servers that are killed under load and replicas that take over too early; the downstream
counts.
"""

import asyncio
import itertools
import signal
import threading
from collections import Counter

import pytest

from effectonce import (
    ContractViolation,
    GaveUp,
    Guard,
    InDoubt,
    InFlight,
    Retry,
    StoreUnavailable,
    current_effect,
)
from effectonce._core.guarantees import Capability, Kind
from effectonce.stores.redis import RedisStore
from tests.crash.test_kill_at_every_op import check, resume, worlds
from tests.servers import redis
from tests.servers.proxy import Proxy

WORKERS, CALLS, IN_DOUBT = 4, 60, "in doubt"
CASES = [
    (Kind.WRITE, Capability.KEY),
    (Kind.WRITE, Capability.NONE),
    (Kind.IRREVERSIBLE, Capability.PROBE),
    (Kind.IDEMPOTENT_WRITE, Capability.NONE),
]
SMALL = ((Kind.WRITE, Capability.KEY, "sync"), (Kind.IRREVERSIBLE, Capability.PROBE, "async"))


@pytest.mark.parametrize(
    ("kind", "capability", "colour"),
    [
        pytest.param(*case, colour, marks=() if (*case, colour) in SMALL else pytest.mark.long)
        for case in CASES
        for colour in ("sync", "async")
    ],
)
def test_killed_at_every_op_on_redis_the_guarantee_holds(kind, capability, colour, tmp_path):
    runs, numbers = 0, itertools.count()
    server = redis.emptied(redis.server())
    open_ = lambda clock: RedisStore(server.url, clock=clock, prefix=f"world-{next(numbers)}")
    for scenario, world in worlds(tmp_path, kind, capability, colour, open_store=open_):
        check(world, scenario, resume(world))
        runs += 1
    assert runs > 40


class Downstream:
    """Counts what lands. One that honours keys answers the same key with the same receipt."""

    def __init__(self, *, honours_keys):
        self.honours_keys, self.landed, self._seen, self._lock = (
            honours_keys,
            Counter(),
            {},
            threading.Lock(),
        )

    def pay(self, payment):
        with self._lock:
            key = current_effect().downstream_key if self.honours_keys else len(self._seen)
            if key not in self._seen:
                self.landed[payment] += 1
                self._seen[key] = f"receipt {len(self._seen)}"
            return self._seen[key]


@pytest.mark.parametrize("downstream", ["key", "none"])
def test_a_server_that_is_killed_under_load_loses_nothing_it_acknowledged(tmp_path, downstream):
    server, bank = (
        redis.Server(tmp_path / "server", fsync="always"),
        Downstream(honours_keys=downstream == "key"),
    )
    guard = Guard(RedisStore(server.url, timeout_s=2), cache=0)
    told, progress = {}, threading.Semaphore(0)

    def pay(payment: str) -> str:
        return bank.pay(payment)

    async def apay(payment: str) -> str:
        return bank.pay(payment)

    options = {
        "kind": "irreversible",
        "downstream": downstream,
        "lease_s": 1,
        "retry": Retry(attempts=20),
        "wait_s": 60,
    }
    sync_tool, async_tool = guard.tool(**options)(pay), guard.tool(**options)(apay)

    def sync_worker(worker):
        for n in range(CALLS):
            with guard.step(f"sync {worker}", n):
                told[f"sync {worker}/{n}"] = insist(lambda n=n: sync_tool(f"sync {worker}/{n}"))
            progress.release()

    async def async_worker(worker):
        for n in range(CALLS):
            with guard.step(f"async {worker}", n):
                told[f"async {worker}/{n}"] = await ainsist(
                    lambda n=n: async_tool(f"async {worker}/{n}")
                )
            progress.release()

    async def crowd():
        await asyncio.gather(*(async_worker(worker) for worker in range(WORKERS)))

    threads = [threading.Thread(target=sync_worker, args=(worker,)) for worker in range(WORKERS)]
    threads.append(threading.Thread(target=lambda: asyncio.run(crowd())))
    for thread in threads:
        thread.start()
    for _ in range(3):
        for _ in range(CALLS):
            progress.acquire()
        server.stop(signal.SIGKILL)
        server.start()
    for thread in threads:
        thread.join()

    doubted = {payment for payment, receipt in told.items() if receipt is IN_DOUBT}
    assert len(told) == 2 * WORKERS * CALLS
    assert set(bank.landed.values()) == {1}
    assert set(bank.landed) >= set(told) - doubted
    assert not doubted or downstream == "none"
    for n in range(CALLS):
        with guard.step("sync 0", n):
            assert insist(lambda n=n: sync_tool(f"sync 0/{n}")) == told[f"sync 0/{n}"]
    guard.close()
    server.stop()


def insist(call):
    """As an agent does: ask again while the store is away, until there is an outcome, or nobody
    can know it.
    """
    while True:
        try:
            return call()
        except (StoreUnavailable, InFlight, GaveUp):
            continue
        except InDoubt:
            return IN_DOUBT


async def ainsist(call):
    while True:
        try:
            return await call()
        except (StoreUnavailable, InFlight, GaveUp):
            continue
        except InDoubt:
            return IN_DOUBT


def test_after_a_failover_to_a_replica_that_lags_behind_an_effect_with_a_key_still_lands_once(
    tmp_path,
):
    primary = redis.Server(tmp_path / "primary", port=redis.free_port(), repl_diskless_sync_delay=0)
    with Proxy(("127.0.0.1", primary.port)) as link:
        replica = redis.Server(tmp_path / "replica", replicaof=f"127.0.0.1 {link.port}")
        redis.until(lambda: replica.info()["master_link_status"] == "up", "a replica in step")
    bank = Downstream(honours_keys=True)

    def call(server):
        guard = Guard(RedisStore(server.url), cache=0)

        @guard.tool(kind="write", downstream="key")
        def pay(payment: str) -> str:
            return bank.pay(payment)

        for downstream in ("key", "probe", "none"):
            with pytest.raises(ContractViolation, match="can forget"):
                guard.tool(kind="irreversible", downstream=downstream)(lambda: 1)
        with guard.step("chat", "pay"):
            receipt = pay("inv_1")
        guard.close()
        return receipt

    first = call(primary)  # the link is cut: the replica never hears of it
    primary.stop(signal.SIGKILL)
    replica.ask("REPLICAOF", "NO", "ONE")

    assert call(replica) == first
    assert bank.landed == {"inv_1": 1}
    replica.stop()
