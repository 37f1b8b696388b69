"""Play scenarios with subjects, judge each play, and keep what was seen.

One cell is one subject in one configuration in one scenario and temperament. A cell that comes
out wrong is played again, three times in all: what is not seen three times is not called a fault.
"""

from __future__ import annotations

import importlib
import tempfile
import time
from collections.abc import Container, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from oncebench import rows
from oncebench.checker import Verdict, judge
from oncebench.clocks import NoOtherClock
from oncebench.environments import NoOlderCopy, emptied
from oncebench.kit import Temperament
from oncebench.scenarios import RARE, Scenario, scenarios
from oncebench.stage import Stage, Subject, SubjectBroken
from oncebench.syscalls import NoTracing
from oncebench.world import world

WRONG = frozenset({"D", "F", "L", "W"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    subject: str
    configuration: str
    scenario: str
    temperament: str
    verdict: Verdict
    why: str
    persons: int = 0
    faults: int = 0
    effects: int = 0
    wishes: int = 0
    seconds: float = 0.0
    seen: str = "1 of 1"  # how often it came out like this
    history: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.scenario}/{self.temperament}"

    @property
    def again(self) -> str:
        """The line that plays it again."""
        best = " --best" if self.configuration == "best" else ""
        return f"oncebench score --subject {self.subject}{best} --only {self.name}"


def plan(*, only: Iterable[str] = (), quick: bool = False) -> list[tuple[Scenario, Temperament]]:
    """Which scenarios are played in which temperaments."""
    wanted = tuple(only)
    chosen: list[tuple[Scenario, Temperament]] = []
    for scenario in scenarios().values():
        for temperament in scenario.temperaments:
            name = f"{scenario.name}/{temperament}"
            if wanted and scenario.name not in wanted and name not in wanted:
                continue
            if quick and not scenario.quick:
                continue
            chosen.append((scenario, temperament))
    if not chosen:
        known = ", ".join(scenarios())
        raise ValueError(f"there is no scenario {', '.join(wanted)!r}; there are {known}")
    return chosen


def play(
    subject: Subject,
    scenario: Scenario,
    temperament: Temperament,
    *,
    points_max: int = 6,
    confirm: int = 3,
) -> Cell:
    """One cell. What comes out wrong is played *confirm* times, and has to be wrong each time."""
    adapter = importlib.import_module(f"oncebench.adapters.{subject.adapter}")
    lacks = _lacks(adapter)
    missing = [need for need in (*scenario.needs, temperament) if need in lacks]
    if missing:
        return _not_played(subject, scenario, temperament, lacks[missing[0]])
    first = _play_once(subject, scenario, temperament, points_max=points_max)
    if first.verdict not in WRONG:
        return first
    plays = [first]
    while len(plays) < confirm:
        plays.append(_play_once(subject, scenario, temperament, points_max=points_max))
    verdicts = [p.verdict for p in plays]
    if len(set(verdicts)) == 1:
        return replace(first, seen=f"{len(plays)} of {len(plays)}")
    which = _which(subject, scenario, temperament)
    seen = f"not the same each time: {', '.join(verdicts)}"
    return Cell(**which, verdict="U", why=first.why, seen=seen, history=first.history)


def _lacks(adapter: Any) -> dict[str, str]:
    """What a subject does not do. What is rare is offered."""
    offers = getattr(adapter, "OFFERS", ())
    return {**{need: why for need, (_, why) in RARE.items() if need not in offers}, **adapter.LACKS}


def _play_once(
    subject: Subject, scenario: Scenario, temperament: Temperament, *, points_max: int
) -> Cell:
    began = time.monotonic()
    window_s = scenario.window_s if temperament == "keys" else None
    with (
        tempfile.TemporaryDirectory(prefix="oncebench-") as scratch,
        world(
            Path(scratch) / "ledger", window_s=window_s, can_be_asked=temperament == "asks"
        ) as here,
    ):
        folder = Path(scratch) / "subject"
        folder.mkdir()
        fresh = replace(subject, servers=emptied(subject.servers, beside=subject.python))
        database = ""
        if temperament == "transaction":
            database = fresh.servers.get("postgres", f"{rows.SQLITE}{folder}/shared.db")
            rows.make(database, beside=subject.python)
        stage = Stage(
            fresh,
            here,
            folder,
            temperament=temperament,
            database=database,
            window_s=window_s,
            lease_s=scenario.lease_s,
            pass_s=scenario.pass_s,
            points_max=points_max,
            approval=scenario.needs_approval,
        )
        try:
            expected = scenario.play(stage)
        finally:
            history = stage.close()
    return Cell(
        **_which(subject, scenario, temperament),
        **asdict(judge(history, expected)),
        seconds=round(time.monotonic() - began, 1),
        history=[*history.events, *(f"counted: {c.path} {c.order}" for c in history.counted)],
    )


def _not_played(subject: Subject, scenario: Scenario, temperament: Temperament, why: str) -> Cell:
    return Cell(**_which(subject, scenario, temperament), verdict="N", why=why)


def _which(subject: Subject, scenario: Scenario, temperament: Temperament) -> dict[str, Any]:
    return {
        "subject": subject.adapter,
        "configuration": subject.configuration,
        "scenario": scenario.name,
        "temperament": temperament,
    }


def score(
    subjects: Iterable[Subject],
    *,
    only: Iterable[str] = (),
    quick: bool = False,
    points_max: int = 6,
    confirm: int = 3,
    played: Container[tuple[str, str]] = (),
) -> Iterator[Cell]:
    """Each cell when it is played. *played* has those that are not: configuration and name."""
    wanted = tuple(only)
    for subject in subjects:
        for scenario, temperament in plan(only=wanted, quick=quick):
            if (subject.configuration, f"{scenario.name}/{temperament}") in played:
                continue
            try:
                yield play(subject, scenario, temperament, points_max=points_max, confirm=confirm)
            except (SubjectBroken, NoTracing, NoOtherClock, NoOlderCopy) as error:
                why = f"it does not run here: {error}"
                yield _not_played(subject, scenario, temperament, why)


def as_json(cell: Cell) -> dict[str, Any]:
    return {**asdict(cell), "again": cell.again}
