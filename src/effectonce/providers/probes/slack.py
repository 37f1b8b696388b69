"""Slack: read the channel since then and look at the metadata of messages.

client.chat_postMessage(channel=..., text=..., metadata=slack.metadata())   # in the tool
post.probe(slack.message(client, lambda channel, text: {"channel": channel}))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from effectonce.providers.probes._asking import MARK, Probe, asking, bounded, mark, since_s

__all__ = ["message", "metadata"]


def metadata() -> dict[str, Any]:
    """What to give to `chat_postMessage`."""
    return {"event_type": MARK, "event_payload": {MARK: mark()}}


def message(
    client: Any,
    where: Callable[..., dict[str, str]],
    *,
    result: Callable[[Any], Any] = lambda found: found["ts"],
    proof_after_s: float | None = None,
) -> Probe:
    """Found by its metadata. *where* is called like the tool and returns the channel, and `ts` of
    the thread if it is in one.
    """

    def search(*args: Any, **kwargs: Any) -> Iterator[Any]:
        wanted = metadata()
        for found in bounded(_messages(client, where(*args, **kwargs))):
            theirs = found.get("metadata") or {}
            if theirs.get("event_payload", {}).get(MARK) == wanted["event_payload"][MARK]:
                yield found

    return asking("slack", search, result, proof_after_s)


def _messages(client: Any, place: dict[str, str]) -> Iterator[Any]:
    listing = client.conversations_replies if "ts" in place else client.conversations_history
    cursor: str | None = None
    while cursor != "":
        answer = listing(
            **place,
            oldest=f"{since_s():.6f}",
            include_all_metadata=True,
            limit=200,
            **({} if cursor is None else {"cursor": cursor}),
        )
        yield from answer["messages"]
        cursor = (answer.get("response_metadata") or {}).get("next_cursor") or ""
