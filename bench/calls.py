"""What a guarded call costs beside the same two durable writes, or the same read, done by hand
with the same driver.

    python bench/calls.py [--quick] [--json] [--dir FOLDER] [--sync-ms MS]

Latency for one caller, throughput per op for many; the floor and ours take turns, and the ratio
of medians is the figure.
"""

from __future__ import annotations

import asyncio
import functools
import multiprocessing
import os
import tempfile
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from _paired import (
    Goal,
    Row,
    by_tasks,
    by_threads,
    filesystem,
    fsync_s,
    machine,
    options,
    ratio,
    report,
    speedup,
    take_turns,
    timed,
)
from _postgres import AsyncpgPool, BareLibpq, BarePsycopg, Postgres
from _redis_calls import redis_rows
from _stores import (
    CLAIM,
    COMPLETE,
    HOT,
    STORED,
    AsyncGuarded,
    BareAiosqlite,
    BareAsyncDict,
    BareDict,
    BareSqlite,
    Guarded,
    connect,
    create,
    key_of,
    settle,
)

CALLERS = (1, 16, 64)
PROCESSES = 8
FIRST_ON_SQLITE = Goal("<=", 1.4)
QUICK, GROWING = 2, 8  # slices. In eight of 25 calls no log has been written over yet
GOALS = {
    ("sqlite", "sync", "first", 1): FIRST_ON_SQLITE,
    ("sqlite", "sync", "replay", 1): Goal("<=", 2.8),
    ("sqlite", "sync", "cached", 1): Goal("<=", 0.6),
    ("postgres", "sync", "first", 1): Goal("<=", 1.35),
    ("postgres", "sync", "replay", 1): Goal("<=", 2.2),
    ("postgres", "async", "first", 1): Goal("<=", 0.7),
    ("postgres", "async", "replay", 1): Goal("<=", 0.9),
}
FASTER = {
    ("sqlite", "async", "first", 64): Goal(">=", 3.0),
    ("postgres", "async", "first", 64): Goal(">=", 4.0),
    ("postgres", "async", "replay", 64): Goal(">=", 2.5),
}
FLOORS: dict[tuple[str, str], Any] = {
    ("memory", "sync"): BareDict,
    ("memory", "async"): BareAsyncDict,
    ("sqlite", "sync"): BareSqlite,
    ("sqlite", "async"): BareAiosqlite,
    ("postgres", "sync"): BareLibpq,
    ("postgres", "async"): AsyncpgPool,
}


# ---------------------------------------------------------------- how often the store is asked


def round_trips(folder: Path) -> list[Row]:
    """Commits of a first call and reads of a replay: counted by SQLite itself, so free of noise."""
    ours = Guarded(f"sqlite:///{folder / 'counted.db'}")
    ours.first()
    counted: list[str] = []
    ours.guard.store._main.db.set_trace_callback(counted.append)  # type: ignore[attr-defined]
    for _ in range(10):
        ours.first()
    commits = _commits(counted) / 10
    counted.clear()
    for _ in range(10):
        ours.replay()
    reads = sum("SELECT" in statement for statement in counted) / 10
    writes = _commits(counted)
    ours.close()
    return [
        Row("commits of a first call", commits, 2, "", commits, "", Goal("==", 2)),
        Row("reads of a replay", reads, 1, "", reads, "", Goal("==", 1)),
        Row("transactions of a replay", writes, 0, "", writes, "", Goal("==", 0)),
    ]


def _commits(statements: Iterable[str]) -> int:
    """Of transactions, and of statements that write outside of one: SQLite commits each of them
    by itself.
    """
    commits, inside = 0, False
    for word in (statement.split()[0] for statement in statements):
        inside = word == "BEGIN" or (inside and word != "COMMIT")
        commits += word == "COMMIT" or (not inside and word in ("INSERT", "UPDATE"))
    return commits


# ---------------------------------------------------------------- one process


