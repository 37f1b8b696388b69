"""What retries, a circuit breaker and a retry budget add to a call that succeeds, beside what
those of others add.

    python bench/policy.py [--quick] [--json]

All of them and the bare call take turns in one process. For ours the figure is the nanoseconds
over the bare call; for a peer it is how many times as much it adds as our whole policy does:
retry, breaker and budget together.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from _paired import Goal, Row, machine, options, report
from _policies import PEERS, missing, wrapped
from _wrapped import abare, acall_s, atrivial, bare, call_s, imports, over, trivial

from effectonce import Guard, Retry, RetryBudget, breaker, retry

WHOLE = "retry + breaker + budget"
ONE_US = Goal("<=", 1000)


def ours(function: Callable[..., Any], guard: Guard) -> dict[str, Callable[..., Any]]:
    return {
        "retry": retry(Retry(), kind="read")(function),
        "breaker": breaker("bank")(function),
        "breaker, by rate": breaker("bank", rate=0.5)(function),
        WHOLE: retry(Retry(), kind="read", breaker=breaker("bank"), budget=RetryBudget("bank"))(
            function
        ),
        f"{WHOLE}, by rate": retry(
            kind="read", breaker=breaker("bank", rate=0.5), budget=RetryBudget("bank")
        )(function),
        f"{WHOLE}, a tool": guard.tool(
            kind="read", breaker=breaker("bank"), budget=RetryBudget("bank")
        )(function),
    }


def rows(
    colour: str,
    function: Callable[..., Any],
    floor: Callable[..., Any],
    measure: Callable[..., dict[Any, float]],
) -> list[Row]:
    """One colour: our parts over the bare call, then every peer beside our whole."""
    mine, peers = ours(function, Guard("memory://")), wrapped(function)
    seconds = measure({"bare": function, "a trivial *args wrapper": floor} | mine | peers)
    bare_s = seconds["bare"]
    parts = [
        over(f"{name}, {colour}", seconds[name], bare_s, ONE_US if name == WHOLE else None)
        for name in ("a trivial *args wrapper", *mine)
    ]
    whole_ns = (seconds[WHOLE] - bare_s) * 1e9
    return parts + [
        beside(
            f"our whole beside {peer.package}'s {peer.what}, {colour}",
            whole_ns,
            (seconds[peer] - bare_s) * 1e9,
            peer.goal,
        )
        for peer in peers
    ]


def beside(what: str, ours_ns: float, peer_ns: float, goal: Goal) -> Row:
    """What both add to the bare call."""
    return Row(what, ours_ns, peer_ns, "ns", peer_ns / ours_ns, of="peer/ours", goal=goal)


def main() -> None:
    chosen = options(__doc__)
    slices, ops, times = (2, 50, 2) if chosen.quick else (200, 200, 15)
    figures = [
        *rows("sync", bare, trivial(bare), lambda functions: call_s(functions, slices, ops)),
        *rows("async", abare, atrivial(abare), lambda functions: acall_s(functions, slices, ops)),
        imports(times),
    ]
    absent = missing()
    peers = {
        "peers": ", ".join(
            f"{peer.package} {version(peer.package)}"
            for peer in PEERS
            if peer.package not in absent
        )
    }
    left_out = {"left out, not installed": ", ".join(absent)} if absent else {}
    report(
        figures,
        chosen,
        machine()
        | peers
        | left_out
        | {"floor": "the bare call; beside a peer, what the peer adds to it"},
    )


if __name__ == "__main__":
    main()
