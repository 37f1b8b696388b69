"""What a record has of before: failed attempts, who asked again, who wants its end, whose step."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from effectonce._core.attempt_log import UNREADABLE, FailedAttempt, RedriveRequest, read_entry
from effectonce._core.codec import decode
from effectonce._core.failed_attempts import attempts_of as _attempts_of
from effectonce._core.guards import leased
from effectonce._core.record import Evidence, Record, State
from effectonce._core.tagged_json import NotReadable
from effectonce._core.undo import UndoRequest, read_request
from effectonce._core.workflow import CANCEL, Cancellation
from effectonce.approvals._standing import apart
from effectonce.views.text import Screen
from effectonce.views.times import iso

_RUN = re.compile(r".+ (eff_[0-9a-f]{12})")  # the scope of a step: which workflow, which run of it
_POSITION = re.compile(r"(undo )?\d+ .")  # and what it is called there
_ANY = Screen()
HistoryEntry: TypeAlias = "FailedAttempt | RedriveRequest | Cancellation | UndoRequest"


def is_run(record: Record) -> bool:
    """Is it a run of a workflow?"""
    return record.request.terms.steps


def run_of(record: Record) -> str | None:
    """The run that it is a step of, by its reference."""
    found = _RUN.fullmatch(record.request.scope)
    return found[1] if found is not None and _POSITION.match(record.request.step) else None


def entry_of(evidence: Evidence) -> HistoryEntry | None:
    """What an entry says; None: it is a result, or a note."""
    undo = read_request(evidence)
    if undo is not None:
        return undo
    if evidence.note != CANCEL:
        return read_entry(evidence.at, evidence.note, evidence.outcome)
    try:
        return msgspec.json.decode(evidence.outcome.removeprefix(b"v1 ok "), type=Cancellation)
    except (msgspec.MsgspecError, UnicodeDecodeError):  # it is sealed
        return Cancellation("", UNREADABLE)


def partial_of(record: Record) -> Mapping[str, Any] | None:
    """Report of a part done: `message`, `done`, `corrective_action`. None: all or nothing was."""
    if record.state is not State.COMPLETED:
        return None
    try:
        stored = decode(record.outcome)
    except NotReadable:
        return None
    return stored.content if stored.status == "partial" else None


def attempts_of(record: Record) -> list[FailedAttempt]:
    """Every known failed attempt, oldest first."""
    return _attempts_of(apart(record))


def gave_up(record: Record) -> bool:
    """Did its owner say that it gave up?"""
    return any(attempt.gave_up is not None for attempt in attempts_of(record))


def asked_of(record: Record) -> list[RedriveRequest]:
    """Who asked for it again."""
    entries = map(entry_of, apart(record).evidence)
    return [entry for entry in entries if isinstance(entry, RedriveRequest)]


def cancelled_of(record: Record) -> Cancellation | None:
    """Who wants this run to end."""
    entries = map(entry_of, record.evidence)
    return next((entry for entry in entries if isinstance(entry, Cancellation)), None)


# ---------------------------------------------------------------- in words


def describe(entry: HistoryEntry, screen: Screen = _ANY) -> str:
    """An entry in a sentence."""
    match entry:
        case FailedAttempt():
            return describe_attempt(entry, screen)
        case RedriveRequest(by, reason):
            return f"{by or 'a person'} asked for it again: {reason}"
        case Cancellation(by, reason):
            return f"{by or 'a person'} wants it to end: {reason}"
        case UndoRequest(by, reason):
            return f"{by or 'a person'} asked for its undo: {reason}"


def describe_attempt(attempt: FailedAttempt, screen: Screen) -> str:
    message = screen.shorten(attempt.message)
    what = f"{attempt.error}: {message}" if attempt.error and message else attempt.error or message
    if attempt.bucket:
        what += f" ({taken_for(attempt.bucket, attempt.certainty)}{rests_on(attempt)})"
    after = f"; not before {attempt.retry_after_s:g} s" if attempt.retry_after_s is not None else ""
    gave_up = f"; gave up: {attempt.gave_up}" if attempt.gave_up and attempt.number else ""
    if attempt.number == 0 and attempt.gave_up is not None:
        return f"gave up: {attempt.gave_up}" + (f"; {what}" if attempt.error else "")
    number = f"attempt {attempt.number}" if attempt.number else "an attempt"
    return f"{number} failed with {what}{after}{gave_up}"


def rests_on(attempt: FailedAttempt) -> str:
    """What a certain verdict about an attempt rests on; nothing for the tool's own statement."""
    if attempt.certainty in ("", "ambiguous") or attempt.error in ("NotSent", "Rejected"):
        return ""
    said = {"witnessed": ", witnessed", "declared": ", declared", "error": ", by its error alone"}
    return said.get(attempt.basis, "")


def taken_for(bucket: str, certainty: str) -> str:
    """What an error was taken to mean. If the outcome is certain, bucket `unknown` confuses."""
    if certainty not in ("", "ambiguous") and bucket == "unknown":
        bucket = ""
    return ", ".join(part.replace("_", " ") for part in (bucket, certainty) if part)


def attempt_data(attempt: FailedAttempt) -> dict[str, Any]:
    return {**msgspec.structs.asdict(attempt), "at": iso(attempt.at)}


def asked_data(asked: RedriveRequest) -> dict[str, Any]:
    return {"by": asked.by, "reason": asked.reason, "at": iso(asked.at)}


# ---------------------------------------------------------------- runs


def run_state(record: Record, now: float) -> str:
    """In the words of `guard.workflows.summary`."""
    if record.state is not State.CLAIMED:
        return str(record.state)
    return "running" if leased(record, now) else "waiting"


def run_verdict(record: Record, now: float) -> str:
    """What is known about a run, in a sentence or two."""
    cancelled = cancelled_of(record)
    ending = "" if cancelled is None else f" {describe(cancelled)}."
    match run_state(record, now):
        case "running":
            became = f"is going on right now.{ending}"
        case "waiting" if cancelled is not None:
            waits = f"waits to be ended: {describe(cancelled)}"
            became = f"{waits}. Resuming it compensates what was done."
        case "waiting":
            became = "waits. The next call, or resuming it, goes on where it stopped."
        case "completed":
            became = "came to its end. Every later call gets the stored result."
        case "failed":
            failed = f"failed for good, and was compensated.{ending}"
            became = f"{failed} Every later call gets this failure."
        case _:
            became = "has ended, and is forgotten since its window ended. Its key is refused."
    return f"This run of a workflow {became}"


def run_steps(record: Record, reference: str, now: float) -> list[tuple[str, str]]:
    """What to do about a run, and the exact command."""
    if run_state(record, now) != "waiting":
        return []
    resume = f"effectonce workflow resume {reference} --app MODULE:GUARD"
    if cancelled_of(record) is not None:
        return [("end it", resume)]
    return [("go on", resume), ("end it", f"effectonce workflow cancel {reference} --reason TEXT")]


def begun(record: Record) -> str:
    """How often a run was begun."""
    return f"begun {record.epoch} time{'s' * (record.epoch != 1)}"
