"""Increase: the list takes the idempotency key.

headers={"Idempotency-Key": increase.key()}                          # in the tool
pay.probe(increase.listed(client, "/ach_transfers"))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from effectonce.effect import current_effect
from effectonce.providers.probes._asking import (
    Probe,
    asking,
    bounded,
    get_json,
    keys_sent,
)


def key() -> str:
    """The key of this effect: at most 200 characters. A protected client sends it by itself."""
    return current_effect().key_as(max=200)


def listed(
    client: Any,
    path: str,
    *,
    result: Callable[[Any], Any] = lambda found: found["id"],
    proof_after_s: float | None = None,
) -> Probe:
    """Found by its key. *client* is an `httpx.Client` or the like, with its base URL; *path* is
    listed, and posted to.
    """

    def search(*_: Any, **__: Any) -> Iterator[Any]:
        for each in keys_sent(key(), path):
            yield from bounded(_pages(client, path, each))

    return asking("increase", search, result, proof_after_s)


def _pages(client: Any, path: str, wanted: str) -> Iterator[Any]:
    cursor: dict[str, str] = {}
    while True:
        answer = get_json(client, path, idempotency_key=wanted, **cursor)
        yield from answer["data"]
        if not answer.get("next_cursor"):
            return
        cursor = {"cursor": answer["next_cursor"]}
