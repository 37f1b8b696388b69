"""idemkey. A caller waits 60 s for a call that runs; here the wait is cut to 2 s, which comes to
the same end. It retries time-outs of its own accord; httpx's are no TimeoutError. Where the service
can be asked, `verify` looks whether what was done is there. Best configured: the tool looks first,
because its text wants tools that can be run again; and where the service honours the key, errors of
the client are retried.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncebench.adapters._retries import looking_first
from oncebench.kit import Says, Setup

NAME = "idemkey"
KIND = "library"
REQUIRES = ("idemkey==0.1.1",)
README = "README, first example and Partial-success verification; Safe retry for the best"
LACKS: dict[str, str] = {}


def open(setup: Setup) -> Callable[..., Any]:
    import httpx
    from idemkey import DedupStore, RetryableError, guard

    options: dict[str, Any] = {
        "store": DedupStore(str(setup.folder / "store.db")),
        "claim_ttl": setup.lease_s,
        "inflight_timeout": 2.0,
    }
    if setup.best and setup.temperament == "keys":
        options["retry_on"] = (TimeoutError, RetryableError, httpx.TransportError)
    key: list[str | None] = [None]
    order_now: list[str] = [""]
    setup.key = lambda: key[0]
    if setup.temperament == "asks":
        options["verify"] = lambda _: setup.find_for_sure(order_now[0]) is not None

    def protect(tool: Callable[..., Any]) -> Callable[..., Any]:
        protected = guard(looking_first(setup, tool), tool=tool.__module__, **options)

        def call(order: str, amount: int, note: str = "") -> Any:
            order_now[0], key[0] = order, f"{tool.__module__}:{order}"
            return protected(order, amount, note, idemkey=key[0])

        return call

    return protect


def said(error: Exception) -> Says:
    import idemkey

    match error:
        case idemkey.FingerprintMismatchError():
            return "conflict"
        case idemkey.InflightTimeoutError():
            return "busy"
        case idemkey.VerificationError():
            return "unknown"
        case idemkey.ResultNotReplayableError():
            return "happened"
        case _:
            return "raised"
