"""What happens to effects, as values: one word list for every observer. Pure.

An event says which effect, never its key: show `event.effect.reference`. It carries no argument,
no result and no error message; of people it carries the name and the reason that they gave when
they settled something.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from effectonce._core.classification.verdicts import Bucket
from effectonce._core.effect_ref import EffectRef
from effectonce._core.endings import (
    Done,
    Ending,
    Exhausted,
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
from effectonce._core.ops import (
    Busy,
    Doubtful,
    Early,
    KeyExpired,
    Latched,
    Mismatch,
    Unapproved,
    Unavailable,
)
from effectonce._core.record import State
from effectonce._core.retry_flow import Over
from effectonce._core.retry_state import StopReason
from effectonce._core.safe_access import get

EVENTS: dict[str, str] = {
    "calling": "A call begins.",
    "call": (
        "A call ended; `outcome` says how, `duration_s` how long it took, `attempt` how many"
        " attempts it made."
    ),
    "reserved": "This call holds the effect now: no other may run it.",
    "taken_over": (
        "The caller that had sent it vanished, and this call goes on in its place; `outcome` is"
        " held or in_doubt."
    ),
    "dispatched": (
        "It is written down that the request may leave; `count` is how often it may have been sent."
    ),
    "attempting": "An attempt begins: the tool is run.",
    "attempt": "An attempt ended; with an error, `bucket` and `certainty` say what it means.",
    "retry_scheduled": "There will be another attempt, after `delay_s`.",
    "retry_suppressed": (
        "There is no other attempt; `reason` is budget, breaker, deadline, max_attempts or"
        " never_retry."
    ),
    "not_sent": "The attempt certainly had no effect, and that is written down.",
    "completed": "The effect is done and recorded.",
    "failed": "The downstream refused it for good, and that is recorded.",
    "in_doubt": (
        "It may have happened, and nobody can know. Without an effect: a sweep found `count` of"
        " them abandoned."
    ),
    "probed": "The downstream was asked; `outcome` is found, not_found or cannot_tell.",
    "settled": (
        "A doubt is over; `outcome` is happened, not_happened or retried, `by` a person or the"
        " probe, `age_s` how long it was open."
    ),
    "dedup_hit": "The outcome was known and is replayed; `age_s` is how old it is.",
    "coalesced": "Another call was doing it; this one waited and got the same outcome.",
    "in_flight": "Another call is doing it, and this one did not wait any longer.",
    "conflict": "The key is taken by a request with other arguments.",
    "expired": "The window of the key is over: refused, not run again.",
    "latched": (
        "Another call of the same step has no outcome yet; `outcome` says whether it is in_flight"
        " or in_doubt."
    ),
    "approval_needed": "It waits for a person, and was not sent.",
    "approval": "A person has decided about it; `outcome` is approved or rejected.",
    "limit_reached": "An allowance has less left than it would spend, and it was not sent.",
    "out_of_order": "Its predecessor in the sequence has no outcome yet.",
    "fenced_out": (
        "It ran, but another caller owns the record by now: what is known is kept as evidence."
    ),
    "kept": "The store could not take the outcome, so it is kept on this machine.",
    "swept": "A sweep changed `count` records.",
    "paused": "A person has paused or resumed `tool`; `outcome` is paused or resumed.",
    "breaker": "The breaker of `dependency` changed; `outcome` is its phase now.",
    "store": "The store, which is `dependency`, performed `operation`.",
    "store_error": "The store did not answer to `operation`.",
    "dead_letter": (
        "An effect without an outcome was given up on; `reason` is in_doubt, gave_up, or why there"
        " was no other attempt."
    ),
    "redriven": (
        "A person had a dead letter tried again, under its key; `outcome` says what came of it."
    ),
    "discarded": "A dead letter was given up on for good, by a person.",
    "cancelled": "A person asked for the end of a workflow's run.",
    "workflow": "A workflow ended or was parked; `tool` is its name, `outcome` says how.",
}
OUTCOMES: dict[str, str] = {
    "executed": "this call ran the tool",
    "replayed": "the outcome was known",
    "coalesced": "another call was doing it, and this one waited for it",
    "in_flight": "another call is doing it, and this one did not wait any longer",
    "conflict": "the key is taken by a request with other arguments",
    "failed": "refused for good, or certainly without an effect",
    "gave_up": "it may have happened, and calling again is safe",
    "in_doubt": "it may have happened, and nobody can know",
    "refused": (
        "nothing was sent: a contract, an open breaker, an expired key, an approval that is"
        " needed, a store that does not answer"
    ),
    "cancelled": "the caller was cancelled or interrupted; what is known is recorded",
}


class Event(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that happened. `EVENTS` says what each name means, and which fields it fills."""

    name: str
    at: float  # seconds since 1970, by this machine's clock
    tool: str = ""
    kind: str = ""  # of the tool
    effect: EffectRef | None = None
    attempt: int = 0
    outcome: str = ""
    error: str = ""  # the type of an error, never its message
    bucket: str = ""
    certainty: str = ""
    operation: str = ""  # of the store
    dependency: str = ""  # what a breaker guards, or which kind of store it is
    duration_s: float | None = None
    age_s: float | None = None
    delay_s: float | None = None
    count: int = 0
    by: str = ""  # a person, or "probe"
    reason: str = ""  # one word of ours, or a person's own
    fingerprint: str = ""  # of the request: equal for equal arguments
    # a digest of each, if an observer wants them and the guard has a secret
    arguments: Mapping[str, str] = {}


