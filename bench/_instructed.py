"""The cases of instructions.py. Each opens what it needs in a fork of its own, warms it up, and
makes so many calls.

Run as a program, which instructions.py does under callgrind, it runs the named cases and prints
a line for each fork.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import socket
import sys
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from _stores import HOT, AsyncGuarded, BareAiosqlite, BareDict, BareSqlite, Guarded

from effectonce import Guard
from effectonce._runtime import counters
from effectonce.workflows import Run

# Some seconds are long under callgrind: what is added to the store now and then is no call's.
counters.EVERY_S = 3600.0

CALLERS, WARM = 64, 64
CACHE = {"first": 0, "replay": 0, "cached": 4096}
WRITES_AND_READS = ("first", "replay", "step")
NEEDS = {
    "postgres": "_postgres",
    "redis": "_redis_calls",
    "HTTP": "_http_server",
}  # imported before the forks, if a case needs it


@dataclass(frozen=True, slots=True)
class Places:
    """Where the stores are. A fork takes a new file for itself."""

    folder: str
    postgres: str
    redis: str
    port: int  # of Redis


Case = Callable[[Places, int], None]


def _of(module: str, name: str) -> Any:
    return getattr(import_module(module), name)


def _file(places: Places) -> Path:
    return Path(tempfile.mkdtemp(dir=places.folder)) / "effects.db"


URLS: dict[str, Callable[[Places], str]] = {
    "memory": lambda _: "memory://",
    "sqlite": lambda places: f"sqlite:///{_file(places)}",
    "postgres": lambda places: places.postgres,
    "redis": lambda places: places.redis,
}
FLOORS: dict[str, Callable[[Places], Any]] = {
    "memory": lambda _: BareDict(Path()),
    "sqlite": lambda places: BareSqlite(_file(places)),
    "postgres": lambda places: _of("_postgres", "BareLibpq")(places.postgres),
    # imported when it is called
    "redis": lambda places: _of("_redis_calls", "Raw")(places),  # noqa: PLW0108
}
USUAL: dict[str, Callable[[Places], Any]] = {
    "sqlite": lambda places: BareSqlite(_file(places)),
    "postgres": lambda places: _of("_postgres", "BarePsycopg")(places.postgres),
    # imported when it is called
    "redis": lambda places: _of("_redis_calls", "Usual")(places),  # noqa: PLW0108
}
ASYNC_USUAL: dict[str, Callable[[Places], Any]] = {
    "sqlite": lambda places: BareAiosqlite(_file(places)),
    "postgres": lambda places: _of("_postgres", "AsyncpgPool")(places.postgres),
    # imported when it is called
    "redis": lambda places: _of("_redis_calls", "AsyncUsual")(places),  # noqa: PLW0108
}


# ---------------------------------------------------------------- calls


def one_by_one(open_: Callable[[Places], Any], op: str) -> Case:
    def run(places: Places, calls: int) -> None:
        contender = open_(places)
        for _ in range(HOT if op == "replay" else 0):
            contender.first()
        ask = getattr(contender, op)
        for _ in range(WARM):
            ask()
        for _ in range(calls):
            ask()

    return run


def all_at_once(open_: Callable[[Places], Any], op: str) -> Case:
    def run(places: Places, calls: int) -> None:
        async def main() -> None:
            contender = open_(places)
            await contender.open()
            for _ in range(HOT if op == "replay" else 0):
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


# ---------------------------------------------------------------- steps of workflows


def noted(number: int) -> int:
    return number


async def anoted(number: int) -> int:
    return number


def workflow(store: str) -> Case:
    def run(places: Places, calls: int) -> None:
        guard = Guard(URLS[store](places), cache=0)

        @guard.workflow(identity=["runs"])
        def count(run: Run, runs: str, steps: int) -> None:
            for n in range(steps):
                run.step(f"step {n}", noted, n)

        count("warm up", WARM)
        count("calls", calls)

    return run


def workflows(store: str) -> Case:
    """As many runs at once as there are callers. The runs begin and end in both forks alike."""

    def run(places: Places, calls: int) -> None:
        guard = Guard(URLS[store](places), cache=0)

        @guard.workflow(identity=["runs"])
        async def count(run: Run, runs: str, steps: int) -> None:
            for n in range(steps):
                await run.step(f"step {n}", anoted, n)

        async def main() -> None:
            await count("warm up", WARM)
            await asyncio.gather(*(count(f"caller {n}", calls // CALLERS) for n in range(CALLERS)))

        asyncio.run(main())

    return run


# ---------------------------------------------------------------- HTTP


BODY = json.dumps({"order": "ord_17", "amount": 4200}).encode()
HEADERS = [
    (b"host", b"shop"),
    (b"content-type", b"application/json"),
    (b"content-length", b"%d" % len(BODY)),
]
SCOPE = {
    "type": "http",
    "asgi": {"version": "3.0"},
    "http_version": "1.1",
    "method": "POST",
    "scheme": "http",
    "query_string": b"",
    "root_path": "",
    "client": ("127.0.0.1", 1),
    "server": ("127.0.0.1", 80),
}


async def post(app: Any, path: str, key: int) -> None:
    asked = iter([{"type": "http.request", "body": BODY, "more_body": False}])
    waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def receive() -> Any:
        return next(asked, None) or await waiting

    async def send(message: Any) -> None:
        if message.get("status", 200) != 200:
            raise SystemExit(f"the app answered {message['status']}")

    headers = [*HEADERS, (b"idempotency-key", b'"key-of-a-request-%d"' % key)]
    await app(SCOPE | {"path": path, "raw_path": path.encode(), "headers": headers}, receive, send)
    waiting.cancel()


def http(made: Callable[[Places], Any], callers: int, op: str) -> Case:
    """Requests to the app itself, without a server in front of it."""

    def run(places: Places, calls: int) -> None:
        path, numbers, reads = _of("_http_server", "PATH"), itertools.count(), itertools.count()

        async def main() -> None:
            app = made(places)
            for _ in range(WARM):
                await post(app, path, next(numbers))

            async def ask() -> None:
                await post(app, path, next(numbers) if op == "first" else next(reads) % WARM)

            if callers == 1:
                for _ in range(calls):
                    await ask()
            else:
                await crowd(ask, CALLERS)
                await crowd(ask, calls)

        asyncio.run(main())

    return run


# ---------------------------------------------------------------- all of them


def _ours(store: str, callers: int) -> dict[str, Case]:
    url, cases = URLS[store], dict[str, Case]()
    for op, cache in CACHE.items():
        call = "first" if op == "first" else "replay"
        if callers == 1:
            cases[op] = one_by_one(lambda places, cache=cache: Guarded(url(places), cache), call)
        else:
            cases[op] = all_at_once(
                lambda places, cache=cache: AsyncGuarded(url(places), cache), call
            )
    cases["step"] = workflow(store) if callers == 1 else workflows(store)
    for op in ("first", "replay"):
        cases[f"HTTP {op}"] = http(
            lambda places: _of("_http_server", "ours")(url(places), cache=0), callers, op
        )
    return {f"{store} x{callers} {what}": case for what, case in cases.items()}


def _floor(store: str) -> dict[str, Case]:
    return {f"floor {store} {op}": one_by_one(FLOORS[store], op) for op in WRITES_AND_READS}


def _usual(store: str, callers: int) -> dict[str, Case]:
    made, run = (USUAL, one_by_one) if callers == 1 else (ASYNC_USUAL, all_at_once)
    return {
        f"usual {store} x{callers} {op}": run(made[store], op)
        for op in WRITES_AND_READS
        if store in made
    }


CASES: dict[str, Case] = {"floor HTTP": http(lambda _: _of("_http_server", "bare")(""), 1, "first")}
for _store in URLS:
    CASES |= (
        _ours(_store, 1)
        | _floor(_store)
        | _usual(_store, 1)
        | _ours(_store, CALLERS)
        | _usual(_store, CALLERS)
    )


def forget(places: Places) -> None:
    """What a fork finds in a server was left by no other one."""
    if places.postgres:
        with _of("psycopg", "connect")(places.postgres) as postgres:
            postgres.execute("DROP SCHEMA IF EXISTS effectonce CASCADE; DROP TABLE IF EXISTS bare")
    if places.redis:
        with socket.create_connection(("127.0.0.1", places.port)) as redis:
            redis.sendall(b"FLUSHALL\r\n")
            redis.recv(64)


def main() -> None:
    """Prints a line for each fork: its case, and its number, under which callgrind wrote."""
    given = json.loads(sys.argv[1])
    places, names = Places(**given["places"]), given["names"]
    for part, module in NEEDS.items():
        if any(part in name for name in names):
            import_module(module)
    for name, count in itertools.product(names, given["calls"]):
        forget(places)
        pid = os.fork()
        if pid == 0:
            try:
                CASES[name](places, count)
            except BaseException:
                sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        if status:
            raise SystemExit(f"{name} failed")
        print(json.dumps([name, pid]), flush=True)


if __name__ == "__main__":
    main()
