"""Doubts that settle themselves: the probes of a guard's tools are asked in the background, from
the first doubt on that a call of this process ends with.

A process without doubts starts no thread, and one whose last doubt is settled ends it. Sync tools
are asked by a thread, which no exit waits for. Async tools are asked on the loop that they were
called on: a timer, and a task for each round. A loop that ends takes its timer with it, and the
next doubt on another loop begins again.
"""

from __future__ import annotations

import asyncio
import threading
from asyncio import _get_running_loop
from contextvars import Context
from typing import TYPE_CHECKING, Any

from effectonce._forks import anew_in_a_fork
from effectonce._log import LOG
from effectonce.recovery.in_doubt import InDoubtFilter, Settlement
from effectonce.recovery.pace import ReconcilePace

if TYPE_CHECKING:
    from effectonce.recovery.reconciler import Reconciler

EVERY_TENANT = "main"  # of a guard that names none: its steps do, if there are several
CLOSE_WAIT_S = 2.0  # for a probe that is being asked; it ends by itself
FIRST_S = 1.0  # the call has asked just now, and a program that ends sooner pays for nothing


class BackgroundReconciler:
    """Begins when a call ends in doubt, and goes on until nothing is left to ask about."""

    def __init__(
        self, desk: Settlement, pace: ReconcilePace | None, tenant: str = EVERY_TENANT
    ) -> None:
        self._desk, self.pace = desk, pace
        # The guard of one tenant has its client as well, which knows nothing of the others'.
        self._tenants = None if tenant == EVERY_TENANT else {tenant}
        self.after_fork()
        anew_in_a_fork(self)

    def after_fork(self) -> None:
        """Neither a thread nor a loop of our parent runs here."""
        # of this thread again, if a signal strikes inside
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        # a doubt came after the round of this thread, or of these loops, began
        self._woken = False
        self._loops_woken: set[asyncio.AbstractEventLoop] = set()
        self._timers: dict[asyncio.AbstractEventLoop, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def running(self) -> bool:
        """Does a thread of this process ask, or will a loop of it?"""
        return self._thread is not None or bool(self._timers)

    def doubted(self, tool: Any, tenant: str) -> None:
        """A call of *tool* for *tenant* ended in doubt here."""
        if self.pace is None or tool.probe_function is None:
            return
        if self._tenants is not None:
            self._tenants.add(tenant)
        if not tool.is_async:
            self._wake()
        elif (loop := _get_running_loop()) is not None:
            self._wake_loop(loop)

    @property
    def _first_s(self) -> float:
        return FIRST_S if self.pace is None else min(FIRST_S, self.pace.every_s)

    def close(self) -> None:
        """End, after the probe that is being asked if that does not take long."""
        with self._lock:
            thread, self._thread = self._thread, None
            timers, self._timers = self._timers, {}
            self._stopped.set()
        for loop, timer in timers.items():
            if not loop.is_closed():
                loop.call_soon_threadsafe(timer.cancel)
        for task in list(self._tasks):
            if not task.get_loop().is_closed():
                task.get_loop().call_soon_threadsafe(task.cancel)
        if thread is not None and thread is not threading.current_thread():
            thread.join(CLOSE_WAIT_S)

    def _reconciler(self) -> Reconciler:
        from effectonce.recovery.reconciler import Reconciler  # noqa: PLC0415  # with a doubt

        assert self.pace is not None
        return Reconciler(self._desk, InDoubtFilter(tenants=self._tenants), self.pace)

    # ------------------------------------------------------------ sync tools

    def _wake(self) -> None:
        with self._lock:
            self._woken = True
            if self._thread is not None:
                return
            reconciler = self._reconciler()
            self._stopped = reconciler.stopped
            thread = threading.Thread(
                target=self._live, args=(reconciler,), name="effectonce-reconciler", daemon=True
            )
            try:
                thread.start()
            except RuntimeError as error:  # no room for a thread, or the interpreter ends
                LOG.warning("what is in doubt is not asked about now: %s", error)
                return
            self._thread = thread

    def _live(self, reconciler: Reconciler) -> None:
        stopped = reconciler.stopped
        if stopped.wait(self._first_s):
            return
        while True:
            with self._lock:
                self._woken = False
            try:
                reconciler.round()
                left = reconciler.left
            except Exception as error:  # noqa: BLE001
                # a thread that died would not be noticed, and doubts would stay
                reconciler.failed(error)
                left = 1
            with self._lock:
                if left == 0 and not self._woken and not stopped.is_set():
                    self._thread = None
                    return
            if stopped.wait(reconciler.pause_s):
                return

    # ------------------------------------------------------------ async tools

    def _wake_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            for old in [old for old in self._timers if old.is_closed()]:
                del self._timers[old]
                self._loops_woken.discard(old)
            self._loops_woken.add(loop)
            if loop not in self._timers:
                self._timers[loop] = self._timer(loop, self._reconciler(), self._first_s)

    def _timer(
        self, loop: asyncio.AbstractEventLoop, reconciler: Reconciler, delay_s: float
    ) -> asyncio.TimerHandle:
        # a context of its own: a round is no part of the step in which it was begun
        return loop.call_later(delay_s, self._begin, loop, reconciler, context=Context())

    def _begin(self, loop: asyncio.AbstractEventLoop, reconciler: Reconciler) -> None:
        task = loop.create_task(self._around(loop, reconciler))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _around(self, loop: asyncio.AbstractEventLoop, reconciler: Reconciler) -> None:
        self._loops_woken.discard(loop)
        try:
            await reconciler.around()
            left = reconciler.left
        except Exception as error:  # noqa: BLE001  # as in the thread
            reconciler.failed(error)
            left = 1
        with self._lock:
            if loop not in self._timers:
                return  # closed meanwhile
            if left == 0 and loop not in self._loops_woken:
                del self._timers[loop]
            else:
                self._timers[loop] = self._timer(loop, reconciler, reconciler.pause_s)
