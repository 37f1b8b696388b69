"""Work on many effects, one after the other, that Ctrl-C ends between two of them."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SLICE_S = 0.1  # how long a Ctrl-C may have to wait


class Interruption:
    """Whether you pressed Ctrl-C, and pauses that end when you do."""

    def __init__(self) -> None:
        # set by a signal handler, in which an event's lock may already be held by this very thread
        self.stopped = False

    def pause(self, pause_s: float) -> None:
        end = time.monotonic() + pause_s
        while not self.stopped and (left_s := end - time.monotonic()) > 0:
            time.sleep(min(left_s, SLICE_S))

    @contextmanager
    def watched(self) -> Iterator[None]:
        """The first Ctrl-C lets the effect at hand come to its end; the second is one."""

        def stop(_: int, __: FrameType | None) -> None:
            self.stopped = True
            signal.signal(signal.SIGINT, before)

        before = signal.signal(signal.SIGINT, stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
