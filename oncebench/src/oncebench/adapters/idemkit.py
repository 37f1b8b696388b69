"""idemkit, on Redis. Its keys are of the order alone, as a model may reword the rest. Best
configured: it compares the amount, and a tool returns a doubt instead of raising it, as its text
advises for what should not run again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncebench.adapters._doubts import returning_doubts, told
from oncebench.kit import Says, Setup

NAME = "idemkit"
KIND = "library"
REQUIRES = ("idemkit[redis]==1.0.2", "redis")
SERVERS = ("redis",)
README = "README, Method calls and AI tools; When can my code actually run twice? for the best"
LACKS = {"asks": "it has no way to ask a service (idemkit.core.policy, MethodConfig)"}


def _amount(arguments: Any) -> bytes:
    return str(arguments["amount"]).encode()


def open(setup: Setup) -> Callable[..., Any]:
    import asyncio

    import idemkit

    runner = asyncio.Runner()
    config = idemkit.MethodConfig(
        key_fields=["order"],
        lease_ttl_seconds=setup.lease_s,
        validation_fingerprint=_amount if setup.best else None,
    )
    backend = idemkit.RedisBackend.from_url(setup.servers["redis"])
    current: list[str] = [""]
    setup.key = lambda: current[0]

    def protect(tool: Callable[..., Any]) -> Callable[..., Any]:
        kept = returning_doubts(setup, tool)

        async def pay(order: str, amount: int, note: str = "") -> Any:
            return await asyncio.to_thread(kept, order, amount, note)

        protected = idemkit.idempotent(backend=backend, config=config)(pay)

        def call(order: str, amount: int, note: str = "") -> Any:
            current[0] = f"{tool.__module__}:{order}"
            return told(runner.run(protected(order=order, amount=amount, note=note)))

        return call

    return protect


def said(error: Exception) -> Says:
    import idemkit

    match error:
        case idemkit.PayloadMismatch():
            return "conflict"
        case idemkit.IdempotencyConflict():
            return "busy"
        case _:
            return "raised"
