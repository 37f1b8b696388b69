"""ledger-once. Best configured: a blocked caller gets the kept result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncebench.kit import NO_TRANSACTION, Says, Setup, Told

NAME = "ledger-once"
KIND = "library"
REQUIRES = ("ledger-once==0.1.5",)
README = "README, guard(fn, ..., key=...); guard.policy(fn, replay=True) for the best"
LACKS = {"transaction": NO_TRANSACTION, "asks": "it has no way to ask a service (README)"}


def open(setup: Setup) -> Callable[..., Any]:
    from ledger import BLOCKED, Guard

    guard = Guard()  # ./ledger.db, and each process runs in the subject's folder
    key: list[str | None] = [None]
    setup.key = lambda: key[0]

    def protect(tool: Callable[..., Any]) -> Callable[..., Any]:
        if setup.best:
            guard.policy(tool, replay=True)

        def call(order: str, amount: int, note: str = "") -> Any:
            key[0] = f"{tool.__module__}:{order}"
            result = guard(tool, order=order, amount=amount, note=note, key=key[0])
            return Told("happened") if result is BLOCKED else result

        return call

    return protect


def said(error: Exception) -> Says:
    return "raised"
