"""How long to wait before the next attempt. Randomness is an argument."""

from __future__ import annotations

from collections.abc import Callable


def full_jitter(attempt: int, base_s: float, cap_s: float, rng: Callable[[], float]) -> float:
    """A delay spread evenly over [0, ceiling], where the ceiling doubles from *base_s* up to *cap_s*.

    The cap bounds the ceiling, not the draw: delays stay spread even after many attempts.
    """
    doublings = min(attempt - 1, 64)  # 2.0**1024 overflows; nobody waits that long
    return float(min(cap_s, base_s * 2.0**doublings) * rng())