def rows_of(store: str, colour: str, callers: int, medians: dict[str, float]) -> list[Row]:
    rows = []
    for what, floor in (
        ("first", "floor first"),
        ("replay", "floor replay"),
        ("cached", "floor replay"),
    ):
        place, name = (store, colour, what, callers), f"{store} {colour} x{callers} {what}"
        if place in FASTER:
            rows.append(speedup(name, medians[what], medians[floor], FASTER[place]))
        else:
            rows.append(ratio(name, medians[what], medians[floor], GOALS.get(place)))
    return rows


def sync_calls(store: str, url: str, floor: Any, folder: Path, slices: int) -> list[Row]:
    ours, caching = Guarded(url), Guarded(url, cache=4096)
    for _ in range(HOT):
        floor.first(), ours.first(), caching.first()
    if slices > QUICK:
        settle(folder, floor.first, ours.first, caching.first)
    rows = []
    with ThreadPoolExecutor(max(CALLERS)) as pool:
        for callers in CALLERS:
            turn = functools.partial(by_threads, pool, callers, ops=25 if callers == 1 else 4)
            contenders = {
                "floor first": turn(floor.first),
                "first": turn(ours.first),
                "floor replay": turn(floor.replay),
                "replay": turn(ours.replay),
                "cached": turn(caching.replay),
            }
            rows += rows_of(store, "sync", callers, take_turns(contenders, slices))
    for each in (floor, ours, caching):
        each.close()
    return rows


def while_logs_grow(folder: Path, slices: int) -> list[Row]:
    """A first call in the first moments of two files. An fsync of a log that grows costs twice
    as much, for both.
    """
    floor, ours = BareSqlite(folder / "young-bare.db"), Guarded(f"sqlite:///{folder / 'young.db'}")
    contenders = {
        name: functools.partial(timed, each.first, 25)
        for name, each in (("floor", floor), ("ours", ours))
    }
    medians = take_turns(contenders, min(slices, GROWING))
    floor.close(), ours.close()
    return [
        ratio(
            "sqlite sync x1 first, while the logs grow",
            medians["ours"],
            medians["floor"],
            FIRST_ON_SQLITE,
        )
    ]


def async_calls(store: str, url: str, floor: Any, folder: Path, slices: int) -> list[Row]:
    ours, caching = AsyncGuarded(url), AsyncGuarded(url, cache=4096)
    rows = []
    with asyncio.Runner() as runner:
        runner.run(floor.open())
        for _ in range(HOT):
            for each in (floor, ours, caching):
                runner.run(each.first())
        if slices > QUICK:
            settle(
                folder,
                *(functools.partial(_now, runner, each.first) for each in (floor, ours, caching)),
            )
        for callers in CALLERS:
            turn = functools.partial(by_tasks, runner, callers, ops=25 if callers == 1 else 4)
            contenders = {
                "floor first": turn(floor.first),
                "first": turn(ours.first),
                "floor replay": turn(floor.replay),
                "replay": turn(ours.replay),
                "cached": turn(caching.replay),
            }
            rows += rows_of(store, "async", callers, take_turns(contenders, slices))
        for each in (floor, ours, caching):
            runner.run(each.close())
    return rows


