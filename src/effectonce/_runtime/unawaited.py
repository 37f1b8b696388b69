"""An async tool that was called from sync code: its call made a coroutine, and nothing was run.

Python reports a coroutine that was dropped, by the name of the tool. One that was kept is found
where the step is left: run later, it would be outside its step. Only steps that are left outside
an event loop are looked at.
"""

from __future__ import annotations

import inspect
from asyncio import _get_running_loop
from types import CodeType, CoroutineType, FrameType

from effectonce.errors import ContractViolation

WRAPPERS: set[CodeType] = set()  # of async tools
HOW = (
    "Await it inside an `async def`, and start that with asyncio.run(...); or make the tool a plain"
    " `def`."
)


def look(frame: FrameType, error: BaseException | None) -> None:
    """Report a function that leaves its step with an async tool's coroutine that has not begun."""
    if _get_running_loop() is not None:
        return
    kept = [
        value
        for value in frame.f_locals.values()
        if isinstance(value, CoroutineType) and value.cr_code in WRAPPERS
    ]
    names = [
        each.__name__ for each in kept if inspect.getcoroutinestate(each) == inspect.CORO_CREATED
    ]
    if error is not None and "'coroutine' object" in str(error):
        error.add_note(
            f"{names[0] if names else 'An async tool'} was called without await: nothing was run or"
            f" sent. {HOW}"
        )
    elif names and error is None:
        raise ContractViolation(
            f"{names[0]} is an async tool and was called without await: nothing was run, and"
            " nothing was sent.",
            corrective_action=HOW,
        )
