"""Counting in a process, and adding to the store now and then.

A call adds one to a number in memory, and nothing else: no lock, no clock, no round trip. One
thread for all guards of a process wakes a few seconds after something was counted. It adds what
came together, and ends when nothing was counted since. The calls of an event loop are added on
that loop, by its own connections. What is not added when a process is killed, or a guard is let
go without being closed, is lost: a figure is what happened at least.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import time
import weakref
from asyncio import _get_running_loop
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from effectonce._core import counters as fields
from effectonce._core.counters import Addition, Numbers, added, settle_bucket
from effectonce._core.endings import Done, Ending, Fresh, Lost, Replay
from effectonce._core.ops import Busy, Doubtful, Flow, Mismatch
from effectonce._core.record import State
from effectonce._drivers import adrive, drive
from effectonce._forks import anew_in_a_fork
from effectonce._log import LOG
from effectonce.errors import ContractViolation, StoreUnavailable
from effectonce.stores.base import Store

EVERY_S = 2.5  # after at least one such time, and at most two
TRIES, LAST_TRIES = 8, 64  # others may add at the same time; the last time, there is no later
CLOSE_WAIT_S = 1.0  # for an addition that is under way
NAMES_MAX = 1000  # tools of a process, and tenants of a tool, between two additions
VARIABLE = "EFFECTONCE_COUNTERS"
IDLE = fields.ROW  # the last place of a row: nothing was counted in it at the last addition


def days_of(counters: int | None, environ: Mapping[str, str]) -> int:
    """For how many days counters are kept; 0: nothing is counted. The guard's word comes first."""
    given = environ.get(VARIABLE) or fields.KEEP_DAYS if counters is None else counters
    if isinstance(given, bool) or not str(given).isdigit():
        name = VARIABLE if counters is None else "counters"
        raise ContractViolation(
            f"{name}={given!r}: for how many days counters are kept, a whole number; 0 for none"
        )
    return int(given)


class ToolCounters:
    """What the calls of one tool came to."""

    __slots__ = ("all", "replays", "rows", "tool")

    def __init__(self, all_: Counters, tool: str) -> None:
        self.all, self.tool = all_, tool
        # Calls whose outcome was known without asking: by whom, and what it was. One append is
        # all that such a call does.
        self.replays: list[tuple[str, State]] = []
        self.rows: dict[str, list[int]] = {}  # by tenant

    def ended(self, tenant: str, ending: Ending) -> None:
        """A call ended so."""
        if type(ending) is Replay and not ending.coalesced:
            self.replays.append((tenant, ending.recorded.state))
        else:
            row = self.rows.get(tenant)
            if row is None:
                row = self.row(tenant)
            if type(ending) is Fresh and ending.sends == 1 and ending.doubt_s is None:
                row[0] += 1  # LANDED
            else:
                _count(row, ending)
        if self.all.idle:
            self.all.wake()

    def settled(self, tenant: str, field: int, age_s: float | None) -> None:
        """A doubt is over. What happened has landed, although no call could say so."""
        row = self.row(tenant)
        row[fields.LANDED] += field in (fields.PROBE_HAPPENED, fields.PERSON_HAPPENED)
        _settle(row, field, age_s)
        self.all.wake()

    def row(self, tenant: str) -> list[int]:
        if tenant not in self.rows and len(self.rows) >= NAMES_MAX:
            tenant = fields.OTHER
        return self.rows.setdefault(tenant, [0] * (fields.ROW + 1))

    def fold(self) -> None:
        """Replays that were put aside, as numbers."""
        replays = self.replays[:]
        del self.replays[: len(replays)]
        for (tenant, state), count in Counter(replays).items():
            self.row(tenant)[_replay(state)] += count

    def take(self) -> dict[str, Numbers]:
        """What was counted since, by tenant: it counts no longer as that."""
        taken: dict[str, Numbers] = {}
        for tenant, row in list(self.rows.items()):
            numbers = {place: number for place, number in enumerate(row[: fields.ROW]) if number}
            for place, number in numbers.items():
                row[place] -= number
            if numbers:
                taken[tenant] = numbers
            elif row[IDLE]:  # twice: no call that looked it up is about to count in it
                del self.rows[tenant]
            row[IDLE] = not numbers
        return taken


