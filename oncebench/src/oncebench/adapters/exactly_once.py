"""exactly-once. Where the service can be asked, its prober asks. Best configured: it
compares the amount; a second caller waits; a key is released where the error says that nothing
happened; and where the service honours the key, the prober sends the request again under it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncebench.adapters._doubts import TooLate, within_the_window
from oncebench.adapters._retries import nothing_happened
from oncebench.kit import Says, Setup

NAME = "exactly-once"
KIND = "library"
REQUIRES = ("exactly-once==0.2.1",)
README = "README, Quickstart and Recipes; What you get (wait, lease) for the best configuration"
LACKS: dict[str, str] = {}


def open(setup: Setup) -> Callable[..., Any]:
    from exactly_once import Store, current_key, once, wait

    store = Store.sqlite(str(setup.folder / "effects.db"))
    probing: list[str | None] = [None]
    setup.key = lambda: current_key() or probing[0]
    declared: dict[str, Any] = {"lease_ttl": setup.lease_s}
    if setup.best:
        declared["fingerprint"] = lambda *_, amount, **__: str(amount)
        declared["policy"] = wait(timeout=2.0)

    def protect(tool: Callable[..., Any]) -> Callable[..., Any]:
        name = tool.__module__.rpartition(".")[2]
        asked: list[tuple[Any, ...]] = []

        def send_again(key: str) -> Any:
            within_the_window(setup, store.get(key).created_at)
            probing[0] = key
            return tool(*asked[-1])

        if setup.temperament == "asks":
            declared["policy"] = _probe(lambda key: setup.find_for_sure(key.partition(":")[2]))
        if setup.best and setup.temperament == "keys":
            declared["policy"] = _probe(send_again)
        protected = once(store, key=lambda order, *_, **__: f"{name}:{order}", **declared)(tool)

        def call(order: str, amount: int, note: str = "") -> Any:
            asked[:] = [(order, amount, note)]
            try:
                return protected(order=order, amount=amount, note=note)
            except Exception as error:
                if setup.best and nothing_happened(error):
                    store.release(f"{name}:{order}")
                raise

        return call

    return protect


def _probe(find: Callable[[str], Any]) -> Any:
    from exactly_once import ProbeResult, Verdict, check_then_decide

    def prober(key: str) -> Any:
        found = find(key)
        if found is None:
            return ProbeResult(Verdict.NOT_COMMITTED)
        return ProbeResult(Verdict.COMMITTED, found)

    return check_then_decide(prober)


def said(error: Exception) -> Says:
    from exactly_once.errors import (
        KeyReuseError,
        QuarantinedError,
        ResultTooLargeError,
        UnstableKeyError,
    )

    match error:
        case QuarantinedError() | TooLate():
            return "unknown"
        case KeyReuseError() | UnstableKeyError():
            return "conflict"
        case ResultTooLargeError():
            return "happened"
        case _:
            return "raised"
