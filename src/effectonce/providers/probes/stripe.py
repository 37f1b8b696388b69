"""Stripe: list the objects and look at their metadata. A search lags, in an outage for an hour; a
list does not.

    metadata={stripe.MARK: stripe.mark()}                                # in the tool
    pay.probe(stripe.listed(lambda params: client.v1.payment_intents.list(params)))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from effectonce.providers.probes._asking import (
    MARK,
    Probe,
    Unclear,
    asking,
    bounded,
    mark,
    since_s,
)

__all__ = ["MARK", "listed", "mark"]


def listed(
    listing: Callable[[dict[str, Any]], Any],
    *,
    result: Callable[[Any], Any] = lambda found: found["id"],
    proof_after_s: float | None = None,
) -> Probe:
    """Found by its mark in the metadata. *listing* is called with the parameters of a list. What
    is there because a payment was declined is left to you.
    """

    def search(*_: Any, **__: Any) -> Iterator[Any]:
        wanted = mark()
        page = listing({"created": {"gte": int(since_s())}, "limit": 100})
        for found in bounded(page.auto_paging_iter()):
            metadata = found["metadata"]  # of the SDK: it has no `get`
            if metadata and MARK in metadata and metadata[MARK] == wanted:
                if _declined(found):
                    raise Unclear(f"{found['id']} is there, and its payment was declined")
                yield found

    return asking("stripe.v1", search, result, proof_after_s)


def _declined(found: Any) -> bool:
    """A charge or a payment intent stays listed if no money moved."""
    if "status" in found and found["status"] == "failed":
        return True
    return "last_payment_error" in found and found["last_payment_error"] is not None
