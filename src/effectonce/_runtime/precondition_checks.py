"""Asks the precondition of a call, for sync callers and for async ones, with a heartbeat beside it.

Not inside the effect: it is asked before there is one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from effectonce._core.ops import Ok, Raised
from effectonce._core.preconditions import CheckPrecondition
from effectonce._runtime.heartbeat import Heartbeat


def checked(
    op: CheckPrecondition, heart: Heartbeat, lease_s: float, holds: Callable[[], bool]
) -> Ok | Raised:
    beat = heart.beat(op, lease_s)
    try:
        heart.beats.add(beat)
        heart.wake(beat)
        return Ok(holds())
    except BaseException as error:  # noqa: BLE001  # the caller's to handle, as a tool's own
        return Raised(error)
    finally:
        heart.beats.discard(beat)


async def achecked(
    op: CheckPrecondition, heart: Heartbeat, lease_s: float, holds: Callable[[], Awaitable[bool]]
) -> Ok | Raised:
    pulse = heart.pulse()
    beat = pulse.start(op, lease_s)
    try:
        return Ok(await holds())
    except BaseException as error:  # noqa: BLE001  # cancellation included
        return Raised(error)
    finally:
        pulse.stop(beat)
