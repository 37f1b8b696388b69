"""One effect as data, and the sentence about it. Keys are never shown where a reference does;
arguments and results only when asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from effectonce._core.codec import SEALED, Stored, decode, describe_error
from effectonce._core.effect_ref import INSIDE, EffectRef, effect_of
from effectonce._core.guards import leased, resendable
from effectonce._core.ops import ReadCell
from effectonce._core.record import Record, Scene, State
from effectonce._core.tagged_json import AS_DATA, NotReadable
from effectonce.approvals._standing import apart, standing_of
from effectonce.dead_letters._letter import is_dead
from effectonce.dead_letters._letters import GRACE_S
from effectonce.views.approvals import WAITING, approval_data, approval_verdict
from effectonce.views.history import (
    asked_data,
    asked_of,
    attempt_data,
    attempts_of,
    entry_of,
    gave_up,
    is_run,
    partial_of,
    run_of,
    run_state,
    run_verdict,
)
from effectonce.views.text import Screen, dumps
from effectonce.views.times import iso

if TYPE_CHECKING:
    from effectonce import Guard

DECIDED = (State.COMPLETED, State.FAILED, State.IN_DOUBT)
STATES = (*DECIDED, State.DISPATCHED, State.CLAIMED, State.TOMBSTONE)


def now_of(guard: Guard) -> float:
    """The store's clock, by which leases and windows are judged."""
    return guard.store.apply(ReadCell("a cell that is never written")).now


def reference(record: Record) -> str:
    return effect_of(record).reference


def step_of(record: Record) -> str:
    """The step's own name; a step that is another effect is named by its reference."""
    step = record.request.step
    nested = step.startswith(INSIDE) and len(step) == len(INSIDE) + len(record.request.key)
    return f"{INSIDE}{EffectRef('', step).reference}" if nested else step


def place_of(record: Record) -> str:
    return "/".join(part for part in (record.request.scope, step_of(record)) if part)


def is_sealed(record: Record) -> bool:
    """Could this process not open what is stored?"""
    return any(data.startswith(SEALED) for data in (record.request.arguments, record.outcome))


def abandoned(record: Record, now: float) -> bool:
    """Was it sent, and its owner is gone?"""
    sent = record.state is State.DISPATCHED or (record.state is State.CLAIMED and record.sends > 0)
    return sent and not leased(record, now)


def may_resend(record: Record, now: float) -> bool:
    return resendable(record, None, Scene(now))


def may_confirm_rearmed(record: Record, now: float) -> bool:
    """Did a person ask for another attempt, and no call has made it yet?"""
    waits = record.state is State.CLAIMED and record.sends > 0 and not leased(record, now)
    return waits and bool(apart(record).settled_by)


def lost(record: Record, now: float) -> bool:
    """Was it abandoned, and must not be sent again? The next sweep puts it in doubt."""
    return abandoned(record, now) and not may_resend(record, now)


def given_up(record: Record, now: float) -> bool:
    """Has its call given up, or is its owner gone for long? Nothing goes on by itself."""
    is_open = record.state in (State.CLAIMED, State.DISPATCHED) and not is_run(record)
    return is_open and is_dead(record, now, GRACE_S) and not lost(record, now)


def decided_state(record: Record, now: float) -> str:
    """Its state. What waits for a person, or was approved and not used, is more than claimed."""
    standing = standing_of(record, now) if record.state is State.CLAIMED else None
    if standing is None or standing.state == "used":
        return str(record.state)
    return WAITING if standing.waits else "approved"


def shown_state(record: Record, now: float) -> str:
    """The same, as people are shown it: also what was given up, and a run that goes on or waits."""
    if (state := decided_state(record, now)) != record.state:
        return state
    if is_run(record):
        return run_state(record, now)
    if given_up(record, now) and not apart(record).settled_by:
        return "given_up"
    return str(record.state)


# ---------------------------------------------------------------- sentences


def verdict(record: Record, now: float) -> str:
    """What is known about it, in a sentence or two."""
    if is_run(record):
        return run_verdict(record, now)
    standing = standing_of(record, now)
    if standing is not None and standing.state != "used":
        return approval_verdict(standing, now)
    record = apart(record)
    by = record.settled_by
    match record.state:
        case State.COMPLETED if partial_of(record) is not None:
            return (
                "Some of it happened, and the rest did not. Nothing is sent again: every later call"
                " gets this report."
            )
        case State.COMPLETED:
            source = {
                "": "",
                "probe": ": the downstream has it",
                "late evidence": ": its answer came late",
            }.get(by, f": {by} says so")
            sends = "" if record.sends < 2 else f" It was sent {record.sends} times under one key."
            return f"It happened{source}.{sends} Every later call gets the stored result."
        case State.FAILED:
            who = "the downstream refused it" if by == "" else f"{by} says so"
            return f"It did not happen: {who}. Every later call gets this failure."
        case State.IN_DOUBT:
            return "It is unknown whether it happened. It is not sent again until that is settled."
        case State.DISPATCHED | State.CLAIMED:
            return _open_verdict(record, now)
        case _:
            return (
                "It had an outcome, which is forgotten since its window ended. Its key is refused,"
                " and never run again."
            )


