"""effectonce, as its README begins; best configured, its client is protected and every tool
declares that it makes one request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncebench.kit import Says, Setup, timeout_s

NAME = "effectonce"
KIND = "library"
REQUIRES = ("effectonce",)
README = "README, first example; docs/howto/one-key-on-the-wire.md for the best configuration"
LACKS: dict[str, str] = {}


def open(setup: Setup) -> Callable[..., Any]:
    from effectonce import Guard, current_effect

    guard = Guard(f"sqlite:///{setup.folder}/effects.db")
    setup.key = lambda: current_effect().downstream_key
    setup.around = lambda wish: guard.step("payments", wish.order)
    setup.maintain = guard.reconcile
    declared: dict[str, Any] = {}
    if setup.best:
        declared = _best(setup)
    downstream: Any = {"deaf": "none", "asks": "probe", "keys": "key"}[setup.temperament]
    if setup.temperament == "keys" and setup.window_s is not None:
        declared["window"] = setup.window_s

    def protect(tool: Callable[..., Any]) -> Callable[..., Any]:
        pay = guard.tool(
            kind="write" if setup.temperament == "asks" else "irreversible",
            downstream=downstream,
            name=tool.__module__.rpartition(".")[2],
            identity=["order"],
            volatile=["note"],
            lease_s=setup.lease_s,
            **declared,
        )(tool)
        if setup.temperament == "asks":

            @pay.probe
            def find(order: str, amount: int, note: str) -> Any:
                from effectonce import Found, NotFound

                found = setup.find(order)
                return NotFound() if found is None else Found(found)

        return pay

    return protect


def _best(setup: Setup) -> dict[str, Any]:
    import httpx

    from effectonce.http.client import protect

    client = protect(httpx.Client(verify=False))

    def post(url: str, body: dict[str, Any], headers: dict[str, str]) -> Any:
        response = client.post(url, json=body, headers=headers, timeout=timeout_s())
        response.raise_for_status()
        return response.json()

    setup.post = post
    return {"through": "protected", "separate_dispatch": True}


def said(error: Exception) -> Says:
    from effectonce import errors

    match error:
        case errors.InDoubt():
            return "unknown"
        case errors.InFlight() | errors.GaveUp() | errors.LeaseLost():
            return "busy"
        case errors.Conflict() | errors.ContractViolation():
            return "conflict"
        case errors.Expired():
            return "expired"
        case errors.ResultUnavailable():
            return "happened"
        case errors.ReplayedFailure():
            return "failed"
        case _:
            return "raised"
