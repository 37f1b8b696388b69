"""Another clock for one process, with Debian's libfaketime."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

PLACES = (Path("/usr/lib"), Path("/usr/lib64"), Path("/usr/local/lib"))


class NoOtherClock(Exception):
    """This machine has no libfaketime."""


def shifted(seconds: float) -> dict[str, str]:
    """What the environment of a process has whose clock is so far ahead. Its monotonic clock,
    which measures how long it waits, is left alone.
    """
    names = ("faketime/libfaketimeMT.so.1", "*/faketime/libfaketimeMT.so.1")
    found = next((path for place in PLACES for name in names for path in place.glob(name)), None)
    if found is None:
        raise NoOtherClock(
            "libfaketime is not installed. On Debian, as root: apt-get install faketime"
        )
    return {
        "LD_PRELOAD": str(found),
        "FAKETIME": f"{seconds:+.0f}",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


def mend_sleep() -> None:
    """With libfaketime 0.9.10, time.sleep() of Python 3.11 and newer raises EINVAL where the
    monotonic clock is left alone (its issue 426). Waiting for an event is not touched by it.
    """
    if "FAKETIME" in os.environ:
        time.sleep = _wait  # type: ignore[assignment]


def _wait(seconds: float) -> None:
    threading.Event().wait(seconds)
