"""ledger-once. A blocked caller looks at the history for whether the other call has ended. The
timeout after which a running call counts as crashed is set where the engine keeps it, because
`policy` has no option for it. Best configured: a blocked caller gets the kept result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncebench.kit import Says, Setup, Told

NAME = "ledger-once"
KIND = "library"
REQUIRES = ("ledger-once==0.1.5",)
README = "README, Edge cases (key=) and Observability; Per-tool policies (replay=) for the best"
LACKS = {
    "asks": "it has no way to ask a service (ledger.Guard)",
    "conflict": "with key=, the arguments are ignored (README, Edge cases handled automatically)",
}


def open(setup: Setup) -> Callable[..., Any]:
    from ledger import BLOCKED, Guard

    guard = Guard()  # ./ledger.db, and each process runs in the subject's folder
    key: list[str | None] = [None]
    setup.key = lambda: key[0]

    def protect(tool: Callable[..., Any]) -> Callable[..., Any]:
        guard.policy(tool, replay=setup.best)
        for policy in guard._engine.policies.values():  # noqa: SLF001
            policy.timeout = setup.lease_s

        def call(order: str, amount: int, note: str = "") -> Any:
            key[0] = f"{tool.__module__}:{order}"
            result = guard(tool, order=order, amount=amount, note=note, key=key[0])
            if result is not BLOCKED:
                return result
            ended = [r for r in guard.history(tool=tool) if r["args"]["order"] == order]
            return Told("happened" if ended[0]["status"] == "success" else "busy")

        return call

    return protect


def said(error: Exception) -> Says:
    return "raised"
