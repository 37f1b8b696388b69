"""Control: whatever was tried once is never tried again. It must wedge, or the run is void."""

from __future__ import annotations

import fcntl
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oncebench.kit import Says, Setup

NAME = "never again"
KIND = "control"
REQUIRES: tuple[str, ...] = ()
README = "the simplest way to make no duplicates"
OFFERS = ("transaction",)
LACKS: dict[str, str] = {}


class TriedBefore(Exception):
    pass


def open(setup: Setup) -> Callable[..., Any]:
    def protect(tool: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(tool)
        def call(order: str, amount: Any, note: str = "") -> Any:
            name = f"{tool.__module__} {order}".replace("/", "_")
            record = setup.folder / f"record {name}"
            with Path(setup.folder / "lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if record.exists():
                    text = record.read_text()
                    if not text:
                        raise TriedBefore(order)
                    return json.loads(text)
                record.touch()
            result = tool(order, amount, note)
            record.write_text(json.dumps(result))
            return result

        return call

    return protect


def said(error: Exception) -> Says:
    return "unknown" if isinstance(error, TriedBefore) else "raised"
