"""Tidying in the background: small batches, and a pause after each, so that calls hardly notice.

A round is repeated until nothing is due. Several processes may sweep one store: each change is
one conditional write, so they share the work. What a sweep may change is in the transition
table; a record without an outcome is never removed.
"""

from __future__ import annotations

from collections.abc import Callable

from effectonce._core.ops import Sweep, Swept
from effectonce._log import LOG
from effectonce._validate import numbers, whole
from effectonce.errors import ContractViolation
from effectonce.recovery.periodic import PeriodicThread
from effectonce.stores.base import Store


class Sweeper(PeriodicThread):
    """A thread that sweeps a store every *every_s* seconds: `with guard.sweeper():`, or
    `start()` and `stop()`.
    """

    def __init__(
        self,
        store: Store,
        *,
        every_s: float = 60.0,
        batch: int = 10,
        pause_s: float = 0.05,
        on_swept: Callable[[Swept], object] = bool,
    ) -> None:
        numbers(every_s=every_s, pause_s=pause_s)
        whole(batch=batch)
        if batch < 1 or every_s < 0 or pause_s < 0:
            raise ContractViolation(
                f"batch={batch}, every_s={every_s}, pause_s={pause_s}: a batch has a record, and no"
                " time is negative"
            )
        self._store, self._batch, self._pause_s, self._on_swept = store, batch, pause_s, on_swept
        super().__init__("effectonce-sweeper", every_s)
        self.swept = Swept(0, 0, 0)  # since it was made

    def round(self) -> Swept:
        """Sweep until nothing is due, now and here."""
        total = Swept(0, 0, 0)
        while True:
            done = self._store.apply(Sweep(self._batch))
            self._warn(done)
            total, self.swept = total + done, self.swept + done
            self._on_swept(done)
            if done.total < self._batch or self.stopped.wait(self._pause_s):
                return total

    def _warn(self, done: Swept) -> None:
        """Of what is left as it is, once: it is due in every round."""
        new = set(done.unreadable).difference(self.swept.unreadable)
        if new:
            LOG.warning(
                "%d records are due and left as they are, because this release cannot read them,"
                " such as %s. Upgrade effectonce here.",
                len(new),
                min(new),
            )
