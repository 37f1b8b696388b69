"""agent-runtime-governance. Its README begins with a runtime that keeps keys in memory, and says
that they do not survive a restart. Best configured: the SQLite store, whose unknown outcomes a
person settles, and a tool that raises its error for them where the service does not honour keys.
Its reconciliation ledger, which needs a sealed runtime with signed audit and two
trusted identities, is not set up here.

Approvals: its README begins with a callback, which is asked at each call and shown its arguments;
here it looks whether a person has said yes to them, which the application keeps. Its SQLite store
of approvals is not used: there an approval is consumed before the tool is called, and who comes
after that is denied, although the result is kept (docs/production.md, Approval recovery).
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from oncebench.adapters._retries import nothing_happened, refused
from oncebench.kit import Says, Setup, send

NAME = "agent-runtime-governance"
KIND = "library"
REQUIRES = ("agent-runtime-governance==0.9.1",)
README = "README, Quick start; Production reliability, SQLiteIdempotencyStore, for the best"
OFFERS = ("approval",)
NOT_YET = "human decision"  # its callback did not say yes
LACKS = {"asks": "its reconciliation needs a sealed production runtime, not set up here (docs)"}


def open(setup: Setup) -> Callable[..., Any]:
    from agent_runtime_governance import (
        ExecutionMode,
        InvocationOptions,
        RiskTier,
        Runtime,
        SQLiteIdempotencyStore,
    )

    store = None
    if setup.best:
        path = setup.folder / "keys.sqlite"
        store = SQLiteIdempotencyStore(path, lease_seconds=setup.lease_s)
        if setup.temperament != "keys":
            setup.post = _post
    approvals = [_approvals(setup)] if setup.approval else []
    runtime = Runtime(approvals, idempotency_store=store)
    needs = {"risk": RiskTier.HIGH, "requires_approval": True} if setup.approval else {}
    key: list[str | None] = [None]
    setup.key = lambda: key[0]

    def protect(tool: Callable[..., Any]) -> Callable[..., Any]:
        name = tool.__module__.rpartition(".")[2]
        mode = ExecutionMode.IDEMPOTENT
        governed = runtime.tool(name=name, execution_mode=mode, **needs)(tool)

        def call(order: str, amount: int, note: str = "") -> Any:
            key[0] = f"{name}:{sha256(order.encode()).hexdigest()}"  # keys have few characters
            asked = InvocationOptions(idempotency_key=key[0])
            return governed(order, amount, note, _governance=asked)

        return call

    return protect


def _approvals(setup: Setup) -> Any:
    """The middleware, and how a person answers."""
    import agent_runtime_governance as arg

    def said_yes(order: str, amount: Any) -> Path:
        return setup.folder / f"yes-{order}-{amount}"

    def asked(_: Any, request: Any) -> bool:
        order, amount, _note = request.arguments["args"]
        return said_yes(order, amount).exists()

    setup.approve = lambda wish: said_yes(wish.order, wish.amount).touch()
    return arg.ApprovalMiddleware(arg.HumanDecisionProvider(asked))


def _post(url: str, body: dict[str, Any], headers: dict[str, str]) -> Any:
    """A tool that says so where it may have happened: else the runtime takes it for a failure."""
    import httpx
    from agent_runtime_governance import IdempotencyOutcomeUnknownError

    try:
        return send(url, body, headers)
    except httpx.HTTPError as error:
        if refused(error) or nothing_happened(error):
            raise
        raise IdempotencyOutcomeUnknownError(str(error)) from error


def said(error: Exception) -> Says:
    import agent_runtime_governance as arg

    match getattr(error, "cause", error):
        case arg.IdempotencyOutcomeUnknownError():
            return "unknown"
        case arg.GovernanceDenied() if "different parameters" in str(error):
            return "conflict"
        case arg.GovernanceDenied() if str(error) == NOT_YET:
            return "waiting"
        case arg.IdempotencyInProgressError():
            return "busy"
        case arg.IdempotencyAlreadyAppliedError():
            return "happened"
        case _:
            return "raised"
