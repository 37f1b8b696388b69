"""How many instructions a call costs the process that makes it: free of noise, and the same on
every machine of one kind.

    python bench/instructions.py [--quick] [--json] [--only NAME]... [--where CASE]

Everything is imported once, under valgrind's callgrind. Then each case runs in two forks, one
with more calls than the other; what the calls cost is the difference, so that neither imports,
nor connecting, nor warming up are counted. Servers run outside and are not counted. The tool
declares no downstream. Thousands of instructions per call; 5.2 of them take about 1 us on a
quiet machine of 3 GHz.

x1 is one caller in sync code, x64 are 64 tasks. Beside ours stand the floor and the usual
driver, which do the same writes and reads by hand. The floor is a dict, sqlite3, libpq or a raw
socket, for one caller. The usual driver is sqlite3, psycopg or redis-py for one caller, and
aiosqlite, a pool of asyncpg or redis-py for 64. The floor of HTTP is the app without us, and
without a store.

--where shows in which rooms the instructions of one case are spent.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import _rooms
from _instructed import CASES, Places
from _paired import Goal, machine, options
from _postgres import Postgres

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.servers.redis import Server, free_port

CALLS, QUICK_CALLS = (64, 192), (64, 128)  # in the smaller and the larger fork: multiples of 64
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
QUICK = ("memory x1 first", "floor memory first")
FOUND = "summary: "


@dataclass(frozen=True, slots=True)
class Row:
    """Thousands of instructions per call. None: there is nothing to compare ours with."""

    what: str
    ours: float
    floor: float | None
    usual: float | None
    goal: Goal | None


def chosen(quick: bool, only: list[str] | None) -> list[str]:  # noqa: FBT001
    names = [name for name in CASES if not quick or name in QUICK]
    return [name for name in names if not only or any(part in name for part in only)]


def opened(folder: str, names: list[str], stack: ExitStack) -> Places:
    """Starts the servers that the cases need, and no others."""
    postgres, redis, port = "", "", 0
    if any("postgres" in name for name in names):
        postgres = stack.enter_context(Postgres(under=None)).database()
    if any("redis" in name for name in names):
        server = Server(Path(folder) / "redis", port=free_port())
        stack.callback(server.stop)
        redis, port = server.url, server.port
    return Places(folder, postgres, redis, port)


def forked(
    places: Places, names: list[str], calls: tuple[int, int]
) -> Iterator[tuple[str, Path, Path]]:
    """Each case, and what callgrind wrote about its smaller and its larger fork."""
    out = Path(places.folder) / "callgrind"
    program = [sys.executable, str(Path(__file__).with_name("_instructed.py"))]
    inside = {"places": asdict(places), "names": names, "calls": calls}
    env = os.environ | {
        "PYTHONPYCACHEPREFIX": str(Path(places.folder) / "bytecode"),
        "PYTHONDONTWRITEBYTECODE": "",
    }
    # Once without callgrind: what a case imports is compiled then, or the smaller fork would do
    # it for the larger one.
    subprocess.run(
        [*program, json.dumps(inside | {"calls": calls[:1]})],
        env=env,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    command = [
        "valgrind",
        "--tool=callgrind",
        "-q",
        f"--callgrind-out-file={out}.%p",
        *program,
        json.dumps(inside),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as running:
        assert running.stdout is not None
        for smaller in running.stdout:
            name, *pids = *json.loads(smaller), *json.loads(next(running.stdout))[1:]
            yield name, Path(f"{out}.{pids[0]}"), Path(f"{out}.{pids[1]}")
    if running.returncode:
        raise SystemExit(running.returncode)


def total(file: Path) -> int:
    with file.open() as lines:
        return next(int(line[len(FOUND) :]) for line in lines if line.startswith(FOUND))


def counted(places: Places, names: list[str], calls: tuple[int, int]) -> dict[str, float]:
    """Thousands of instructions per call."""
    some, many = calls
    figures = {}
    for name, smaller, larger in forked(places, names, calls):
        figures[name] = (total(larger) - total(smaller)) / (many - some) / 1000
        print(
            f"{len(figures)} of {len(names)}: {name} {figures[name]:,.1f}",
            file=sys.stderr,
            flush=True,
        )
    return figures


def rows_of(figures: Mapping[str, float]) -> list[Row]:
    rows = []
    for name, thousands in figures.items():
        if not name.startswith(("floor ", "usual ")):
            store, callers, what = name.split(" ", 2)
            what = what.replace("cached", "replay")
            floor = "floor HTTP" if what.startswith("HTTP") else f"floor {store} {what}"
            usual = f"usual {store} {callers} {what}"
            goal = Goal("<=", GOALS[name]) if name in GOALS else None
            rows.append(Row(name, thousands, figures.get(floor), figures.get(usual), goal))
    return rows


def show(rows: list[Row]) -> None:
    """As a table of Markdown: docs/reference/prices.md has it."""
    print(
        "| thousands of instructions | ours | floor | usual driver | ours / floor | ours / usual |"
        " goal |"
    )
    print("|---|---:|---:|---:|---:|---:|---|")
    for row in rows:
        beside = [
            f"{row.ours:,.0f}",
            *("" if other is None else f"{other:,.0f}" for other in (row.floor, row.usual)),
        ]
        ratios = [
            "" if other is None else f"{row.ours / other:,.1f}" for other in (row.floor, row.usual)
        ]
        goal = (
            ""
            if row.goal is None
            else f"{row.goal} {'met' if row.goal.met_by(row.ours) else 'MISSED'}"
        )
        print(f"| {' | '.join([row.what, *beside, *ratios, goal])} |")


def report(rows: list[Row], *, as_json: bool) -> None:
    notes = machine() | {"CPU": processor()}
    if as_json:
        print(
            json.dumps(
                {
                    "notes": notes,
                    "rows": [asdict(row) | {"goal": str(row.goal or "")} for row in rows],
                },
                indent=1,
            )
        )
        return
    for name, value in notes.items():
        print(f"{name}: {value}")
    print()
    show(rows)


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(
        (line.partition(": ")[2] for line in lines if line.startswith("model name")), "unknown"
    )


def show_rooms(places: Places, name: str, calls: tuple[int, int]) -> None:
    ((_, smaller, larger),) = forked(places, [name], calls)
    per_call = calls[1] - calls[0]
    shares = _rooms.shares(
        _rooms.compiled(smaller, larger, per_call), _rooms.bytecodes(name, places, calls)
    )
    print(_rooms.WHAT_IT_IS)
    print()
    print(f"| {name} | thousands of instructions | of all |")
    print("|---|---:|---:|")
    everything = sum(shares.values())
    for room, thousands in sorted(shares.items(), key=lambda share: -share[1]):
        print(f"| {room} | {thousands:,.1f} | {100 * thousands / everything:.1f} % |")
    print(f"| all | {everything:,.1f} | 100 % |")


def main() -> None:
    def more(parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--only",
            action="append",
            metavar="NAME",
            help="cases with NAME in their name; may be repeated",
        )
        parser.add_argument(
            "--where",
            metavar="CASE",
            choices=CASES,
            help='in which rooms, for example "sqlite x1 first"',
        )

    asked = options(__doc__, more=more)
    if shutil.which("valgrind") is None:
        raise SystemExit("valgrind is missing. As root: apt-get install valgrind")
    calls = QUICK_CALLS if asked.quick else CALLS
    names = [asked.where] if asked.where else chosen(asked.quick, asked.only)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        places = opened(folder, names, stack)
        if asked.where:
            show_rooms(places, asked.where, calls)
        else:
            report(rows_of(counted(places, names, calls)), as_json=asked.json)


if __name__ == "__main__":
    main()
