"""What the wire and the service do to one request.

A fault is armed for one request: the n-th effect that is asked for, or the next one whose body
has a given value. It is over when it has hit.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal[
    "reset before",  # the connection ends, and nothing happened
    "reset after",  # it happened, and the connection ends
    "no answer",  # it happened, and the answer never comes
    "truncated",  # it happened, and half of the answer comes
    "500 after",  # it happened, and the service says 500
    "late",  # the connection ends, and it happens later; who asked may be killed
    "twice",  # the network delivers the request a second time
    "hold",  # the request waits at the service until it is released, then it happens
    "hold, then reset before",
    "400 before",
    "429 before",
    "503 before",
    "kill before",  # the process that asks is killed when its request is here
    "kill after",  # it happened, and the process that asks is killed before the answer
]
BEFORE = frozenset(
    {"reset before", "400 before", "429 before", "503 before", "kill before"}
    | {"hold, then reset before"}
)
WIRE: tuple[Kind, ...] = (
    "reset before",
    "reset after",
    "no answer",
    "truncated",
    "500 after",
    "late",
    "twice",
    "503 before",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    kind: Kind
    nth: int | None = None  # of all requests for effects, from 1
    matches: str | None = None  # or: the next one whose body has this value
    pid: int | None = None  # who is killed
    late_s: float = 0.3


@dataclass(slots=True)
class Armed:
    """The faults that are still to come. Its counter is that of the requests for effects."""

    _faults: list[Fault] = field(default_factory=list)
    _seen: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    released: threading.Event = field(default_factory=threading.Event)

    def add(self, fault: Fault) -> None:
        with self._lock:
            self._faults.append(fault)

    def next(self, body: Any) -> tuple[int, Fault | None]:
        """The number of this request, and what happens to it."""
        values = set(map(str, body.values())) if isinstance(body, dict) else set()
        with self._lock:
            self._seen += 1
            for fault in self._faults:
                if fault.nth == self._seen or (fault.matches in values):
                    self._faults.remove(fault)
                    return self._seen, fault
            return self._seen, None