def _replay(state: State, completed: int = fields.REPLAYED) -> int:
    """What a known outcome counts as: only what happened could have happened twice."""
    return completed if state is State.COMPLETED else fields.REPLAYED_FAILURES


def _count(row: list[int], ending: Ending) -> None:
    """The endings that are rarer."""
    match ending:
        case Fresh(sends=sends, settled_by=by, doubt_s=doubt_s):
            if sends == 0 and doubt_s is None:  # found before it was sent
                row[_replay(State.COMPLETED)] += 1
                return
            row[fields.LANDED] += 1
            row[fields.RESENT] += sends > 1 and by == ""
            if doubt_s is not None:
                row[fields.DOUBTS] += doubt_s == 0
                _settle(row, fields.PROBE_HAPPENED if by else fields.PROBE_NOT_HAPPENED, doubt_s)
        case Done():
            row[fields.LANDED] += 1
        case Replay(recorded):
            row[_replay(recorded.state, fields.JOINED)] += 1
        case Busy():
            row[fields.REFUSED_RUNNING] += 1
        case Doubtful(since_s):
            row[fields.REFUSED_IN_DOUBT] += 1
            row[fields.DOUBTS] += since_s == 0  # this call found it abandoned
        case Mismatch():
            row[fields.CONFLICTS] += 1
        case Lost():
            row[fields.DOUBTS] += 1
        case _:
            pass
    row[fields.RETRIES_WITHHELD] += _withheld(ending)


def _withheld(ending: Any) -> bool:
    """Was there no other attempt, although the last one failed? As the metric counts it."""
    return bool(getattr(ending, "attempts", 0) and getattr(ending, "why", ""))


def _settle(row: list[int], field: int, age_s: float | None) -> None:
    row[field] += 1
    if age_s is not None:
        age_s = max(0.0, age_s)
        row[fields.SETTLE_MS] += round(age_s * 1000)
        row[settle_bucket(age_s)] += 1


