"""What the subjects with effectonce have in common: where it comes from, and what is declared."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from oncebench.kit import VERIFY, Setup, Wish, timeout_s

CHECKOUT = Path(__file__).parents[4]
DOWNSTREAM = {"deaf": "none", "asks": "probe", "keys": "key", "transaction": "transaction"}


def requirement(*extras: str) -> str:
    """Where effectonce is installed from: what ONCEBENCH_EFFECTONCE says (a folder or an
    address), the checkout that this file is in, or the index.
    """
    name = f"effectonce[{','.join(extras)}]" if extras else "effectonce"
    given = os.environ.get("ONCEBENCH_EFFECTONCE", "")
    if not given and (CHECKOUT / "src" / "effectonce").is_dir():
        given = str(CHECKOUT)
    if not given:
        return name
    return f"{name} @ {given if '://' in given else Path(given).resolve().as_uri()}"


def opened(setup: Setup) -> Any:
    """The guard. Where the effect is a row, its records are in the same database."""
    from effectonce import Guard, current_effect

    if setup.temperament == "transaction":
        setup.connection = lambda: current_effect().connection
    guard = Guard(setup.database or f"sqlite:///{setup.folder}/effects.db")
    setup.maintain = guard.reconcile
    return guard


def contract(setup: Setup) -> dict[str, Any]:
    """What every tool declares. It sends through a protected client, which puts the key into the
    request. Best configured it is a "write", which a person can take back: "irreversible" (the
    README's first example) is not sent again because a service found nothing.
    """
    import httpx

    from effectonce.http.client import protect

    declared: dict[str, Any] = {
        "kind": "write" if setup.best else "irreversible",
        "downstream": DOWNSTREAM[setup.temperament],
        "identity": ["order"],
        "volatile": ["note"],
        "lease_s": setup.lease_s,
        "wait_s": 2.0,
    }
    if setup.approval:
        declared["approval"] = True
    if setup.temperament != "transaction":
        client = declared["through"] = protect(httpx.Client(verify=VERIFY))
        setup.post = partial(_post, client)
    return declared


def guarded(
    setup: Setup,
    guard: Any,
    tool: Callable[..., Any],
    *,
    name: str,
    found: Callable[[Any], Any] = lambda answer: answer,
) -> Any:
    """The tool with `@guard.tool`. Best configured, where the service can be asked, how late a
    request may land is declared, and it is asked before the first send, too.
    """
    from effectonce import Downstream

    declared = contract(setup)
    if setup.best and setup.temperament == "asks":
        declared["downstream"] = Downstream.probe(delay=setup.lands_within_s, before_sending=True)
    if setup.temperament == "keys" and setup.window_s is not None:
        declared["window"] = setup.window_s
    pay = guard.tool(name=name, **declared)(tool)
    if setup.temperament == "asks":
        pay.probe(probe(setup, found))
    return pay


def say_yes(guard: Any, wish: Wish) -> None:
    """A person approves what waits for this wish, as it was shown."""
    for waiting in guard.approvals.waiting():
        if waiting.arguments["order"] == wish.order:
            guard.approvals.approve(
                waiting.key, by="ada", reason="it is owed", fingerprint=waiting.fingerprint
            )
            return
    raise LookupError(f"nothing waits for {wish.order}")


def probe(setup: Setup, found: Callable[[Any], Any]) -> Callable[..., Any]:
    def find(order: str, amount: int, note: str) -> Any:
        from effectonce import Found, NotFound

        answer = setup.find(order)
        return NotFound() if answer is None else Found(found(answer))

    return find


def _post(client: Any, url: str, body: dict[str, Any], headers: dict[str, str]) -> Any:
    response = client.post(url, json=body, headers=headers, timeout=timeout_s())
    return response.raise_for_status().json()
