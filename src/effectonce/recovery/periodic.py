"""Work done in rounds in the background: every so often, by a thread that can be stopped."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Self

from effectonce._log import LOG
from effectonce.errors import StoreUnavailable


class PeriodicThread(ABC):
    """Goes round every *every_s* s from `start()` to `stop()`. A late round loses nothing."""

    def __init__(self, name: str, every_s: float) -> None:
        self._name, self._every_s = name, every_s
        self._thread: threading.Thread | None = None
        self.stopped = threading.Event()
        self.failure: Exception | None = None  # of the last round, None: it went well

    @abstractmethod
    def round(self) -> object:
        """Do what is due, now and here."""

    def start(self) -> Self:
        """Begin. A forked child has to start its own."""
        if self._thread is None or not self._thread.is_alive():
            self.stopped.clear()
            self._thread = threading.Thread(target=self._live, name=self._name, daemon=True)
            self._thread.start()
        return self

    def stop(self) -> None:
        """End after what is under way."""
        self.stopped.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def failed(self, error: Exception) -> None:
        """The next may go better. A silent store is logged once until it answers; else, a bug."""
        before, self.failure = self.failure, error
        if not isinstance(error, StoreUnavailable):
            LOG.error("a round of %s failed; the next one still comes", self._name, exc_info=error)
        elif before is None:
            LOG.warning("a round of %s failed; the next one still comes: %s", self._name, error)

    def _live(self) -> None:
        while True:
            try:
                self.round()
                self.failure = None
            except Exception as error:  # noqa: BLE001
                # a thread that died would not be noticed, and its work would stay undone
                self.failed(error)
            if self.stopped.wait(self._every_s):
                return
