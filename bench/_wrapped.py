"""What a wrapper adds to a function that does nothing, and what an import adds to a process."""

from __future__ import annotations

import asyncio
import functools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from statistics import median
from typing import Any

from _paired import Goal, Row, averaged, take_turns


def bare(order_id: str, amount: int, currency: str = "eur") -> int:
    return amount


async def abare(order_id: str, amount: int, currency: str = "eur") -> int:
    return amount


def trivial(function: Callable[..., Any]) -> Callable[..., Any]:
    """The least that any wrapper does."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


def atrivial(function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        return await function(*args, **kwargs)

    return call


def call_s(functions: Mapping[str, Callable[..., Any]], slices: int, ops: int) -> dict[str, float]:
    """The seconds of one call of each function, with its loop."""
    return take_turns(
        {
            name: lambda f=f: averaged(lambda: f("ord_17", 4200, currency="usd"), ops)
            for name, f in functions.items()
        },
        slices,
    )


def acall_s(
    functions: Mapping[str, Callable[..., Awaitable[Any]]], slices: int, ops: int
) -> dict[str, float]:
    """The same of async functions, each slice in one task."""

    async def awaited(function: Callable[..., Awaitable[Any]]) -> list[float]:
        start = time.perf_counter()
        for _ in range(ops):
            await function("ord_17", 4200, currency="usd")
        return [(time.perf_counter() - start) / ops]

    with asyncio.Runner() as runner:
        return take_turns(
            {name: lambda f=f: runner.run(awaited(f)) for name, f in functions.items()}, slices
        )


def over(what: str, ours_s: float, floor_s: float, goal: Goal | None = None) -> Row:
    """How many nanoseconds ours takes over the floor."""
    return Row(
        what, ours_s * 1e9, floor_s * 1e9, "ns", (ours_s - floor_s) * 1e9, of="ns over", goal=goal
    )


# ---------------------------------------------------------------- imports


def import_cpu_s(statement: str, bytecode: str) -> float:
    """The CPU seconds of a new interpreter that does only this, with its modules compiled, as an
    installer leaves them.
    """
    code = (
        f"import time; start = time.process_time(); {statement}; print(time.process_time() - start)"
    )
    compiled = {
        name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
    }
    run = [sys.executable, "-X", f"pycache_prefix={bytecode}", "-c", code]
    return float(
        subprocess.run(run, check=True, capture_output=True, text=True, env=compiled).stdout
    )


def imports(times: int) -> Row:
    ours, floor = [], []
    with tempfile.TemporaryDirectory() as bytecode:
        import_cpu_s("import asyncio; from effectonce import Guard", bytecode)  # compile
        for _ in range(times):
            floor.append(import_cpu_s("import asyncio", bytecode))
            ours.append(import_cpu_s("import asyncio; from effectonce import Guard", bytecode))
    ours_ms, floor_ms = median(ours) * 1e3, median(floor) * 1e3
    return Row(
        "import effectonce, CPU",
        ours_ms,
        floor_ms,
        "ms",
        ours_ms - floor_ms,
        of="ms over",
        goal=Goal("<=", 40),
    )
