"""Our errors as they leave the package: within a screen, with a command that runs as printed."""

from __future__ import annotations

import os
import threading
from types import TracebackType
from typing import TypeVar

from effectonce.errors import ContractViolation, EffectOnceError, InDoubt

E = TypeVar("E", bound=EffectOnceError)
# the package; pathlib takes long to import
_HERE = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120

ON_A_LOOP = (
    "%s is a plain def and was called on a running event loop: every other task of the loop waits"
    " until it returns. Make it async def, or call it with `await asyncio.to_thread(%s, ...)`,"
    " which stays in its step."
)


def brief(error: E, where: str) -> E:
    """The error without our frames, useless to its caller. *where*: its store, as in a command."""
    if isinstance(error, InDoubt):
        error.look_up(where)
    return error.with_traceback(_without_ours(error.__traceback__))


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    if trace is None:
        return None
    rest = _without_ours(trace.tb_next)
    if trace.tb_frame.f_code.co_filename.startswith(_HERE):
        return rest
    return (
        trace
        if rest is trace.tb_next
        else TracebackType(rest, trace.tb_frame, trace.tb_lasti, trace.tb_lineno)
    )


def outside_a_step(tool: str) -> ContractViolation:
    """A call that has no place."""
    in_main = threading.current_thread() is threading.main_thread()
    handed_on = (
        " This thread was given no step by who started it: hand it on with"
        " contextvars.copy_context().run(function, ...)."
    )
    return ContractViolation(
        f"{tool} was called outside a step, so a retry could not be recognised. Nothing was sent."
        " Call it inside `with guard.step(conversation, step):`, or give it a business key with"
        f" guard.call(..., key=...).{'' if in_main else handed_on}"
    )
