"""The contenders of peers.py: the same work through packages that people use for this today.

Each takes a 1 kB result from the same function under a key of its own; a replay asks for one of
the `HOT` first keys again. Every package is set up as its documentation says, with its local
cache off: what is compared is the store behind it. A package that is async meets ours in tasks,
one that is not meets it in threads.

Run as a program, it lets one of them and ours take turns, and prints the medians: each peer has
a process of its own, because DBOS is one for the whole process, and because a peer that hangs
can then be ended.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import os
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import redis
import redis.asyncio
from _paired import by_tasks, by_threads, take_turns
from _peers_kit import AsyncPeer, SyncPeer
from _peers_of_agents import Airlock, Call4Agents, CtrlRun
from _stores import HOT, RESULT, AsyncGuarded, Guarded

CALLERS = (1, 16, 64)


class IdemkitRedis(AsyncPeer):
    async def open(self) -> None:
        # each process imports the peer that it runs
        from idemkit import MethodConfig, RedisBackend, idempotent  # noqa: PLC0415

        self._client = redis.asyncio.Redis.from_url(self.url, max_connections=128)

        @idempotent(
            backend=RedisBackend(self._client), config=MethodConfig(key_fields=["order_id"])
        )
        async def refund(order_id: str, amount: int) -> dict[str, Any]:
            return self.keys.result()

        self.call = refund


class IdemkitPostgres(AsyncPeer):
    async def open(self) -> None:
        from idemkit import MethodConfig, PostgresBackend, idempotent  # noqa: PLC0415
        from idemkit.backends.postgres import init_pg  # noqa: PLC0415

        await init_pg(self.url)
        self._backend = PostgresBackend.from_url(self.url)

        @idempotent(backend=self._backend, config=MethodConfig(key_fields=["order_id"]))
        async def refund(order_id: str, amount: int) -> dict[str, Any]:
            return self.keys.result()

        self.call = refund


class Powertools(SyncPeer):
    def open(self) -> None:
        from aws_lambda_powertools.utilities.idempotency import (  # noqa: PLC0415
            IdempotencyConfig,
            idempotent_function,
        )  # noqa: PLC0415, RUF100
        from aws_lambda_powertools.utilities.idempotency.persistence.redis import (  # noqa: PLC0415
            RedisCachePersistenceLayer,
        )  # noqa: PLC0415, RUF100

        self._client = redis.Redis.from_url(self.url)
        layer = RedisCachePersistenceLayer(client=self._client)
        config = IdempotencyConfig(use_local_cache=False)

        @idempotent_function(
            data_keyword_argument="order_id", persistence_store=layer, config=config
        )
        def refund(order_id: str, amount: int) -> dict[str, Any]:
            return self.keys.result()

        self.call = refund


class Dbos(SyncPeer):
    """One step in one workflow: what DBOS does to make one call happen once. Asking for the same
    workflow again is the replay.
    """

    def open(self) -> None:
        from dbos import DBOS, SetWorkflowID  # noqa: PLC0415

        logging.getLogger("dbos").setLevel(logging.ERROR)
        DBOS(
            config={
                "name": "bench",
                "system_database_url": self.url,
                "run_admin_server": False,
                "log_level": "ERROR",
            }
        )

        @DBOS.step()
        def refund(order_id: str, amount: int) -> dict[str, Any]:
            return self.keys.result()

        @DBOS.workflow()
        def workflow(order_id: str, amount: int) -> dict[str, Any]:
            return refund(order_id, amount)

        def call(order_id: str, amount: int) -> dict[str, Any]:
            with SetWorkflowID(order_id):
                return workflow(order_id, amount)

        DBOS.launch()
        self.call = call


PEERS: dict[str, Callable[[str], Any]] = {
    "idemkit-redis": IdemkitRedis,
    "idemkit-postgres": IdemkitPostgres,
    "powertools-redis": Powertools,
    "dbos-sqlite": Dbos,
    "dbos-postgres": Dbos,
    "ctrlrun-sqlite": CtrlRun,
    "ctrlrun-postgres": CtrlRun,
    "call4agents-sqlite": Call4Agents,
    "call4agents-postgres": Call4Agents,
    "airlock-sqlite": Airlock,
    "airlock-postgres": Airlock,
}


# ---------------------------------------------------------------- side by side


def contenders(turn: Callable[..., Any], peer: Any, ours: Any) -> dict[str, Any]:
    return {
        f"{who} {what}": turn(getattr(each, what))
        for who, each in (("peer", peer), ("ours", ours))
        for what in ("first", "replay")
    }


def checked(peer: Any, replayed: Any) -> None:
    """It replays what it should, and what is replayed does not run."""
    if replayed != RESULT or peer.keys.ran != HOT:
        raise SystemExit(
            f"{type(peer).__name__}: the tool ran {peer.keys.ran} times for {HOT} calls, and"
            f" answered {replayed!r:.80}"
        )


def in_threads(peer: SyncPeer, ours: Guarded, slices: int, ops: int) -> dict[str, float]:
    peer.open()  # type: ignore[attr-defined]
    for _ in range(HOT):
        peer.first(), ours.first()
    checked(peer, peer.replay())
    medians = {}
    with ThreadPoolExecutor(max(CALLERS)) as pool:
        for callers in CALLERS:
            turn = functools.partial(
                by_threads, pool, callers, ops=5 * ops if callers == 1 else ops
            )
            medians |= {
                f"{name} x{callers}": s
                for name, s in take_turns(contenders(turn, peer, ours), slices).items()
            }
    return medians


def in_tasks(peer: AsyncPeer, ours: AsyncGuarded, slices: int, ops: int) -> dict[str, float]:
    medians = {}
    with asyncio.Runner() as runner:
        runner.run(peer.open())  # type: ignore[attr-defined]
        for _ in range(HOT):
            runner.run(peer.first())
            runner.run(ours.first())
        checked(peer, runner.run(peer.replay()))
        for callers in CALLERS:
            turn = functools.partial(
                by_tasks, runner, callers, ops=5 * ops if callers == 1 else ops
            )
            medians |= {
                f"{name} x{callers}": s
                for name, s in take_turns(contenders(turn, peer, ours), slices).items()
            }
    return medians


def main() -> None:
    name, url, our_url, *counts = sys.argv[1:]
    slices, ops = map(int, counts)
    warnings.simplefilter("ignore")
    peer = PEERS[name](url)
    if isinstance(peer, AsyncPeer):
        medians = in_tasks(peer, AsyncGuarded(our_url), slices, ops)
    else:
        medians = in_threads(peer, Guarded(our_url), slices, ops)
    print(json.dumps(medians), flush=True)
    os._exit(0)  # the figures are out; how a peer shuts down is not measured


if __name__ == "__main__":
    main()
