"""How many instructions a call costs the process that makes it: free of noise, and the same on every machine of one kind.

    python bench/instructions.py [--quick] [--json] [--only NAME]...

Everything is imported once, under valgrind's callgrind. Then each case runs in two forks, one with more calls than the other; what the
calls cost is the difference, so that neither imports, nor connecting, nor warming up are counted. Servers run outside and are not
counted. The tool declares no downstream.
One caller stands beside the floor (the bare driver, by hand), 64 async callers beside the usual driver. Thousands of instructions per call;
5.2 of them take about 1 us on a quiet machine of 3 GHz.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import _instructed
import psycopg
from _paired import Goal, Row, machine, options, report
from _postgres import Postgres

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.servers.redis import Server, free_port

CALLS, QUICK_CALLS = (320, 1600), (64, 192)  # in the smaller and the larger fork: multiples of 64
GOALS = {
    "memory x1 first": 240,
    "memory x1 replay": 90,
    "memory x1 cached": 45,
    "redis x1 first": 280,
    "postgres x1 first": 300,
    "sqlite x1 first": 380,
    "redis x64 first": 300,
    "postgres x64 first": 310,
    "sqlite x64 first": 380,
}
QUICK = ("memory x1 first", "floor sqlite x1 replay")
FOUND = "summary: "


@dataclass(frozen=True, slots=True)
class Places:
    """Where the stores are. A fork takes a new file for itself."""

    folder: str
    postgres: str
    redis: str
    port: int  # of Redis


def _forget(places: Places) -> None:
    """What a fork finds in a server was left by no other one."""
    with psycopg.connect(places.postgres) as postgres:
        postgres.execute("DROP SCHEMA IF EXISTS effectonce CASCADE; DROP TABLE IF EXISTS bare")
    with socket.create_connection(("127.0.0.1", places.port)) as redis:
        redis.sendall(b"FLUSHALL\r\n")
        redis.recv(64)


def chosen(quick: bool, only: list[str] | None) -> list[str]:  # noqa: FBT001
    names = [name for name in _instructed.CASES if not quick or name in QUICK]
    return [name for name in names if not only or any(part in name for part in only)]


# ---------------------------------------------------------------- inside, under callgrind


def run_all(places: Places, names: list[str], calls: tuple[int, int]) -> None:
    """Prints a line for each fork: its case, how many calls it made, and its number, under which callgrind wrote."""
    for name in names:
        for count in calls:
            _forget(places)
            pid = os.fork()
            if pid == 0:
                try:
                    _instructed.CASES[name](places, count)
                except BaseException:
                    sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
                    os._exit(1)
                os._exit(0)
            _, status = os.waitpid(pid, 0)
            if status:
                raise SystemExit(f"{name} failed")
            print(json.dumps([name, count, pid]), flush=True)


# ---------------------------------------------------------------- outside


def counted(places: Places, names: list[str], calls: tuple[int, int]) -> dict[str, float]:
    """Thousands of instructions per call."""
    out = Path(places.folder) / "callgrind"
    command = ["valgrind", "--tool=callgrind", "-q", f"--callgrind-out-file={out}.%p", sys.executable, __file__]
    inside = json.dumps({"places": asdict(places), "names": names, "calls": calls})
    done = subprocess.run([*command, "--inside", inside], stdout=subprocess.PIPE, text=True, check=True)
    totals: dict[str, list[tuple[int, int]]] = {}
    for line in done.stdout.splitlines():
        name, count, pid = json.loads(line)
        totals.setdefault(name, []).append((count, _total(Path(f"{out}.{pid}"))))
    return {name: (more - few) / (many - some) / 1000 for name, ((some, few), (many, more)) in totals.items()}


def _total(file: Path) -> int:
    return next(int(line[len(FOUND) :]) for line in file.read_text().splitlines() if line.startswith(FOUND))


def rows_of(figures: Mapping[str, float]) -> list[Row]:
    rows = []
    for name, thousands in figures.items():
        if not name.startswith("floor "):
            floor = figures.get(f"floor {name.replace('cached', 'replay')}")
            goal = Goal("<=", GOALS[name]) if name in GOALS else None
            rows.append(Row(name, thousands, floor, "k", thousands, "instructions", goal))
    return rows


def main() -> None:
    def more(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--only", action="append", metavar="NAME", help="cases with NAME in their name; may be repeated")
        parser.add_argument("--inside", help=argparse.SUPPRESS)

    asked = options(__doc__, more=more)
    if asked.inside:
        given = json.loads(asked.inside)
        return run_all(Places(**given["places"]), given["names"], tuple(given["calls"]))
    if shutil.which("valgrind") is None:
        raise SystemExit("valgrind is missing. As root: apt-get install valgrind")
    names = chosen(asked.quick, asked.only)
    with tempfile.TemporaryDirectory() as folder, Postgres(under=None) as postgres:
        server = Server(Path(folder) / "redis", port=free_port())
        try:
            places = Places(folder, postgres.database(), server.url, server.port)
            figures = counted(places, names, QUICK_CALLS if asked.quick else CALLS)
        finally:
            server.stop()
    return report(rows_of(figures), asked, machine())


if __name__ == "__main__":
    main()
