"""The reference store: the transition table over a dict. Every other store must behave like this
one.

It forgets everything when the process ends, so it is for tests and for effects that may be lost
with it.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import count, islice
from math import inf
from typing import Any, TypeVar

from effectonce._core.guards import timed
from effectonce._core.ops import (
    RECORD_OPS,
    Browse,
    Cell,
    Claim,
    Find,
    ListCells,
    Op,
    ReadCell,
    Search,
    Sweep,
    Swept,
    Tally,
    Together,
    WriteCell,
)
from effectonce._core.pages import Beside, Count, Recent, Refer, look
from effectonce._core.record import TERMINAL, Record, Scene, State
from effectonce._core.rules import TABLE, Table, latch_of, outcome_pending
from effectonce._core.transitions import transition
from effectonce.stores._clock_steps import Steadiness
from effectonce.stores.base import Capabilities, in_a_signal_handler

R = TypeVar("R")


class MemoryStore:
    """Records in a dict, one lock around it."""

    capabilities = Capabilities(durable=False, transactions=False)
    has_cells = True

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] | None = None,
        table: Table = TABLE,
    ) -> None:
        self._clock, self._steadiness = clock, Steadiness(clock, ticks)
        self._steady = self._steadiness.look(None, lambda: -inf)
        self._table = table  # another one only to show that the tests would notice
        self._lock = threading.RLock()  # it knows who holds it
        self._records: dict[str, Record] = {}
        self._open: dict[str, set[str]] = {}  # latch -> keys without an outcome
        # value, revision, when it is forgotten
        self._cells: dict[str, tuple[bytes, int, float]] = {}
        self._revisions = count(1)

    def apply(self, op: Op[R], /) -> R:
        # there is no public way to ask
        if self._lock._is_owned():  # type: ignore[attr-defined]  # noqa: SLF001
            raise in_a_signal_handler("this store")
        with self._lock:
            reply: R = self._step(op) if type(op) in RECORD_OPS else self._apply(op)
            return reply

    async def aapply(self, op: Op[R], /) -> R:
        return self.apply(op)

    def close(self) -> None:
        """Nothing to give back."""

    def _apply(self, op: Any) -> Any:
        match op:
            case Find(key):
                return self._records.get(key)
            case Browse(state, tenant, after, limit):
                found = (
                    r
                    for r in self._records.values()
                    if r.state is state
                    and (tenant is None or r.request.tenant == tenant)
                    and (r.created_at, r.request.key) > after
                )
                return tuple(sorted(found, key=lambda r: (r.created_at, r.request.key))[:limit])
            case Search():
                fitting = (r for r in self._records.values() if op.fits(r))
                return tuple(
                    sorted(fitting, key=lambda r: (r.created_at, r.request.key), reverse=True)[
                        : op.limit
                    ]
                )
            case Tally():
                return dict(Counter(r.state for r in self._records.values()))
            case Count() | Recent() | Refer() | Beside():
                return look(op, list(self._records.values()))
            case Sweep():
                return self._sweep(op)
            case ReadCell(name):
                return self._cell(name)
            case WriteCell(name, revision, value, keep_s):
                stands = self._cell(name)
                if stands.revision != revision:
                    return stands
                self._cells[name] = (value, next(self._revisions), stands.now + keep_s)
                return None
            case ListCells():
                return self._listed(op)
            case Together(ops):
                return tuple([self._apply(each) for each in ops])
            case _:
                return self._step(op)

    def _step(self, op: Any) -> Any:
        key = op.request.key if type(op) is Claim else op.key
        before = self._records.get(key)
        step = transition(before, op, self._scene(before, op, key), self._table)
        if step.changed:
            self._put(key, step.after)
        return step.reply

    def _scene(self, before: Record | None, op: Any, key: str) -> Scene:
        others = self._open.get(latch_of(before, op))
        rival = None if others is None else self._rival(others, key)
        predecessor = (
            self._records.get(op.request.after) if type(op) is Claim and op.request.after else None
        )
        if timed(before, op):
            self._steady = self._steadiness.look(self._steady, self._last_sent)
        return self._steady.scene(self._clock(), rival, predecessor)

    def _last_sent(self) -> float:
        open_ones = (r for r in self._records.values() if r.sends > 0 and r.state not in TERMINAL)
        return max((r.first_dispatch_at for r in open_ones), default=-inf)

    def _rival(self, others: set[str], key: str) -> Record | None:
        """The first of those that share a latch that was sent and has no outcome yet."""
        rivals = (self._records[each] for each in sorted(others) if each != key)
        return next((r for r in rivals if outcome_pending(r)), None)

    def _sweep(self, op: Sweep) -> Swept:
        self._steady = self._steadiness.look(self._steady, self._last_sent)
        scene = self._steady.scene(self._clock(), None, None)
        due: Iterable[tuple[str, Record]] = list(self._records.items())
        counts: Counter[State] = Counter()
        for key, before in due:
            if counts.total() == op.limit:
                break
            step = transition(before, op, scene, self._table)
            if step.changed:
                self._put(key, step.after)
                counts[State.ABSENT if step.after is None else step.after.state] += 1
        past = (name for name, (_, _, forget_at) in self._cells.items() if forget_at <= scene.now)
        names = list(islice(past, op.limit - counts.total()))
        for name in names:
            del self._cells[name]
        return Swept(
            counts[State.IN_DOUBT], counts[State.TOMBSTONE], counts[State.ABSENT], len(names)
        )

    def _cell(self, name: str) -> Cell:
        now = self._clock()
        value, revision, forget_at = self._cells.get(name, (b"", 0, 0.0))
        return Cell(now, value, revision) if forget_at > now else Cell(now)

    def _listed(self, op: ListCells) -> tuple[tuple[str, bytes], ...]:
        now, (first, last) = self._clock(), op.bounds
        there = (
            name
            for name, (_, _, forget_at) in self._cells.items()
            if first < name < last and forget_at > now
        )
        return tuple(
            (name, self._cells[name][0]) for name in sorted(there, reverse=op.backwards)[: op.limit]
        )

    def _put(self, key: str, record: Record | None) -> None:
        if record is None:
            del self._records[key]
            return
        self._records[key], latch = record, record.request.latch
        if latch and record.state not in TERMINAL:
            self._open.setdefault(latch, set()).add(key)
        elif latch in self._open:
            self._open[latch].discard(key)
            if not self._open[latch]:
                del self._open[latch]
