"""Has a clock been stepped? A machine's wall clock may be put forward or back; the time since
its boot may not.

The distance between the two is noted. While it stays the same, the wall clock has gone as fast
as time does since the note was made. After a step, or a reboot, a new note says since when it
can be relied on. A delay that safety rests on is counted from there (rule `quiet`). The note also
says how far the clock is back from where it was in this boot, at most, and what was sent before
that: it is at most so much older than it looks. The age of a send of another boot is not known, if
it lies in the future.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from math import inf
from pathlib import Path

from msgspec import Struct

from effectonce._core.record import Record, Scene
from effectonce._core.resolved import resolved

TOLERANCE_S = 0.25  # a leap of less is no step
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class ClockNote(Struct, frozen=True, array_like=True):
    """Since when, by the wall clock itself, it has been this far from the time since boot."""

    boot: str
    distance_s: float
    since: float
    put_back_s: float = 0.0  # from where it was in this boot, at most
    sent_before: float = 0.0  # what is open and was sent later was sent since
    # what was sent later was sent in this boot; None: it is not known of anything
    of_another_boot: float | None = None

    def scene(self, now: float, rival: Record | None, predecessor: Record | None) -> Scene:
        """What the rules may look at."""
        foreign = inf if self.of_another_boot is None else self.of_another_boot
        return Scene(
            now, rival, predecessor, self.since, self.put_back_s, self.sent_before, foreign
        )


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

    def holds(self, note: ClockNote | None) -> bool:
        """Is it still true?"""
        if note is None or note.boot != self._boot:
            return False
        return abs(note.distance_s - (self._clock() - self._ticks())) <= TOLERANCE_S

    def look(self, note: ClockNote | None, last_sent: Callable[[], float]) -> ClockNote:
        """This note, if it is still true; otherwise a new one. *last_sent*: when the last of what
        is open now was sent first, by the clock of then.
        """
        if note is not None and self.holds(note):
            return note
        now = self._clock()
        distance_s, last = now - self._ticks(), last_sent()
        if note is None or note.boot != self._boot:
            return ClockNote(self._boot, distance_s, now, 0.0, last, last if self._boot else None)
        put_back_s = max(0.0, note.put_back_s + note.distance_s - distance_s)
        return ClockNote(self._boot, distance_s, now, put_back_s, last, note.of_another_boot)


resolved(ClockNote)
