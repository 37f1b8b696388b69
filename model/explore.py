"""Everything that can happen to one key, exhaustively.

Theory of operation. A `World` is one moment: the record, the workers, the requests that are on
their way, what the downstream has done and what callers were told. `Moves` lists what can happen
next, and `explore` visits every world that can be reached, breadth first, so that the first
violation it meets has the shortest trace.

  the store       is the real transition table      (ledger.py)
  the workers     are the real flow                 (flows.py)
  the environment may do the worst at any moment    (moves.py)
      a lease ends at any time after it was granted, whatever its owner is doing
      a worker dies between any two steps; the request it sent is still on its way
      a request lands at any later moment, or never; its answer may be lost
      a store write is not acknowledged, and lands at once, later, or never; its sender repeats it
      with the same token
      where a case says so: a caller is cancelled, a window ends, the store or the downstream
      forgets, a person decides

Bounds: one key, and per case (cases.py) the number of workers, how often the record may change
hands, how many attempts a call makes, and how many store writes go unanswered. Crashes, lease
ends, time-outs and lost requests are not bounded.

Safety is judged in every world (`flaws`) and at every change of the record (ledger.py). Liveness
is asked of every world too: if everybody died here, would a fresh call that nothing goes wrong
for settle the record?
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from effectonce._core.guards import unapproved
from effectonce._core.record import State
from flows import IDLE
from ledger import SCENE
from moves import Moves
from world import (
    DISAGREE,
    DUPLICATE,
    FALSE_FAILURE,
    LOST_RESULT,
    PHANTOM,
    TOLD_FAILED,
    TOLD_FIRST,
    TOLD_OTHER,
    TOLD_RECORDED,
    TWO_RESULTS,
    Case,
    Worker,
    World,
)

RULE = tuple[str, str, str, str]  # its name, op, start and end


@dataclass
class Report:
    """What exploring a case showed."""

    case: Case
    states: int = 0
    transitions: int = 0
    stuck: int = 0
    seconds: float = 0.0
    violations: dict[str, list[str]] = field(default_factory=dict)  # each with its shortest trace
    fired: frozenset[RULE] = frozenset()

    @property
    def as_expected(self) -> bool:
        found = set(self.violations)
        return self.stuck == 0 and (self.case.expect in found if self.case.expect else not found)


def explore(case: Case, *, states_max: int = 2_000_000) -> Report:
    """Visit every world of *case*; stop at the first violation if one is expected."""
    moves, report, started = Moves(case), Report(case), time.perf_counter()
    parents = _visit(moves, report, states_max)
    report.states = len(parents)
    if not report.violations:
        rescue = Rescue(moves)
        report.stuck = sum(not rescue.settles(world) for world in parents)
    report.fired = frozenset(
        (rule.name, rule.op.__name__, rule.start, rule.end) for rule in moves.ledger.fired
    )
    report.seconds = time.perf_counter() - started
    return report


def _visit(moves: Moves, report: Report, states_max: int) -> dict[World, World | None]:
    """Every world that can be reached, with the one it was first reached from."""
    first = moves.first()
    parents: dict[World, World | None] = {first: None}
    queue = deque([first])
    while queue and not (report.case.expect and report.violations):
        world = queue.popleft()
        for _, after in moves.of(world):
            report.transitions += 1
            if after in parents:
                continue
            parents[after] = world
            flaws = tuple(_flaws(moves, after))
            for flaw in flaws:
                if flaw not in report.violations:
                    report.violations[flaw] = _trace(moves, parents, after)
            if not flaws:  # what follows from a violation is no news
                queue.append(after)
        if len(parents) > states_max:
            raise RuntimeError(
                f"{report.case.name}: more than {states_max:,} states; lower its bounds"
            )
    return parents


def _trace(moves: Moves, parents: dict[World, World | None], world: World) -> list[str]:
    """What happened on the shortest way here."""
    labels: list[str] = []
    parent = parents[world]
    while parent is not None:
        labels.append(next(label for label, after in moves.of(parent) if after == world))
        world, parent = parent, parents[parent]
    return labels[::-1]


# ---------------------------------------------------------------- safety


def _flaws(moves: Moves, world: World) -> Iterator[str]:
    record = moves.ledger.records[world.record]
    completed = record is not None and record.state is State.COMPLETED
    told_ok = world.told & (TOLD_FIRST | TOLD_OTHER)
    if world.flaw:
        yield world.flaw
    if world.effects > 1:
        yield DUPLICATE
    if world.effects == 0 and (completed or told_ok):
        yield PHANTOM
    if world.told & TOLD_OTHER:
        yield TWO_RESULTS
    if world.told & TOLD_FAILED and world.effects:
        yield FALSE_FAILURE
    if world.told & TOLD_FAILED and told_ok:
        yield DISAGREE
    excused = world.losses < moves.case.losses or world.closings < moves.case.closings
    if world.told & TOLD_RECORDED and not completed and not excused:
        yield LOST_RESULT


# ---------------------------------------------------------------- liveness


class Rescue:
    """Let everybody die, every request get lost and every lease end: does a fresh, undisturbed
    call settle the record?
    """

    def __init__(self, moves: Moves) -> None:
        self.moves = moves
        self._known: dict[tuple[int, int, int], bool] = {}

    def settles(self, world: World) -> bool:
        record = self.moves.ledger.lapse(world.record)
        place = (record, world.effects, world.memory)
        if place not in self._known:
            alone = self.moves.first()._replace(
                record=record, effects=world.effects, memory=world.memory, cuts=0, cancels=0
            )
            self._known[place] = self._settles(alone)
        return self._known[place]

    def _settles(self, world: World) -> bool:
        ledger = self.moves.ledger
        # one call may find a doubt, the next asks the probe, and a third runs after the delay bound
        for _ in range(3):
            world = self._call(world)
            if self._settled(world):
                return True
            world = world._replace(record=ledger.lapse(ledger.calm(world.record)))
        return False

    def _call(self, world: World) -> World:
        """One call from its beginning to its end; of what can happen, the first, which is the
        best.
        """
        world = self.moves.begin(world._replace(workers=(Worker(),), owners=3))
        while world.workers[0].pose != IDLE:
            step = next(self.moves.undisturbed(world), None)
            if step is None:
                break  # it waits for somebody who does not come
            world = step[1]
        return world

    def _settled(self, world: World) -> bool:
        record = self.moves.ledger.records[world.record]
        if record is None:
            return False
        if record.state is State.IN_DOUBT:
            case = self.moves.case
            probe_settles = case.has_probe and (world.effects > 0 or case.terms.delay_s is not None)
            return not probe_settles  # a person decides
        if record.request.terms.approval and record.state is State.CLAIMED and record.sends == 0:
            return unapproved(record, None, SCENE)  # a person decides
        return record.state in (State.COMPLETED, State.FAILED, State.TOMBSTONE)