def _now(runner: asyncio.Runner, op: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    runner.run(op())


# ---------------------------------------------------------------- a server


def on_postgres(folder: Path, slices: int) -> list[Row]:
    """On a private server, on the same disk, each in a database of its own: the same steps again
    would be replays.
    """
    with Postgres(under=folder.parent) as server:
        url = server.database()
        rows = sync_calls("postgres", url, BareLibpq(url), folder, slices)
        rows += beside_psycopg(server.database(), slices)
        url = server.database()
        return rows + async_calls("postgres", url, AsyncpgPool(url), folder, slices)


def beside_psycopg(url: str, slices: int) -> list[Row]:
    usual, ours = BarePsycopg(url), Guarded(url)
    for _ in range(HOT):
        ours.first()
    contenders = {
        f"{who} {what}": functools.partial(timed, getattr(each, what), 25)
        for who, each in (("usual", usual), ("ours", ours))
        for what in ("first", "replay")
    }
    medians = take_turns(contenders, slices)
    for each in (usual, ours):
        each.close()
    return [
        ratio(f"postgres {what}, beside psycopg", medians[f"ours {what}"], medians[f"usual {what}"])
        for what in ("first", "replay")
    ]


# ---------------------------------------------------------------- many processes


def guarded_process(path: Path, calls: int, start: Any, out: Any) -> None:
    ours = Guarded(f"sqlite:///{path}")
    name = os.getpid()
    numbers = iter(range(calls))

    def first() -> None:
        # one number made of both could look like a Unix timestamp, which is no step id
        ours._call(f"{name}-{next(numbers)}")

    ours.guard.counts()  # connect
    start.wait()
    out.put(timed(first, calls))


def plain_process(path: Path, calls: int, start: Any, out: Any) -> None:
    db = connect(path, timeout_s=30.0)
    keys = (key_of(os.getpid() * 1_000_000 + number) for number in range(calls))

    def first() -> None:
        key = next(keys)
        for sql, parameters in ((CLAIM, (key,)), (COMPLETE, (STORED, key))):
            db.execute("BEGIN IMMEDIATE")
            db.execute(sql, parameters)
            db.execute("COMMIT")

    start.wait()
    out.put(timed(first, calls))


def waits(process: Callable[..., None], path: Path, calls: int) -> list[float]:
    """How long each first call took, all processes together, sorted."""
    spawn = multiprocessing.get_context("spawn")
    start, out = spawn.Barrier(PROCESSES), spawn.Queue()
    workers = [
        spawn.Process(target=process, args=(path, calls, start, out)) for _ in range(PROCESSES)
    ]
    for worker in workers:
        worker.start()
    times = sorted(wait for _ in workers for wait in out.get())
    for worker in workers:
        worker.join()
    return times


def many_processes(folder: Path, calls: int, rounds: int) -> list[Row]:
    create(folder / "plain.db")
    ours: list[float] = []
    plain: list[float] = []
    for _ in range(rounds):
        plain += waits(plain_process, folder / "plain.db", calls)
        ours += waits(guarded_process, folder / "queued.db", calls)
    ours.sort()
    plain.sort()

    def row(what: str, share: float, goal: Goal | None = None) -> Row:
        at = min(int(len(ours) * share), len(ours) - 1)
        return speedup(f"{PROCESSES} processes, {what}", ours[at], plain[at], goal, unit="ms")

    return [
        row("median", 0.5),
        row("p99", 0.99),
        row("p99.9", 0.999),
        row("worst", 1.0, Goal(">=", 10)),
    ]


def main() -> None:
    chosen = options(__doc__, folder=True)
    slices, calls, rounds = (QUICK, 20, 1) if chosen.quick else (40, 300, 2)
    with tempfile.TemporaryDirectory(dir=chosen.dir) as name:
        folder = Path(name)
        fsync_us = fsync_s(folder, 20 if chosen.quick else 300) * 1e6
        disk = {"disk": f"{filesystem(folder)}, one fdatasync {fsync_us:.0f} us"}
        rows = round_trips(folder) + while_logs_grow(folder, slices)
        for store in ("memory", "sqlite"):
            for colour, calls_in in (("sync", sync_calls), ("async", async_calls)):
                url = "memory://" if store == "memory" else f"sqlite:///{folder / colour}.db"
                rows += calls_in(
                    store, url, FLOORS[store, colour](folder / f"{colour}-bare.db"), folder, slices
                )
        rows += on_postgres(folder, slices)
        rows += redis_rows(folder, slices, CALLERS, by_threads, by_tasks)
        rows += many_processes(folder, calls, rounds)
    report(rows, chosen, machine() | disk)


if __name__ == "__main__":
    main()
