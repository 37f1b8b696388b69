"""The commands that score subjects and show the table."""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import shlex
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oncebench import adapters
from oncebench import table as tables
from oncebench.controls import Void, check_controls
from oncebench.environments import CannotInstall, NoServer, environment, servers, versions
from oncebench.scenarios import ELSEWHERE, scenarios
from oncebench.score import WRONG, as_json, plan
from oncebench.score import score as scored
from oncebench.stage import Subject
from oncebench.world import WorldDied

SLOWEST_FIRST = ("framework", "engine", "library")  # so that no long row is left at the end


def known() -> dict[str, Any]:
    """Every adapter, by its name."""
    return {
        module.name: importlib.import_module(f"{adapters.__name__}.{module.name}")
        for module in pkgutil.iter_modules(adapters.__path__)
        if not module.name.startswith("_")
    }


def add_scoring(commands: Any) -> None:
    score = commands.add_parser(
        "score", help="play the scenarios with libraries, engines and frameworks"
    )
    add = score.add_argument
    add("--subject", action="append", default=[], help="an adapter; again for more (all)")
    add("--only", action="append", default=[], metavar="T04/keys", help="these scenarios")
    add("--quick", action="store_true", help="the few scenarios that say most")
    add("--best", action="store_true", help="the best configuration alone")
    add("--as-shipped", action="store_true", help="what the README begins with alone")
    add(
        "--into",
        type=Path,
        metavar="FILE",
        help="add each cell to this file, as JSON; a cell that it has of the same version is kept",
    )
    add("--again", action="store_true", help="play also the cells that FILE has")
    add("--jobs", type=int, default=1, metavar="N", help="play so many subjects at a time (1)")
    add("--python", help="use this Python, which has the subjects, instead of new environments")
    add("--environments", type=Path, metavar="DIR", help="keep the environments there")
    add("--points", type=int, default=6, help="where T26 kills, at most (6)")
    add("--confirm", type=int, default=3, help="how often a wrong cell is played (3)")
    add("--no-controls", action="store_true", help="the controls were played before")
    shown = commands.add_parser("table", help="the table of what `score --into` wrote")
    shown.add_argument("cells", type=Path)
    shown.add_argument(
        "--as", dest="form", choices=("markdown", "html", "json"), default="markdown"
    )
    shown.add_argument("--command", default="oncebench score", help="how it was made")
    shown.add_argument("--date", default=time.strftime("%Y-%m-%d"))
    commands.add_parser("subjects", help="what can be scored")
    listed = commands.add_parser("scenarios", help="what is played, why, and what is right")
    listed.add_argument("name", nargs="?")


@dataclass(frozen=True, slots=True)
class Output:
    """Where cells go. Subjects that play at the same time do not write into each other's lines."""

    into: Path | None
    stopped: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def say(self, subject: str, *lines: str) -> None:
        with self._lock:
            print("\n".join(f"{subject:<22} {line}" for line in lines), flush=True)

    def keep(self, cell: dict[str, Any]) -> None:
        if self.into is not None:
            with self._lock, self.into.open("ab", buffering=0) as file:
                file.write(json.dumps(cell).encode() + b"\n")

    def kept(self, subject: str, version: str) -> dict[tuple[str, str], str]:
        """The verdicts that are there already, by configuration and cell. The code of an editable
        install may be another one by now.
        """
        if self.into is None or not self.into.exists() or "+editable" in version:
            return {}
        with self._lock:
            cells = tables.read(self.into)
        return {
            (c["configuration"], f"{c['scenario']}/{c['temperament']}"): c["verdict"]
            for c in cells
            if (c["subject"], c["version"]) == (subject, version)
        }


