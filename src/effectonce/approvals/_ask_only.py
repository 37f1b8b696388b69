"""A call that is only asked about: it stands in the store, waits for a person, and is not sent."""

from __future__ import annotations

from effectonce._core.call import GuardedCall
from effectonce._core.endings import Ending
from effectonce._core.ops import (
    Busy,
    Cell,
    Claim,
    ClaimReply,
    Find,
    Flow,
    Mismatch,
    ReadCell,
    Unapproved,
    Unavailable,
)
from effectonce._core.record import Record
from effectonce._core.retry_state import insist
from effectonce._runtime.performers import CLOCK, Prepared
from effectonce._tools.tool import GuardedTool
from effectonce.approvals._standing import waits


def ask_only(tool: GuardedTool, call: Prepared) -> Flow[Unapproved | Unavailable | bool]:
    """Write down that it waits for a person. If it does not, nothing is written. True: the store
    has decided about these arguments. False: it needs no approval, so no person was asked here.
    """
    request = call.request
    if not request.terms.approval:
        return False
    found: Record | Unavailable | None = yield from Find(request.key)
    clock: Cell | Unavailable = yield from ReadCell(CLOCK)
    if isinstance(found, Record) and isinstance(clock, Cell):
        same = found.request.fingerprint == request.fingerprint
        if same and not waits(found, clock.now):
            return True
    ending = yield from tool.flow(call, _AskOnly)
    return ending if isinstance(ending, Unapproved | Unavailable) else True


class _AskOnly(GuardedCall):
    """Its claim is over at once: if it was approved in the meantime, no caller waits for it."""

    def flow(self) -> Flow[Ending]:
        token = self.env.new_token()
        claim = Claim(self.request, token, 0.0, dispatch=False, asked_by=self.asked_by)
        reply: ClaimReply = yield from insist(claim, self.env)
        if isinstance(reply, Mismatch):  # the wish is for these arguments now, and it may wait
            reply = yield from insist(claim, self.env)
        return reply if isinstance(reply, Unapproved | Unavailable) else Busy(0.0)
