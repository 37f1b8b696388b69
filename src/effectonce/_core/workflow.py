"""A workflow is an effect that consists of effects.

Theory of operation. A run is a record like any other: claimed by who runs it, kept alive by its
heartbeat, completed with its result. It is never sent. All that it does are its steps, which are
effects of their own, so the next worker after a crash claims the run again and calls the same
function: steps that have an outcome are replayed, the one that was running goes on by its own
contract, and the rest is new. Resuming is replaying; there is no second engine.

  claim the run ──> call the function ──> complete       it came to its end
                        ├─ a step failed for good ──────> compensate ──> fail
                        └─ anything else ───────────────> let go, until a call resumes it

A step is keyed by its position in the run and nothing else. Other arguments, or another tool, at
the same position are a conflict and not a new effect: that is how changed code is noticed.

A step that may be repeated is claimed when its end is known, and both are written at once: one
commit per step. A crash before that repeats the step, which its contract allows. Only the first
worker of the run may do so: no other can have done the step before. All other steps are claimed
before they are done, like any effect.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from effectonce._core.attempt_log import failed_attempt, in_the_outcome
from effectonce._core.call import GuardedCall
from effectonce._core.classification.verdicts import Verdict
from effectonce._core.codec import encode_error
from effectonce._core.endings import Again, Ending, Fenced, Fresh, NothingSent, Rejection
from effectonce._core.observed_sends import Seen
from effectonce._core.ops import (
    Applied,
    Claim,
    ClaimReply,
    Complete,
    Fail,
    Flow,
    Held,
    Invoke,
    Ok,
    Op,
    Raised,
    Refused,
    Renew,
    Together,
    Unavailable,
    WriteReply,
)
from effectonce._core.record import Record
from effectonce._core.resolved import resolved
from effectonce._core.retry_state import W, insist, repeated

CANCEL = "its cancellation was asked for"


class Parked(Raised, frozen=True):
    """The run came to no end: it waits, whatever this error would mean elsewhere."""


class WorkflowCall(GuardedCall):
    """One call of a workflow: it runs, goes on, waits for who is running it, or replays its end."""

    def _own(self, *, dispatched: bool) -> Flow[Ending | Again]:  # it is never sent
        self.patience.attempt += 1
        answer = yield from Invoke(
            self.key, self.token, self.epoch, self.patience.attempt, self.patience.give_up_at
        )
        if isinstance(answer, Ok):
            self.stored = answer.stored
            return (yield from self._complete(answer.value))
        error = answer.error
        verdict = self.plan.retrying.classify(error)
        if isinstance(answer, Raised) and not isinstance(answer, Parked) and verdict.final:
            return (yield from self._over(error, verdict))
        reply = yield from insist(Renew(self.key, self.token, self.epoch, 0), self.env)
        yield from self._leave(
            reply, self.patience.attempt, error, verdict, "the run waits until it is resumed"
        )
        return NothingSent(error, self.patience.attempt, exhausted=False)

    def _persist(self, op: Op[W], reply: Any) -> Flow[W]:
        """A worker that resumes the run gets the same end, so the wait for the store is bounded."""
        if isinstance(reply, Unavailable):
            reply = yield from repeated(op, reply, self.env)
        return reply  # type: ignore[no-any-return]

    def _over(self, error: BaseException, verdict: Verdict) -> Flow[Ending]:
        """It failed for good. If that cannot be written, the next caller gets the same end."""
        facts = in_the_outcome(failed_attempt(self.patience.attempt, error, verdict))
        write = Fail(self.key, self.token, self.epoch, encode_error(error, facts))
        reply: WriteReply = yield from self._persist(write, (yield write))
        match reply:
            case Applied():
                return Rejection(error)
            case Refused():
                return Fenced(None)
            case _:
                return NothingSent(error, self.patience.attempt, exhausted=False)


class LateCall(GuardedCall):
    """A repeatable step's call in a run no worker had before: no record until its end is known."""

    late = False

    def _claim(self) -> Flow[tuple[ClaimReply, bool]]:
        if self.token:  # it has a record by now
            return (yield from super()._claim())
        self.token, self.late = self.env.new_token(), True
        self.key = ""  # there is nothing to keep alive
        self.epoch = self.sends = 1
        return Held(1, 1, dispatched=True), False

    def _claiming(self) -> Claim:
        self.key, self.late = self.request.key, False
        return Claim(self.request, self.token, self.plan.lease_s, dispatch=True)

    def _complete(self, value: Any, by: str = "") -> Flow[Ending]:
        if not self.late:
            return (yield from super()._complete(value, by))
        outcome, claim = self.stored or self.plan.encode(value), self._claiming()
        both = Together((claim, Complete(self.key, self.token, self.epoch, outcome)))
        replies = yield from self._persist(both, (yield both))
        if isinstance(replies, Unavailable):
            # And not kept: an end without its claim is nothing that could ever be written to a
            # store.
            return Fresh(value, recorded=False)
        # If the claim was refused, both were written before and only the acknowledgement was
        # lost, or another worker has done it meanwhile.
        return Fresh(value, outcome=outcome) if isinstance(replies[1], Applied) else Fenced(value)

    def _failed(self, error: BaseException, seen: Seen | None) -> Flow[Ending | None]:
        """What comes of an error is written on a record: so it gets one first."""
        if self.late:
            claim = self._claiming()
            reply = yield from self._persist(claim, (yield claim))
            if not isinstance(reply, Held):
                self.admission.release()
                self.unanswered = error
                return reply if isinstance(reply, Unavailable) else Fenced(None)
        return (yield from super()._failed(error, seen))

    def _take_back(self, lease_s: float) -> Flow[WriteReply]:
        if not self.late:
            return (yield from super()._take_back(lease_s))
        self.sends = 0
        return Applied(self.epoch)


class Cancellation(Struct, frozen=True):
    """Who wants a run to end, and why. Kept as evidence on its record."""

    by: str
    reason: str

    def written(self) -> bytes:
        return b"v1 ok " + msgspec.json.encode(self)


def cancellation(record: Record | None) -> Cancellation | None:
    """Is this run to end?"""
    for evidence in () if record is None else record.evidence:
        if evidence.note == CANCEL:
            return msgspec.json.decode(evidence.outcome.removeprefix(b"v1 ok "), type=Cancellation)
    return None


def label(position: str, name: str) -> str:
    """What a step's record calls it."""
    return f"{position} {name}"


resolved(Cancellation)
