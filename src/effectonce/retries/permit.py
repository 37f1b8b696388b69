"""What a circuit gives its callers: the right to make one call, and what it knows about itself."""

from __future__ import annotations

import functools
from collections.abc import Callable
from math import inf
from typing import Self

from msgspec import Struct

from effectonce._core.breaker.machine import FREE, Phase, Sign

WELL, NOTHING = Sign.SUCCESS, Sign.NEUTRAL


class CircuitStats(Struct, frozen=True, kw_only=True):
    """How a circuit is at one moment. Calls are counted since it was made, the window apart."""

    phase: Phase
    why: str  # it is in this phase
    since_s: float  # it has been
    # until a probe may be sent, at the latest; None: until an operator closes it
    retry_after_s: float | None
    generation: int  # one more than there were changes
    opened: int  # times
    succeeded: int
    failed: int
    slow: int  # of both, those that took slow_s or longer
    neutral: int  # without meaning: cancelled, refused for what it asked, an error of our own
    late: int  # answers to calls that an earlier phase had let through: they changed nothing
    refused: int  # in shadow mode: would have been
    failures_in_a_row: int
    probes_out: int
    window_calls: int
    window_failed: int
    window_slow: int


class Change(Struct, frozen=True):
    old: Phase
    new: Phase
    stats: CircuitStats


OnChange = Callable[[Phase, Phase, CircuitStats], object]

Settle = Callable[["Permit | SharedPermit", object, float], None]


class Permit:
    """The right to make one call. Say once how it ended, or let a `with` block say it."""

    __slots__ = ("_settle", "generation", "number", "started_at")

    def __init__(self, settle: Settle, generation: int, number: int, started_at: float) -> None:
        self._settle: Settle | None = settle  # None: it has been settled
        self.generation, self.number, self.started_at = generation, number, started_at

    def succeeded(self) -> None:
        """The dependency answered well."""
        self._end(WELL)

    def failed(self, error: object) -> None:
        """It ended with this error, response or `Verdict`. What that means decides whether it
        counts against the dependency.
        """
        self._end(error)

    def released(self) -> None:
        """It ended, and nothing was learnt about the dependency."""
        self._end(NOTHING)

    def _end(self, ended: object) -> None:
        settle, self._settle = self._settle, None
        if settle is not None:
            settle(self, ended, self.started_at)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._end(WELL if error is None else error)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._end(WELL if error is None else error)


class SharedPermit:
    """A closed circuit's permit, the same for all callers: each says once how its call ended."""

    __slots__ = ("_count", "_settle", "_settle_well", "counts_until", "generation", "succeeded")
    number = FREE

    def __init__(self, settle: Settle, count: Callable[[], object], generation: int) -> None:
        self._settle, self._count, self.generation = settle, count, generation
        self._settle_well = functools.partial(settle, self, WELL, 0.0)
        self.count_until(-inf)

    def count_until(self, until: float) -> None:
        """A success before this is only counted. If forever, `succeeded` is the counter itself."""
        self.counts_until = until
        self.succeeded: Callable[[], object] = self._count if until == inf else self._settle_well

    def failed(self, error: object) -> None:
        self._settle(self, error, 0.0)

    def released(self) -> None:
        self._settle(self, NOTHING, 0.0)
