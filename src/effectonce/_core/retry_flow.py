"""A call without a record: a read of a guard, or any function under `retry`. Only retries."""

from __future__ import annotations

from msgspec import Struct

from effectonce._core.classification.verdicts import SURE, Certainty, Verdict
from effectonce._core.endings import Fresh
from effectonce._core.ops import Flow, Invoke, Ok, Sleep
from effectonce._core.retry_state import RetryDecision, RetryState, earn


class Over(Struct, frozen=True):
    """There is no other attempt: this error is the end."""

    error: BaseException
    attempts: int
    # what all attempts together say, if another could have gone better
    gave_up: Verdict | None = None
    why: str = ""
    # what all attempts together say, if that is less than the error says
    but: Verdict | None = None


def plain_call(
    patience: RetryState, error: BaseException, *, repeatable: bool
) -> Flow[Fresh | Over]:
    """Go on after the first attempt, whose *error* its caller has reported to the circuit."""
    how = patience.how
    while True:
        verdict = how.classify(error)
        then = yield from patience.after(error, verdict, repeatable=repeatable)
        if then.delay_s is None:
            return over(patience, error, verdict, then)
        yield from Sleep(then.delay_s)
        ended = yield from _attempt(patience)
        if not isinstance(ended, BaseException):
            return ended
        error = ended


def whole_call(patience: RetryState, *, repeatable: bool) -> Flow[Fresh | Over]:
    """The same, with the first attempt."""
    ended = yield from _attempt(patience)
    return (
        (yield from plain_call(patience, ended, repeatable=repeatable))
        if isinstance(ended, BaseException)
        else ended
    )


def _attempt(patience: RetryState) -> Flow[Fresh | Over | BaseException]:
    """One attempt, if the circuit permits it: its value, or its error."""
    how = patience.how
    permit = None if how.circuit is None else how.circuit.try_admit()
    if isinstance(permit, Exception):
        return kept_back(patience, permit)
    patience.attempt += 1
    answer = yield from Invoke("", "", 0, patience.attempt, patience.give_up_at)
    if isinstance(answer, Ok):
        if permit is not None:
            permit.succeeded()
        if how.tokens is not None:
            earn(how.tokens, patience.charged)
        return Fresh(answer.value)
    if permit is not None:
        permit.failed(how.classify(answer.error))
    return answer.error


def over(patience: RetryState, error: BaseException, verdict: Verdict, then: RetryDecision) -> Over:
    """What the caller gets. If any attempt may have had an effect, that outweighs the last one."""
    unsure = patience.unanswered is not None and verdict.certainty in SURE
    known = (
        verdict.but(
            certainty=Certainty.AMBIGUOUS, why=f"{verdict.why}: an earlier attempt may have landed"
        )
        if unsure
        else verdict
    )
    if not (then.gave_up and patience.how.attempts > 1):
        return Over(error, patience.attempt, but=known if unsure else None)
    return Over(error, patience.attempt, known, then.why)


def kept_back(patience: RetryState, refusal: Exception) -> Over:
    """A breaker keeps the next attempt back, which says nothing about the attempts before it."""
    if patience.unanswered is None:
        return Over(refusal, patience.attempt)
    verdict = patience.how.classify(refusal).but(certainty=Certainty.AMBIGUOUS)
    return Over(patience.unanswered, patience.attempt, verdict, "its breaker is open now")
