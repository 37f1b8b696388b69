"""aws-lambda-powertools, its idempotency utility on Redis, outside of Lambda."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncebench.kit import NO_TRANSACTION, Says, Setup

NAME = "aws-lambda-powertools"
KIND = "library"
REQUIRES = ("aws-lambda-powertools[redis]==3.37.0", "boto3")
SERVERS = ("redis",)
README = "docs, idempotent_function with RedisCachePersistenceLayer"
LACKS = {
    "transaction": NO_TRANSACTION,
    "asks": "it has no way to ask a service (docs)",
    "conflict": "payload validation needs a JMESPath of the payload, which a keyword is not (docs)",
}


def open(setup: Setup) -> Callable[..., Any]:
    import redis
    from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent_function
    from aws_lambda_powertools.utilities.idempotency.persistence.redis import (
        RedisCachePersistenceLayer,
    )

    client = redis.Redis.from_url(setup.servers["redis"])
    layer = RedisCachePersistenceLayer(client=client)
    config = IdempotencyConfig(use_local_cache=False, lambda_context=_Context(setup.lease_s))
    current: list[str] = [""]
    setup.key = lambda: current[0]

    def protect(tool: Callable[..., Any]) -> Callable[..., Any]:
        protected = idempotent_function(
            data_keyword_argument="order",
            persistence_store=layer,
            config=config,
            key_prefix=tool.__module__,
        )(tool)

        def call(order: str, amount: int, note: str = "") -> Any:
            current[0] = f"{tool.__module__}:{order}"
            return protected(order=order, amount=amount, note=note)

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
