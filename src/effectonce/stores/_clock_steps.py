"""Has a clock been stepped? A machine's wall clock may be put forward or back; the time since
its boot may not.

The distance between the two is noted. While it stays the same, the wall clock has gone as fast
as time does since the note was made. After a step, or a reboot, a new note says since when it
can be relied on. A delay that safety rests on is counted from there (rule `quiet`). The note also
says how far the clock was put back since boot, each time added: what was noted in this boot is at
most so much older than it looks.
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
    put_back_s: float = 0.0  # in this boot, each time added


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
            return ClockNote(self._boot, distance_s, now)
        back_s = note.distance_s - distance_s
        if abs(back_s) <= TOLERANCE_S:
            return note
        return ClockNote(self._boot, distance_s, now, note.put_back_s + max(0.0, back_s))


resolved(ClockNote)