def _open_verdict(record: Record, now: float) -> str:
    if leased(record, now) and record.state is State.DISPATCHED:
        return "It is being done right now."
    if leased(record, now):
        return "It is claimed; nothing was sent yet."
    owner = "its owner gave up" if gave_up(record) else "its owner is gone"
    again = "The next call sends the same request again under the same key."
    if record.sends == 0:
        return f"Nothing was sent, and {owner}. The next call does it."
    if record.settled_by:
        return f"{record.settled_by} asked for another attempt. {again}"
    if may_resend(record, now):
        return f"It may have happened, and {owner}. {again}"
    return f"It may have happened, and {owner}. The next call, or the next sweep, puts it in doubt."


# ---------------------------------------------------------------- arguments and outcomes


class ShownError(NamedTuple):
    """Arguments or an outcome, as far as they may be shown."""

    text: str
    value: Any  # None unless revealed
    hidden: str = ""  # "it" or "them", if there is more than the text

    def words(self, screen: Screen) -> str:
        """For people."""
        if self.hidden:
            return screen.hidden(self.text, self.hidden)
        return self.text or dumps(self.value)


def arguments_of(record: Record, *, reveal: bool) -> ShownError:
    if not record.request.arguments:
        return ShownError("none are stored", None)
    stored = _stored(record.request.arguments)
    if stored.status not in ("ok", "redacted"):
        return ShownError(_why(stored), None)
    if reveal:
        return ShownError("", stored.content)
    names = ", ".join(stored.content) if isinstance(stored.content, dict) else "a value"
    return ShownError(names, None, "them") if names else ShownError("none", None)


def outcome_of(data: bytes, *, reveal: bool) -> ShownError:
    """A result is hidden; why it failed is not."""
    if not data:
        return ShownError("", None)
    stored = _stored(data)
    content = stored.content
    match stored.status:
        case "ok" if reveal:
            return ShownError("", content)
        case "ok":
            return ShownError(f"a result of {len(data):,} bytes", None, "it")
        case "error":
            text = describe_error(content["type"], content["message"])
        case "partial":
            text = f"some of it happened: {content['message']}"
        case _:
            return ShownError(_why(stored), None)
    return ShownError(text, content if reveal else None)


def _described(data: bytes) -> dict[str, Any] | None:
    """An outcome without its content: how it ended, why if it failed, how large it is."""
    if not data:
        return None
    status = _stored(data).status
    return {
        "status": status,
        "error": None if status == "ok" else outcome_of(data, reveal=False).text,
        "bytes": len(data),
    }


def _stored(data: bytes) -> Stored:
    try:
        return decode(data, AS_DATA)
    except NotReadable as error:
        return Stored("unavailable", {"why": str(error)})


def _why(stored: Stored) -> str:
    return f"cannot be shown: {stored.content['why']}"


# ---------------------------------------------------------------- data


def as_data(record: Record, now: float, *, reveal: bool = False) -> dict[str, Any]:
    """The effect as `effectonce.effect/1`."""
    request, terms = record.request, record.request.terms
    standing, settled = standing_of(record, now), apart(record)
    data: dict[str, Any] = {
        "reference": reference(record),
        "tool": terms.tool,
        "version": terms.version,
        "kind": terms.kind,
        "downstream": terms.downstream,
        "provider": terms.provider or None,
        "tenant": request.tenant,
        "scope": request.scope,
        "step": step_of(record),
        "state": record.state,
        "given_up": given_up(record, now),
        "verdict": verdict(record, now),
        "claimed_at": iso(record.created_at),
        "first_sent_at": iso(record.first_dispatch_at),
        "decided_at": iso(record.decided_at),
        "lease_until": iso(record.lease_until),
        "lease_over": not leased(record, now),
        "window_until": iso(settled.dedup_until),
        "sends": record.sends,
        "epoch": record.epoch,
        "settled_by": settled.settled_by or None,
        "reason": settled.reason or None,
        "approval": approval_data(standing),
        "outcome": _described(record.outcome),
        "attempts": [attempt_data(attempt) for attempt in attempts_of(record)],
        "asked": [asked_data(asked) for asked in asked_of(record)],
        "evidence": [
            {"at": iso(e.at), "note": e.note, "outcome": _described(e.outcome)}
            for e in settled.evidence
            if entry_of(e) is None
        ],
        "is_run": is_run(record),
        "run": run_of(record),
    }
    if reveal:
        data |= {
            "key": request.key,
            "arguments": arguments_of(record, reveal=True).value,
            "result": outcome_of(record.outcome, reveal=True).value,
        }
    return data
