"""The steps of workflows.py through DBOS. It is one for the whole process."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable

from dbos import DBOS, SetWorkflowID


def runs(url: str, steps: int) -> tuple[Callable[[], list[float]], Callable[[], None]]:
    """How to do one run, and how to end."""
    logging.getLogger("dbos").setLevel(logging.ERROR)
    DBOS(
        config={
            "name": "bench",
            "system_database_url": url,
            "run_admin_server": False,
            "log_level": "ERROR",
        }
    )

    @DBOS.step()
    def add(n: int) -> int:
        return n

    @DBOS.workflow()
    def all_of_them() -> int:
        return sum(add(k) for k in range(steps))

    DBOS.launch()
    numbers = itertools.count()

    def once() -> list[float]:
        start = time.perf_counter()
        with SetWorkflowID(f"run {next(numbers)}"):
            all_of_them()
        return [(time.perf_counter() - start) / steps]

    return once, DBOS.destroy
