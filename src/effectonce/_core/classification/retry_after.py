"""How long the downstream asks to wait: in headers, in the body, or in words.

A long delay is never taken for none: who says "in a year" is not asked again in a second. What
cannot be read as a delay is ignored.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime

LONGEST_S = 365 * 86_400.0
IN_MS = ("retry-after-ms", "x-ms-retry-after-ms", "x-amz-retry-after", "grpc-retry-pushback-ms")

_ASKED = re.compile(r"try(?: again)? (?:in|after):? ")
_PART = re.compile(
    r"(\d{1,12}(?:\.\d{1,9})?)"
    r" ?(?:(ms|milliseconds?)|(s|secs?|seconds?)|(m|mins?|minutes?)|(h|hrs?|hours?)"
    r"|(d|days?))(?![a-z])[ ,]*"
)
_UNIT_S = (0.001, 1.0, 60.0, 3600.0, 86_400.0)


def bounded(value_s: float) -> float | None:
    """A delay that can be waited for, or None."""
    return min(value_s, LONGEST_S) if value_s >= 0 and not math.isnan(value_s) else None


def number(value: object) -> float | None:
    """A finite or infinite number, also if it is written as text."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def duration(text: str, start: int = 0) -> float | None:
    """`34.4s`, `10h17m5.7s`, `6m0s`, `20 seconds`: how many seconds?"""
    text, total_s = text.lower(), None
    while (part := _PART.match(text, start)) is not None:
        total_s = (total_s or 0.0) + float(part[1]) * _UNIT_S[(part.lastindex or 2) - 2]
        start = part.end()
    return None if total_s is None else bounded(total_s)


def spoken(text: str) -> float | None:
    """The delay that a message asks for in words: "please try again in 6m0s"."""
    text = text.lower()
    found = _ASKED.search(text)
    return None if found is None else duration(text, found.end())


def from_headers(headers: Mapping[str, str], now: float | None) -> float | None:
    """The delay that headers ask for; a date counts from *now*, else from the response's date."""
    for name in IN_MS:
        value_ms = number(headers.get(name))
        value_s = None if value_ms is None else bounded(value_ms / 1000)
        if value_s is not None:
            return value_s
    asked = headers.get("retry-after")
    if asked is None:
        return None
    # A proxy may have added one of its own; clients join them with a comma.
    numbers = [number(part) for part in asked.split(",")]
    if None not in numbers:
        return max(
            (
                long_s
                for each in numbers
                if each is not None and (long_s := bounded(each)) is not None
            ),
            default=None,
        )
    until, since = _date(asked), _date(headers.get("date", "")) if now is None else now
    return None if until is None or since is None else bounded(max(0.0, until - since))


def _date(text: str) -> float | None:
    try:
        moment = parsedate_to_datetime(text)
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
