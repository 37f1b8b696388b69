"""What the store holds, as metrics: asked at most every few seconds, however often collected."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from msgspec import Struct

from effectonce._core.breaker.machine import Phase
from effectonce._core.ops import Browse, Tally
from effectonce._core.record import State
from effectonce._text import on_one_line
from effectonce.errors import StoreUnavailable
from effectonce.observe.metrics import Measured

_RESTS = 20  # times as long as it took: a store that holds very much is not busy with being counted
_LOOKED_AT = 100  # of the doubts that were claimed first: one of them is the oldest, or nearly so


class Waiting(Struct, frozen=True):
    """What waits among the dead letters."""

    by_tool: Mapping[str, int]
    oldest_age_s: float


class StoreGauges:
    """The gauges of a guard: give it to `Prometheus(gauges=...)` or `OpenTelemetry(gauges=...)`,
    in one process of a fleet.

    What the store holds is the same for all: summed over processes it would be counted many
    times. It is asked at most every *every_s* seconds, and less often where it takes long to
    answer; a store that does not answer has no gauges. Dead letters are counted by reading them
    all, unless *dead_letters* says what waits.
    """

    def __init__(
        self,
        guard: Any,
        *,
        every_s: float = 15.0,
        dead_letters: Callable[[], Waiting] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # its own room below
        self._store, self._watch = guard.store, guard._house.watch  # noqa: SLF001
        self._dead_letters = partial(_waiting, guard) if dead_letters is None else dead_letters
        self._every_s, self._clock = every_s, clock
        self._lock = threading.Lock()
        self._held: tuple[Measured, ...] = ()
        self._due = -1e300

    def read(self) -> tuple[Measured, ...]:
        """Every gauge, as it is now."""
        with self._lock:
            asked = self._clock()
            if asked >= self._due:
                self._held = self._ask()
                answered = self._clock()
                self._due = answered + max(self._every_s, (answered - asked) * _RESTS)
            return (*self._held, *self._here())

    def _ask(self) -> tuple[Measured, ...]:
        try:
            counts = self._store.apply(Tally())
            doubts = self._store.apply(Browse(State.IN_DOUBT, limit=_LOOKED_AT))
            letters = self._dead_letters()
        except StoreUnavailable:
            return ()
        states = (state for state in State if state is not State.ABSENT)
        found: list[Measured] = [
            ("effectonce.effect.count", float(counts.get(state, 0)), (str(state),))
            for state in states
        ]
        oldest_s = max((time.time() - record.decided_at for record in doubts), default=0.0)
        found.append(("effectonce.in_doubt.oldest_age", max(0.0, oldest_s), ()))
        found += [("effectonce.dlq.size", float(n), (tool,)) for tool, n in letters.by_tool.items()]
        found.append(("effectonce.dlq.oldest_age", letters.oldest_age_s, ()))
        return tuple(found)

    def _here(self) -> tuple[Measured, ...]:
        """What this process knows by itself."""
        watch = self._watch
        phases = [
            ("effectonce.breaker.state", float(circuit.phase is phase), (name, str(phase)))
            for name, circuit in list(watch.circuits.items())
            for phase in Phase
        ]
        budgets = [
            ("effectonce.retry_budget.available", b.level, (name,))
            for name, b in list(watch.budgets.items())
        ]
        failures = [
            ("effectonce.observer.errors", float(n), (kind,))
            for kind, n in list(watch.failures.items())
        ]
        return (*phases, *budgets, *failures)


def _waiting(guard: Any) -> Waiting:
    groups, by_tool = guard.dead_letters.groups(), Counter[str]()
    for group in groups:
        by_tool[on_one_line(group.tool)] += group.count
    return Waiting(
        dict(by_tool), max((max(0.0, time.time() - group.oldest) for group in groups), default=0.0)
    )
