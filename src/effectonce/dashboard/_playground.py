"""The playground: your policy in an outage, beside others, in virtual time, with real objects.

`_fallback.py` has the chain of models.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import anyio
import anyio.to_thread
from starlette.responses import Response

from effectonce._core.backoff import Jitter
from effectonce._validate import numbers
from effectonce.dashboard._request import DashboardRequest, RefusedVisit
from effectonce.errors import ContractViolation
from effectonce.policy import Retry
from effectonce.simulate._svg import storm_figure
from effectonce.simulate.storm import POLICIES, Policy, StormResult, simulate

BESIDE = ("no retries", "naive", "whole")
LAYERS = {
    "0": "no layer",
    "1": "the client alone",
    "2": "the client and the first service",
    "3": "all layers",
}
FIRST = {
    "attempts": "3",
    "base_s": "0.5",
    "cap_s": "20",
    "jitter": "full",
    "layers": "3",
    "rate": "20",
    "seed": "7",
}
BOUNDS = {
    "attempts": (1, 5),
    "base_s": (0, 60),
    "cap_s": (0, 60),
    "rate": (5, 50),
    "seed": (0, 1_000_000),
}  # seconds to compute, not minutes
SWITCHES = ("budget", "breaker", "keys")
AT_ONCE, WAITING, KEPT = 1, 4, 32  # a simulation takes a core for a second or two
Asked: TypeAlias = tuple[Policy, float, int]
AskedT = TypeVar("AskedT", bound=tuple[Any, ...])
ResultT = TypeVar("ResultT")


class TriedForm(NamedTuple):
    """What a form asked for, and what becomes of it; or why it cannot be asked."""

    problem: str
    what: Any = None  # a policy, or a chain
    result: Any = None
    code: str = ""

    def page(self, visit: DashboardRequest, name: str, **more: Any) -> Response:
        status, data = 422 if self.problem else 200, self._asdict()
        return visit.page(
            f"{name}.html", status, section=name, jitters=tuple(Jitter), **data, **more
        )


class Simulations(Generic[AskedT, ResultT]):
    """Runs simulations in own threads, a few at a time, one per viewer: the app's stay free."""

    def __init__(self, run: Callable[..., ResultT]) -> None:
        self._run = run
        self._pool = ThreadPoolExecutor(AT_ONCE, "effectonce-storm")
        self._lock = threading.Lock()
        self._viewers: set[str] = set()
        self._kept: OrderedDict[AskedT, ResultT] = OrderedDict()

    async def tried(
        self, viewer: str, read: Callable[[], AskedT], code_of: Callable[[Any], str]
    ) -> TriedForm:
        try:
            asked = read()
            return TriedForm("", asked[0], await self.result(viewer, asked), code_of(asked[0]))
        except (ValueError, ContractViolation) as error:
            return TriedForm(str(error))

    async def result(self, viewer: str, asked: AskedT) -> ResultT:
        """What becomes of it; a Refusal if this viewer, or too many others, are waiting already."""
        known = self._admit(viewer, asked)
        if known is not None:
            return known
        try:
            running = self._pool.submit(self._run, *asked)
            # The thread that waits is none of those that the application counts.
            alone = anyio.CapacityLimiter(1)
            result = await anyio.to_thread.run_sync(running.result, limiter=alone)
        finally:
            with self._lock:
                self._viewers.discard(viewer)
        with self._lock:
            self._kept[asked] = result
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return result

    def _admit(self, viewer: str, asked: AskedT) -> ResultT | None:
        with self._lock:
            if asked in self._kept:
                return self._kept[asked]
            if viewer in self._viewers:
                raise RefusedVisit(
                    429,
                    "One at a time",
                    "A simulation of yours is running.",
                    "Load this page again when it is done.",
                )
            if len(self._viewers) >= AT_ONCE + WAITING:
                raise RefusedVisit(
                    503,
                    "Too many simulations",
                    "Others are waiting for theirs.",
                    "Load this page again in some seconds.",
                )
            self._viewers.add(viewer)
            return None