def score(asked: argparse.Namespace) -> int:
    everything = known()
    slowest_first = [n for kind in SLOWEST_FIRST for n, a in everything.items() if kind == a.KIND]
    wanted = asked.subject or slowest_first
    unknown = [name for name in wanted if name not in everything]
    if unknown:
        print(f"oncebench: there is no subject {', '.join(unknown)}; oncebench subjects lists them")
        return 2
    try:
        plan(only=asked.only, quick=asked.quick)
        if not asked.no_controls:
            print("controls: ", end="", flush=True)
            python = asked.python or sys.executable
            print(f"{len(check_controls(python))} as they must be", flush=True)
        return 1 if _score_all(wanted, asked) else 0
    except (Void, WorldDied, ValueError) as error:
        print(f"oncebench: {error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        print("oncebench: stopped. With --into, the same command goes on here.", file=sys.stderr)
        return 130


def _score_all(wanted: Sequence[str], asked: argparse.Namespace) -> int:
    """How many cells are wrong. As many subjects play at the same time as were asked for."""
    output = Output(asked.into)
    with ThreadPoolExecutor(asked.jobs) as pool:
        subjects = [
            pool.submit(_score_one, name, f"{n} of {len(wanted)}", asked, output)
            for n, name in enumerate(wanted, 1)
        ]
        try:
            return sum(subject.result() for subject in as_completed(subjects))
        except BaseException:
            output.stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _score_one(name: str, which: str, asked: argparse.Namespace, output: Output) -> int:
    adapter = known()[name]
    output.say(name, f"begins ({which})")
    try:
        with ExitStack() as stack:
            python = asked.python or stack.enter_context(
                environment(name, kept_in=asked.environments)
            )
            needed = getattr(adapter, "SERVERS", ())
            urls = stack.enter_context(servers(needed, beside=python))
            wrong = _play(name, python, urls, asked, output)
    except (CannotInstall, NoServer) as error:
        output.say(name, f"not scored: {error}")
        return 0
    output.say(name, f"ends ({which}): {wrong} wrong")
    return wrong


def _play(
    name: str, python: str, urls: dict[str, str], asked: argparse.Namespace, output: Output
) -> int:
    adapter = known()[name]
    pinned = [name.lstrip("@").replace("@", " ") for name in getattr(adapter, "NPM", ())]
    version = ", ".join([versions(python, adapter.REQUIRES), *pinned])
    chosen = [
        Subject(adapter=name, python=python, best=best, servers=urls)
        for best in (False, True)
        if _wanted(best, adapter, asked)
    ]
    cells = [f"{s.name}/{t}" for s, t in plan(only=asked.only, quick=asked.quick)]
    of = {(subject.configuration, cell) for subject in chosen for cell in cells}
    kept = {} if asked.again else output.kept(name, version)
    wrong = sum(kept[cell] in WRONG for cell in of & kept.keys())
    if of & kept.keys():
        output.say(name, f"{len(of & kept.keys())} of {len(of)} cells are kept from before")
    played = scored(
        chosen,
        only=asked.only,
        quick=asked.quick,
        points_max=asked.points,
        confirm=asked.confirm,
        played=kept,
    )
    for cell in played:
        more = {"name": adapter.NAME, "kind": adapter.KIND, "version": version}
        output.keep({**as_json(cell), **more})
        mark = tables.SHOWN[cell.verdict]
        lines = [f"{mark} {cell.name:<16} {cell.configuration:<10} {cell.why[:90]}"]
        if cell.verdict in WRONG:
            wrong += 1
            lines.append(f"  seen {cell.seen}; again: {cell.again}")
        output.say(name, *lines)
        if output.stopped.is_set():
            break
    return wrong


def _wanted(best: bool, adapter: Any, asked: argparse.Namespace) -> bool:  # noqa: FBT001
    if adapter.KIND == "control" and best:
        return False
    if asked.best or asked.as_shipped:
        return bool(asked.best if best else asked.as_shipped)
    return True


def table(asked: argparse.Namespace) -> int:
    made = tables.rows(tables.read(asked.cells))
    forms = {"markdown": tables.as_markdown, "html": tables.as_html, "json": tables.as_json}
    print(forms[asked.form](made, command=asked.command, date=asked.date))
    return 0


def subjects() -> int:
    for name, adapter in known().items():
        print(f"{name:<24} {adapter.KIND:<10} {shlex.join(adapter.REQUIRES) or '-'}")
    return 0


def show_scenarios(asked: argparse.Namespace) -> int:
    for name, scenario in scenarios().items():
        if asked.name is None:
            print(f"{name:<6} {scenario.title} ({', '.join(scenario.temperaments)})")
        elif asked.name == name:
            print(scenario.text)
    if asked.name is None:
        print("\nNumbers without a scenario of their own:")
        for name, why in ELSEWHERE.items():
            print(f"{name:<6} {why}")
    return 0
