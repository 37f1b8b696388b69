"""Moments and spans as people and as scripts read them. Everything is UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from math import inf

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}

_FIRST = datetime(1, 1, 1, tzinfo=UTC).timestamp()
_LAST = datetime(9999, 12, 31, tzinfo=UTC).timestamp()


def iso(at: float) -> str | None:
    """For scripts, to the millisecond. None: never, not yet, or a time that no calendar has."""
    if at == 0.0 or not _is_in_a_calendar(at):
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment(at: float) -> str:
    """For people."""
    if not _is_in_a_calendar(at):
        return "no date"  # one record that was spoilt hides no other
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def instant(at: float) -> str:
    """The same to the millisecond, where the order of things matters."""
    return f"{moment(at)}.{int(at * 1000) % 1000:03}" if _is_in_a_calendar(at) else moment(at)


def later(seconds: float) -> str:
    """How long after another moment: within a minute to the millisecond."""
    return f"+{seconds:.3f} s" if seconds < 60 else f"+{span(seconds)}"


def _is_in_a_calendar(at: float) -> bool:
    return _FIRST <= at <= _LAST


def span(seconds: float) -> str:
    """As people say it: one unit, rounded down."""
    if seconds == inf:
        return "ever"
    for unit, size_s in (("days", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size_s or (seconds >= size_s and unit != "days"):
            return f"{int(seconds // size_s)} {unit}"
    return f"{max(0, int(seconds))} s"


def span_s(text: str) -> float:
    """A `30m` or `2h` as a person types it, in seconds."""
    read = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text)
    if read is None:
        raise ValueError(f"{text!r} is no span such as 30m, 2h or 7d")
    return float(read[1]) * _UNITS[read[2]]


def since_when(text: str) -> float:
    """A `2h` (ago) or date as typed: seconds ago if negative, otherwise seconds since 1970."""
    try:
        return -span_s(text)
    except ValueError:
        pass
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is neither a span such as 30m, 2h or 7d nor a date such as 2026-11-15T08:00"
        ) from None
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
