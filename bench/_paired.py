"""Paired measurement: floor and subject take turns in one process, and the ratio of their
medians is the figure.

An absolute time on a shared machine says more about the neighbours than about the code. Slices
of both that alternate within a few milliseconds meet the same neighbours, so their ratio holds
where the times themselves are off by a factor of ten.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import operator
import os
import platform
import sqlite3
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from _slow_disk import slow_down

Name = TypeVar("Name")
Slice = Callable[[], Iterable[float]]  # runs a few ops and says how many seconds each took


def take_turns(contenders: Mapping[Name, Slice], slices: int) -> dict[Name, float]:
    """The median seconds per op of each contender. The order is reversed every round, so that
    nobody always goes first.
    """
    samples: dict[Name, list[float]] = {name: [] for name in contenders}
    order = list(contenders)
    for name in order:
        contenders[name]()  # warm: caches, threads, connections
    for _ in range(slices):
        for name in order:
            samples[name] += contenders[name]()
        order.reverse()
    return {name: median(times) for name, times in samples.items()}


def timed(op: Callable[[], Any], ops: int) -> list[float]:
    """Each op on its own, for ops of a microsecond and more."""
    times, clock = [], time.perf_counter
    for _ in range(ops):
        start = clock()
        op()
        times.append(clock() - start)
    return times


def averaged(op: Callable[[], Any], ops: int) -> list[float]:
    """One sample for a whole loop, for ops that are cheaper than reading the clock."""
    turns = range(ops)
    start = time.perf_counter()
    for _ in turns:
        op()
    return [(time.perf_counter() - start) / ops]


def by_threads(pool: ThreadPoolExecutor, callers: int, op: Callable[[], Any], ops: int) -> Slice:
    def many(_: int) -> None:
        for _ in range(ops):
            op()

    def run() -> list[float]:
        start = time.perf_counter()
        list(pool.map(many, range(callers)))
        return [(time.perf_counter() - start) / (callers * ops)]

    return functools.partial(timed, op, ops) if callers == 1 else run


def by_tasks(
    runner: asyncio.Runner, callers: int, op: Callable[[], Awaitable[Any]], ops: int
) -> Slice:
    async def many() -> list[float]:
        times = []
        for _ in range(ops):
            start = time.perf_counter()
            await op()
            times.append(time.perf_counter() - start)
        return times

    async def all_of_them() -> list[float]:
        start = time.perf_counter()
        each = await asyncio.gather(*(many() for _ in range(callers)))
        return each[0] if callers == 1 else [(time.perf_counter() - start) / (callers * ops)]

    return lambda: runner.run(all_of_them())


# ---------------------------------------------------------------- what was reached, beside the goal


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound on the reached figure."""

    sign: str  # "<=", ">=", "==" or ">"
    bound: float

    def met_by(self, reached: float) -> bool:
        return {"<=": operator.le, ">=": operator.ge, "==": operator.eq, ">": operator.gt}[
            self.sign
        ](reached, self.bound)

    def __str__(self) -> str:
        return f"{self.sign} {self.bound:g}"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: what was measured, of ours and of the floor, and the figure that
    has a goal.
    """

    what: str
    ours: float
    floor: float | None  # None: there is nothing to compare it with
    unit: str
    reached: float  # the ratio, unless `of` says otherwise
    of: str = "ours/floor"
    goal: Goal | None = None


def ratio(
    what: str, ours_s: float, floor_s: float, goal: Goal | None = None, unit: str = "us"
) -> Row:
    """How much longer ours takes than the floor."""
    scale = {"ns": 1e9, "us": 1e6, "ms": 1e3}[unit]
    return Row(what, ours_s * scale, floor_s * scale, unit, ours_s / floor_s, goal=goal)


def speedup(
    what: str,
    ours_s: float,
    floor_s: float,
    goal: Goal | None = None,
    unit: str = "us",
    of: str = "floor/ours",
) -> Row:
    """How much faster ours is than the other."""
    scale = {"ns": 1e9, "us": 1e6, "ms": 1e3}[unit]
    return Row(what, ours_s * scale, floor_s * scale, unit, floor_s / ours_s, of=of, goal=goal)


def report(rows: list[Row], options: argparse.Namespace, notes: Mapping[str, Any]) -> None:
    """Print the table, or with --json the same figures for machines."""
    if options.json:
        figures = [
            asdict(row)
            | {
                "goal": str(row.goal or ""),
                "met": row.goal and row.goal.met_by(row.reached),
            }
            for row in rows
        ]
        print(json.dumps({"notes": dict(notes), "rows": figures}, indent=1))
        return
    for name, value in notes.items():
        print(f"{name}: {value}")
    print()
    wide = max(len(row.what) for row in rows)
    print(f"{'':<{wide}}  {'ours':>11}  {'floor':>11}        {'reached':>8}  {'':<11}  goal")
    for row in rows:
        goal = (
            ""
            if row.goal is None
            else f"{row.goal!s:<8} {'met' if row.goal.met_by(row.reached) else 'MISSED'}"
        )
        floor = "" if row.floor is None else f"{row.floor:,.1f}"
        print(
            f"{row.what:<{wide}}  {row.ours:>11,.1f}  {floor:>11} {row.unit:<6} {row.reached:>8.2f}"
            f"  {row.of:<11}  {goal}".rstrip()
        )


# ---------------------------------------------------------------- the command line, the machine


def options(
    description: str | None,
    *,
    folder: bool = False,
    more: Callable[[argparse.ArgumentParser], Any] | None = None,
) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a few seconds: shows that it runs, the figures mean little",
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    if folder:
        parser.add_argument(
            "--dir",
            default=tempfile.gettempdir(),
            help="a folder on a real disk (default: %(default)s)",
        )
        parser.add_argument(
            "--sync-ms",
            type=float,
            default=0.0,
            help="let every fsync take so much longer: cloud disks take 0.5 to 3",
        )
    if more is not None:
        more(parser)
    chosen = parser.parse_args()
    if folder:
        slow_down(chosen.sync_ms)
    return chosen


def machine() -> dict[str, Any]:
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "versions": f"Python {sys.version.split()[0]}, SQLite {sqlite3.sqlite_version}",
    }


def filesystem(folder: Path) -> str:
    """The type of the filesystem that *folder* is on."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    inside = [(len(at), kind) for _, at, kind, *_ in mounts if folder.resolve().is_relative_to(at)]
    return max(inside)[1]


def fsync_s(folder: Path, times: int) -> float:
    """What one fdatasync of an overwritten block costs here: the physical part of a durable
    commit.
    """
    with (folder / "fsync").open("wb", buffering=0) as file:
        file.write(bytes(4096))
        os.fsync(file.fileno())

        def overwrite() -> None:
            file.seek(0)
            file.write(bytes(4096))
            os.fdatasync(file.fileno())

        return median(timed(overwrite, times))