def _lived_through(policy: Policy, rate: float, seed: int) -> StormResult:
    others = [each for each in POLICIES if each.name in BESIDE]
    return simulate(seed=seed, rate=rate, policies=[policy, *others])


SIMULATIONS: Simulations[Asked, StormResult] = Simulations(_lived_through)


def _asked(visit: DashboardRequest) -> dict[str, str]:
    """What the form says; before it was sent, a policy that many have."""
    given = {name: visit.asked(name) or first for name, first in FIRST.items()}
    return given | {name: visit.asked(name) for name in SWITCHES}


def _read(asked: dict[str, str]) -> Asked:
    """The policy that was asked for. ValueError or ContractViolation: it cannot be one."""
    read = {name: number_in(name, asked[name], BOUNDS[name]) for name in BOUNDS}
    if asked["layers"] not in LAYERS:
        raise ValueError(f"{asked['layers']!r}: choose who retries")
    retry = Retry(
        attempts=int(read["attempts"]),
        base_s=read["base_s"],
        cap_s=read["cap_s"],
        jitter=asked["jitter"],
    )
    on = {name: asked[name] == "on" for name in SWITCHES}
    policy = Policy("yours", layers=int(asked["layers"]), retry=retry, **on)
    return policy, read["rate"], int(read["seed"])


def number_in(name: str, text: str, bounds: tuple[float, float]) -> float:
    """A number of a form. ValueError: it is none, or too small or too large."""
    least, most = bounds
    try:
        number = float(text)
        numbers(**{name: number})
    except (ValueError, ContractViolation):
        raise ValueError(f"{name}={text}: this is no number") from None
    whole = name in ("attempts", "seed")
    if not least <= number <= most or (whole and number != int(number)):
        wanted = f"choose a {'whole ' * whole}number from {least:,} to {most:,}"
        raise ValueError(f"{name}={text}: {wanted}")
    return number


async def storm(visit: DashboardRequest) -> Response:
    """The form, and what becomes of the policy in it."""
    asked = _asked(visit)
    tried = await SIMULATIONS.tried(visit.access.who, lambda: _read(asked), code_of)
    return tried.page(visit, "storm", asked=asked, layers=LAYERS, bounds=BOUNDS)


async def figure(visit: DashboardRequest) -> Response:
    """The same as a picture."""
    try:
        read = _read(_asked(visit))
    except (ValueError, ContractViolation) as error:
        raise RefusedVisit(422, "This cannot be drawn", f"{error}.") from None
    result = await SIMULATIONS.result(visit.access.who, read)
    return Response(storm_figure(result), media_type="image/svg+xml")


def code_of(policy: Policy) -> str:
    """The policy as you would write it."""
    retry = policy.retry
    attempts = retry.attempts if policy.layers else 1
    delays = f'base_s={retry.base_s:g}, cap_s={retry.cap_s:g}, jitter="{retry.jitter}"'
    parts = [
        'kind="write"',
        f'downstream="{"key" if policy.keys else "none"}"',
        f"retry=Retry(attempts={attempts}, {delays})",
        *(['budget=RetryBudget("bank")'] if policy.budget else []),
        *(['breaker=breaker("bank")'] if policy.breaker else []),
    ]
    used = ["Retry"]
    used += ["RetryBudget"] if policy.budget else []
    used += ["breaker"] if policy.breaker else []
    used += ["current_effect"] if policy.keys else []
    head = [f"from effectonce import {', '.join(used)}", "", "@guard.tool("]
    key = ", idempotency_key=current_effect().downstream_key" if policy.keys else ""
    body = ["def refund(payment_id: str) -> dict:", f"    return bank.refund(payment_id{key})"]
    return "\n".join([*head, *(f"    {part}," for part in parts), ")", *body])


PLAYGROUND = (("/storm", "storm", storm), ("/storm.svg", "storm_figure", figure))
