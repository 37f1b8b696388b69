"""A workflow is an effect that consists of effects.

Theory of operation. A run is a record like any other: claimed by who runs it, kept alive by its heartbeat, completed with its result.
It is never sent. All that it does are its steps, which are effects of their own, so whoever comes after a crash claims the run again and
calls the same function: steps that have an outcome are replayed, the one that was running goes on by its own contract, and the rest is
new. Resuming is replaying; there is no second engine.

  claim the run ──> call the function ──> complete       it came to its end
                        ├─ a step failed for good ──────> compensate ──> fail
                        └─ anything else ───────────────> let go: it is resumed when somebody calls again

A step is keyed by its position in the run and nothing else. Other arguments, or another tool, at the same position are a conflict and not
a new effect: that is how changed code is noticed.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from effectonce._core.attempts import failed_attempt, in_the_outcome
from effectonce._core.call import GuardedCall, _Again
from effectonce._core.codec import encode_error
from effectonce._core.endings import Ending, Fenced, NothingSent, Rejection
from effectonce._core.ops import Applied, Fail, Flow, Invoke, Ok, Op, Raised, Refused, Renew, WriteReply
from effectonce._core.records import Record
from effectonce._core.verdicts import Verdict

CANCEL = "its cancellation was asked for"


class Parked(Raised, frozen=True):
    """The run came to no end: it waits, whatever this error would mean elsewhere."""


class WorkflowCall(GuardedCall):
    """One call of a workflow: it runs, goes on, waits for who is running it, or replays its end."""

    def _own(self, *, dispatched: bool) -> Flow[Ending | _Again]:  # it is never sent
        self.patience.attempt += 1
        answer = yield from Invoke(self.key, self.token, self.epoch, self.patience.attempt, self.patience.give_up_at)
        if isinstance(answer, Ok):
            return (yield from self._complete(answer.value))
        error = answer.error
        verdict = self.plan.retrying.classify(error)
        if isinstance(answer, Raised) and not isinstance(answer, Parked) and verdict.final:
            return (yield from self._over(error, verdict))
        reply = yield from self._insist(Renew(self.key, self.token, self.epoch, 0))
        yield from self._leave(reply, self.patience.attempt, error, verdict, "the run waits until it is resumed")
        return NothingSent(error, self.patience.attempt, exhausted=False)

    def _persist(self, op: Op[WriteReply]) -> Flow[WriteReply]:
        """Whoever resumes the run comes to the same end, so nobody waits for the store for ever."""
        return (yield from self._insist(op))  # type: ignore[no-any-return]

    def _over(self, error: BaseException, verdict: Verdict) -> Flow[Ending]:
        """It failed for good. If that cannot be written down, the next one to call comes to the same end."""
        facts = in_the_outcome(failed_attempt(self.patience.attempt, error, verdict))
        reply: WriteReply = yield from self._persist(Fail(self.key, self.token, self.epoch, encode_error(error, facts)))
        match reply:
            case Applied():
                return Rejection(error)
            case Refused():
                return Fenced(None)
            case _:
                return NothingSent(error, self.patience.attempt, exhausted=False)


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
