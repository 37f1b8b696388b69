"""idemkit, on Redis. Best configured: it compares the amount."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncebench.kit import NO_TRANSACTION, Says, Setup

NAME = "idemkit"
KIND = "library"
REQUIRES = ("idemkit[redis]==1.0.2", "redis")
SERVERS = ("redis",)
README = "README, tools: idempotent_sync with key_fields; validation_fingerprint for the best"
LACKS = {"transaction": NO_TRANSACTION, "asks": "it has no way to ask a service (README)"}


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
        async def pay(order: str, amount: int, note: str = "") -> Any:
            return await asyncio.to_thread(tool, order, amount, note)

        protected = idemkit.idempotent(backend=backend, config=config)(pay)

        def call(order: str, amount: int, note: str = "") -> Any:
            current[0] = f"{tool.__module__}:{order}"
            return runner.run(protected(order=order, amount=amount, note=note))

        return call

    return protect


def said(error: Exception) -> Says:
    import idemkit

    match error:
        case idemkit.PayloadMismatch():
            return "conflict"
        case idemkit.IdempotencyConflict():
            return "busy"
        case idemkit.ReplayedError():
            return "failed"
        case _:
            return "raised"
