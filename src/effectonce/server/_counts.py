"""How many effects there are, for a page that is loaded often: most stores count by looking at every record."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from effectonce._core.ops import Tally
from effectonce._core.records import State

if TYPE_CHECKING:
    from effectonce import Guard

QUICK_S = 0.05  # counting that takes no longer is done for each page
RESTS = 20  # times as long as it took, before it is done again


class Counts:
    """The counts of one guard's store. One request counts; others get what was counted before, or wait for the first count."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._known: Mapping[State, int] | None = None
        self._due = 0.0

    def read(self, guard: Guard) -> Mapping[State, int]:
        known = self._known
        if known is not None and (self._clock() < self._due or self._lock.locked()):
            return known
        with self._lock:
            began = self._clock()
            if self._known is None or began >= self._due:
                self._known = guard.store.apply(Tally())
                took_s = self._clock() - began
                self._due = began + took_s + (RESTS * took_s if took_s > QUICK_S else 0.0)
            return self._known


_COUNTS: weakref.WeakKeyDictionary[Guard, Counts] = weakref.WeakKeyDictionary()


def counts_of(guard: Guard) -> Mapping[State, int]:
    """By state, as it was a moment ago."""
    return _COUNTS.setdefault(guard, Counts()).read(guard)
