"""The commands that score subjects and show the table."""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import shlex
import sys
import time
from pathlib import Path
from typing import Any

from oncebench import adapters
from oncebench import table as tables
from oncebench.controls import Void, check_controls
from oncebench.environments import CannotInstall, NoServer, environment, servers, versions
from oncebench.scenarios import scenarios
from oncebench.score import WRONG, as_json, plan
from oncebench.score import score as scored
from oncebench.stage import Subject
from oncebench.world import WorldDied


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
    add("--into", type=Path, metavar="FILE", help="add each cell to this file, as JSON")
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


def score(asked: argparse.Namespace) -> int:
    everything = known()
    wanted = asked.subject or [n for n, a in everything.items() if a.KIND != "control"]
    unknown = [name for name in wanted if name not in everything]
    if unknown:
        print(f"oncebench: there is no subject {', '.join(unknown)}; oncebench subjects lists them")
        return 2
    try:
        count = len(plan(only=asked.only, quick=asked.quick))
        if not asked.no_controls:
            print("controls: ", end="", flush=True)
            python = asked.python or sys.executable
            print(f"{len(check_controls(python))} as they must be", flush=True)
        wrong = 0
        for index, name in enumerate(wanted, 1):
            print(f"{name} ({index} of {len(wanted)}), {count} cells a configuration", flush=True)
            wrong += _score_one(name, everything[name], asked)
    except (Void, WorldDied, ValueError) as error:
        print(f"oncebench: {error}", file=sys.stderr)
        return 3
    return 1 if wrong else 0


def _score_one(name: str, adapter: Any, asked: argparse.Namespace) -> int:
    configurations = [best for best in (False, True) if _wanted(best, adapter, asked)]
    wrong = 0
    try:
        with servers(getattr(adapter, "SERVERS", ())) as urls:
            if asked.python is not None:
                return _play(name, adapter, asked.python, urls, configurations, asked)
            with environment(name, kept_in=asked.environments) as python:
                wrong = _play(name, adapter, python, urls, configurations, asked)
    except (CannotInstall, NoServer) as error:
        print(f"  not scored: {error}", flush=True)
    return wrong


def _wanted(best: bool, adapter: Any, asked: argparse.Namespace) -> bool:  # noqa: FBT001
    if adapter.KIND == "control" and best:
        return False
    if asked.best or asked.as_shipped:
        return bool(asked.best if best else asked.as_shipped)
    return True


def _play(
    name: str,
    adapter: Any,
    python: str,
    urls: dict[str, str],
    configurations: list[bool],
    asked: argparse.Namespace,
) -> int:
    version = versions(python, adapter.REQUIRES)
    chosen = [
        Subject(adapter=name, python=python, best=best, servers=urls) for best in configurations
    ]
    wrong = 0
    for cell in scored(
        chosen,
        only=asked.only,
        quick=asked.quick,
        points_max=asked.points,
        confirm=asked.confirm,
    ):
        line = {**as_json(cell), "name": adapter.NAME, "kind": adapter.KIND, "version": version}
        if asked.into is not None:
            with asked.into.open("a") as file:
                file.write(json.dumps(line) + "\n")
        mark = tables.SHOWN[cell.verdict]
        print(f"  {mark} {cell.name:<10} {cell.configuration:<10} {cell.why[:90]}", flush=True)
        if cell.verdict in WRONG:
            wrong += 1
            print(f"      seen {cell.seen}; again: {cell.again}", flush=True)
    return wrong


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
    return 0
