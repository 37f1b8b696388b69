"""PayPal: look through the transactions for the invoice id. They show up within three hours, and no
page says that one which does not was not made.

    "invoice_id": paypal.invoice_id()                                    # in the tool
    pay.probe(paypal.transaction(client))      # httpx.Client(base_url=..., auth=...)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from effectonce.effect import current_effect
from effectonce.providers.probes._asking import (
    Probe,
    Unclear,
    asking,
    bounded,
    get_json,
    since_s,
)

DENIED = "D"  # of a transaction_status
LONGEST_S = 31 * 86_400.0  # what one search may cover
PATH = "/v1/reporting/transactions"


def invoice_id() -> str:
    """At most 127 characters, and unique for a merchant."""
    return current_effect().key_as(max=127)


def transaction(
    client: Any,
    *,
    result: Callable[[Any], Any] = lambda found: found["transaction_id"],
    proof_after_s: float | None = None,
) -> Probe:
    """Found by its invoice id. *client* is an `httpx.Client` or the like, with its base URL."""

    def search(*_: Any, **__: Any) -> Iterator[Any]:
        wanted, begin_s = invoice_id(), since_s()
        for found in bounded(_transactions(client, begin_s, time.time())):
            if found.get("invoice_id") == wanted:
                if found.get("transaction_status") == DENIED:
                    raise Unclear(f"{found['transaction_id']} is there, and was denied")
                yield found

    return asking("paypal.payments", search, result, proof_after_s)


def _transactions(client: Any, begin_s: float, end_s: float) -> Iterator[Any]:
    while begin_s < end_s:
        until_s, page, pages = min(end_s, begin_s + LONGEST_S), 1, 1
        while page <= pages:
            answer = get_json(
                client,
                PATH,
                start_date=_date(begin_s),
                end_date=_date(until_s),
                fields="transaction_info",
                page_size=500,
                page=page,
            )
            yield from (each["transaction_info"] for each in answer["transaction_details"])
            page, pages = page + 1, answer["total_pages"]
        begin_s = until_s


def _date(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
