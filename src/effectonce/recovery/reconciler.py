"""Asking probes in the background: a few a second, and an effect whose probe does not know is
asked less and less often.

Several processes may do it: an inquiry is a lease on the record, so one of them asks at a time.
How often an effect was asked in vain is remembered here only; a new process begins again.
Nothing is sent again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from effectonce._core.record import Record
from effectonce._drivers import adrive
from effectonce._validate import numbers
from effectonce.errors import ContractViolation
from effectonce.outcome import Outcome
from effectonce.recovery.in_doubt import InDoubtFilter, Reconciled, Settlement, count
from effectonce.recovery.periodic import PeriodicThread

GROWTH = 2.0


class Reconciler:
    """A thread that asks the probes of sync tools: `with guard.reconciler():`, or `start()` and
    `stop()`.

    For async tools, `await reconciler.run()` in a task of your own, until it is cancelled.
    """

    def __init__(
        self,
        desk: Settlement,
        doubts: InDoubtFilter,
        *,
        every_s: float = 60.0,
        per_s: float = 5.0,
        at_least_every_s: float = 86_400.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        numbers(every_s=every_s, per_s=per_s, at_least_every_s=at_least_every_s)
        if not (per_s > 0 and every_s >= 0):
            raise ContractViolation(
                f"per_s={per_s} and every_s={every_s}: it asks some probes a second, and no time is"
                " negative"
            )
        self._desk, self._doubts, self._clock = desk, doubts, clock
        self._every_s, self._pause_s, self._longest_s = every_s, 1 / per_s, at_least_every_s
        self._asked: dict[str, tuple[int, float]] = {}  # how often in vain, and when again
        self._rounds = PeriodicThread("effectonce-reconciler", self.round, every_s)
        self.reconciled = Reconciled(0, 0, 0)  # since it was made

    @property
    def failure(self) -> Exception | None:
        """Of the last round in the background; None: it went well."""
        return self._rounds.failure

    def round(self) -> Reconciled:
        """Ask about every effect in doubt whose time has come, now and here."""
        total, seen = Reconciled(0, 0, 0), set[str]()
        for records in self._desk.pages(self._doubts):
            for record in records:
                seen.add(record.request.key)
                if not self._is_due(record):
                    continue
                total += self._noted(record, self._desk.ask(record))
                if self._desk.askable(
                    record, is_async=False
                ) is not None and self._rounds.stopped.wait(self._pause_s):
                    return total
        self._forget_others(seen)
        return total

    async def around(self) -> Reconciled:
        """The same for async tools."""
        total, seen = Reconciled(0, 0, 0), set[str]()
        after: tuple[float, str] | None = (0.0, "")
        while after is not None:
            records, after = await adrive(self._doubts.page(after), self._desk.store.aapply)
            for record in records:
                seen.add(record.request.key)
                if not self._is_due(record):
                    continue
                total += self._noted(record, await self._desk.aask(record))
                if self._desk.askable(record, is_async=True) is not None:
                    await asyncio.sleep(self._pause_s)
        self._forget_others(seen)
        return total

    def _is_due(self, record: Record) -> bool:
        return self._asked.get(record.request.key, (0, 0.0))[1] <= self._clock()

    def _noted(self, record: Record, answer: Outcome[Any] | None) -> Reconciled:
        """What came of it. In vain: the next time is twice as far away as the last."""
        key, came_to = record.request.key, count([answer])
        if came_to.in_doubt:
            times = self._asked.get(key, (0, 0.0))[0]
            wait_s = min(self._longest_s, self._every_s * GROWTH ** min(times, 60))
            self._asked[key] = (times + 1, self._clock() + wait_s)
        self.reconciled += came_to
        return came_to

    def _forget_others(self, seen: set[str]) -> None:
        """Settled, by whomever."""
        self._asked = {key: asked for key, asked in self._asked.items() if key in seen}

    # ------------------------------------------------------------ in the background

    def start(self) -> Self:
        """Begin. A forked child has to start its own."""
        self._rounds.start()
        return self

    def stop(self) -> None:
        """End after the probe that is being asked."""
        self._rounds.stop()

    async def run(self) -> None:
        """Ask the probes of async tools, round after round, until it is cancelled."""
        while True:
            try:
                await self.around()
                self._rounds.failure = None
            except Exception as error:  # noqa: BLE001  # as in the thread
                self._rounds.failed(error)
            await asyncio.sleep(self._every_s)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
