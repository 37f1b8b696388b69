"""The playground: a policy of yours in an outage, beside others, in virtual time and with the objects that calls use."""

from __future__ import annotations

import functools
import threading
from typing import Any

from starlette.responses import Response

from effectonce._core.backoff import Jitter
from effectonce._declared import numbers
from effectonce.errors import ContractViolation
from effectonce.policy import Retry
from effectonce.server._visit import Refusal, Visit
from effectonce.simulate._svg import storm_figure
from effectonce.simulate.storm import POLICIES, Policy, StormResult, simulate

YOURS, BESIDE = "yours", ("no retries", "naive", "whole")
LAYERS = {"0": "nobody", "1": "the client alone", "2": "the client and the first service", "3": "everybody"}
FIRST = {"attempts": "3", "base_s": "0.5", "cap_s": "20", "jitter": "full", "layers": "3", "rate": "20", "seed": "7"}
BOUNDS = {
    "attempts": (1, 5),
    "base_s": (0, 60),
    "cap_s": (0, 60),
    "rate": (5, 50),
    "seed": (0, 1_000_000),
}  # seconds to compute, not minutes
SWITCHES = ("budget", "breaker", "keys")
_ONE_AT_A_TIME = threading.Lock()  # it takes a core for a second or two


@functools.lru_cache(maxsize=32)
def _lived_through(policy: Policy, rate: float, seed: int) -> StormResult:
    others = [each for each in POLICIES if each.name in BESIDE]
    with _ONE_AT_A_TIME:
        return simulate(seed=seed, rate=rate, policies=[policy, *others])


def _asked(visit: Visit) -> dict[str, str]:
    """What the form says; before it was sent, a policy that many have."""
    given = {name: visit.asked(name) or first for name, first in FIRST.items()}
    return given | {name: visit.asked(name) for name in SWITCHES}


def _result(asked: dict[str, str]) -> tuple[Policy, StormResult]:
    """The policy that was asked for, and what becomes of it. ValueError or ContractViolation: it cannot be one."""
    read = {name: _number(name, asked[name]) for name in BOUNDS}
    if asked["layers"] not in LAYERS:
        raise ValueError(f"{asked['layers']!r}: choose who retries")
    retry = Retry(attempts=int(read["attempts"]), base_s=read["base_s"], cap_s=read["cap_s"], jitter=asked["jitter"])
    on = {name: asked[name] == "on" for name in SWITCHES}
    policy = Policy(YOURS, layers=int(asked["layers"]), retry=retry, **on)
    return policy, _lived_through(policy, read["rate"], int(read["seed"]))


def _number(name: str, text: str) -> float:
    least, most = BOUNDS[name]
    try:
        number = float(text)
        numbers(**{name: number})
    except (ValueError, ContractViolation):
        raise ValueError(f"{name}={text}: this is no number") from None
    whole = name in ("attempts", "seed")
    if not least <= number <= most or (whole and number != int(number)):
        raise ValueError(f"{name}={text}: choose a {'whole ' * whole}number from {least:,} to {most:,}")
    return number


def storm(visit: Visit) -> Response:
    """The form, and what becomes of the policy in it."""
    asked, problem = _asked(visit), ""
    data: dict[str, Any] = {"policy": None, "result": None, "code": ""}
    try:
        policy, result = _result(asked)
        data = {"policy": policy, "result": result, "code": code_of(policy)}
    except (ValueError, ContractViolation) as error:
        problem = str(error)
    return visit.page(
        "storm.html",
        422 if problem else 200,
        section="storm",
        asked=asked,
        layers=LAYERS,
        jitters=tuple(Jitter),
        bounds=BOUNDS,
        problem=problem,
        **data,
    )


def figure(visit: Visit) -> Response:
    """The same as a picture."""
    try:
        _, result = _result(_asked(visit))
    except (ValueError, ContractViolation) as error:
        raise Refusal(422, "This cannot be drawn", f"{error}.") from None
    return Response(storm_figure(result), media_type="image/svg+xml")


def code_of(policy: Policy) -> str:
    """The policy as somebody would write it."""
    retry = policy.retry
    attempts = retry.attempts if policy.layers else 1
    parts = [
        'kind="write"',
        f'downstream="{"key" if policy.keys else "none"}"',
        f'retry=Retry(attempts={attempts}, base_s={retry.base_s:g}, cap_s={retry.cap_s:g}, jitter="{retry.jitter}")',
        *(['budget=RetryBudget("bank")'] if policy.budget else []),
        *(['breaker=breaker("bank")'] if policy.breaker else []),
    ]
    wanted = {"Retry": True, "RetryBudget": policy.budget, "breaker": policy.breaker, "current_effect": policy.keys}
    head = [f"from effectonce import {', '.join(name for name, is_used in wanted.items() if is_used)}", "", "@guard.tool("]
    key = ", idempotency_key=current_effect().downstream_key" if policy.keys else ""
    body = ["def refund(payment_id: str) -> dict:", f"    return bank.refund(payment_id{key})"]
    return "\n".join([*head, *(f"    {part}," for part in parts), ")", *body])


PLAYGROUND = (("/storm", "storm", storm), ("/storm.svg", "storm_figure", figure))