class Counters:
    """The counters of one guard: *days* is how long the store keeps them."""

    def __init__(self, store: Store, days: int, clock: Callable[[], float] = time.time) -> None:
        self._store, self._clock, self.days = store, clock, days
        self._tools: dict[str, ToolCounters] = {}
        self.after_fork()
        anew_in_a_fork(self)
        _LIVING.add(self)

    def after_fork(self) -> None:
        """What our parent has counted it adds by itself."""
        for tool in list(self._tools.values()):
            tool.rows.clear()
            tool.replays.clear()
        self._writer, self._number = os.urandom(8).hex(), 0
        self._adding = threading.Lock()
        self._waits: Addition | None = None  # it was not added yet, or no answer came
        self.idle, self.failed = True, False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None  # a loop keeps none alive

    def of(self, tool: str) -> ToolCounters:
        known = self._tools.get(tool)
        if known is None:
            if len(self._tools) >= NAMES_MAX:
                tool = fields.OTHER
            known = self._tools.setdefault(tool, ToolCounters(self, tool))
        return known

    def doubted(self, count: int) -> None:
        """A sweep found so many abandoned. It does not say of which tools."""
        if count:
            self.of(fields.OTHER).row(fields.OTHER)[fields.DOUBTS] += count
            self.wake()

    def wake(self) -> None:
        """Something was counted: add it in a few seconds."""
        if self.idle:
            self.idle, self._loop = False, _get_running_loop()
            THREAD.add(self)

    def due(self) -> None:
        """Add it now; on the loop that made the last call, if it still runs."""
        self.idle, loop = True, self._loop
        if loop is not None and loop.is_running():
            try:
                loop.call_soon_threadsafe(self._begin, loop)
                return
            except RuntimeError:
                pass  # it was closed just now
        self.flush()

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._task = loop.create_task(self.aflush())

    def flush(self, *, last: bool = False) -> None:
        """Add what was counted. A store that does not answer gets it later."""
        wait_s = CLOSE_WAIT_S if last and _get_running_loop() is None else 0.0
        if self._adding.acquire(timeout=wait_s):
            try:
                drive(self._added(LAST_TRIES if last else TRIES), self._store.apply)
                self.failed = False
            except Exception as error:  # noqa: BLE001
                # whatever a store of a user's raises: no call may notice it
                self._not_added(error)
            finally:
                self._adding.release()

    async def aflush(self) -> None:
        """The same on an event loop."""
        if self._adding.acquire(blocking=False):
            try:
                await adrive(self._added(TRIES), self._store.aapply)
                self.failed = False
            except Exception as error:  # noqa: BLE001  # as above
                self._not_added(error)
            finally:
                self._adding.release()

    def close(self) -> None:
        """Add the rest, unless the store did not answer the last time: that would take long."""
        if not self.failed and (self._waits is not None or any(map(_has, self._tools.values()))):
            self.flush(last=True)

    def _added(self, tries: int) -> Flow[None]:
        for tool in list(self._tools.values()):
            tool.fold()  # also while a store does not answer: what is put aside is bounded
        for _ in range(2):  # what waited, and what was counted since
            if self._waits is None:
                self._waits = self._take()
            if self._waits is None:
                return
            if not (yield from added(self._waits, fields.keep_s(self.days), tries)):
                self.wake()
                return
            self._waits = None

    def _take(self) -> Addition | None:
        taken = {
            (tool.tool, tenant): numbers
            for tool in list(self._tools.values())
            for tenant, numbers in tool.take().items()
        }
        if not taken:
            return None
        self._number += 1
        day = time.strftime("%Y-%m-%d", time.gmtime(self._clock()))
        return Addition(day, self._writer, self._number, taken)

    def _not_added(self, error: Exception) -> None:
        if isinstance(error, StoreUnavailable):
            self.failed = True
            self.wake()
            return
        if not self.failed:
            LOG.info("counters are not kept by this store: %r", error)
        self.failed, self._waits = True, None


def _has(tool: ToolCounters) -> bool:
    return bool(tool.replays) or any(any(row[:IDLE]) for row in list(tool.rows.values()))


class CounterThread:
    """One thread for all guards of this process, while something waits to be added."""

    def __init__(self) -> None:
        self.after_fork()
        anew_in_a_fork(self)

    def after_fork(self) -> None:
        self._lock = threading.RLock()
        # weakly: a guard that is let go lets go its connections, and not seconds later
        self._waiting: weakref.WeakSet[Counters] = weakref.WeakSet()
        self._running = False

    def add(self, counters: Counters) -> None:
        with self._lock:
            self._waiting.add(counters)
            if self._running:
                return
            thread = threading.Thread(target=self._live, name="effectonce-counters", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no room for a thread, or the interpreter ends
                counters.idle = True  # the next call tries it again
                return
            self._running = True

    def _live(self) -> None:
        """Nothing is added at once: an event loop that lives shortly is over by then, and none is
        given a task while it ends, of which it would say that it was destroyed.
        """
        aged: weakref.WeakSet[Counters] = weakref.WeakSet()
        while True:
            time.sleep(EVERY_S)
            due = list(aged)
            with self._lock:
                aged, self._waiting = self._waiting, weakref.WeakSet()
                if not due and not aged:
                    self._running = False
                    return
            while due:
                due.pop().due()


_LIVING: weakref.WeakSet[Counters] = weakref.WeakSet()
THREAD = CounterThread()


@atexit.register
def _at_exit() -> None:
    for counters in list(_LIVING):
        counters.close()
