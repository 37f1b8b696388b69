"""effect-ledger. It says itself that nothing expires, and that a person settles. Best configured: a
refusal is a result, and an operator runs a recovery policy now and then. It permits one more
attempt where the error says that nothing happened. Where the service honours the provider's key, it
sends the request again; where it can be asked, it takes what is found, and permits one more attempt
if nothing is found.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any

from oncebench.adapters._doubts import TooLate, within_the_window
from oncebench.adapters._retries import nothing_happened, refused
from oncebench.kit import PATHS, Says, Setup, Told, send

NAME = "effect-ledger"
KIND = "library"
REQUIRES = ("effect-ledger==0.1.2",)
README = "README, Execution contract; Operator recovery and effect_ledger.recovery for the best"
LACKS: dict[str, str] = {}


REFUSED = "the service refused"


class NothingHappened(Exception):
    """The ledger keeps the name of an error: this one is evidence."""


class Refused(Exception):
    """The service refused for good, which is a result."""


def open(setup: Setup) -> Callable[..., Any]:
    import httpx
    from effect_ledger import EffectExecutor, OperationConflict

    def recovery(operation: Any) -> Any:
        return _decided(setup, operation)

    path = setup.folder / "effects.sqlite"
    executor = EffectExecutor(path, scope="account-1", recovery=recovery if setup.best else None)
    key: list[str | None] = [None]
    setup.key = lambda: key[0]

    def recover() -> None:
        for operation in executor.unresolved():
            with suppress(OperationConflict, httpx.HTTPError):  # it stays as it was
                executor.recover(operation.operation_id, workers_stopped=True)

    setup.maintain = recover

    def protect(tool: Callable[..., Any]) -> Callable[..., Any]:
        name = tool.__module__.rpartition(".")[2]

        def call(order: str, amount: int, note: str = "") -> Any:
            def handler(operation: Any) -> Any:
                key[0] = operation.provider_key
                try:
                    return tool(order, amount, note)
                except Exception as error:
                    if nothing_happened(error):
                        raise NothingHappened(str(error)) from error
                    if setup.best and refused(error):
                        return {REFUSED: str(error)}
                    raise

            request = {"order": order, "amount": amount}
            done = executor.execute(f"{name}:{order}", f"{name}:v1", request, handler)
            if done.state == "completed":
                if isinstance(done.result, dict) and REFUSED in done.result:
                    raise Refused(done.result[REFUSED])
                return done.result
            return Told("busy" if done.state == "in_flight" else "unknown")

        return call

    return protect


def _decided(setup: Setup, operation: Any) -> Any:
    """What the service says of an operation; nothing, if that proves nothing."""
    from effect_ledger import RecoveryDecision

    order = operation.request["order"]
    decision = {"decision_id": f"{operation.operation_id}:{operation.version}", "reason": "asked"}
    if operation.error == NothingHappened.__name__:
        return RecoveryDecision("retry", **decision)
    match setup.temperament:
        case "keys":
            try:
                within_the_window(setup, datetime.fromisoformat(operation.created_at).timestamp())
            except TooLate:
                return None
            body = {**operation.request, "note": ""}
            headers = {"Idempotency-Key": operation.provider_key}
            path = PATHS[operation.effect.partition(":")[0]]
            answer = send(f"{setup.url}{path}", body, headers)
            return RecoveryDecision("complete", result=answer, **decision)
        case "asks":
            found = setup.find_for_sure(order)
            if found is not None:
                return RecoveryDecision("complete", result=found, **decision)
            return RecoveryDecision("retry", **decision)
    return None


def said(error: Exception) -> Says:
    from effect_ledger import OperationConflict

    if not isinstance(error, OperationConflict):
        return "raised"
    return "conflict" if "different effect or request" in str(error) else "unknown"
