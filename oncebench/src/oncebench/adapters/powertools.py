"""aws-lambda-powertools, its idempotency utility on Redis, outside of Lambda. Best configured: the
function handles its own doubts, because the record of an exception that leaves it is deleted.
Payload validation stays off: on Redis the hash is lost when a record completes, so that every
repeat is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncebench.adapters._doubts import returning_doubts, told
from oncebench.kit import Says, Setup

NAME = "aws-lambda-powertools"
KIND = "library"
REQUIRES = ("aws-lambda-powertools[redis]==3.37.0", "boto3")
SERVERS = ("redis",)
README = "docs, Idempotency: Idempotent_function decorator; Handling exceptions for the best"
LACKS = {
    "asks": "it has no way to ask a service (utilities.idempotency.config)",
    "conflict": "on Redis, payload validation refuses every repeat (persistence.redis)",
}


def open(setup: Setup) -> Callable[..., Any]:
    import redis
    from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent_function
    from aws_lambda_powertools.utilities.idempotency.persistence.redis import (
        RedisCachePersistenceLayer,
    )

    client = redis.Redis.from_url(setup.servers["redis"])
    layer = RedisCachePersistenceLayer(client=client)
    context: Any = _Context(setup.lease_s)
    config = IdempotencyConfig(event_key_jmespath="order", lambda_context=context)
    current: list[str] = [""]
    setup.key = lambda: current[0]

    def protect(tool: Callable[..., Any]) -> Callable[..., Any]:
        kept = returning_doubts(setup, tool)

        @idempotent_function(
            data_keyword_argument="payment",
            persistence_store=layer,
            config=config,
            key_prefix=tool.__module__,
        )
        def pay(payment: dict[str, Any]) -> Any:
            return kept(**payment)

        def call(order: str, amount: int, note: str = "") -> Any:
            current[0] = f"{tool.__module__}:{order}"
            return told(pay(payment={"order": order, "amount": amount, "note": note}))

        return call

    return protect


class _Context:
    """Lambda's own: it says how much time is left, which is the lease."""

    def __init__(self, lease_s: float) -> None:
        self._left_ms = int(lease_s * 1000)

    def get_remaining_time_in_millis(self) -> int:
        return self._left_ms


def said(error: Exception) -> Says:
    from aws_lambda_powertools.utilities.idempotency import exceptions

    match error:
        case exceptions.IdempotencyAlreadyInProgressError():
            return "busy"
        case exceptions.IdempotencyValidationError():
            return "conflict"
        case _:
            return "raised"
