"""Ops that wait for one caller that writes for all: which caller waits for what, sync or async."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from typing import Any

from effectonce._core.ops import Op

MUST_WRITE = object()  # no answer yet: this op changes a record


class PendingWrite:
    """One op on its way to the database."""

    __slots__ = ("done", "error", "follower", "future", "looked", "loop", "op", "reply")

    def __init__(self, op: Op[Any]) -> None:
        self.op, self.done, self.looked = op, False, False
        self.reply: Any = None
        self.error: Exception | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.future: asyncio.Future[Any] | None = None
        self.follower: threading.Event | None = None

    def answer(self, reply: Any) -> None:
        """The op was applied, unless it has to be written first."""
        if reply is not MUST_WRITE:
            self.reply, self.done = reply, True

    def wake(self) -> None:
        """Wake a sync caller, so that it looks again."""
        if self.follower is not None:
            self.follower.set()

    def finish(self) -> None:
        """On the loop of an async caller: hand over what came of it."""
        if self.future is None or self.future.done():
            return  # the caller was cancelled meanwhile
        if self.error is None:
            self.future.set_result(self.reply)
        else:
            self.future.set_exception(self.error)


def finish_all(jobs: Iterable[PendingWrite]) -> None:
    for job in jobs:
        job.finish()
