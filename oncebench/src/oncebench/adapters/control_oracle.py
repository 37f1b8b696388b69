"""Control: it looks into the world's own books, which no library can. It must be right in what
it is played with, or the run is void.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oncebench import rows
from oncebench.kit import VERIFY, Says, Setup, Told

NAME = "oracle"
KIND = "control"
REQUIRES: tuple[str, ...] = ()
README = "no library can do this"
OFFERS = ("transaction", "approval")
LACKS: dict[str, str] = {}
PATHS = {"oncebench.tools.refunds": "/pay", "oncebench.tools.payouts": "/payouts"}


class OtherAmount(Exception):
    pass


def open(setup: Setup) -> Callable[..., Any]:
    setup.key = lambda: current[0]
    current: list[str] = [""]
    setup.approve = lambda wish: _yes(setup, wish.order, wish.amount).touch()

    def fate(path: str, order: str) -> Any:
        """What became of the last request, once that is known."""
        if setup.temperament == "transaction":
            landed = rows.landed(setup.database)
            here = [r for r in landed if (r["path"], r["body"]["order"]) == (path, order)]
            fates = [{**r, "fate": {"receipt": r["receipt"], "asked": r["body"]}} for r in here]
            return fates[-1] if fates else None
        import httpx

        while True:
            requests = [
                r
                for r in httpx.get(f"{setup.url}/_requests", verify=VERIFY).json()
                if (r["path"], r["body"]["order"]) == (path, order)
            ]
            if not requests or requests[-1]["fate"] != "open":
                return requests[-1] if requests else None
            time.sleep(0.02)

    def protect(tool: Callable[..., Any]) -> Callable[..., Any]:
        path = PATHS[tool.__module__]

        @functools.wraps(tool)
        def call(order: str, amount: Any, note: str = "") -> Any:
            current[0] = hashlib.sha256(f"{path} {order}".encode()).hexdigest()
            kept = Path(setup.folder / f"kept-{current[0]}")
            with Path(setup.folder / f"lock-{current[0]}").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                last = fate(path, order)
                if last is None or last["fate"] == "nothing":
                    if setup.approval and not _yes(setup, order, amount).exists():
                        return Told("waiting")
                    try:
                        result = tool(order, amount, note)
                    except Exception:
                        last = fate(path, order)
                        if last is None or last["fate"] == "nothing":
                            raise
                        return last["fate"]
                    if not isinstance(result, dict):
                        kept.write_text(json.dumps(result))
                    return result
                if last["body"]["amount"] != amount:
                    raise OtherAmount(order)
                return json.loads(kept.read_text()) if kept.exists() else last["fate"]

        return call

    return protect


def _yes(setup: Setup, order: str, amount: Any) -> Path:
    """Where it stands that a person said yes to this."""
    return setup.folder / f"yes-{order}-{amount}"


def said(error: Exception) -> Says:
    return "conflict" if isinstance(error, OtherAmount) else "raised"
