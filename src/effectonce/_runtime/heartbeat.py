"""Leases live as long as their tools run: one thread for all sync tools of a guard, one timer
for all async tools of a loop.

A beat that the store does not answer is repeated sooner; it never stops or cancels the tool. A
refused one ends: another worker owns the record, and the tool's own completion will find out. No
thread wakes for a tool that returns before its first beat: what was set for it is left to run
out, and then set for the tools that are running.

A signal whose handler raises (Ctrl-C, the time limit of a task queue) may strike after every
call of a function. A lease that was kept alive for no caller would keep all others from the
effect. So the code that runs a tool takes its beat out of `beats` whatever happens, and puts it
in after it has made sure of that; both are one call into C.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from math import inf

from msgspec import Struct

from effectonce._core.ops import Ask, Invoke, Refused, Renew, Transact
from effectonce._core.preconditions import CheckPrecondition
from effectonce._forks import anew_in_a_fork
from effectonce.stores.base import Store

BEATS_PER_LEASE, BEATS_PER_LEASE_AFTER_A_MISS = 3, 10
IDLE_S = 30.0  # how long the heartbeat thread outlives the last lease


class HeldLease(Struct, eq=False):
    """One lease that is being kept alive."""

    op: Invoke | Ask | Transact | CheckPrecondition
    lease_s: float
    due: float
    lost: bool = False


def _renewal(beat: HeldLease) -> Renew:
    return Renew(beat.op.key, beat.op.token, beat.op.epoch, beat.lease_s)


class Heartbeat:
    """The leases of a guard's running tools: sync ones are kept here, async by a loop's `pulse`."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._clock = store, clock
        self.after_fork()
        anew_in_a_fork(self)

    def after_fork(self) -> None:
        """No tool is running here, and the thread, if there was one, stayed with our parent."""
        self._pulses: dict[asyncio.AbstractEventLoop, LoopHeartbeat] = {}
        # taken by itself: a condition would go through Python for it, twice in every call
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        # changed without the lock, so looked at as a list of its own
        self.beats: set[HeldLease] = set()
        self._wakes_at = inf
        self._thread: threading.Thread | None = None

    def beat(self, op: Invoke | Ask | Transact | CheckPrecondition, lease_s: float) -> HeldLease:
        """What stands for the lease of this op: put it into `beats`, then `wake`."""
        return HeldLease(op, lease_s, self._clock() + lease_s / BEATS_PER_LEASE)

    def wake(self, beat: HeldLease) -> None:
        """Have a thread awake when this beat is due. `RuntimeError` if no thread can start."""
        with self._lock:
            if beat.due < self._wakes_at:
                if self._thread is None:
                    thread = threading.Thread(
                        target=self._live, name="effectonce-heartbeat", daemon=True
                    )
                    thread.start()  # it may raise; then nothing was noted
                    self._thread = thread
                self._wakes_at = beat.due
                self._changed.notify()

    def _live(self) -> None:
        """Sleep until the time that `wake` or the last round has set, even if the tool has
        returned meanwhile.

        So short calls wake this thread once per round, not each: a thread that wakes takes turns
        with the one that calls.
        """
        while True:
            with self._changed:
                while (pause_s := self._wakes_at - self._clock()) > 0:
                    self._changed.wait(min(pause_s, IDLE_S))
                    if pause_s == self._wakes_at == inf:
                        self._thread = None  # nothing to do for long: the next call starts another
                        return
                due = [beat for beat in list(self.beats) if beat.due <= self._clock()]
            for beat in due:
                self._renew(beat)
            with self._changed:
                self._wakes_at = min((beat.due for beat in list(self.beats)), default=inf)

    def _renew(self, beat: HeldLease) -> None:
        lease_s = beat.lease_s
        try:
            beat.lost = isinstance(self._store.apply(_renewal(beat)), Refused)
            beat.due = inf if beat.lost else self._clock() + lease_s / BEATS_PER_LEASE
        except Exception:  # noqa: BLE001
            # whatever it is, the leases of all others must not end with this thread
            beat.due = self._clock() + lease_s / BEATS_PER_LEASE_AFTER_A_MISS

    def pulse(self) -> LoopHeartbeat:
        """What keeps the leases of the running loop alive."""
        loop = asyncio.get_running_loop()
        pulse = self._pulses.get(loop)
        if pulse is None:
            for old in [old for old in list(self._pulses) if old.is_closed()]:
                self._pulses.pop(old, None)
            pulse = self._pulses[loop] = LoopHeartbeat(self._store, loop)
        return pulse


class LoopHeartbeat:
    """The leases of one loop's async tools: one timer for all, and a task only for what is due."""

    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop) -> None:
        self._store, self._loop = store, loop
        self._beats: set[HeldLease] = set()
        self._wakes_at = inf
        self._renewing: set[asyncio.Task[None]] = set()  # a loop keeps no task alive

    def start(self, op: Invoke | Ask | Transact | CheckPrecondition, lease_s: float) -> HeldLease:
        """Renew the lease of this op from now on."""
        beat = HeldLease(op, lease_s, self._loop.time() + lease_s / BEATS_PER_LEASE)
        self._beats.add(beat)
        self._wake_at(beat.due)
        return beat

    def stop(self, beat: HeldLease) -> None:
        """The tool has returned."""
        self._beats.discard(beat)

    def _wake_at(self, when: float) -> None:
        if when < self._wakes_at:
            self._wakes_at = when
            self._loop.call_at(when, self._round, when)

    def _round(self, when: float) -> None:
        if when != self._wakes_at:
            return  # an earlier round was asked for after this one, and has set the next
        self._wakes_at, now = inf, max(when, self._loop.time())  # a loop may be a moment early
        for beat in self._beats:
            if beat.due <= now:
                beat.due = inf
                task = self._loop.create_task(self._renew(beat))
                self._renewing.add(task)
                task.add_done_callback(self._renewing.discard)
        self._wake_at(min((beat.due for beat in self._beats), default=inf))

    async def _renew(self, beat: HeldLease) -> None:
        share = BEATS_PER_LEASE
        try:
            beat.lost = isinstance(await self._store.aapply(_renewal(beat)), Refused)
        except Exception:  # noqa: BLE001  # as in the thread
            share = BEATS_PER_LEASE_AFTER_A_MISS
        if not beat.lost and beat in self._beats:
            beat.due = self._loop.time() + beat.lease_s / share
            self._wake_at(beat.due)
