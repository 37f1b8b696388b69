"""Heartbeats while a tool runs, for engines whose docs ask for them."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def heartbeats(beat: Callable[[], object], every_s: float) -> Iterator[None]:
    ended = threading.Event()

    def go_on() -> None:
        beat()
        while not ended.wait(every_s):
            beat()

    thread = threading.Thread(target=contextvars.copy_context().run, args=(go_on,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
