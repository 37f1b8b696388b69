"""A circuit that processes share: votes go to the store and back beside calls, not in their way."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable

from effectonce._core.breaker.votes import Quorum, Vote, exchange, standing
from effectonce._core.ops import Flow
from effectonce._drivers import adrive, drive
from effectonce._forks import anew_in_a_fork
from effectonce._log import LOG
from effectonce.errors import StoreUnavailable
from effectonce.stores.base import Store


class VoteExchange:
    """One circuit's place among its namesakes. At most one exchange is under way; no call waits."""

    def __init__(
        self,
        store: Store,
        circuit: str,
        node: str | None,
        refresh_s: float,
        vote_s: Callable[[], float],
        heard: Callable[[Quorum], bool],
    ) -> None:
        self._store, self._cell, self._refresh_s = store, f"breaker/{circuit}", refresh_s
        self._vote_s, self._heard = vote_s, heard
        self._given_node = node
        self._lock = threading.RLock()
        # the process whose exchange is under way: a fork does not inherit its thread
        self._busy_in = 0
        self._again = False  # something changed meanwhile
        self._task: asyncio.Task[None] | None = None
        self._followed_until = 0.0  # by the store's clock
        self.due = 0.0
        anew_in_a_fork(self)

    def after_fork(self) -> None:
        self._lock = threading.RLock()

    @property
    def node(self) -> str:
        """Who votes: this process, on this machine."""
        return self._given_node or f"{os.uname().nodename}:{os.getpid()}"

    def start(self, now: float, *, urgent: bool) -> None:
        """Exchange votes in a task, or a thread without a loop. *urgent*: before next refresh."""
        with self._lock:
            self.due = now + self._refresh_s
            if self._busy_in == os.getpid() and not self._abandoned():
                self._again |= urgent
                return
            self._busy_in, self._again, self._task = os.getpid(), False, None
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._start_thread()
            return
        self._task = loop.create_task(self.arun())
        self._task.add_done_callback(self._ended)

    def _abandoned(self) -> bool:
        """Its loop was closed before it could say that it had ended."""
        return self._task is not None and self._task.get_loop().is_closed()

    def _start_thread(self) -> None:
        try:
            threading.Thread(target=self._in_thread, name="effectonce-circuit", daemon=True).start()
        except RuntimeError as error:  # the machine has no more, or the interpreter ends
            self._ended()
            self._alone(error)

    def run(self) -> None:
        """Exchange votes now."""
        try:
            self._hear(drive(self._flow(), self._store.apply))
        except StoreUnavailable as error:
            self._alone(error)

    async def arun(self) -> None:
        try:
            self._hear(await adrive(self._flow(), self._store.aapply))
        except StoreUnavailable as error:
            self._alone(error)

    def _in_thread(self) -> None:
        try:
            self.run()
        finally:
            self._ended()

    def _ended(self, _: object = None) -> None:
        with self._lock:
            self._busy_in = 0
            if self._again:
                self.due = 0.0

    def _flow(self) -> Flow[dict[str, Vote]]:
        return exchange(self._cell, self.node, self._vote_s(), self._refresh_s)

    def _hear(self, votes: dict[str, Vote]) -> None:
        others = standing(votes, self.node, self._followed_until)
        if self._heard(others):
            self._followed_until = others.last_until

    def _alone(self, error: Exception) -> None:
        LOG.debug("%s: votes were not exchanged, this process decides alone: %s", self._cell, error)
