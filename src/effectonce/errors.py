"""Every error says what happened, what is known and what to do; every error carries that as data.

EffectOnceError
├── ContractViolation      the call or the contract is wrong; nothing was sent
├── Conflict               the same key asks for something else; nothing was sent
├── Expired                the key's window is over; nothing was sent
├── ApprovalNeeded         a person has to approve it first; nothing was sent
├── LimitReached           an allowance has less left than it would spend; nothing was sent
├── PreconditionFailed     what it rests on does not hold; nothing was sent
├── OutOfOrder             the predecessor in the sequence has no outcome; nothing was sent
├── StoreUnavailable       the store did not answer; nothing was sent
├── CircuitOpen            a breaker keeps the dependency from being asked; nothing was sent
│   └── ToolPaused         a person paused the tool; nothing was sent
├── InFlight               another caller is doing it right now
├── InDoubt                it may have happened and nobody can know
├── GaveUp                 no attempts or time left
├── LeaseLost              it ran, but another caller owns the record by now
├── PartialSuccess         some of it happened (raised by tools)
├── ReplayedFailure        it failed for good earlier; this is that failure
│   └── NotApproved        a person rejected it; nothing was ever sent
├── StepFailed             a step of a workflow failed for good
│   └── Cancelled          a person asked for the end of the run
├── CodeChanged            the workflow's code does not fit its run; nothing was sent
└── ResultUnavailable      it happened, but its result cannot be shown again

NotSent, Rejected          raised by tools to say what is certain: their own errors, not ours
"""

from __future__ import annotations

import copyreg
from typing import Any, ClassVar

from effectonce._core.classification.classify import OURS, Bucket, Certainty, Verdict
from effectonce._core.effect_ref import EffectRef

IN_MEMORY = "guard.in_doubt(), in this process: the store is its memory"