def fields(event: Event) -> dict[str, Any]:
    """An event as plain fields for a log: only what it says, and the effect by its reference."""
    filled = {
        name: value for name in _PLAIN if (value := getattr(event, name)) not in (None, "", 0)
    }
    if event.effect is not None and event.effect.key:
        filled |= {"effect": event.effect.reference, "scope": event.effect.scope}
    return {"event": event.name, **filled}


_PLAIN = tuple(
    name
    for name in Event.__struct_fields__
    if name not in ("name", "at", "effect", "fingerprint", "arguments")
)


class Ended(Struct, frozen=True):
    """An ending as events tell it."""

    outcome: str  # of the call
    error: str = ""
    event: str = ""  # what else there is to tell
    age_s: float | None = None
    detail: str = ""


def ended(ending: Ending | Over, attempts: int) -> Ended:
    """How a call ended, in words that can be counted."""
    match ending:
        case Fresh():
            return Ended("executed" if attempts else "replayed")  # found by a probe
        case Replay(recorded, coalesced):
            word, event = ("coalesced", "coalesced") if coalesced else ("replayed", "dedup_hit")
            return Ended(
                word,
                "" if recorded.state is State.COMPLETED else "ReplayedFailure",
                event,
                recorded.age_s,
            )
        case Done():
            return Ended("executed", "ResultUnavailable")
        case Rejection(error):
            return Ended("failed", type(error).__name__)
        case NothingSent(error) | Over(error, gave_up=None):
            return Ended("failed" if attempts else "refused", type(error).__name__)
        case Exhausted(error) | Over(error):
            return Ended("gave_up", type(error).__name__)
        case Lost(error):
            return Ended("in_doubt", type(error).__name__)
        case Fenced():
            return Ended("executed", "LeaseLost")
        case _:
            return _refused(ending)


def _refused(ending: Any) -> Ended:
    match ending:
        case Doubtful(since_s):
            return Ended("in_doubt", "InDoubt", age_s=since_s)
        case Busy():
            return Ended("in_flight", "InFlight", "in_flight")
        case Latched(retry_after_s=float()):
            return Ended("in_flight", "InFlight", "latched", detail="in_flight")
        case Latched():
            return Ended("refused", "InDoubt", "latched", detail="in_doubt")
        case Mismatch():
            return Ended("conflict", "Conflict", "conflict")
        case KeyExpired(since_s):
            return Ended("refused", "Expired", "expired", since_s)
        case Early():
            return Ended("refused", "OutOfOrder", "out_of_order")
        case Unapproved():
            return Ended("refused", "ApprovalNeeded", "approval_needed")
        case OverLimit():
            return Ended("refused", "LimitReached", "limit_reached")
        case Unmet(stored):
            return Ended("failed" if stored else "refused", "PreconditionFailed")
        case Unavailable():
            return Ended("refused", "StoreUnavailable")
        case Undetermined(unusable=True):
            return Ended("refused", "ContractViolation")
        case _:
            return Ended("refused", "GaveUp")


def given_up(ending: Ending | Over, attempts: int) -> bool:
    """Is an effect left without an outcome, for good? An interrupted caller may come back."""
    match ending:
        case NothingSent(error) | Exhausted(error) | Lost(error):
            return attempts > 0 and isinstance(error, Exception)
        case Undetermined(error=Exception(), attempts=asked):
            return asked > 0
        case _:
            return False


def suppressed(ending: Ending | Over, attempts: int) -> str:
    """Why there was no other attempt, in one word; "" if none was wanted."""
    match ending:
        case OutOfPatience():
            return "budget" if attempts else ""
        case Undetermined(why=StopReason(word=word)):
            return word
        case NothingSent(error) | Exhausted(error) | Over(error) if attempts:
            if get(get(error, "effectonce_verdict"), "bucket") is Bucket.CIRCUIT_OPEN:
                return "breaker"
            why = ending.why
            return (
                why.word
                if isinstance(why, StopReason)
                else "never_retry"
                if why or isinstance(ending, Over)
                else ""
            )
        case _:
            return ""
