"""An event loop in a thread, for subjects that are async: the worker that calls them is not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any


def running_loop() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Returns what waits for a coroutine. The loop runs until the process ends."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return lambda work: asyncio.run_coroutine_threadsafe(work, loop).result()
