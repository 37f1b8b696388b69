"""Retries and circuit breakers of others, each around one function in the way that its own
documentation shows.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from _paired import Goal

Function = Callable[..., Any]
TWENTIETH, FASTER = Goal(">=", 20), Goal(">", 1)


@dataclass(frozen=True, slots=True)
class Peer:
    """Somebody else's wrapper, and how many times longer than ours it should take."""

    package: str
    what: str
    goal: Goal
    around: Callable[[Any, Function], Function]  # the imported package, the function
    asynchronous: bool = True


def purgatory(package: Any, function: Function) -> Function:
    factory = (
        package.AsyncCircuitBreakerFactory
        if inspect.iscoroutinefunction(function)
        else package.SyncCircuitBreakerFactory
    )
    return factory()("bank")(function)


def pyresilience(package: Any, function: Function) -> Function:
    policy = {
        "retry": package.RetryConfig(),
        "circuit_breaker": package.CircuitBreakerConfig(),
        "retry_budget": package.RetryBudgetConfig(),
    }
    return package.resilient(**policy)(function)


PEERS = (
    Peer(
        "tenacity",
        "retry",
        TWENTIETH,
        lambda tenacity, f: tenacity.retry(stop=tenacity.stop_after_attempt(3))(f),
    ),
    Peer(
        "stamina", "retry", TWENTIETH, lambda stamina, f: stamina.retry(on=Exception, attempts=3)(f)
    ),
    Peer(
        "backoff",
        "retry",
        FASTER,
        lambda backoff, f: backoff.on_exception(backoff.expo, Exception, max_tries=3)(f),
    ),
    Peer(
        "circuitbreaker",
        "breaker",
        FASTER,
        lambda circuitbreaker, f: circuitbreaker.CircuitBreaker(name="bank")(f),
    ),
    Peer("purgatory", "breaker", FASTER, purgatory),
    # Around an `async def` it sees the coroutine and not its end, so it never opens: there is
    # nothing to compare.
    Peer(
        "pybreaker",
        "breaker",
        FASTER,
        lambda pybreaker, f: pybreaker.CircuitBreaker()(f),
        asynchronous=False,
    ),
    Peer("aiobreaker", "breaker", FASTER, lambda aiobreaker, f: aiobreaker.CircuitBreaker()(f)),
    Peer("pyresilience", "whole", FASTER, pyresilience),
)


def wrapped(function: Function) -> dict[Peer, Function]:
    """The function in each peer that is installed and can do it."""
    asynchronous = inspect.iscoroutinefunction(function)
    here = {
        peer: _imported(peer.package) for peer in PEERS if peer.asynchronous or not asynchronous
    }
    return {
        peer: peer.around(package, function)
        for peer, package in here.items()
        if package is not None
    }


def missing() -> list[str]:
    return [peer.package for peer in PEERS if _imported(peer.package) is None]


def _imported(package: str) -> Any:
    try:
        return import_module(package)
    except ModuleNotFoundError:
        return None
