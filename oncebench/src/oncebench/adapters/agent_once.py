"""agent-once. Best configured: all errors of the client count as unknown, and a stale time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncebench.kit import NO_TRANSACTION, Says, Setup

NAME = "agent-once"
KIND = "library"
REQUIRES = ("agent-once==0.1.0",)
README = "README, Quickstart, Keys and Verify; unknown_on= and stale_after= for the best"
LACKS = {"transaction": NO_TRANSACTION}


def open(setup: Setup) -> Callable[..., Any]:
    import httpx
    from once import NOT_HAPPENED, Once

    best: dict[str, Any] = {}
    if setup.best:
        unknown = (TimeoutError, httpx.TransportError, httpx.HTTPStatusError)
        best = {"unknown_on": unknown, "wait": 2.0, "stale_after": setup.lease_s}
    once = Once(setup.folder / "once.db", **best)
    key: list[str | None] = [None]
    setup.key = lambda: key[0]

    def verify(_: str, args: dict[str, Any]) -> Any:
        found = setup.find(args["order"])
        return NOT_HAPPENED if found is None else found

    def protect(tool: Callable[..., Any]) -> Callable[..., Any]:
        @once.tool(
            name=tool.__module__.rpartition(".")[2],
            verify=verify if setup.temperament == "asks" else None,
            exclude=("note",),
        )
        def pay(order: str, amount: int, note: str = "", idempotency_key: str | None = None) -> Any:
            key[0] = idempotency_key
            return tool(order, amount, note)

        def call(order: str, amount: int, note: str = "") -> Any:
            named = f"{tool.__module__}:{order}"
            return pay(order, amount, note, idempotency_key=named)

        return call

    return protect


def said(error: Exception) -> Says:
    from once import EffectFailed, EffectPending, EffectUnknown, KeyConflict

    match error:
        case EffectUnknown():
            return "unknown"
        case EffectPending():
            return "busy"
        case EffectFailed():
            return "failed"
        case KeyConflict():
            return "conflict"
        case _:
            return "raised"
