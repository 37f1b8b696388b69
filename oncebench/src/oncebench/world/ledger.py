"""What really happened: one line for each effect, on the disk before anyone learns of it."""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One thing that happened in the world, and cannot be taken back."""

    number: int
    method: str
    path: str
    body: Any
    key: str | None
    asked_at: float  # when its request came
    at: float  # when it happened

    @property
    def receipt(self) -> str:
        return f"receipt-{self.number}"

    def answer(self) -> dict[str, Any]:
        """What the service answers for it, the first time and under its key again."""
        return {"receipt": self.receipt, "asked": self.body}


class KeyConflict(Exception):
    """The key was used for another request."""


class Ledger:
    """Counts, and does nothing else. With a window, it also honours keys as payment services
    do: the same key within the window is the same effect, and another body under it is refused.
    """

    def __init__(self, path: Path, *, window_s: float | None = None) -> None:
        self._file = path.open("ab")
        self._lock = threading.Lock()
        self._effects: list[Effect] = []
        self.window_s = window_s

    def land(
        self, *, method: str, path: str, body: Any, key: str | None, asked_at: float
    ) -> Effect:
        with self._lock:
            known = self._under(key)
            if known is not None:
                if (known.path, known.body) != (path, body):
                    raise KeyConflict(key)
                return known
            effect = Effect(
                number=len(self._effects) + 1,
                method=method,
                path=path,
                body=body,
                key=key,
                asked_at=asked_at,
                at=time.time(),
            )
            self._file.write(json.dumps(asdict(effect)).encode() + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
            self._effects.append(effect)
            return effect

    def _under(self, key: str | None) -> Effect | None:
        if key is None or self.window_s is None:
            return None
        oldest = time.time() - self.window_s
        alive = (e for e in self._effects if e.key == key and e.at >= oldest)
        return next(alive, None)

    def effects(self) -> list[Effect]:
        with self._lock:
            return list(self._effects)
