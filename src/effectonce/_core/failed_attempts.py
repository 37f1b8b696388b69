"""How the attempts of an effect failed, as its record tells."""

from __future__ import annotations

from effectonce._core.attempt_log import FailedAttempt, read_entry, read_failure
from effectonce._core.codec import decode
from effectonce._core.record import Record, State
from effectonce._core.tagged_json import NotReadable


def attempts_of(record: Record) -> list[FailedAttempt]:
    """Every known failed attempt, oldest first. A definite failure has its own in the outcome."""
    entries = [
        read_entry(evidence.at, evidence.note, evidence.outcome) for evidence in record.evidence
    ]
    known, failure = (
        [entry for entry in entries if isinstance(entry, FailedAttempt)],
        failure_of(record),
    )
    return known if failure is None else [*known, failure]


def failure_of(record: Record) -> FailedAttempt | None:
    """The attempt that ended it for good; None: it did not end so, or a person ended it."""
    if record.state is not State.FAILED or record.settled_by:
        return None
    try:
        stored = decode(record.outcome)
    except NotReadable:
        return None
    return read_failure(record.decided_at, stored.content) if stored.status == "error" else None
