"""effectonce, as its README begins: a tool that sends through a protected client. Best configured,
where the service can be asked, it is asked before the first send, too, and how late a request
may land is declared. A caller waits 30 s for a call that runs; here the wait is cut to 2 s, as it
is for others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncebench.adapters import _effectonce
from oncebench.kit import Says, Setup

NAME = "effectonce"
KIND = "library"
REQUIRES = (_effectonce.requirement(),)
README = (
    "README, first example; docs/howto/choose-a-downstream.md, share-a-transaction.md, approvals.md"
)
OFFERS = ("transaction", "approval")
LACKS: dict[str, str] = {}


def open(setup: Setup) -> Callable[..., Any]:
    guard = _effectonce.opened(setup)
    setup.around = lambda wish: guard.step("payments", wish.order)
    setup.approve = lambda wish: _effectonce.say_yes(guard, wish)

    def protect(tool: Callable[..., Any]) -> Callable[..., Any]:
        name = tool.__module__.rpartition(".")[2]
        protected: Callable[..., Any] = _effectonce.guarded(setup, guard, tool, name=name)
        return protected

    return protect


def said(error: Exception) -> Says:
    from effectonce import errors

    match error:
        case errors.InDoubt():
            return "unknown"
        case errors.ApprovalNeeded():
            return "waiting"
        case errors.InFlight() | errors.GaveUp() | errors.LeaseLost():
            return "busy"
        case errors.Conflict() | errors.ContractViolation():
            return "conflict"
        case errors.Expired():
            return "expired"
        case errors.ResultUnavailable():
            return "happened"
        case errors.ReplayedFailure():
            return "failed"
        case _:
            return "raised"
