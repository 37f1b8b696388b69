"""Mangopay: it keeps what it answered to a key, for a day.

A repeat gets a bare 409, whether the first request is done or still running. The kept answer says
more:

    client.post("/v2.01/us/payouts/bankwire", ..., headers={"Idempotency-Key": mangopay.key()})
    pay.probe(mangopay.answered(client, "/v2.01/us", "/v2.01/us/payouts/bankwire"))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from effectonce.effect import current_effect
from effectonce.providers.probes._asking import Probe, Unclear, after_a_send, asking, keys_sent

KEPT_S = 82_800.0  # a day, less an hour that the send itself may have taken
NOT_FOUND, REFUSED = 404, 400


def key() -> str:
    """The key of this effect: a UUID. A protected client sends it by itself."""
    return current_effect().key_as("uuid")


def answered(
    client: Any,
    account: str,
    posted: str,
    *,
    result: Callable[[Any], Any] = lambda found: found["Id"],
    proof_after_s: float | None = None,
) -> Probe:
    """Found by its key. *client* is an `httpx.Client` or the like, *account* the path that all
    of yours begin with, *posted* the one that the tool posts to, from the root. A request that
    still runs is not found: *proof_after_s* is the longest that one takes.
    """

    def search(*_: Any, **__: Any) -> Iterator[Any]:
        after_a_send("Mangopay keeps answers for a day")
        for each in keys_sent(key(), posted):
            answer = client.get(f"{account}/responses/{each}")
            if answer.status_code == NOT_FOUND:
                continue
            answer.raise_for_status()
            kept = answer.json()
            status = int(kept["StatusCode"])
            if status >= REFUSED:
                raise Unclear(f"it answered {status}: {kept['Resource']}")
            yield kept["Resource"]
            return
        if current_effect().in_doubt_s > KEPT_S:
            raise Unclear("it keeps answers for a day, and this was sent before")

    return asking("mangopay", search, result, proof_after_s)
