"""The cases of instructions.py. Each opens what it needs in a fork of its own, warms it up, and makes so many calls."""

from __future__ import annotations

import asyncio
import itertools
import json
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from _http_server import PATH, bare, ours
from _postgres import AsyncpgPool, BareLibpq
from _redis_calls import AsyncUsual, Raw
from _stores import HOT, AsyncGuarded, BareAiosqlite, BareDict, BareSqlite, Guarded

from effectonce import Guard
from effectonce.workflows import Run

CALLERS, WARM = 64, 128
CACHE = {"first": 0, "replay": 0, "cached": 4096}
Case = Callable[[Any, int], None]


class _Port:
    def __init__(self, port: int) -> None:
        self.port = port


def _file(places: Any) -> Path:
    return Path(tempfile.mkdtemp(dir=places.folder)) / "effects.db"


URLS: dict[str, Callable[[Any], str]] = {
    "memory": lambda _: "memory://",
    "sqlite": lambda places: f"sqlite:///{_file(places)}",
    "postgres": lambda places: places.postgres,
    "redis": lambda places: places.redis,
}
FLOORS: dict[str, Callable[[Any], Any]] = {
    "memory": lambda _: BareDict(Path()),
    "sqlite": lambda places: BareSqlite(_file(places)),
    "postgres": lambda places: BareLibpq(places.postgres),
    "redis": lambda places: Raw(_Port(places.port)),
}
USUAL: dict[str, Callable[[Any], Any]] = {
    "sqlite": lambda places: BareAiosqlite(_file(places)),
    "postgres": lambda places: AsyncpgPool(places.postgres),
    "redis": lambda places: AsyncUsual(_Port(places.port)),
}


def one_by_one(open_: Callable[[Any], Any], op: str) -> Case:
    def run(places: Any, calls: int) -> None:
        contender = open_(places)
        for _ in range(HOT):
            contender.first()
        ask = getattr(contender, op)
        for _ in range(WARM):
            ask()
        for _ in range(calls):
            ask()

    return run


def all_at_once(open_: Callable[[Any], Any], op: str) -> Case:
    def run(places: Any, calls: int) -> None:
        async def main() -> None:
            contender = open_(places)
            await contender.open()
            for _ in range(HOT):
                await contender.first()
            await crowd(getattr(contender, op), WARM)
            await crowd(getattr(contender, op), calls)

        asyncio.run(main())

    return run


async def crowd(ask: Callable[[], Awaitable[Any]], calls: int) -> None:
    async def caller() -> None:
        for _ in range(calls // CALLERS):
            await ask()

    await asyncio.gather(*(caller() for _ in range(CALLERS)))


def noted(number: int) -> int:
    return number


def workflow(store: str) -> Case:
    def run(places: Any, calls: int) -> None:
        guard = Guard(URLS[store](places), cache=0)

        @guard.workflow(identity=["runs"])
        def count(run: Run, runs: str, steps: int) -> None:
            for n in range(steps):
                run.step(f"step {n}", noted, n)

        count("warm up", WARM)
        count("calls", calls)

    return run


def http(store: str, made: Callable[..., Any], op: str) -> Case:
    """Requests to the app itself, one after the other, without a server in front of it."""
    body = json.dumps({"order": "ord_17", "amount": 4200}).encode()

    async def post(app: Any, key: int) -> None:
        asked = iter([{"type": "http.request", "body": body, "more_body": False}])
        waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def receive() -> Any:
            return next(asked, None) or await waiting

        async def send(message: Any) -> None:
            if message.get("status", 200) != 200:
                raise SystemExit(f"the app answered {message['status']}")

        headers = [(b"host", b"shop"), (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": PATH,
            "raw_path": PATH.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [*headers, (b"idempotency-key", b'"key-of-a-request-%d"' % key)],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        await app(scope, receive, send)
        waiting.cancel()

    def run(places: Any, calls: int) -> None:
        async def main() -> None:
            app, numbers = made(URLS[store](places)), itertools.count()
            for _ in range(WARM):
                await post(app, next(numbers))
            for n in range(calls):
                await post(app, next(numbers) if op == "first" else n % WARM)

        asyncio.run(main())

    return run


def _cases() -> dict[str, Case]:
    cases: dict[str, Case] = {}
    for store, url in URLS.items():
        for op, cache in CACHE.items():
            call = "replay" if op == "cached" else op
            cases[f"{store} x1 {op}"] = one_by_one(lambda places, url=url, cache=cache: Guarded(url(places), cache), call)
            if op != "cached":
                cases[f"floor {store} x1 {op}"] = one_by_one(FLOORS[store], op)
                cases[f"{store} x64 {op}"] = all_at_once(lambda places, url=url: AsyncGuarded(url(places)), op)
                if store in USUAL:
                    cases[f"floor {store} x64 {op}"] = all_at_once(USUAL[store], op)
        cases[f"{store} step of a workflow"] = workflow(store)
        for op in ("first", "replay"):
            cases[f"{store} HTTP {op}"] = http(store, lambda url: ours(url, cache=0), op)
            cases[f"floor {store} HTTP {op}"] = http(store, bare, op)
    return cases


CASES = _cases()
