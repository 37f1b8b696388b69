"""Redis: guarded calls beside the same two writes, or the same read, by a raw socket and by
redis-py.

The server has no append-only file, so that what is measured is the client. Round trips are
counted by the server itself.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import socket
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import hiredis
import redis
import redis.asyncio
from _paired import Goal, Row, ratio, speedup, take_turns
from _stores import HOT, STEPPED, STORED, AsyncGuarded, Guarded, key_of

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.servers.redis import Server, free_port

GOALS = {
    ("sync", 1, "first", "a raw socket"): Goal("<=", 1.7),
    ("sync", 1, "replay", "a raw socket"): Goal("<=", 2.4),
    ("sync", 1, "first", "redis-py"): Goal("<=", 0.7),
    ("sync", 1, "replay", "redis-py"): Goal("<=", 0.9),
}
FASTER = {
    ("async", 64, "first", "redis-py"): Goal(">=", 4.0),
    ("async", 64, "replay", "redis-py"): Goal(">=", 2.5),
}


class Raw:
    """The floor: a socket, hiredis, and nothing else."""

    def __init__(self, server: Server) -> None:
        self._socket = socket.create_connection(("127.0.0.1", server.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader, self._numbers, self._reads = (
            hiredis.Reader(),
            itertools.count(),
            itertools.count(),
        )

    def first(self) -> None:
        key = b"raw:" + key_of(next(self._numbers))
        self._ask("SET", key, b"claimed", "NX")
        self._ask("SET", key, STORED, "XX")

    def replay(self) -> Any:
        return self._ask("GET", b"raw:" + key_of(next(self._reads) % HOT))

    def step(self) -> None:
        self._ask("SET", b"raw:" + key_of(next(self._numbers)), STEPPED)

    def _ask(self, *words: str | bytes) -> Any:
        self._socket.sendall(hiredis.pack_command(words))  # type: ignore[arg-type]
        while (reply := self._reader.gets()) is False:
            self._reader.feed(self._socket.recv(65536))
        return reply

    def close(self) -> None:
        self._socket.close()


class Usual:
    """The usual driver, in sync code."""

    def __init__(self, server: Server) -> None:
        self._redis, self._numbers, self._reads = (
            redis.Redis(port=server.port),
            itertools.count(),
            itertools.count(),
        )

    def first(self) -> None:
        key = b"py:" + key_of(next(self._numbers))
        self._redis.set(key, b"claimed", nx=True)
        self._redis.set(key, STORED, xx=True)

    def replay(self) -> Any:
        return self._redis.get(b"py:" + key_of(next(self._reads) % HOT))

    def step(self) -> None:
        self._redis.set(b"py:" + key_of(next(self._numbers)), STEPPED)

    def close(self) -> None:
        self._redis.close()


class AsyncUsual:
    """The usual driver, in async code."""

    def __init__(self, server: Server) -> None:
        self._port, self._numbers, self._reads = server.port, itertools.count(), itertools.count()

    async def open(self) -> None:
        self._redis = redis.asyncio.Redis(port=self._port)

    async def first(self) -> None:
        key = b"apy:" + key_of(next(self._numbers))
        await self._redis.set(key, b"claimed", nx=True)
        await self._redis.set(key, STORED, xx=True)

    async def replay(self) -> Any:
        return await self._redis.get(b"apy:" + key_of(next(self._reads) % HOT))

    async def step(self) -> None:
        await self._redis.set(b"apy:" + key_of(next(self._numbers)), STEPPED)

    async def close(self) -> None:
        await self._redis.aclose()


def redis_rows(
    folder: Path,
    slices: int,
    callers: tuple[int, ...],
    by_threads: Callable[..., Any],
    by_tasks: Callable[..., Any],
) -> list[Row]:
    server = Server(folder / "redis", port=free_port())
    try:
        rows = round_trips(server)
        rows += sync_rows(server, slices, callers, by_threads)
        rows += async_rows(server, slices, callers, by_tasks)
    finally:
        server.stop()
    return rows


def round_trips(server: Server) -> list[Row]:
    ours, admin, counts = Guarded(server.url), redis.Redis(port=server.port), []
    ours.first()
    for op in (ours.first, ours.replay):
        # how often the server had something to read
        before = admin.info("stats")["total_reads_processed"]
        for _ in range(10):
            op()
        counts.append((admin.info("stats")["total_reads_processed"] - before - 1) / 10)
    ours.close()
    admin.close()
    return [
        Row("redis round trips of a first call", counts[0], 2, "", counts[0], "", Goal("==", 2)),
        Row("redis round trips of a replay", counts[1], 1, "", counts[1], "", Goal("==", 1)),
    ]


def sync_rows(
    server: Server, slices: int, callers: tuple[int, ...], by_threads: Callable[..., Any]
) -> list[Row]:
    raw, usual, ours = Raw(server), Usual(server), Guarded(server.url)
    for _ in range(HOT):
        raw.first(), usual.first(), ours.first()
    rows = []
    with ThreadPoolExecutor(max(callers)) as pool:
        for crowd in callers:
            turn = functools.partial(by_threads, pool, crowd, ops=25 if crowd == 1 else 4)
            floors = {"redis-py": usual} | ({"a raw socket": raw} if crowd == 1 else {})
            contenders = {("ours", what): turn(getattr(ours, what)) for what in ("first", "replay")}
            contenders |= {
                (name, what): turn(getattr(f, what))
                for name, f in floors.items()
                for what in ("first", "replay")
            }
            rows += rows_of("sync", crowd, floors, take_turns(contenders, slices))
    for each in (raw, usual, ours):
        each.close()
    return rows


def async_rows(
    server: Server, slices: int, callers: tuple[int, ...], by_tasks: Callable[..., Any]
) -> list[Row]:
    usual, ours, rows = AsyncUsual(server), AsyncGuarded(server.url), []
    with asyncio.Runner() as runner:
        runner.run(usual.open())
        for _ in range(HOT):
            runner.run(usual.first())
            runner.run(ours.first())
        for crowd in callers:
            turn = functools.partial(by_tasks, runner, crowd, ops=25 if crowd == 1 else 4)
            contenders = {("ours", what): turn(getattr(ours, what)) for what in ("first", "replay")}
            contenders |= {
                ("redis-py", what): turn(getattr(usual, what)) for what in ("first", "replay")
            }
            rows += rows_of("async", crowd, {"redis-py": usual}, take_turns(contenders, slices))
        runner.run(usual.close())
        runner.run(ours.close())
    return rows


def rows_of(
    colour: str, crowd: int, floors: dict[str, Any], medians: dict[Any, float]
) -> list[Row]:
    rows = []
    for what, floor in itertools.product(("first", "replay"), floors):
        place, name = (
            (colour, crowd, what, floor),
            f"redis {colour} x{crowd} {what}, beside {floor}",
        )
        make, goals = (speedup, FASTER) if place in FASTER else (ratio, GOALS)
        rows.append(make(name, medians["ours", what], medians[floor, what], goals.get(place)))
    return rows
