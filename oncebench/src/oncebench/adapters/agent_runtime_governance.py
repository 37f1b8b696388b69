"""agent-runtime-governance. Its README begins with a runtime that keeps keys in memory, and says
that they do not survive a restart. Best configured: the SQLite store, whose unknown outcomes a
person settles, and a tool that raises its error for them where the service does not honour keys.
Its reconciliation ledger, which needs a sealed runtime with signed audit and two
trusted identities, is not set up here.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any

from oncebench.adapters._retries import nothing_happened, refused
from oncebench.kit import Says, Setup, send

NAME = "agent-runtime-governance"
KIND = "library"
REQUIRES = ("agent-runtime-governance==0.9.1",)
README = "README, Quick start; Production reliability, SQLiteIdempotencyStore, for the best"
LACKS = {"asks": "its reconciliation needs a sealed production runtime, not set up here (docs)"}


def open(setup: Setup) -> Callable[..., Any]:
    from agent_runtime_governance import (
        ExecutionMode,
        InvocationOptions,
        Runtime,
        SQLiteIdempotencyStore,
    )

    store = None
    if setup.best:
        path = setup.folder / "keys.sqlite"
        store = SQLiteIdempotencyStore(path, lease_seconds=setup.lease_s)
        if setup.temperament != "keys":
            setup.post = _post
    runtime = Runtime(idempotency_store=store)
    key: list[str | None] = [None]
    setup.key = lambda: key[0]

    def protect(tool: Callable[..., Any]) -> Callable[..., Any]:
        name = tool.__module__.rpartition(".")[2]
        governed = runtime.tool(name=name, execution_mode=ExecutionMode.IDEMPOTENT)(tool)

        def call(order: str, amount: int, note: str = "") -> Any:
            key[0] = f"{name}:{sha256(order.encode()).hexdigest()}"  # keys have few characters
            asked = InvocationOptions(idempotency_key=key[0])
            return governed(order, amount, note, _governance=asked)

        return call

    return protect


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
        case arg.IdempotencyInProgressError():
            return "busy"
        case arg.IdempotencyAlreadyAppliedError():
            return "happened"
        case _:
            return "raised"
