"""exactly-once. Best configured: a lease, and its prober where the service can be asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncebench.kit import NO_TRANSACTION, Says, Setup

NAME = "exactly-once"
KIND = "library"
REQUIRES = ("exactly-once==0.2.1",)
README = "README, Quickstart; Recipes (check_then_decide, lease_ttl) for the best configuration"
LACKS = {"transaction": NO_TRANSACTION}


def open(setup: Setup) -> Callable[..., Any]:
    from exactly_once import ProbeResult, Store, Verdict, check_then_decide, current_key, once

    store = Store.sqlite(str(setup.folder / "effects.db"))
    setup.key = current_key

    def prober(key: str) -> Any:
        found = setup.find(key.partition(":")[2])
        if found is None:
            return ProbeResult(Verdict.NOT_COMMITTED)
        return ProbeResult(Verdict.COMMITTED, found)

    declared: dict[str, Any] = {}
    if setup.temperament == "asks":
        declared["policy"] = check_then_decide(prober)
    if setup.best:
        declared["lease_ttl"] = setup.lease_s
        declared["fingerprint"] = lambda *_, amount, **__: str(amount)

    def protect(tool: Callable[..., Any]) -> Callable[..., Any]:
        name = tool.__module__.rpartition(".")[2]
        return once(store, key=lambda order, *_, **__: f"{name}:{order}", **declared)(tool)

    return protect


def said(error: Exception) -> Says:
    from exactly_once.errors import ExactlyOnceError, KeyReuseError, QuarantinedError

    match error:
        case QuarantinedError():
            return "unknown"
        case KeyReuseError():
            return "conflict"
        case ExactlyOnceError():
            return "busy"
        case _:
            return "raised"
