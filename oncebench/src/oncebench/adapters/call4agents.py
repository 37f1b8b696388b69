"""call4agents. A tool declares how the service behaves: idempotent_for= where it honours keys,
reconcile= where it can be asked. Best configured: retry_on names the errors and the statuses that
say that nothing happened.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncebench.kit import Says, Setup, ToolFault

NAME = "call4agents"
KIND = "library"
REQUIRES = ("call4agents==0.5.0",)
README = "README, How to use it and How it works, 3; retry_on= for the best configuration"
LACKS: dict[str, str] = {}


class Refused(Exception):
    """The service answered, and its answer says that nothing happened."""


def open(setup: Setup) -> Callable[..., Any]:
    import call4agents
    import httpx

    call4agents.init(str(setup.folder / "ledger.sqlite"))
    setup.key = lambda: call4agents.idempotency_headers().get("Idempotency-Key")
    setup.around = lambda _: call4agents.run("payments")
    declared: dict[str, Any] = {"key": lambda order, **_: order, "exclude": ("note",)}
    if setup.temperament == "keys":
        declared["idempotent_for"] = setup.window_s
    if setup.temperament == "asks":
        declared["reconcile"] = lambda order, **_: setup.find_for_sure(order)
    if setup.best:
        setup.post = _post
        declared["retry_on"] = (httpx.ConnectError, httpx.UnsupportedProtocol, Refused, ToolFault)

    def protect(tool: Callable[..., Any]) -> Callable[..., Any]:
        return call4agents.effect(name=tool.__module__.rpartition(".")[2], **declared)(tool)

    return protect


def _post(url: str, body: dict[str, Any], headers: dict[str, str]) -> Any:
    import httpx

    from oncebench.kit import send

    try:
        return send(url, body, headers)
    except httpx.HTTPStatusError as error:
        if error.response.status_code in {400, 401, 403, 404, 422, 429}:
            raise Refused(str(error)) from error
        raise


def said(error: Exception) -> Says:
    import call4agents

    match error:
        case call4agents.EffectInDoubt():
            return "unknown"
        case call4agents.KeyConflict():
            return "conflict"
        case _:
            return "raised"
