"""Virtual time: next is the earliest planned event. Nothing sleeps; one seed gives one history."""

from __future__ import annotations

import gc
from collections.abc import Callable
from heapq import heappop, heappush
from math import inf
from random import Random
from typing import Any

Event = tuple[float, int, Callable[..., None], tuple[Any, ...]]


class World:
    """A clock, a die, and the things that are planned."""

    __slots__ = ("_events", "_planned", "now", "rng")

    def __init__(self, seed: str) -> None:
        self.now = 0.0
        self.rng = Random(seed)
        self._events: list[Event] = []
        # of two things at the same moment, the one that was planned first comes first
        self._planned = 0

    def after(self, delay_s: float, act: Callable[..., None], *arguments: Any) -> None:
        """Plan *act* for later."""
        self._planned += 1
        heappush(self._events, (self.now + delay_s, self._planned, act, arguments))

    def run(self, until_s: float = inf) -> None:
        """Let everything happen that is planned before *until_s*, and what follows from it."""
        events, collects = self._events, gc.isenabled()
        gc.disable()  # events make no cycles, and looking for some takes a third of the time
        try:
            while events and events[0][0] < until_s:
                self.now, _, act, arguments = heappop(events)
                act(*arguments)
        finally:
            if collects:
                gc.enable()


def at_least(least: int, **sizes: float) -> None:
    """Refuses a size with nothing to see: nothing would happen, or the world would not end."""
    for name, size in sizes.items():
        if not least <= size < inf:
            raise ValueError(f"{name}={size!r}: choose {least:,} or more")
