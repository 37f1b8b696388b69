"""call4agents. A tool declares how the service behaves: idempotent_for= where it honours keys,
reconcile= where it can be asked. Best configured: retry_on names the errors and the statuses that
say that nothing happened.

Approvals: a person approves the call with its arguments. Best configured, a call that waits pauses
with a ticket, and the person decides on that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from oncebench.kit import Says, Setup, ToolFault, Wish

NAME = "call4agents"
KIND = "library"
REQUIRES = ("call4agents==0.5.0",)
README = (
    "README, How to use it and How it works, 3 and 4; retry_on= and Approval tickets for the best"
)
OFFERS = ("approval",)
LACKS: dict[str, str] = {}


class Refused(Exception):
    """The service answered, and its answer says that nothing happened."""


def open(setup: Setup) -> Callable[..., Any]:
    import call4agents
    import httpx

    call4agents.init(str(setup.folder / "ledger.sqlite"))
    setup.key = lambda: call4agents.idempotency_headers().get("Idempotency-Key")
    setup.around = lambda wish: _running(setup, wish)
    setup.approve = lambda wish: _approve(setup, wish)
    declared: dict[str, Any] = {"key": lambda order, **_: order, "exclude": ("note",)}
    if setup.approval:
        declared["approval"] = True
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


@contextmanager
def _running(setup: Setup, wish: Wish) -> Iterator[None]:
    """The run. Best configured, a call that needs a yes pauses, and its ticket is kept."""
    import call4agents

    with call4agents.run("payments"):
        try:
            yield
        except call4agents.ApprovalRequired as needed:
            if setup.best:
                ticket = call4agents.pause(needed.tool, **needed.call_args)
                _ticket(setup, wish).write_text(ticket)
            raise


def _approve(setup: Setup, wish: Wish) -> None:
    import call4agents

    if setup.best:
        call4agents.decide(_ticket(setup, wish).read_text(), "approve", by="ada")
        return
    with call4agents.run("payments"):
        call4agents.approve(wish.tool, order=wish.order, amount=wish.amount)


def _ticket(setup: Setup, wish: Wish) -> Path:
    return setup.folder / f"ticket-{wish.order}-{wish.amount}"


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
        case call4agents.ApprovalRequired():
            return "waiting"
        case call4agents.EffectInDoubt():
            return "unknown"
        case call4agents.KeyConflict():
            return "conflict"
        case _:
            return "raised"
