"""`oncebench run -- python my_agent.py`: hit a program everywhere, and count what it did.

Two runs without a fault say what is right: how often each effect happens when all goes well.
What differs between those two, a time or a random id, is not compared. Then each trial hits the
program once, at one point, and restarts it until it ends well. More effects than without the
fault: a duplicate. Fewer, and the program ended well: lost. Never ended well: stuck. A trial
whose point the program did not come by this time says nothing: missed.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from oncebench.programs import Ended, copy_of, run
from oncebench.syscalls import TRIES, NoTracing, Point, hitting, points_of, watching
from oncebench.world import DAY_S, WIRE, Effect, Kind, World, world

Verdict = Literal["ok", "duplicate", "lost", "stuck", "missed"]


class NotComparable(Exception):
    """The program does other things each time, or does not end well without any fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    command: tuple[str, ...]
    folder: Path
    url_names: tuple[str, ...] = ("ONCEBENCH_URL",)
    honours_keys: bool = True
    can_be_asked: bool = True
    proxy: bool = False
    restarts: int = 4
    within_s: float = 30.0
    points_max: int = 60
    seed: int = 0
    only: str | None = None
    before: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)  # of the program, and of --before


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One fault, and what came of it."""

    where: str  # kill:recvfrom:4, or wire:reset after:1
    seen: str
    verdict: Verdict
    effects: dict[str, tuple[int, int]] = field(default_factory=dict)  # counted, right
    ends: tuple[str, ...] = ()
    last_output: str = ""


def same_each_time(first: Any, second: Any) -> Any:
    """*first*, with `*` where *second* differs."""
    if isinstance(first, dict) and isinstance(second, dict) and first.keys() == second.keys():
        return {name: same_each_time(first[name], second[name]) for name in first}
    if isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        return [same_each_time(a, b) for a, b in zip(first, second, strict=True)]
    return first if first == second else "*"


def matches(pattern: Any, value: Any) -> bool:
    if pattern == "*":
        return True
    if isinstance(pattern, dict) and isinstance(value, dict) and pattern.keys() == value.keys():
        return all(matches(pattern[name], value[name]) for name in pattern)
    if isinstance(pattern, list) and isinstance(value, list) and len(pattern) == len(value):
        return all(matches(a, b) for a, b in zip(pattern, value, strict=True))
    return bool(pattern == value)


@dataclass(frozen=True, slots=True)
class Right:
    """What happens when nothing goes wrong."""

    patterns: tuple[tuple[str, Any], ...]
    counts: Counter[int]
    requests: int

    def name(self, index: int) -> str:
        path, body = self.patterns[index]
        return f"{path} {json.dumps(body, ensure_ascii=False)[:100]}"

    def compare(self, effects: Sequence[Effect]) -> dict[str, tuple[int, int]]:
        """Each effect that was counted, or is missing: how often, and how often is right."""
        counted: Counter[str] = Counter()
        for effect in effects:
            counted[self._named(effect)] += 1
        names = {self.name(i): n for i, n in self.counts.items()}
        return {name: (counted[name], names.get(name, 0)) for name in sorted({*names, *counted})}

    def _named(self, effect: Effect) -> str:
        asked = f"{effect.method} {effect.path}"
        for index, (path, body) in enumerate(self.patterns):
            if path == asked and matches(body, effect.body):
                return self.name(index)
        return f"{asked} {json.dumps(effect.body, ensure_ascii=False)[:100]}"


def right_of(first: Sequence[Effect], second: Sequence[Effect], requests: int) -> Right:
    asked = [[f"{e.method} {e.path}" for e in run_] for run_ in (first, second)]
    if asked[0] != asked[1]:
        raise NotComparable(
            f"without a fault, the program did {asked[0]} in one run and {asked[1]} in the next."
            " Give it a fixed seed, or a model that answers alike."
        )
    patterns: list[tuple[str, Any]] = []
    counts: Counter[int] = Counter()
    for name, one, two in zip(asked[0], first, second, strict=True):
        pattern = (name, same_each_time(one.body, two.body))
        if pattern not in patterns:
            patterns.append(pattern)
        counts[patterns.index(pattern)] += 1
    return Right(tuple(patterns), counts, requests)


class Runner:
    """Runs one program again and again, each time in a fresh folder against a fresh world."""

    def __init__(
        self,
        options: Options,
        *,
        say: Callable[[str], None],
        wire: bool = True,
        kills: bool = True,
    ) -> None:
        self._options = options
        self._say = say
        self._wire, self._kills = wire, kills
        self.notice: str | None = None  # why there are wire faults alone

    def trials(self) -> Iterator[Trial]:
        options = self._options
        right, points = self._watch()
        wheres = [str(p) for p in points] if self._kills else []
        asked = right.requests if self._wire else 0
        wire = [f"wire:{kind}:{n + 1}" for n in range(asked) for kind in WIRE]
        if options.only is not None:
            chosen = [options.only]
        else:
            chosen = [*_sample(wheres, options.points_max, options.seed), *wire]
        seen = {str(p): p.seen for p in points}
        self._say(
            f"{right.requests} requests for effects, {len(wheres)} points to hit it at,"
            f" {len(wire)} faults of the wire; {len(chosen)} trials, seed {options.seed}"
        )
        for where in chosen:
            yield self._trial(where, seen.get(where, ""), right)

    def _watch(self) -> tuple[Right, list[Point]]:
        runs: list[list[Effect]] = []
        points: list[Point] = []
        requests = 0
        for attempt in range(2):
            with copy_of(self._options.folder) as folder, self._world(folder) as here:
                trace = folder.parent / "trace"
                command = list(self._options.command)
                if attempt == 1:
                    try:
                        command = watching(command, trace)
                    except NoTracing as error:
                        self.notice = f"{error} Faults of the wire alone."
                ended = self._run(command, folder, here)
                if not ended.well:
                    raise NotComparable(
                        f"without a fault, the program {ended}. Its last words:\n{_tail(ended)}"
                    )
                runs.append(here.effects())
                requests = len(here.requests())
                if trace.exists():
                    points = points_of(_lines(trace))
        if not runs[0]:
            raise NotComparable(
                "the program asked for no effect. Its service is at the URL in"
                f" ${' and $'.join(self._options.url_names)}; --url-env NAME gives it to the"
                " program under another name, --proxy leads plain HTTP there."
            )
        return right_of(runs[0], runs[1], requests), points

    def _trial(self, where: str, seen: str, right: Right) -> Trial:
        if where.startswith("wire:"):
            return self._hit(where, seen, right)[0]
        point = Point.parse(where)
        trial, lines = self._hit(where, seen, right, point)
        for _ in range(TRIES - 1):
            nearby = point.instead(lines)
            if trial.verdict != "missed" or nearby is None:
                break
            point = nearby
            trial, lines = self._hit(where, seen, right, point)
        return trial

    def _hit(
        self, where: str, seen: str, right: Right, point: Point | None = None
    ) -> tuple[Trial, list[str]]:
        """The trial, and the trace of the run that was hit."""
        options = self._options
        with copy_of(options.folder) as folder, self._world(folder) as here:
            command = list(options.command)
            trace = folder.parent / "trace"
            if point is not None:
                command = hitting(command, point, trace)
            else:
                _, kind, nth = where.split(":")
                here.arm(_kind(kind), nth=int(nth))
            ends = [self._run(command, folder, here)]
            lines = [] if point is None else _lines(trace)
            hit = seen if point is None else point.hit_in(lines)
            missed = hit is None
            while not missed and not ends[-1].well and len(ends) <= options.restarts:
                ends.append(self._run(options.command, folder, here))
            effects = right.compare(here.effects())
        trial = Trial(
            where=where,
            seen=hit or seen,
            verdict="missed" if missed else verdict_of(effects, ended_well=ends[-1].well),
            effects=effects,
            ends=tuple(map(str, ends)),
            last_output=_tail(ends[-1]),
        )
        return trial, lines

    def _run(self, command: Sequence[str], folder: Path, here: World) -> Ended:
        environment = {
            **self._options.environment,
            **dict.fromkeys(self._options.url_names, here.url),
        }
        if self._options.proxy:
            environment |= {"HTTP_PROXY": here.url, "http_proxy": here.url}
        return run(command, folder=folder, environment=environment, within_s=self._options.within_s)

    def _world(self, folder: Path) -> Any:
        if self._options.before is not None:
            ended = run(
                ("sh", "-c", self._options.before),
                folder=folder,
                environment=self._options.environment,
                within_s=60,
            )
            if not ended.well:
                raise NotComparable(f"--before {ended}:\n{_tail(ended)}")
        return world(
            folder.parent / "ledger",
            window_s=DAY_S if self._options.honours_keys else None,
            can_be_asked=self._options.can_be_asked,
        )


def verdict_of(effects: dict[str, tuple[int, int]], *, ended_well: bool) -> Verdict:
    if any(counted > right for counted, right in effects.values()):
        return "duplicate"
    if not ended_well:
        return "stuck"
    if any(counted < right for counted, right in effects.values()):
        return "lost"
    return "ok"


def _sample(wheres: list[str], most: int, seed: int) -> list[str]:
    """All of them, or as many as fit, spread by the seed. The order is that of the run."""
    if len(wheres) <= most:
        return wheres
    kept = set(random.Random(seed).sample(range(len(wheres)), most))  # noqa: S311
    return [where for index, where in enumerate(wheres) if index in kept]


def _lines(trace: Path) -> list[str]:
    return trace.read_text(errors="replace").splitlines()


def _kind(text: str) -> Kind:
    for kind in WIRE:
        if kind == text:
            return kind
    raise ValueError(f"{text!r} is no fault of the wire: {', '.join(WIRE)}")


def _tail(ended: Ended) -> str:
    return "\n".join(ended.output.strip().splitlines()[-4:])
