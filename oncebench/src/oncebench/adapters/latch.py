"""latch-idempotent, on Redis. Its other parts (time-outs, circuit breakers, budgets, sagas) do not
change what a repeated call does, so best configured it is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncebench.kit import Says, Setup

NAME = "latch-idempotent"
KIND = "library"
REQUIRES = ("latch-idempotent[redis]==0.4.1", "redis")
SERVERS = ("redis",)
README = "README, Quickstart and Storage backends"
LACKS = {
    "asks": "it has no way to ask a service (latch.core)",
    "conflict": "a key that was seen returns its result (README, How it works)",
}


def open(setup: Setup) -> Callable[..., Any]:
    from latch import idempotent
    from latch.stores.redis import RedisStore

    store = RedisStore(url=setup.servers["redis"])
    key: list[str | None] = [None]
    setup.key = lambda: key[0]

    def protect(tool: Callable[..., Any]) -> Callable[..., Any]:
        name = tool.__module__.rpartition(".")[2]
        protected = idempotent(store=store)(tool)

        def call(order: str, amount: int, note: str = "") -> Any:
            key[0] = f"{name}:{order}"
            return protected(order, amount, note, idempotency_key=key[0])

        return call

    return protect


def said(error: Exception) -> Says:
    return "raised"
