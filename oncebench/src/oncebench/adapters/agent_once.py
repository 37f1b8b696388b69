"""agent-once. Best configured: all errors of the client count as unknown, and a call waits. A
record is reset where the error says that nothing happened. Where the service honours the key,
`verify` sends the request again under it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from oncebench.adapters._doubts import TooLate, within_the_window
from oncebench.adapters._retries import nothing_happened
from oncebench.kit import Says, Setup

NAME = "agent-once"
KIND = "library"
REQUIRES = ("agent-once==0.1.0",)
README = "README, Quickstart, Keys and Verify; States and Gotchas for the best configuration"
LACKS: dict[str, str] = {}


def open(setup: Setup) -> Callable[..., Any]:
    import httpx
    from once import NOT_HAPPENED, Once

    best: dict[str, Any] = {}
    if setup.best:
        unknown = (TimeoutError, httpx.TransportError, httpx.HTTPStatusError)
        best = {"unknown_on": unknown, "wait": 2.0}
    once = Once(setup.folder / "once.db", stale_after=setup.lease_s, **best)
    key: list[str | None] = [None]
    setup.key = lambda: key[0]

    def ask(_: str, args: dict[str, Any]) -> Any:
        found = setup.find_for_sure(args["order"])
        return NOT_HAPPENED if found is None else found

    def protect(tool: Callable[..., Any]) -> Callable[..., Any]:
        def send_again(named: str, args: dict[str, Any]) -> Any:
            within_the_window(setup, _began(once, named))
            key[0] = named
            return tool(args["order"], args["amount"])

        verify = ask if setup.temperament == "asks" else None
        if setup.best and setup.temperament == "keys":
            verify = send_again

        @once.tool(
            name=tool.__module__.rpartition(".")[2],
            verify=verify,
            exclude=("note",),
        )
        def pay(order: str, amount: int, note: str = "", idempotency_key: str | None = None) -> Any:
            key[0] = idempotency_key
            return tool(order, amount, note)

        def call(order: str, amount: int, note: str = "") -> Any:
            named = f"{tool.__module__}:{order}"
            try:
                return pay(order, amount, note, idempotency_key=named)
            except Exception as error:
                if setup.best and nothing_happened(error):
                    once.reset(named)
                raise

        return call

    return protect


def _began(once: Any, key: str) -> float:
    return datetime.fromisoformat(once.store.get(key).created_at).timestamp()


def said(error: Exception) -> Says:
    from once import EffectPending, EffectUnknown, KeyConflict

    match error:
        case EffectUnknown() | TooLate():
            return "unknown"
        case EffectPending():
            return "busy"
        case KeyConflict():
            return "conflict"
        # EffectFailed repeats the tool's own error: it does not say that nothing happened.
        case _:
            return "raised"
