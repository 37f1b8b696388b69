"""A till whose larger refunds wait for a person: `--app tests.cli.till:guard`. What really
happened is in a file.
"""

import contextlib
import os
from decimal import Decimal
from pathlib import Path

from effectonce import Approval, ApprovalNeeded, Guard

LIMIT = 1000


def tools(guard, ledger):
    """Register the till's tools on *guard*."""

    @guard.tool(
        kind="irreversible",
        redact=["iban"],
        approval=Approval(
            when=lambda amount: amount > LIMIT,
            never=lambda amount: amount > 100 * LIMIT,
            four_eyes=True,
        ),
        wait_s=0,
        accept_store_loss=True,
    )
    def refund(payment: str, amount: int, iban: str = "", note: str = "") -> dict:
        with ledger.open("a") as file:
            file.write(f"{payment}\n")
        return {"refunded": amount}

    @guard.tool(kind="write", approval=True, identity=["to"], wait_s=0)
    def mail(to: str, text: str) -> str:
        return "sent"

    @guard.tool(kind="write", approval=lambda total: total > Decimal("9.99"))
    def pay(total: Decimal) -> str:
        return "paid"

    @guard.tool(kind="write")
    def free(note: str) -> str:
        return "done"

    return guard


def ask(guard, tool, scope="chat-1", step="1", *, asked_by="agent-7", tenant=None, **arguments):
    """One call; it may wait for a person."""
    place = {"tenant": tenant, "asked_by": asked_by}
    with guard.step(scope, step, **place), contextlib.suppress(ApprovalNeeded):
        return guard.call(tool, arguments).unwrap()


def made(store, ledger):
    """The till's guard on a store."""
    return tools(Guard(store, secret=b"till"), Path(ledger))


guard = made(os.environ.get("TILL_STORE", "memory://"), os.environ.get("TILL_LEDGER", "ledger"))
