"""Gmail: search for the Message-ID. It may lag, and Gmail may replace an id that it does not like.

mail["Message-ID"] = gmail.message_id("shop.example")                # in the tool
send.probe(gmail.message(service, "shop.example"))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from effectonce.effect import current_effect
from effectonce.providers.probes._asking import Probe, asking, bounded

__all__ = ["message", "message_id"]


def message_id(domain: str) -> str:
    """A Message-ID of this effect, in a domain of yours."""
    return f"<{current_effect().key_as(max=40)}@{domain}>"


def message(
    service: Any,
    domain: str,
    *,
    user: str = "me",
    result: Callable[[Any], Any] = lambda found: found["id"],
    proof_after_s: float | None = None,
) -> Probe:
    """Found by its Message-ID. *service* is `build("gmail", "v1", ...)`."""

    def search(*_: Any, **__: Any) -> Iterator[Any]:
        return bounded(_pages(service.users().messages(), user, message_id(domain).strip("<>")))

    return asking("gmail", search, result, proof_after_s)


def _pages(messages: Any, user: str, wanted: str) -> Iterator[Any]:
    request = messages.list(userId=user, q=f"rfc822msgid:{wanted}", includeSpamTrash=True)
    while request is not None:
        answer = request.execute()
        yield from answer.get("messages", ())
        request = messages.list_next(request, answer)
