"""How a call ended, as a value; and the one place where an ending becomes an error."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, Literal, NoReturn, TypeVar, assert_never

from msgspec import Struct

from effectonce._core.classification.classify import Bucket, Certainty, classify
from effectonce._core.classification.verdicts import UNKNOWN, Basis
from effectonce._core.codec import (
    NOT_PLAIN,
    PARTIAL,
    Stored,
    as_declared,
    decode,
    decode_plain,
    describe_error,
    encode,
    excuse,
    printable,
)
from effectonce._core.effect_ref import EffectRef
from effectonce._core.endings import (
    Done,
    Ending,
    Fenced,
    Fresh,
    Lost,
    NothingSent,
    OutOfPatience,
    OverLimit,
    Rejection,
    Replay,
    Undetermined,
    Unmet,
)
from effectonce._core.endings import Exhausted as GaveUpEnding
from effectonce._core.ops import Busy, Doubtful, Early, Latched, Mismatch, Unapproved, Unavailable
from effectonce._core.ops import KeyExpired as ExpiredReply
from effectonce._core.preconditions import DidNotHold
from effectonce._core.record import State
from effectonce._core.tagged_json import NotReadable, NotStorable
from effectonce._log import LOG
from effectonce._text import span
from effectonce.effect import THIS_CLOCK
from effectonce.errors import (
    ApprovalNeeded,
    Conflict,
    ContractViolation,
    EffectOnceError,
    Expired,
    GaveUp,
    InDoubt,
    InFlight,
    LeaseLost,
    LimitReached,
    NotApproved,
    OutOfOrder,
    PartialSuccess,
    PreconditionFailed,
    ReplayedFailure,
    ResultUnavailable,
    StoreUnavailable,
)

T = TypeVar("T")
# an owner that lives is done at any moment: the end of its lease says nothing about that
LOOK_AGAIN_S = 1.0
_WITHOUT_A_PERSON = ("", "probe", "late evidence")  # who settles without a person


class DidNotApprove(Exception):  # a statement by a person, stored under this name
    """A person rejected a call that needed an approval. It was never sent."""


class Outcome(Struct, Generic[T], frozen=True, kw_only=True):
    """What is known about an effect after a call: it succeeded, it failed, or its outcome is
    unknown.
    """

    status: Literal["succeeded", "failed", "in_doubt"]
    effect: EffectRef
    value: T | None = None
    error: BaseException | None = None
    # this call ran nothing: the outcome was known, or another call was finding out
    replayed: bool = False
    coalesced: bool = False  # it was in flight when this call came, and this call waited for it
    recorded: bool = True  # False: it happened, and could not be written to the store in time
    settled_by: str = ""  # who ended a doubt: "probe", "late evidence", or a person
    age_s: float = 0.0  # how long ago it was recorded; 0 if this call found it out

    def unwrap(self) -> T:
        """The value, or the error raised."""
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]  # a success has a value, and None is one


ONLY_THE_ERROR = (
    " Only its last error was seen: what else the tool did before that, if anything, stands."
)


def conclude(ending: Ending, effect: EffectRef, returns: Any) -> Outcome[Any]:
    """Turn an ending into an outcome; raise if the call was refused or gave up."""
    match ending:
        case Fresh(value, recorded, settled_by):
            return Outcome(
                status="succeeded",
                effect=effect,
                value=value,
                recorded=recorded,
                settled_by=settled_by,
            )
        case Replay():
            return _replayed(ending, effect, _stored(ending, returns))
        case Done(error, why, recorded):
            if not isinstance(error, Exception):
                raise error
            lost = ResultUnavailable(
                f"{effect} was done: {why} ({type(error).__name__}: {printable(error)}).",
                effect=effect,
            )
            lost.__cause__ = error
            return Outcome(status="succeeded", effect=effect, error=lost, recorded=recorded)
        case Rejection(error):
            return Outcome(status="failed", effect=effect, error=_stamped(error, effect))
        case Lost(error, reason):
            if not isinstance(error, Exception):
                raise error
            return _in_doubt(effect, reason, cause=error, note=cures(error))
        case Doubtful(since_s, reason):
            return _in_doubt(effect, f"{reason} ({_ago(since_s)})", age_s=max(0.0, since_s))
        case NothingSent(error) | GaveUpEnding(error) if not isinstance(error, Exception):
            raise error
        case NothingSent(error, attempts, exhausted, retry_after_s, why):
            if not exhausted:
                raise _stamped(error, effect)
            message = f"{effect} did not run: {last_of(attempts, error)}. {sentence(why)}"
            verdict = classify(error).but(certainty=Certainty.NOT_SENT)
            raise GaveUp(
                message, verdict=verdict, effect=effect, retry_after_s=retry_after_s
            ) from error
        case GaveUpEnding(error, attempts, retry_after_s, why):
            message = (
                f"{effect} may have run: {last_of(attempts, error)}. {sentence(why)}"
                "Calling again is safe: the same request goes out under the same key."
            )
            # of all attempts, whatever the last one proves
            verdict = classify(error).but(certainty=Certainty.AMBIGUOUS)
            raise GaveUp(
                message, verdict=verdict, effect=effect, retry_after_s=retry_after_s
            ) from error
        case OverLimit():
            raise _over(ending, effect)
        case Undetermined():
            raise _undetermined(ending, effect)
        case Unmet(stored=True):
            return Outcome(status="failed", effect=effect, error=_unmet(effect))
        case Unmet():
            raise _unmet(effect)
        case OutOfPatience():
            raise _out_of_patience(ending, effect)
        case _:
            return _refuse(ending, effect)


def _over(ending: OverLimit, effect: EffectRef) -> LimitReached:
    unit, refills_s = f" {ending.unit}".rstrip(), ending.refills_s
    when = (
        "It is more than the limit, and will never fit."
        if refills_s is None
        else f"There is enough again in {span(refills_s)}, if not before."
    )
    whose = f" ({ending.subject})" if ending.subject else ""
    return LimitReached(
        f"{effect} would spend {ending.amount}{unit} of {ending.allowance}{whose}, which has"
        f" {ending.left} of {ending.limit}{unit} left. {when} Nothing was sent.",
        effect=effect,
        retry_after_s=refills_s,
        retriable=refills_s is not None,
        allowance=ending.allowance,
        left=ending.left,
        limit=ending.limit,
    )


def _out_of_patience(ending: OutOfPatience, effect: EffectRef) -> GaveUp:
    if not ending.of_turn:
        verdict = UNKNOWN.but(certainty=Certainty.NOT_SENT)
        message = f"{effect} was not run: {ending.why}. Nothing was sent."
        return GaveUp(message, verdict=verdict, effect=effect)
    message = f"{effect} was not run: {ending.why}. Nothing was sent by this call."
    action = "End this turn. In another turn the same call goes on under the same key."
    return GaveUp(message, effect=effect, retriable=False, corrective_action=action)


def _undetermined(ending: Undetermined, effect: EffectRef) -> BaseException:
    error = ending.error
    if error is not None and not isinstance(error, Exception):
        return error
    message = (
        f"{effect} was not sent: before its first send its probe has to say whether it has"
        f" happened, and {ending.reason}."
    )
    undetermined: EffectOnceError = ContractViolation(message, effect=effect)
    if not ending.unusable:
        undetermined = GaveUp(
            f"{message} {sentence(ending.why)}",
            verdict=UNKNOWN.but(certainty=Certainty.NOT_SENT),
            effect=effect,
            retry_after_s=ending.retry_after_s,
        )
    undetermined.__cause__ = error
    return undetermined


def _unmet(effect: EffectRef, when: str = "now") -> PreconditionFailed:
    return PreconditionFailed(
        f"{effect} was not sent: its precondition did not hold {when}.", effect=effect
    )


def encoder(tool: str, returns: Any) -> Callable[[Any], bytes]:
    """How results of *tool* are stored. Of the first that cannot be, a warning is logged: a
    repeated call will not get it.
    """
    reported: list[str] = []

    def encoded(value: Any) -> bytes:
        try:
            return encode(value, returns)
        except NotStorable as error:
            why = printable(error)
        if not reported:
            reported.append(why)
            LOG.warning(
                "a result of %s cannot be stored (%s): it is recorded as done, and a repeat gets"
                " ResultUnavailable. Return plain data, or declare the model that it returns.",
                tool,
                why,
            )
        return excuse(why)

    return encoded


def last_of(attempts: int, error: BaseException) -> str:
    """How the last attempt ended."""
    text = printable(error).rstrip(".")
    if attempts == 0:
        return f"an earlier send has no answer, and nothing is sent now: {text}"
    return f"attempt {attempts} ended with {type(error).__name__}" + (f": {text}" if text else "")


def sentence(why: str) -> str:
    """A reason as a sentence of a message."""
    return f"{why[0].upper()}{why[1:]}. " if why else ""


def value_of(ending: Ending, effect: EffectRef, returns: Any) -> Any:
    """What a bare call returns: `conclude(...).unwrap()`, without an `Outcome` where there is
    nothing to say but the value.
    """
    if type(ending) is Fresh:
        return ending.value
    if type(ending) is Replay:
        recorded = ending.recorded
        if (
            recorded.settled_by in _WITHOUT_A_PERSON
            and (value := decode_plain(recorded.outcome)) is not NOT_PLAIN
        ):
            return value
        stored = _stored(ending, returns)
        return (
            stored.content if stored.status == "ok" else _replayed(ending, effect, stored).unwrap()
        )
    return conclude(ending, effect, returns).unwrap()


def _until(lease_s: float) -> str:
    return f"If that caller is gone, this is known in {lease_s:.3g} s at the latest."


def _refuse(
    ending: Fenced | Busy | Latched | Mismatch | ExpiredReply | Early | Unapproved | Unavailable,
    effect: EffectRef,
) -> NoReturn:
    """This call ran nothing, or has nothing to say about what ran."""
    match ending:
        case Fenced(value):
            message = (
                f"{effect} ran, but took longer than its lease and another caller owns the record"
                " now."
            )
            raise LeaseLost(message, effect=effect, value=value)
        case Busy(lease_s):
            message = (
                f"{effect} is in flight: another caller is doing it. Nothing was sent by this call."
                f" {_until(lease_s)}"
            )
            raise InFlight(message, effect=effect, retry_after_s=min(lease_s, LOOK_AGAIN_S))
        case Latched(_, tool, float() as lease_s):
            message = (
                f"{effect} has to wait: {tool} is in flight in the same step. Nothing was sent by"
                f" this call. {_until(lease_s)}"
            )
            raise InFlight(message, effect=effect, retry_after_s=min(lease_s, LOOK_AGAIN_S))
        case Latched(key, tool, _):
            other = EffectRef(tool, key, effect.tenant, effect.scope, effect.step)
            raise InDoubt(
                f"{effect} was not run: {other} of the same step may have happened and has no"
                " outcome. Doing something else instead could do both.",
                effect=other,
            )
        case Mismatch():
            raise Conflict(
                f"{effect} was asked for before with other arguments. Nothing was sent, and the"
                " earlier result stays with them.",
                effect=effect,
            )
        case ExpiredReply(since_s):
            raise Expired(
                f"{effect}: its key expired {_ago(since_s)}. Nothing was sent.", effect=effect
            )
        case Early():
            raise OutOfOrder(
                f"{effect} came before its predecessor had an outcome. Nothing was sent.",
                effect=effect,
            )
        case Unapproved(since_s, expired, fingerprint):
            again = " It was approved, and that has expired." if expired else ""
            raise ApprovalNeeded(
                f"{effect} waits for a person to approve it, since {since_s:.0f} s.{again} Nothing"
                " was sent.",
                effect=effect,
                fingerprint=fingerprint,
            )
        case Unavailable(error):
            message = f"{effect} was not run by this call: {error}"
            # of its own class: some say what to do instead of asking again
            if isinstance(error, StoreUnavailable):
                restated = type(error)(
                    message,
                    effect=effect,
                    corrective_action=error.corrective_action,
                    retriable=error.retriable,
                )
                raise restated from error.__cause__
            raise StoreUnavailable(message, effect=effect) from error
        case _:
            assert_never(ending)


def cures(error: Exception) -> str:
    """How to keep an error of the tool's own from being a doubt, for who wrote the tool; "" for
    one that is known to be a failed request.
    """
    if classify(error).bucket is not Bucket.UNKNOWN:
        return ""
    name = type(error).__name__
    return (
        f"{name} does not say whether a request had left. If it comes before anything is sent:"
        " raise NotSent(...) instead, or declare "
        f'not_sent=[{name}]. Or send through protect(client) and declare through="protected": then'
        " what was sent is seen."
    )


def _in_doubt(
    effect: EffectRef,
    reason: str,
    cause: Exception | None = None,
    note: str = "",
    age_s: float = 0.0,
) -> Outcome[Any]:
    error = InDoubt(f"{effect} is in doubt: {reason}. It was not retried.", effect=effect)
    error.__cause__ = cause
    if note:
        error.add_note(note)
    return Outcome(status="in_doubt", effect=effect, error=error, age_s=age_s)


def _ago(age_s: float) -> str:
    return f"{max(0.0, age_s):.0f} s ago"  # never in the future, wherever the store's clock was put


def _stamped(error: BaseException, effect: EffectRef) -> BaseException:
    """Say whose error this is, and since when: if it ends an outer tool as well, it tells
    nothing about the outer effect.
    """
    if effect.key:
        # a class of other code: it may have slots, or a mind of its own
        with contextlib.suppress(Exception):
            error.effectonce_of, error.effectonce_at = effect.key, (time.monotonic(), THIS_CLOCK)  # type: ignore[attr-defined]
    return error


def _stored(replay: Replay, returns: Any) -> Stored:
    recorded = replay.recorded
    try:
        stored = decode(recorded.outcome, returns)
    except NotReadable as error:
        return Stored("unavailable", {"why": str(error)})
    if stored.status == "ok" and recorded.settled_by not in _WITHOUT_A_PERSON:
        return Stored("ok", as_declared(stored.content, returns))
    return stored


def _replayed(replay: Replay, effect: EffectRef, stored: Stored) -> Outcome[Any]:
    recorded, content = replay.recorded, stored.content
    known: Callable[..., Outcome[Any]] = partial(
        Outcome,
        effect=effect,
        replayed=True,
        coalesced=replay.coalesced,
        settled_by=recorded.settled_by,
        age_s=max(0.0, recorded.age_s),  # never in the future, wherever the store's clock was put
    )
    match stored.status:
        case "ok":
            return known(status="succeeded", value=content)
        case "error":
            unseen = (
                content.get("basis") == Basis.ERROR and recorded.settled_by in _WITHOUT_A_PERSON
            )
            stored_error = {"error_type": content["type"], "error_message": content["message"]}
            if content["type"] == DidNotApprove.__name__:
                refused = NotApproved(
                    f"{effect} was rejected by {recorded.settled_by} {_ago(recorded.age_s)}:"
                    f" {content['message']}. It was never sent.",
                    effect=effect,
                    **stored_error,
                )
                return known(status="failed", error=refused)
            if content["type"] == DidNotHold.__name__:
                return known(status="failed", error=_unmet(effect, _ago(recorded.age_s)))
            failure = ReplayedFailure(
                f"{effect} failed for good {_ago(recorded.age_s)} with"
                f" {describe_error(content['type'], content['message'])}. It was not tried"
                f" again.{ONLY_THE_ERROR if unseen else ''}",
                effect=effect,
                **stored_error,
            )
            return known(status="failed", error=failure)
        case "partial":
            action = content["corrective_action"]
            partly = PartialSuccess(
                content["message"], done=content["done"], corrective_action=action, effect=effect
            )
            return known(status="failed", error=partly)
        case _ if recorded.state is State.FAILED or recorded.outcome.startswith(PARTIAL):
            action = "Treat it as failed, and look downstream before anything else is tried."
            message = f"{effect} failed earlier; what it said cannot be shown: {content['why']}."
            lost = ResultUnavailable(message, effect=effect, corrective_action=action)
            return known(status="failed", error=lost)
        case _:
            lost = ResultUnavailable(
                f"{effect} was done; its result cannot be read: {content['why']}.", effect=effect
            )
            return known(status="succeeded", error=lost)
