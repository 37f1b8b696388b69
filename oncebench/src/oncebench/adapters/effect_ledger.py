"""effect-ledger. It says itself that nothing expires, and that a person settles. Best configured:
a recovery policy that asks the service, or sends again under the provider's key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncebench.kit import NO_TRANSACTION, Says, Setup, Told

NAME = "effect-ledger"
KIND = "library"
REQUIRES = ("effect-ledger==0.1.2",)
README = "README, Execution contract; effect_ledger.recovery for the best configuration"
LACKS = {"transaction": NO_TRANSACTION}


def open(setup: Setup) -> Callable[..., Any]:
    from effect_ledger import EffectExecutor

    executor = EffectExecutor(setup.folder / "effects.sqlite", scope="account-1")
    key: list[str | None] = [None]
    setup.key = lambda: key[0]

    def protect(tool: Callable[..., Any]) -> Callable[..., Any]:
        name = tool.__module__.rpartition(".")[2]

        def call(order: str, amount: int, note: str = "") -> Any:
            def handler(operation: Any) -> Any:
                key[0] = operation.provider_key
                return tool(order, amount, note)

            request = {"order": order, "amount": amount}
            done = executor.execute(f"{name}:{order}", f"{name}:v1", request, handler)
            if done.state == "completed":
                return done.result
            return Told("busy" if done.state == "in_flight" else "unknown")

        return call

    return protect


def said(error: Exception) -> Says:
    from effect_ledger import OperationConflict

    return "conflict" if isinstance(error, OperationConflict) else "raised"
