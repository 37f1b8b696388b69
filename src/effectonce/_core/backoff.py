"""How long to wait before the next attempt. Randomness is an argument.

The cap bounds the ceiling, not the draw: delays stay spread even after many attempts. Attempts
count from 1, and the first ceiling is the base.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

Rng = Callable[[], float]  # evenly over [0, 1)
_GROWTHS_MAX = 64  # 2.0**1024 overflows, and no caller waits that long
MULTIPLIER = 2.0


class Jitter(StrEnum):
    """How delays are spread. Full jitter needs fewest calls; see `effectonce simulate jitter`."""

    FULL = "full"
    EQUAL = "equal"
    DECORRELATED = "decorrelated"


def exponential(attempt: int, base_s: float, cap_s: float, multiplier: float = MULTIPLIER) -> float:
    """The ceiling: from *base_s* it grows by *multiplier* up to *cap_s*. As a delay it keeps a
    herd together; the simulators show that.
    """
    return float(min(cap_s, base_s * multiplier ** min(attempt - 1, _GROWTHS_MAX)))


def full_jitter(
    attempt: int, base_s: float, cap_s: float, rng: Rng, multiplier: float = MULTIPLIER
) -> float:
    """Evenly over [0, ceiling]."""
    return exponential(attempt, base_s, cap_s, multiplier) * rng()


def equal_jitter(
    attempt: int, base_s: float, cap_s: float, rng: Rng, multiplier: float = MULTIPLIER
) -> float:
    """Evenly over the upper half of [0, ceiling]: no client comes back at once."""
    return exponential(attempt, base_s, cap_s, multiplier) * (0.5 + rng() / 2)


def decorrelated_jitter(previous_s: float, base_s: float, cap_s: float, rng: Rng) -> float:
    """Evenly from *base_s* to three times the delay before, which counts as at least *base_s*."""
    base_s = min(base_s, cap_s)
    return base_s + (min(cap_s, 3 * max(previous_s, base_s)) - base_s) * rng()


def delay(
    jitter: Jitter,
    attempt: int,
    previous_s: float,
    base_s: float,
    cap_s: float,
    rng: Rng,
    multiplier: float = MULTIPLIER,
) -> float:
    """The delay after attempt *attempt*, which followed a delay of *previous_s*."""
    match jitter:
        case Jitter.FULL:
            return full_jitter(attempt, base_s, cap_s, rng, multiplier)
        case Jitter.EQUAL:
            return equal_jitter(attempt, base_s, cap_s, rng, multiplier)
        case Jitter.DECORRELATED:
            return decorrelated_jitter(previous_s, base_s, cap_s, rng)
