"""Many refunds whose answers were lost: what a person finds after a bad night.

What really happened is in the ledger, a file that only the tool writes.
"""

import os
from pathlib import Path

from effectonce import Guard, Retry, current_effect

ONCE = Retry(attempts=1)


def tools(guard):
    """A shop whose bank pays, and loses its answers."""

    @guard.tool(kind="write", searchable=["payment_id"], retry=ONCE)
    def refund(payment_id: str, amount_minor: int) -> dict:
        with Path(os.environ["HEAP_LEDGER"]).open("a") as ledger:
            ledger.write(f"{payment_id}\n")
        raise TimeoutError(f"the bank did not answer {payment_id} within 30 s")

    @guard.tool(kind="write", downstream="key", retry=ONCE)
    def reserve(seat: str) -> str:
        current_effect().downstream_key  # noqa: B018  # sent with the request
        raise TimeoutError(f"no answer about {seat}")

    return guard


def fill(guard, refunds=10, tenants=("main", "acme")):
    for number in range(refunds):
        tenant = tenants[number % len(tenants)]
        with guard.step(f"chat-{number}", "refund", tenant=tenant):
            guard.call("refund", {"payment_id": f"pay_{number}", "amount_minor": number})


def open_guard(url):
    return tools(Guard(url, reconcile=False))
