"""Tools that declare `separate_dispatch` and enter `sending()`, or send through protected clients
only: their record says *dispatched* when something is about to leave. What connects past those
clients is taken for that, too.

The flow asks for its dispatch before it runs the tool, as ever. For these tools the performer
holds that write back. It is written when the tool enters `sending()`, or when a protected client
is about to send what may change something. So a process that is killed before that leaves a
record that was only claimed, and the next call runs the tool. If the tool ends without either,
the write is made up for before its end is written down; an attempt that sent nothing needs none.

Only the first send of an effect is held back. Where an earlier one may have landed, the record
says so already.
"""

from __future__ import annotations

import asyncio
import time
from threading import RLock
from typing import Any

from effectonce._core.classification.classify import OURS
from effectonce._core.ops import (
    Applied,
    Complete,
    Dispatch,
    Doubt,
    Fail,
    Invoke,
    Op,
    Refused,
    Renew,
    Unavailable,
    Unsend,
    WriteReply,
)
from effectonce._core.retry_state import Env, insist
from effectonce._drivers import adrive, drive
from effectonce._random import rng
from effectonce._runtime.performers import AsyncPerformer, Performer, Prepared, Setup
from effectonce.effect import Departure, departure
from effectonce.errors import ContractViolation, NotSent

# there is no write to take back, only a claim to go on with
NOT_DISPATCHED = Refused(None)
ENV = Env(now=time.monotonic, new_token=str, rng=rng)


class HeldBack:
    """The dispatch of one attempt that is not written yet."""

    def __init__(self, write: Dispatch, perform: Performer) -> None:
        self.key, self.write, self._perform = write.key, write, perform
        self.reply: WriteReply | None = None  # None: it was not asked for. Applied: for good
        # the write may have landed, though its answer never came: what interrupts does not undo it
        self.asked = False
        self._over = False  # its attempt ended as one that sent nothing
        # reentrant: a signal's handler may send, too
        self._noting = RLock()
        self.outer: Departure | None = departure.get()

    def write_now(self) -> None:
        """Also for an async tool that sends without waiting: then its loop does. What was refused
        is asked for again by the next that sends.
        """
        if not isinstance(self.reply, Applied):
            self.asked = True
            self.answered(drive(insist(self.write, ENV), self._perform))

    async def awrite_now(self) -> None:
        self.write_now()

    def answered(self, reply: WriteReply) -> None:
        """What the store answered. Raises if nothing may leave."""
        self._note(reply)
        if self._over:
            raise ContractViolation(
                "an attempt left something behind, and ended as one that sent nothing. It was not"
                " sent."
            )
        if isinstance(self.reply, Applied):
            return
        match reply:
            case Unavailable(error):
                raise error
            case Refused():
                raise _not_ours()
            case Applied():
                pass

    def _note(self, reply: WriteReply) -> None:
        """Two that send at once ask at once. What one of them was let do may have left, whatever
        the other one got.
        """
        with self._noting:
            if not isinstance(self.reply, Applied):
                self.reply = reply

    def made_up_for(self, reply: WriteReply) -> WriteReply:
        """Written when the tool had ended: what it left behind need not ask any more."""
        if isinstance(reply, Applied):
            self._note(reply)
        return reply

    def ended(self, answer: Any) -> Any:
        """How the tool ended; or why nothing of it was let out, whatever the tool made of that."""
        with self._noting:
            self._over = isinstance(self.reply, Refused | Unavailable)
            return self.reply if self._over else answer

    def close(self) -> None:
        """What still waits for this write may not send: another attempt may be on its way, whose
        write the store cannot tell from this one.
        """
        with self._noting:
            self._over = True


def _not_ours() -> NotSent:
    """It speaks for the one that asked: another of the same attempt may be let do it later."""
    error = NotSent(
        "another caller has this effect by now, or another call of its step was sent first"
    )
    error.effectonce_verdict = error.effectonce_verdict.but(matched=OURS)
    return error


