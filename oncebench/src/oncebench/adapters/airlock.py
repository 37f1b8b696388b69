"""airlock-sdk. A caller waits 30 s for the owner of a row; here the wait is cut to 2 s, which
comes to the same end. The reconciler, which its CLI runs, is run between calls. Best configured:
what its probe does not find is run again (--on-absent retry), and the tool tries again itself where
nothing happened. Recovery within a call (reconcile_after) stays off, because it gives up what the
probe does not find, and init has no option for that.

Approvals: the policy gates every call. A yes is a line in the file of the console transport, which
the same call sees when it is made again. What was approved and came to no known end is told as
PreconditionFailed, "no side effect ran" (airlock._guard, _surface_outcome).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from oncebench.adapters._retries import trying_again
from oncebench.kit import Says, Setup, Wish

NAME = "airlock-sdk"
KIND = "library"
REQUIRES = ("airlock-sdk==0.3.0",)
README = (
    "README, Quickstart; A rejection is control flow, for the gate; docs/api.md, Effect; "
    "airlock.__main__, reconcile, for the best"
)
OFFERS = ("approval",)
LACKS = {"conflict": "a key= dedupes, whatever the arguments (contracts/idempotency.md, 4 and 5)"}


def open(setup: Setup) -> Callable[..., Any]:
    import airlock
    from airlock import commit, pause

    commit.commit_once = partial(commit.commit_once, wait_timeout=2)
    pause.apply_decision = partial(pause.apply_decision, wait_timeout=2)
    decision = airlock.Decision.GATE if setup.approval else airlock.Decision.AUTO
    approvals = airlock.ConsoleApprovalTransport(setup.folder / "approvals.jsonl")
    app = airlock.init(
        store=f"sqlite:///{setup.folder}/airlock.db",
        policy=airlock.Policy(rules=[airlock.Rule(match="*", decision=decision)]),
        transport=approvals,
        gate_timeout=0.0,
    )
    setup.around = lambda wish: _keeping_the_reference(setup, wish)
    setup.approve = lambda wish: approvals.record_decision(
        _reference(setup, wish).read_text(), "approved", decided_by="usr_ada"
    )
    setup.maintain = partial(_reconcile, app, setup)
    key: list[str | None] = [None]
    setup.key = lambda: key[0]

    identity: dict[str, Any] = {"key": lambda order, *_, **__: order}
    if setup.approval:
        identity = {"key_ignore": ("note",)}  # what is approved are these arguments

    def protect(tool: Callable[..., Any]) -> Callable[..., Any]:
        @airlock.guard(
            tool.__module__.rpartition(".")[2],
            **identity,
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


@contextmanager
def _keeping_the_reference(setup: Setup, wish: Wish) -> Iterator[None]:
    """Of a call that waits, as who is asked has to name it."""
    import airlock

    try:
        yield
    except airlock.ActionPending as pending:
        _reference(setup, wish).write_text(str(pending.approval_ref))
        raise


def _reference(setup: Setup, wish: Wish) -> Path:
    return setup.folder / f"reference-{wish.order}"


def _reconcile(app: Any, setup: Setup) -> None:
    from airlock.reconcile import OnAbsent, reconcile, reconcile_paused

    older_than = timedelta(seconds=setup.lease_s)
    on_absent = OnAbsent.RETRY if setup.best else OnAbsent.ABORT
    reconcile(app.store, older_than=older_than, on_absent=on_absent)
    reconcile_paused(app.store, older_than=older_than)


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
        case errors.ActionPending():
            return "waiting"
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
