"""The command line."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

from oncebench import __version__
from oncebench.programs import TooLarge
from oncebench.run import NotComparable, Options, Runner, Trial
from oncebench.scoring_cli import add_scoring, score, show_scenarios, subjects, table
from oncebench.syscalls import NoTracing

MARKS = {"ok": "✓", "duplicate": "D", "lost": "L", "stuck": "W", "missed": "-"}
MEANS = {
    "duplicate": "landed more often than without the fault",
    "lost": "did not land, and the program ended as if it had",
    "stuck": "the program did not end well after its restarts: a person is needed",
    "missed": "the program made other calls this time: this point says nothing",
}


def main(arguments: list[str] | None = None) -> None:
    sys.exit(_main(sys.argv[1:] if arguments is None else arguments))


def _main(arguments: list[str]) -> int:
    parser = _parser()
    asked = parser.parse_args(arguments)
    match asked.do:
        case "run":
            return _run(asked, parser, arguments)
        case "score":
            return score(asked)
        case "table":
            return table(asked)
        case "subjects":
            return subjects()
        case "scenarios":
            return show_scenarios(asked)
        case _:
            parser.print_help()
            return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="oncebench",
        description="Does each effect land exactly once, whatever fails?",
    )
    parser.add_argument("--version", action="version", version=f"oncebench {__version__}")
    commands = parser.add_subparsers(dest="do")
    run = commands.add_parser(
        "run",
        help="hit your program at every system call, and count what it did",
        description=(
            "Start a service that counts, run your program against it, and hit it everywhere:"
            " killed at each send, receive and write to disk, with each answer lost. Your program"
            " needs no import: it finds the service's URL in $ONCEBENCH_URL."
        ),
        epilog="Example: oncebench run --url-env PAYMENTS_URL -- python my_agent.py",
    )
    run.add_argument(
        "--url-env",
        action="append",
        default=[],
        metavar="NAME",
        help="give the service's URL to the program under this name too",
    )
    run.add_argument(
        "--proxy",
        action="store_true",
        help="lead the program's plain HTTP to the service, by HTTP_PROXY",
    )
    run.add_argument(
        "--ignores-keys", action="store_true", help="the service does not honour Idempotency-Key"
    )
    run.add_argument(
        "--cannot-be-asked",
        action="store_true",
        help="the service does not answer GET /effects?order=...",
    )
    run.add_argument(
        "--before",
        metavar="COMMAND",
        help="run this before each trial, such as a reset of a database",
    )
    run.add_argument(
        "--restarts",
        type=int,
        default=4,
        metavar="N",
        help="restart the program at most so often (4)",
    )
    run.add_argument(
        "--within-s", type=float, default=30, metavar="S", help="a run may take so long (30)"
    )
    run.add_argument(
        "--points",
        type=int,
        default=60,
        metavar="N",
        help="at most so many points, chosen by the seed (60)",
    )
    run.add_argument("--seed", type=int, default=0)
    run.add_argument("--only", metavar="WHERE", help="one trial, such as kill:recvfrom:4")
    run.add_argument("--json", action="store_true", help="one line of JSON for each trial")
    run.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    add_scoring(commands)
    return parser


def _run(asked: argparse.Namespace, parser: argparse.ArgumentParser, arguments: list[str]) -> int:
    command = asked.command[1:] if asked.command[:1] == ["--"] else asked.command
    if not command:
        parser.error("run needs a program: oncebench run -- python my_agent.py")
    options = Options(
        command=tuple(command),
        folder=Path.cwd(),
        url_names=("ONCEBENCH_URL", *asked.url_env),
        honours_keys=not asked.ignores_keys,
        can_be_asked=not asked.cannot_be_asked,
        proxy=asked.proxy,
        restarts=asked.restarts,
        within_s=asked.within_s,
        points_max=asked.points,
        seed=asked.seed,
        only=asked.only,
        before=asked.before,
    )
    try:
        again = partial(_again, arguments, command)
        return _trials(options, again=again, as_json=asked.json)
    except (NotComparable, NoTracing, TooLarge, ValueError) as error:
        print(f"oncebench: {error}", file=sys.stderr)
        return 2


def _trials(options: Options, *, again: Callable[[str], str], as_json: bool) -> int:
    runner = Runner(options, say=lambda line: None if as_json else print(line, flush=True))
    counts: Counter[str] = Counter()
    for trial in runner.trials():
        counts[trial.verdict] += 1
        if as_json:
            print(json.dumps(asdict(trial)), flush=True)
        elif trial.verdict != "ok":
            _show(trial, again=again)
    missed = counts["missed"]
    wrong = counts.total() - counts["ok"] - missed
    if not as_json:
        if runner.notice is not None:
            print(runner.notice)
        found = [f"{counts[verdict]} {verdict}" for verdict in MEANS if counts[verdict]]
        if not wrong and counts["ok"]:
            found.insert(0, "each effect landed exactly once")
        print(f"{counts.total()} trials: {', '.join(found)}")
    return 1 if wrong or not counts["ok"] else 0


def _show(trial: Trial, *, again: Callable[[str], str]) -> None:
    if trial.verdict == "missed":
        print(f"{MARKS['missed']}  {trial.where}: {MEANS['missed']}", flush=True)
        return
    for name, (counted, right) in trial.effects.items():
        if counted != right:
            print(f"{MARKS[trial.verdict]}  {name}: {counted} times, {right} is right")
    if trial.verdict == "stuck":
        print(f"{MARKS['stuck']}  {MEANS['stuck']}")
        if trial.last_output:
            print("   its last words: " + trial.last_output.splitlines()[-1][:100])
    at = f" at {trial.seen}" if trial.seen else ""
    print(f"   {trial.where}{at}; the program {', then '.join(trial.ends)}")
    print(f"   again: {again(trial.where)}", flush=True)


def _again(arguments: list[str], command: list[str], where: str) -> str:
    """The line that repeats one trial: what you typed, and the point."""
    typed = arguments[: -len(command)]
    if typed[-1] == "--":
        typed.pop()
    only = [] if "--only" in typed else ["--only", where]
    return shlex.join(["oncebench", *typed, *only, "--", *command])