class AsyncHeldBack(HeldBack):
    def __init__(self, write: Dispatch, perform: AsyncPerformer) -> None:
        super().__init__(write, Performer(perform.setup, perform.call))
        self._call = perform

    async def awrite_now(self) -> None:
        if isinstance(self.reply, Applied):
            return
        # one of its own: to cancel what waits for it need not be to cancel the call
        perform = AsyncPerformer(self._call.setup, self._call.call)
        self.asked = True
        reply: WriteReply = await adrive(insist(self.write, ENV), perform)
        self._note(reply)
        if perform.cancelled is not None:
            raise perform.cancelled
        self.answered(reply)


class AnnouncedPerformer:
    """Performs ops for one sync call."""

    __slots__ = ("_held", "_perform")

    def __init__(self, setup: Setup, call: Prepared) -> None:
        self._perform = Performer(setup, call)
        self._held: HeldBack | None = None

    def __call__(self, op: Op[Any]) -> Any:
        match op:
            case Dispatch(send=1):
                self._held = HeldBack(op, self._perform)
                return Applied(op.epoch)
            case Invoke():
                return self._run(op)
            case Unsend() if self._held is not None:
                return self._take_back(op, self._held)
            case Complete() | Fail() | Doubt() | Renew() if self._held is not None:
                reply = self._held.made_up_for(self._perform(self._held.write))
                self._held = self._held if isinstance(reply, Unavailable) else None
                return self._perform(op) if isinstance(reply, Applied) else reply
            case _:
                return self._perform(op)

    def _take_back(self, op: Unsend, held: HeldBack) -> WriteReply:
        held.close()
        reply: WriteReply = self._perform(op) if held.asked else NOT_DISPATCHED
        if isinstance(reply, Refused):
            reply = self._perform(Renew(op.key, op.token, op.epoch, op.lease_s))
        self._held = held if isinstance(reply, Unavailable) else None
        return reply

    def _run(self, op: Invoke) -> Any:
        held, before = self._held, departure.get()
        try:
            departure.set(held or before)
            answer = self._perform(op)
        finally:
            departure.set(before)
        if held is None or held.reply is None:
            return answer
        self._held = None
        return held.ended(answer)


class AsyncAnnouncedPerformer:
    """The same for an async call."""

    __slots__ = ("_held", "_perform")

    def __init__(self, setup: Setup, call: Prepared) -> None:
        self._perform = AsyncPerformer(setup, call)
        self._held: AsyncHeldBack | None = None

    @property
    def cancelled(self) -> asyncio.CancelledError | None:
        return self._perform.cancelled

    async def __call__(self, op: Op[Any], /) -> Any:
        match op:
            case Dispatch(send=1):
                self._held = AsyncHeldBack(op, self._perform)
                return Applied(op.epoch)
            case Invoke():
                return await self._run(op)
            case Unsend() if self._held is not None:
                return await self._take_back(op, self._held)
            case Complete() | Fail() | Doubt() | Renew() if self._held is not None:
                reply = self._held.made_up_for(await self._perform(self._held.write))
                self._held = self._held if isinstance(reply, Unavailable) else None
                return await self._perform(op) if isinstance(reply, Applied) else reply
            case _:
                return await self._perform(op)

    async def _take_back(self, op: Unsend, held: AsyncHeldBack) -> WriteReply:
        held.close()
        reply: WriteReply = await self._perform(op) if held.asked else NOT_DISPATCHED
        if isinstance(reply, Refused):
            reply = await self._perform(Renew(op.key, op.token, op.epoch, op.lease_s))
        self._held = held if isinstance(reply, Unavailable) else None
        return reply

    async def _run(self, op: Invoke) -> Any:
        held = self._held
        token = departure.set(held or departure.get())
        try:
            answer = await self._perform(op)
        finally:
            departure.reset(token)
        if held is None or held.reply is None:
            return answer
        self._held = None
        return held.ended(answer)
