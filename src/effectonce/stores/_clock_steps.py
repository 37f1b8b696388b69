"""Has a clock been stepped? A machine's wall clock may be put forward or back; the time since
its boot may not.

The distance between the two is noted. While it stays the same, the wall clock has gone as fast
as time does since the note was made. After a step, or a reboot, a new note says since when it
can be relied on. A delay that safety rests on is counted from there (rule `quiet`). The note also
says how far the clock is back from where it was in this boot, at most: what was sent in it is at
most so much older than it looks. Where a store already holds a send from the future when the first
note of a boot is made, nothing is said: that send is from before.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from effectonce._core.resolved import resolved

TOLERANCE_S = 0.25  # a leap of less is no step
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class ClockNote(Struct, frozen=True, array_like=True):
    """Since when, by the wall clock itself, it has been this far from the time since boot."""

    boot: str
    distance_s: float
    since: float
    put_back_s: float | None = None  # from where it was in this boot; None: not known

    @property
    def known_back_s(self) -> float:
        """What lies further in the future than this has no known age."""
        return self.put_back_s or 0.0

    def begins_after(self, before: ClockNote | None) -> bool:
        """Is it of another boot than the note before it, or the first?"""
        return before is None or before.boot != self.boot


# Seconds that the machine has been up, asleep or not. Where that cannot be had, a sleep looks
# like a step, which is safe.
since_boot = functools.partial(
    time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
)


def boot_id() -> str:
    """Which boot this is. Some machines begin each at the same time."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


class Steadiness:
    """Watches one wall clock. For a test's own clock, *ticks* default to that clock."""

    def __init__(
        self, clock: Callable[[], float], ticks: Callable[[], float] | None = None
    ) -> None:
        self._clock, self._boot = clock, boot_id()
        self._ticks = (since_boot if clock is time.time else clock) if ticks is None else ticks

    def look(self, note: ClockNote | None) -> ClockNote:
        """This note, if it is still true; otherwise a new one."""
        now = self._clock()
        distance_s = now - self._ticks()
        if note is None or note.boot != self._boot:
            return ClockNote(self._boot, distance_s, now, 0.0)
        back_s = note.distance_s - distance_s
        if abs(back_s) <= TOLERANCE_S:
            return note
        known_s = note.put_back_s
        put_back_s = None if known_s is None else max(0.0, known_s + back_s)
        return ClockNote(self._boot, distance_s, now, put_back_s)


resolved(ClockNote)
