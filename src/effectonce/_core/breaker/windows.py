"""How the latest calls went: the last so many, or those of the last so many seconds. Time is an
argument.

Calls that went well need not be reported one by one: their caller may count them, and `passed`
adds up what was counted. With seconds, that holds until the slot ends that they belong to.
"""

from __future__ import annotations

from collections import deque
from math import inf

SLOTS = 10  # a window of seconds forgets in steps of a tenth
FAILED, SLOW = 1, 2


class LastCalls:
    """The last *size* calls: a ring of flags with running sums."""

    __slots__ = ("_at", "_ring", "calls", "failed", "slow")

    def __init__(self, size: int) -> None:
        self._ring = bytearray(size)
        self.clear()

    def clear(self) -> None:
        self._at = self.calls = self.failed = self.slow = 0

    def add(self, now: float, failed: int, slow: int) -> None:
        """One more call; *failed* and *slow* are 0 or 1."""
        ring, at = self._ring, self._at
        if self.calls == len(ring):
            gone = ring[at]
            self.failed -= gone & FAILED
            self.slow -= gone >> 1
        else:
            self.calls += 1
        ring[at] = failed + SLOW * slow
        self.failed += failed
        self.slow += slow
        self._at = (at + 1) % len(ring)

    def passed(self, count: int) -> None:
        """*count* calls went well."""
        for _ in range(min(count, len(self._ring))):
            self.add(0.0, 0, 0)

    def counts_until(self, now: float) -> float:
        """Until when calls that go well may be counted outside."""
        return inf

    def forget(self, now: float) -> None:
        """Time alone makes nothing old here."""


class LastFailures:
    """Were the last *size* failures all within *window_s*? Exact; successes need not be counted."""

    __slots__ = ("_times", "_window_s")

    def __init__(self, size: int, window_s: float) -> None:
        self._times: deque[float] = deque(maxlen=size)
        self._window_s = window_s

    def clear(self) -> None:
        self._times.clear()

    def add(self, now: float) -> bool:
        """One more. True: that makes *size* of them within the window."""
        self._times.append(now)
        return len(self._times) == self._times.maxlen and now - self._times[0] <= self._window_s

    def count(self, now: float) -> int:
        """How many of them are within the window now."""
        return sum(now - time <= self._window_s for time in self._times)


class LastSeconds:
    """The calls of the last *window_s* seconds, in slots that are forgotten as a whole."""

    __slots__ = ("_slot_s", "_slots", "calls", "failed", "slow")

    def __init__(self, window_s: float) -> None:
        self._slot_s = window_s / SLOTS
        self._slots: deque[list[int]] = deque()  # number, calls, failed, slow
        self.clear()

    def clear(self) -> None:
        self._slots.clear()
        self.calls = self.failed = self.slow = 0

    def add(self, now: float, failed: int, slow: int) -> None:
        slot = self._slot(now)
        slot[1] += 1
        slot[2] += failed
        slot[3] += slow
        self.calls += 1
        self.failed += failed
        self.slow += slow

    def passed(self, count: int) -> None:
        """*count* calls went well, in the slot whose end was reported last."""
        if self._slots:
            self._slots[-1][1] += count
            self.calls += count

    def counts_until(self, now: float) -> float:
        return (self._slot(now)[0] + 1) * self._slot_s

    def _slot(self, now: float) -> list[int]:
        # Two threads may come here in another order than they read the clock: the newer slot
        # takes both.
        number, slots = int(now / self._slot_s), self._slots
        if not slots or slots[-1][0] < number:
            self.forget(now)
            slots.append([number, 0, 0, 0])
        return slots[-1]

    def forget(self, now: float) -> None:
        """Drop what is older than the window."""
        oldest = int(now / self._slot_s) - SLOTS + 1
        slots = self._slots
        while slots and slots[0][0] < oldest:
            _, calls, failed, slow = slots.popleft()
            self.calls -= calls
            self.failed -= failed
            self.slow -= slow