class EffectOnceError(Exception):
    """The root of every error that effectonce raises."""

    code: ClassVar[str] = "EFFECTONCE_ERROR"
    # the page below docs/reference and its section: what is known, and what to do
    docs: ClassVar[str] = "troubleshooting#effectonce_error"
    retriable: bool = False
    corrective_action: str = "Read the message; nothing was retried."

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.docs = f"troubleshooting#{cls.code.lower()}"

    def __init__(
        self,
        message: str,
        *,
        effect: EffectRef | None = None,
        retry_after_s: float | None = None,
        corrective_action: str | None = None,
        retriable: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.effect = effect
        if effect is not None and effect.key:
            # if it ends an outer tool as well, it tells nothing about the outer effect
            self.effectonce_of = effect.key
        self.retry_after_s = retry_after_s
        if corrective_action is not None:
            self.corrective_action = corrective_action
        if retriable is not None:
            self.retriable = retriable
        self.add_note(self._advice())

    def _advice(self) -> str:
        """For the reader of a traceback: the message goes to models as well, and they get the
        corrective action beside it.
        """
        return self.corrective_action

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as it is: to make it anew would need all its arguments, and say some things
        twice.
        """
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]

    def as_model_error(self) -> dict[str, Any]:
        """What a model may see: enough to branch on, and never the key."""
        error: dict[str, Any] = {
            "code": self.code,
            "retriable": self.retriable,
            "message": str(self),
            "corrective_action": self.corrective_action,
        }
        if self.effect is not None:
            error["operation"] = self.effect.reference
        if self.retry_after_s is not None:
            error["retry_after_s"] = round(self.retry_after_s, 3)
        return error


class ContractViolation(EffectOnceError):
    """The call or the contract is wrong; nothing was sent."""

    code = "CONTRACT_VIOLATION"
    corrective_action = "Correct the arguments or the contract, then call again."


class Conflict(EffectOnceError):
    """The same key asks for something else; nothing was sent."""

    code = "KEY_CONFLICT"
    corrective_action = (
        "Repeat the original arguments to see the original result, or use another step for another"
        " effect."
    )


class Expired(EffectOnceError):
    """The key's window is over, so a late retry cannot be distinguished from a new request;
    nothing was sent.
    """

    code = "KEY_EXPIRED"
    corrective_action = "Check whether the effect happened; if a new one is meant, use a new step."


class ApprovalNeeded(EffectOnceError):
    """A person has to approve it first, with these very arguments; nothing was sent."""

    code = "APPROVAL_NEEDED"
    corrective_action = (
        "Say that it waits for approval, and go on without it. Repeat the same call with the same"
        " arguments once it is decided."
    )

    def __init__(self, message: str, *, fingerprint: str = "", **data: Any) -> None:
        super().__init__(message, **data)
        self.fingerprint = fingerprint  # of the arguments that wait

    def because(self, why: str) -> ApprovalNeeded:
        """The same, with why the last answer did not count."""
        return ApprovalNeeded(f"{self} {why}.", effect=self.effect, fingerprint=self.fingerprint)


class LimitReached(EffectOnceError):
    """An allowance has less left than this call would spend; nothing was sent."""

    code = "LIMIT_REACHED"
    corrective_action = (
        "Do not split it or try another way. Say what is left and when there is more, and repeat"
        " the same call then."
    )

    def __init__(
        self, message: str, *, allowance: str = "", left: int = 0, limit: int = 0, **data: Any
    ) -> None:
        super().__init__(message, **data)
        self.allowance, self.left, self.limit = allowance, left, limit

    def as_model_error(self) -> dict[str, Any]:
        return {
            **super().as_model_error(),
            "allowance": self.allowance,
            "left": self.left,
            "limit": self.limit,
        }


class PreconditionFailed(EffectOnceError):
    """What it rests on does not hold, or no longer does; nothing was sent."""

    code = "PRECONDITION_FAILED"
    corrective_action = (
        "Do not try it in another way. Look at how things stand now, and say that it was not done."
        " If it is wanted again later, use a new step."
    )


class OutOfOrder(EffectOnceError):
    """The predecessor in the sequence has no outcome yet; nothing was sent."""

    code = "OUT_OF_ORDER"
    retriable = True
    corrective_action = "Finish the earlier number first, then repeat this one."


class StoreUnavailable(EffectOnceError):
    """The store did not answer, so the effect could not be protected; nothing was sent."""

    code = "STORE_UNAVAILABLE"
    retriable = True
    corrective_action = "The system is temporarily degraded: repeat the same call later."


class CircuitOpen(EffectOnceError):
    """A breaker keeps the dependency from being asked; nothing was sent."""

    code = "CIRCUIT_OPEN"
    retriable = True
    corrective_action = (
        "Do not repeat it now. The same call may be repeated after retry_after_s, when the"
        " dependency is tried again."
    )

    def __init__(
        self, message: str, *, circuit: str = "", phase: str = "open", **data: Any
    ) -> None:
        super().__init__(message, **data)
        self.circuit, self.phase = circuit, phase
        why = "a circuit breaker kept it from being sent"
        self.effectonce_verdict = Verdict(
            Bucket.CIRCUIT_OPEN,
            Certainty.NOT_SENT,
            why,
            self.retry_after_s,
            retry=False,
            matched=OURS,
        )


class ToolPaused(CircuitOpen):
    """A person paused the tool; nothing was sent."""

    code = "TOOL_PAUSED"
    corrective_action = (
        "Do not try it another way. Say that this tool is paused, and repeat the same call once a"
        " person has resumed it."
    )


class InFlight(EffectOnceError):
    """Another caller is doing it right now."""

    code = "RETRY_IN_FLIGHT"
    retriable = True
    corrective_action = "Repeat the same call after retry_after_s to get its result."


class InDoubt(EffectOnceError):
    """It may have happened and nobody can know; it was not retried."""

    code = "OUTCOME_UNKNOWN"
    corrective_action = (
        "Do not call again or try another way. Look the effect up downstream, or ask a person to"
        " settle it."
    )
    # Whatever its cause says about one request.
    effectonce_verdict: ClassVar[Verdict] = Verdict(
        Bucket.UNKNOWN, Certainty.AMBIGUOUS, "it is in doubt", retry=False
    )

    where: str = ""  # its store, as a command names it; "": not known yet

    def _advice(self) -> str:
        if self.effect is None:
            return self.corrective_action
        look = (
            self.where
            if self.where == IN_MEMORY
            else f"effectonce effect show {self.effect.reference}{self.where}"
        )
        return f"{self.corrective_action}\nIts story, and how to settle it: {look}"

    def look_up(self, where: str) -> None:
        """Say where it can be looked up, unless that is given already: so that the command runs
        as it is printed.
        """
        if not self.where:
            before, self.where = self._advice(), where
            self.__notes__ = [self._advice() if note == before else note for note in self.__notes__]


class GaveUp(EffectOnceError):
    """No attempts or time left."""

    code = "GAVE_UP"
    # in every message, for a harness that sees only text
    marker: ClassVar[str] = "[effectonce:gave-up]"
    retriable = True
    corrective_action = "Repeat the same call later: it goes on under the same key."

    def __init__(self, message: str, *, verdict: Verdict | None = None, **data: Any) -> None:
        super().__init__(f"{message.rstrip()} {self.marker}", **data)
        # The caller that gave up has retried enough: no layer around it does it again.
        given = Verdict(Bucket.UNKNOWN, Certainty.AMBIGUOUS) if verdict is None else verdict
        self.effectonce_verdict = given.exhausted(unsure=False).but(
            why="a layer inside has given up", retry_after_s=self.retry_after_s, matched=OURS
        )


class LeaseLost(EffectOnceError):
    """It ran, but another caller owns the record by now."""

    code = "LEASE_LOST"
    retriable = True
    corrective_action = "Repeat the same call to get the recorded outcome."

    def __init__(self, message: str, *, value: Any = None, **data: Any) -> None:
        super().__init__(message, **data)
        self.value = value


class PartialSuccess(EffectOnceError):
    """Some of it happened. A tool raises this with what is done and what would put it right."""

    code = "PARTIAL_SUCCESS"
    effectonce_verdict: ClassVar[Verdict] = Verdict(
        Bucket.UNKNOWN, Certainty.ACTED, "some of it happened", retry=False
    )

    def __init__(
        self, message: str, *, corrective_action: str, done: Any = None, **data: Any
    ) -> None:
        super().__init__(message, corrective_action=corrective_action, **data)
        self.done = done


class ReplayedFailure(EffectOnceError):
    """It failed for good earlier; this is that failure again."""

    code = "REPLAYED_FAILURE"
    corrective_action = (
        "The downstream refused this request. Change the request and use a new step."
    )

    def __init__(self, message: str, *, error_type: str, error_message: str, **data: Any) -> None:
        super().__init__(message, **data)
        self.error_type = error_type
        self.error_message = error_message


class NotApproved(ReplayedFailure):
    """A person rejected it; nothing was ever sent."""

    code = "NOT_APPROVED"
    corrective_action = (
        "Do not try it again or in another way. Say that it was rejected, and why. If it is asked"
        " for anew, with other arguments, use a new step."
    )


class StepFailed(EffectOnceError):
    """A step of a workflow failed for good: now, or when the run was here before."""

    code = "STEP_FAILED"
    corrective_action = (
        "Handle it in the workflow, or let it end the run: then what was done is compensated."
    )

    def __init__(
        self,
        message: str,
        *,
        step: str = "",
        error_type: str = "",
        error_message: str = "",
        **data: Any,
    ) -> None:
        super().__init__(message, **data)
        self.step, self.error_type, self.error_message = step, error_type, error_message


class Cancelled(StepFailed):
    """A person asked for the end of the run; what was done is compensated."""

    code = "CANCELLED"
    corrective_action = "Nothing more is done. To do it after all, start another run."


class CodeChanged(EffectOnceError):
    """The workflow's code does not fit the run that it should go on with; nothing was sent."""

    code = "CODE_CHANGED"
    corrective_action = (
        "Finish open runs with the code that began them, or change it after their last step. The"
        " run waits; nothing is lost."
    )


class ResultUnavailable(EffectOnceError):
    """It happened, but its result cannot be shown again."""

    code = "RESULT_UNAVAILABLE"
    corrective_action = "Treat it as done, and look the result up downstream."


class NotSent(Exception):  # it is a statement of the tool's, not a kind of failure
    """Raise this in a tool when nothing has left: the key can be used as if for the first time."""

    def __init__(
        self, message: str = "", *, retryable: bool = True, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        why = "the tool says nothing was sent"
        self.effectonce_verdict = Verdict(
            Bucket.UNKNOWN, Certainty.NOT_SENT, why, retry_after_s, retry=retryable
        )


class Rejected(Exception):  # see NotSent
    """Raise this in a tool when the downstream refused for certain. Final unless
    `retryable=True`.
    """

    def __init__(
        self, message: str = "", *, retryable: bool = False, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        why = "the tool says it was refused"
        self.effectonce_verdict = Verdict(
            Bucket.UNKNOWN, Certainty.REJECTED, why, retry_after_s, retry=retryable
        )
