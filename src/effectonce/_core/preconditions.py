"""What a call rests on, asked before its first send.

A person approves a call because the world is in some state; when it is sent, the world may be in
another. After a send this is never asked: its own effect may have changed the world, and "it did
not happen" would be false.
"""

from __future__ import annotations

from effectonce._core.codec import encode_error
from effectonce._core.guards import another_wish
from effectonce._core.ops import Answer, Claim, Op
from effectonce._core.record import Record, Request, Scene, State

BY = "its precondition"  # who ended it, on the record
WHY = "its precondition did not hold before it was sent"


class CheckPrecondition(Op[Answer], frozen=True):
    """Ask the tool's precondition about this call: Ok(True), or Ok(False)."""

    key: str
    token: str = ""  # "": the record is not ours yet
    epoch: int = 0


class DidNotHold(Exception):  # a statement, stored under this name
    """The precondition of a call did not hold. It was never sent."""


UNMET = encode_error(DidNotHold(WHY))


def is_new_wish(found: Record | None, request: Request) -> bool:
    """Would a claim of this request ask a person for something that was not asked for before?"""
    if found is None:
        return True
    claim = Claim(request, "", 0.0, dispatch=False)
    return found.state is State.CLAIMED and another_wish(found, claim, Scene(0.0))
