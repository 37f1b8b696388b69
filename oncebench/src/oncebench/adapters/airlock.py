"""airlock-sdk. A caller waits 30 s for the owner of a row; here the wait is cut to 2 s, which
comes to the same end. The reconciler, which its CLI runs, is run between calls. Best configured:
what its probe does not find is run again (--on-absent retry), and the tool tries again itself where
nothing happened. Recovery within a call (reconcile_after) stays off, because it gives up what the
probe does not find, and init has no option for that.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

from oncebench.adapters._retries import trying_again
from oncebench.kit import Says, Setup

NAME = "airlock-sdk"
KIND = "library"
REQUIRES = ("airlock-sdk==0.3.0",)
README = "README, Quickstart; docs/api.md, Effect; airlock.__main__, reconcile, for the best"
LACKS = {"conflict": "a key= dedupes, whatever the arguments (contracts/idempotency.md, 4 and 5)"}


def open(setup: Setup) -> Callable[..., Any]:
    import airlock
    from airlock import commit

    commit.commit_once = partial(commit.commit_once, wait_timeout=2)
    allow = airlock.Policy(rules=[airlock.Rule(match="*", decision=airlock.Decision.AUTO)])
    app = airlock.init(store=f"sqlite:///{setup.folder}/airlock.db", policy=allow)
    setup.maintain = partial(_reconcile, app, setup)
    key: list[str | None] = [None]
    setup.key = lambda: key[0]

    def protect(tool: Callable[..., Any]) -> Callable[..., Any]:
        @airlock.guard(
            tool.__module__.rpartition(".")[2],
            key=lambda order, *_, **__: order,
            effect=_effect(setup),
            reversibility=airlock.Reversibility.IRREVERSIBLE,
        )
        def pay(
            order: str, amount: int, note: str = "", *, idempotency_key: str | None = None
        ) -> Any:
            key[0] = idempotency_key
            return trying_again(setup, tool)(order, amount, note)

        return pay

    return protect


def _reconcile(app: Any, setup: Setup) -> None:
    from airlock.reconcile import OnAbsent, reconcile

    on_absent = OnAbsent.RETRY if setup.best else OnAbsent.ABORT
    reconcile(app.store, older_than=timedelta(seconds=setup.lease_s), on_absent=on_absent)


def _effect(setup: Setup) -> Any:
    import airlock
    from airlock.types import Verification

    def find(order: str, **_: Any) -> tuple[Any, str | None]:
        found = setup.find_for_sure(order)
        return (Verification.ABSENT, None) if found is None else (Verification.PRESENT, found)

    match setup.temperament:
        case "keys":
            return airlock.Effect(key_param="idempotency_key")
        case "asks":
            return airlock.Effect(verify=find)
        case _:
            return airlock.Effect()


def said(error: Exception) -> Says:
    from airlock import errors

    match error:
        case errors.PreconditionFailed() | errors.CommitFailed(state="failed"):
            return "failed"
        case errors.CommitWaitTimeout():
            return "busy"
        case errors.VerificationUnknown() | errors.ExecuteTimeout() | errors.CommitFailed():
            return "unknown"
        case errors.CanonicalizationError():
            return "conflict"  # it refuses floats
        case _:
            return "raised"
