"""A tool that runs inside another. The outer one's silence proves nothing any more, so its record
says that it may have sent before the inner one begins.
"""

from __future__ import annotations

from effectonce._core.ops import NotStarted
from effectonce.effect import Effect, aleaving_unseen, leaving_unseen


def kept_from(outer: Effect, effect: Effect) -> NotStarted | None:
    """Why a tool does not run inside another: that one's record could not say so first, or its
    attempt is over. No error of the inner tool: it was not started. None: it may run.
    """
    try:
        if _noticed_around(outer, effect):
            leaving_unseen(outer)
    except BaseException as error:  # noqa: BLE001  # as those of the tool
        return NotStarted(error)
    return None


async def akept_from(outer: Effect, effect: Effect) -> NotStarted | None:
    try:
        if _noticed_around(outer, effect):
            await aleaving_unseen(outer)
    except BaseException as error:  # noqa: BLE001
        return NotStarted(error)
    return None


def _noticed_around(outer: Effect, effect: Effect) -> bool:
    """What a tool does through another, that effect sees: the outer's silence proves nothing."""
    if effect.ref.key:
        outer.act_elsewhere("ran another tool")
    return bool(effect.ref.key)
