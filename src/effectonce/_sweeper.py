"""Tidying in the background: small batches, and a pause after each, so that calls hardly notice.

A round is repeated until nothing is due. Several processes may sweep one store: each change is one conditional write, so they share
the work. What a sweep may change is in the transition table; a record without an outcome is never removed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from effectonce._core.ops import Sweep, Swept
from effectonce.errors import StoreUnavailable
from effectonce.stores.base import Store


class Sweeper:
    """A thread that sweeps a store every *every_s* seconds: `with guard.sweeper():`, or `start()` and `stop()`."""

    def __init__(
        self,
        store: Store,
        *,
        every_s: float = 60.0,
        batch: int = 10,
        pause_s: float = 0.05,
        told: Callable[[Swept], object] = bool,
    ) -> None:
        self._store, self._every_s, self._batch, self._pause_s, self._told = store, every_s, batch, pause_s, told
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.swept = Swept(0, 0, 0)  # since it was made
        self.failure: StoreUnavailable | None = None  # of the last round, None: it went well

    def round(self) -> Swept:
        """Sweep until nothing is due, now and here."""
        total = Swept(0, 0, 0)
        while True:
            done = self._store.apply(Sweep(self._batch))
            total, self.swept = total + done, self.swept + done
            self._told(done)
            if done.total < self._batch or self._stopped.wait(self._pause_s):
                return total

    def start(self) -> Self:
        """Begin. A forked child has to start its own."""
        if self._thread is None or not self._thread.is_alive():
            self._stopped.clear()
            self._thread = threading.Thread(target=self._live, name="effectonce-sweeper", daemon=True)
            self._thread.start()
        return self

    def stop(self) -> None:
        """End after the batch that is under way."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _live(self) -> None:
        while True:
            try:
                self.round()
                self.failure = None
            except StoreUnavailable as error:
                self.failure = error  # nothing is lost by sweeping later
            if self._stopped.wait(self._every_s):
                return

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()
