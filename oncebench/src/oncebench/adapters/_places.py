"""Where an engine's processes work. A process takes the first place that is free, as a restarted
container does, so what a dead process left is taken up by the next one, and what a living one does
is not. Each place has a queue of its own: else any process might serve another one's wish, and a
fault would hit the wrong one.
"""

from __future__ import annotations

import fcntl
import itertools
import os
from pathlib import Path


class Places:
    """The places of one play."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._locks: dict[int, int] = {}
        self.own = next(f"place-{n}" for n in itertools.count() if self._taken(n))

    def orphans(self) -> list[str]:
        """The places of dead processes. From now on they are this one's."""
        known = sorted(int(file.suffix[1:]) for file in self._folder.glob("place.*"))
        return [f"place-{n}" for n in known if n not in self._locks and self._taken(n)]

    def _taken(self, number: int) -> bool:
        lock = os.open(self._folder / f"place.{number}", os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the kernel ends it with the process
        except BlockingIOError:
            os.close(lock)
            return False
        self._locks[number] = lock
        return True
