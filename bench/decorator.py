"""What a decorated call costs where no store is involved, and what `import effectonce` costs.

    python bench/decorator.py [--quick] [--json]

The bare call is a function of three arguments with its loop; a reading tool has no record, so all it adds is the wrapper.
"""

from __future__ import annotations

import asyncio
import functools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from statistics import median
from typing import Any

from _paired import Goal, Row, averaged, machine, options, report, take_turns

from effectonce import Guard

guard = Guard("memory://")


def bare(order_id: str, amount: int, currency: str = "eur") -> int:
    return amount


async def abare(order_id: str, amount: int, currency: str = "eur") -> int:
    return amount


def trivial(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


def atrivial(function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        return await function(*args, **kwargs)

    return call


def awaiting(runner: asyncio.Runner, function: Callable[..., Awaitable[Any]], ops: int) -> list[float]:
    async def loop() -> list[float]:
        start = time.perf_counter()
        for _ in range(ops):
            await function("ord_17", 4200, currency="usd")
        return [(time.perf_counter() - start) / ops]

    return runner.run(loop())


def over(what: str, ours_s: float, floor_s: float, goal: Goal | None = None) -> Row:
    return Row(what, ours_s * 1e9, floor_s * 1e9, "ns", (ours_s - floor_s) * 1e9, of="ns over", goal=goal)


def calls(slices: int, ops: int) -> list[Row]:
    functions = {"bare": bare, "trivial": trivial(bare), "ours": guard.tool(kind="read")(bare)}
    seconds = take_turns(
        {n: lambda f=f: averaged(lambda: f("ord_17", 4200, currency="usd"), ops) for n, f in functions.items()}, slices
    )
    afunctions = {"bare": abare, "trivial": atrivial(abare), "ours": guard.tool(kind="read")(abare)}
    with asyncio.Runner() as runner:
        aseconds = take_turns({n: lambda f=f: awaiting(runner, f, ops) for n, f in afunctions.items()}, slices)
    return [
        over("a read, sync", seconds["ours"], seconds["bare"], Goal("<=", 500)),
        over("a trivial *args wrapper, sync", seconds["trivial"], seconds["bare"]),
        over("a read, async", aseconds["ours"], aseconds["bare"], Goal("<=", 500)),
        over("a trivial *args wrapper, async", aseconds["trivial"], aseconds["bare"]),
    ]


def import_cpu_s(statement: str, bytecode: str) -> float:
    """The CPU seconds of a new interpreter that does only this, with its modules compiled, as an installer leaves them."""
    code = f"import time; start = time.process_time(); {statement}; print(time.process_time() - start)"
    compiled = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    run = [sys.executable, "-X", f"pycache_prefix={bytecode}", "-c", code]
    return float(subprocess.run(run, check=True, capture_output=True, text=True, env=compiled).stdout)


def imports(times: int) -> Row:
    ours, floor = [], []
    with tempfile.TemporaryDirectory() as bytecode:
        import_cpu_s("import asyncio, effectonce", bytecode)  # compile
        for _ in range(times):
            floor.append(import_cpu_s("import asyncio", bytecode))
            ours.append(import_cpu_s("import asyncio, effectonce", bytecode))
    ours_ms, floor_ms = median(ours) * 1e3, median(floor) * 1e3
    return Row("import effectonce, CPU", ours_ms, floor_ms, "ms", ours_ms - floor_ms, of="ms over", goal=Goal("<=", 40))


def main() -> None:
    chosen = options(__doc__)
    slices, ops, times = (2, 100, 2) if chosen.quick else (60, 1000, 15)
    report([*calls(slices, ops), imports(times)], chosen, machine())


if __name__ == "__main__":
    main()
