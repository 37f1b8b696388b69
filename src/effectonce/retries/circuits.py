"""Many circuits with one policy, in bounded memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

from effectonce._core.breaker.machine import Phase
from effectonce.errors import ContractViolation
from effectonce.retries.breaker_policy import Breaker
from effectonce.retries.circuit import Circuit


class Circuits:
    """One policy for many dependencies: `circuits["tenant/tool/host"]` is made when it is first
    asked for.

    At most *limit* are kept. The longest unused that is closed goes first: it has the least to
    forget.
    """

    def __init__(self, policy: Breaker | None = None, *, limit: int = 1000, **options: Any) -> None:
        if limit < 1:
            raise ContractViolation(f"limit={limit}: at least one circuit must be kept")
        self._make: Callable[[str], Circuit] = lambda name: Circuit(name, policy, **options)
        self._limit, self._lock = limit, threading.RLock()
        self._circuits: OrderedDict[str, Circuit] = OrderedDict()

    def __getitem__(self, name: str) -> Circuit:
        with self._lock:
            circuit = self._circuits.get(name)
            if circuit is None:
                circuit = self._circuits[name] = self._make(name)
                self._make_room()
            else:
                self._circuits.move_to_end(name)
            return circuit

    def _make_room(self) -> None:
        if len(self._circuits) > self._limit:
            others = list(self._circuits)[:-1]  # the last is the one that was asked for
            idle = (name for name in others if self._circuits[name].phase is Phase.CLOSED)
            del self._circuits[next(idle, others[0])]

    def __iter__(self) -> Iterator[str]:
        with self._lock:
            return iter(list(self._circuits))

    def __len__(self) -> int:
        return len(self._circuits)
