"""What a durable step costs, beside one bare durable insert, DBOS steps and LangGraph
supersteps; how long resuming takes.

    python bench/workflows.py [--quick] [--json] [--dir FOLDER] [--sync-ms MS]
        [--store sqlite,postgres]

A run has 20 steps, each of which returns a small number. A step is what they take, divided by
20, within the run; beside it stands the time of a whole run, its begin and its end included,
divided in the same way, which is how the peers are measured. Ours and the floor take turns in
one process, on files of one disk and databases of one server; then ours and the peers do, whose
threads live on beside whatever is measured after them. A step that may be repeated costs one
commit, one that may not costs two: the first before it is done, the second when its outcome is
known.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import itertools
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psycopg
from _paired import (
    Goal,
    Row,
    filesystem,
    fsync_s,
    machine,
    options,
    ratio,
    report,
    speedup,
    take_turns,
)
from _stores import settle

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.servers.postgres import Postgres

from effectonce import Guard
from effectonce.workflows import Run

STEPS, QUICK = 20, 2
TWICE, FIVEFOLD = Goal("<=", 2.0), Goal(">=", 5.0)
PEERS = {"dbos": "DBOS", "langgraph": "LangGraph"}
NEEDS = {
    "dbos": ["dbos"],
    "langgraph": ["langgraph.checkpoint.sqlite", "langgraph.checkpoint.postgres"],
}
KINDS = {"a step": "idempotent_write", "a step that may not repeat": "write"}
WHOLE = "a step with its share of the run"


# ---------------------------------------------------------------- ours


class Ours:
    """Runs of 20 steps on one store."""

    def __init__(self, url: str) -> None:
        self.guard, self._numbers = Guard(url, cache=0), itertools.count()
        self._broken, self._steps_s = True, 0.0
        self._runs = {kind: self._run_of(kind) for kind in KINDS.values()}

        @self.guard.workflow
        def three(run: Run, n: int) -> int:
            for k in range(3):
                run.step("add", self._add, k)
            if self._broken:
                raise KeyError("stopped")
            return n

        self._three = three

    def _run_of(self, kind: str) -> Callable[[int], int]:
        @self.guard.tool(kind=kind, name=f"add {kind}")
        def add(n: int) -> int:
            return n

        def twenty(run: Run, n: int) -> int:
            start = time.perf_counter()
            added = sum(run.step("add", add, k) for k in range(STEPS))
            self._steps_s = time.perf_counter() - start
            return added

        self._add = add
        return self.guard.workflow(name=f"twenty {kind}")(twenty)

    def steps(self, kind: str) -> list[float]:
        """What a step takes, once there is a run."""
        self.whole(kind)
        return [self._steps_s / STEPS]

    def whole(self, kind: str) -> list[float]:
        """What a run takes for each of its steps."""
        number, start = next(self._numbers), time.perf_counter()
        if self._runs[kind](number) != sum(range(STEPS)):
            raise SystemExit("a run came to a wrong end")
        return [(time.perf_counter() - start) / STEPS]

    def resume_all(self, runs: int) -> float:
        """How long it takes to end so many runs that stopped after three steps each."""
        self._broken = True
        for n in range(runs):
            try:
                self._three(n)
            except KeyError:
                continue
        self._broken, start = False, time.perf_counter()
        resumed = self.guard.workflows.resume_all(workflow="three")
        if resumed.completed != runs:
            raise SystemExit(f"of {runs} runs {resumed} were resumed")
        return time.perf_counter() - start


# ---------------------------------------------------------------- floors


def sqlite_floor(path: Path) -> Callable[[], list[float]]:
    db = sqlite3.connect(path, isolation_level=None)
    db.executescript(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE steps (id INTEGER"
        " PRIMARY KEY, result)"
    )
    return functools.partial(
        _inserts, lambda: db.execute("INSERT INTO steps (result) VALUES (?)", ("1",))
    )


def postgres_floors(url: str) -> dict[str, Callable[[], list[float]]]:
    db = psycopg.connect(url, autocommit=True)
    db.execute(
        "CREATE TABLE steps (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, result text)"
    )
    db.pgconn.prepare(b"bare", b"INSERT INTO steps (result) VALUES ($1)")
    return {
        "one insert": functools.partial(_inserts, lambda: db.pgconn.exec_prepared(b"bare", [b"1"])),
        "one insert by psycopg": functools.partial(
            _inserts, lambda: db.execute("INSERT INTO steps (result) VALUES (%s)", ("1",))
        ),
    }


def _inserts(insert: Callable[[], Any]) -> list[float]:
    start = time.perf_counter()
    for _ in range(STEPS):
        insert()
    return [(time.perf_counter() - start) / STEPS]


# ---------------------------------------------------------------- side by side


def rows_of(
    store: str,
    folder: Path,
    urls: dict[str, str],
    floors: dict[str, Callable[[], list[float]]],
    slices: int,
    open_runs: int,
) -> list[Row]:
    ours = Ours(urls["ours"])
    measured = {what: functools.partial(ours.steps, kind) for what, kind in KINDS.items()}
    measured[WHOLE] = functools.partial(ours.whole, KINDS["a step"])
    if slices > QUICK:
        settle(folder, *floors.values(), *measured.values(), times=10)
    medians = take_turns(floors | measured, slices)
    goals = {("a step", "one insert"): TWICE}
    rows = [
        ratio(
            f"{store}: {what}, beside {floor}",
            medians[what],
            medians[floor],
            goals.get((what, floor)),
        )
        for what in measured
        for floor in floors
    ]
    peers, closing = {WHOLE: measured[WHOLE]}, []
    for package in installed():
        peers[package], close = import_module(f"_steps_of_{package}").runs(urls[package], STEPS)
        closing.append(close)
    medians = take_turns(peers, slices)
    for close in closing:
        close()
    least = {"dbos": FIVEFOLD}
    rows += [
        speedup(
            f"{store}: {WHOLE}, beside {PEERS[peer]}",
            medians[WHOLE],
            medians[peer],
            least.get(peer),
            of="peer/ours",
        )
        for peer in PEERS
        if peer in medians
    ]
    took_s = ours.resume_all(open_runs)
    rows.append(
        Row(
            f"{store}: resume {open_runs:,} open runs",
            took_s * 1e3,
            None,
            "ms",
            open_runs / took_s,
            "runs/s",
        )
    )
    ours.guard.close()
    return rows


def installed() -> list[str]:
    return [
        package
        for package in PEERS
        if all(importlib.util.find_spec(module) for module in NEEDS[package])
    ]


def sqlite_rows(folder: Path, slices: int, open_runs: int) -> list[Row]:
    urls = {name: f"sqlite:///{folder / name}.db" for name in ("ours", *PEERS)}
    return rows_of(
        "sqlite", folder, urls, {"one insert": sqlite_floor(folder / "floor.db")}, slices, open_runs
    )


def postgres_rows(folder: Path, slices: int, open_runs: int) -> list[Row]:
    with Postgres(under=folder.parent) as server:
        urls = {name: server.database() for name in ("ours", *PEERS)}
        return rows_of(
            "postgres", folder, urls, postgres_floors(server.database()), slices, open_runs
        )


def main() -> None:
    def more(parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--store", default="sqlite,postgres", help="which stores (default: %(default)s)"
        )

    chosen = options(__doc__, folder=True, more=more)
    slices, open_runs = (QUICK, 20) if chosen.quick else (60, 10_000)
    rows, loads = [], [os.getloadavg()[0]]
    with tempfile.TemporaryDirectory(dir=chosen.dir) as name:
        folder = Path(name)
        disk = {"disk": f"{filesystem(folder)}, one fdatasync {fsync_s(folder, 20) * 1e6:.0f} us"}
        for store in chosen.store.split(","):
            rows += (
                sqlite_rows(folder, slices, open_runs)
                if store == "sqlite"
                else postgres_rows(folder, slices, open_runs)
            )
            loads.append(os.getloadavg()[0])
    here = installed()
    notes = {
        "peers": ", ".join(f"{package} {version(package)}" for package in here) or "none",
        "left out, not installed": ", ".join(p for p in PEERS if p not in here) or "none",
        "floor": (
            "one INSERT and its COMMIT: SQLite with synchronous=FULL, PostgreSQL by libpq, and as"
            " psycopg's execute() does it"
        ),
        "load": " ".join(f"{load:.1f}" for load in loads),
    }
    report(rows, chosen, machine() | disk | notes)


if __name__ == "__main__":
    main()
