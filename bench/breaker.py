"""What a closed circuit adds to a call that goes well, and what the breakers of others add.

    python bench/breaker.py [--quick] [--json]

The floor is the same function in a decorator that does nothing but pass `*args` and `**kwargs`
on: the figure is what the breaker adds to that. For the pair of calls that an engine makes, it
is the bare function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from _paired import Goal, Row, machine, options, report
from _wrapped import abare, acall_s, atrivial, bare, call_s, over, trivial
from circuitbreaker import CircuitBreaker
from purgatory import AsyncCircuitBreakerFactory, SyncCircuitBreakerFactory
from pybreaker import CircuitBreaker as PyBreaker

from effectonce import Breaker, Circuit

POLICIES = {
    "failures in a row": Breaker(),
    "rate of the last calls": Breaker(rate=0.5, window_calls=100),
    "rate of the last seconds": Breaker(rate=0.5),
    "slow calls": Breaker(slow_rate=0.5, slow_s=1.0),
}
PEERS: dict[str, Callable[[Any], Any]] = {
    "circuitbreaker": CircuitBreaker(name="bank"),
    "purgatory": SyncCircuitBreakerFactory()("bank"),
    "pybreaker": PyBreaker(name="bank"),
}
APEERS: dict[str, Callable[[Any], Any]] = {
    "circuitbreaker": CircuitBreaker(name="bank"),
    "purgatory": AsyncCircuitBreakerFactory()("bank"),
}


def by_hand(circuit: Circuit) -> Callable[..., Any]:
    """The pair that an engine uses, around a bare call."""

    def call(order_id: str, amount: int, currency: str = "eur") -> int:
        permit = circuit.try_admit()
        value = bare(order_id, amount, currency)
        permit.succeeded()
        return value

    return call


def rows(colour: str, seconds: dict[str, float], peers: dict[str, Any]) -> list[Row]:
    floor = seconds["trivial"]
    cheapest_ns = round(min(seconds[name] - floor for name in peers) * 1e9)
    return [
        *(
            over(f"{name}, {colour}", seconds[name], floor, Goal("<=", cheapest_ns))
            for name in POLICIES
        ),
        *(over(f"{name}, {colour}", seconds[name], floor) for name in peers),
    ]


def main() -> None:
    chosen = options(__doc__)
    slices, ops = (2, 100) if chosen.quick else (60, 1000)
    ours = {name: Circuit("bank", policy) for name, policy in POLICIES.items()}
    sync = {"bare": bare, "trivial": trivial(bare), "pair": by_hand(Circuit("bank"))}
    sync |= {name: circuit(bare) for name, circuit in (ours | PEERS).items()}
    seconds = call_s(sync, slices, ops)
    coloured = {"trivial": atrivial(abare)} | {
        name: circuit(abare) for name, circuit in (ours | APEERS).items()
    }
    aseconds = acall_s(coloured, slices, ops)
    report(
        [
            over(
                "try_admit and succeeded, by hand",
                seconds["pair"],
                seconds["bare"],
                Goal("<=", 400),
            ),
            *rows("sync", seconds, PEERS),
            *rows("async", aseconds, APEERS),
        ],
        chosen,
        machine(),
    )


if __name__ == "__main__":
    main()
