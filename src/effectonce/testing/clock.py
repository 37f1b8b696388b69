"""A clock that a test turns by hand."""

from __future__ import annotations


class FakeClock:
    """Call it for the time; `advance` it instead of sleeping."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Let *seconds* pass."""
        self.now += seconds
