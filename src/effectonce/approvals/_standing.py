"""How the approval of a call stands, as its record tells.

A record has one place for a name and a reason. An approval writes its own there, and so does a
person who settles a doubt, so whatever shows a record reads them through this file.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from effectonce._core import guards
from effectonce._core.codec import decode, is_closed
from effectonce._core.guards import leased
from effectonce._core.record import APPROVED, ASKED_BY, TERMINAL, Evidence, Record, Scene, State
from effectonce._core.tagged_json import NotReadable
from effectonce.outcome import DidNotApprove

ENTRIES = (ASKED_BY, APPROVED)


class Standing(Struct, frozen=True, kw_only=True):
    """Who asked for an approval, who decided, and whether that is still good."""

    state: Literal["waiting", "expired", "approved", "used", "rejected"]
    asked_by: str  # "": not known
    asked_at: float
    by: str = ""  # who approved it last, or rejected it; "": it was not decided
    reason: str = ""
    at: float = 0.0
    until: float | None = None  # when an approval that was not used ends, or ended

    @property
    def waits(self) -> bool:
        """Does it need a person?"""
        return self.state in ("waiting", "expired")


def standing_of(record: Record, now: float) -> Standing | None:
    """None: no person was asked."""
    approved = _last(record, APPROVED)
    asked = Standing(state="waiting", asked_by=asker(record), asked_at=record.created_at)
    if record.state is State.FAILED and _rejected(record):
        by, reason, at = record.settled_by, record.reason, record.decided_at
        return replace(asked, state="rejected", by=by, reason=reason, at=at)
    if approved is None:
        return asked if waits(record, now) else None
    by, reason = signed(record, approved)
    asked = replace(asked, by=by, reason=reason, at=approved.at)
    unused = record.state is State.CLAIMED and record.sends == 0 and not leased(record, now)
    if not unused or not record.request.terms.approval:
        return replace(asked, state="used")
    state = "expired" if waits(record, now) else "approved"
    return replace(asked, state=state, until=record.dedup_until)


def waits(record: Record, now: float) -> bool:
    """Does it wait for a person?"""
    held = record.token != "" and leased(record, now)
    return guards.waits(record, Scene(now)) and not held


def rests(record: Record, now: float, grace_s: float) -> bool:
    """Does it wait for a person, or, since less than *grace_s*, for the call that uses what was
    approved?
    """
    standing = standing_of(record, now)
    if standing is None or record.token != "":
        return standing is not None and standing.waits
    approved = standing.state == "approved" and abs(now - standing.at) < grace_s
    return standing.waits or approved


def apart(record: Record) -> Record:
    """The record without what its approval left on it, which is no attempt and settles nothing."""
    approved = _last(record, APPROVED)
    if approved is None and not record.request.terms.approval:
        return record
    kept = tuple(entry for entry in record.evidence if entry.note not in ENTRIES)
    until = record.dedup_until if record.state in TERMINAL else inf  # before: of the approval
    record = replace(record, evidence=kept, dedup_until=until)
    match record.state:
        case State.CLAIMED | State.DISPATCHED if _is_of_approval(record, approved):
            return replace(record, settled_by="", reason="")
        case State.IN_DOUBT:
            return replace(record, settled_by="")
        case State.COMPLETED if record.settled_by == "":
            return replace(record, reason="")
        case State.FAILED if record.token:  # a person who ends it leaves it without an owner
            return replace(record, settled_by="", reason="")
        case _:
            return record


def _is_of_approval(record: Record, approved: Evidence | None) -> bool:
    if approved is None:
        return record.sends == 0 and record.settled_by == ""  # the reason is the name of who asks
    if is_closed(approved.outcome):
        return record.sends == 0
    return approved.outcome == f"{record.settled_by}: {record.reason}".encode()


def _last(record: Record, note: str) -> Evidence | None:
    return next((entry for entry in reversed(record.evidence) if entry.note == note), None)


def asker(record: Record) -> str:
    """Who asked for it; "": not known."""
    asked = _last(record, ASKED_BY)
    if asked is not None:
        return "" if is_closed(asked.outcome) else asked.outcome.decode()
    unsettled = record.state is State.CLAIMED and record.settled_by == ""
    return record.reason if unsettled else ""


def signed(record: Record, approved: Evidence) -> tuple[str, str]:
    """Who approved it, and why."""
    if is_closed(approved.outcome):
        return record.settled_by, record.reason
    said, by = approved.outcome.decode(), record.settled_by
    if by and said.startswith(f"{by}: "):  # a name may have a colon in it
        return by, said.removeprefix(f"{by}: ")
    by, _, reason = said.partition(": ")
    return by, reason


def _rejected(record: Record) -> bool:
    try:
        stored = decode(record.outcome)
    except NotReadable:
        return False
    content = stored.content
    return isinstance(content, Mapping) and content.get("type") == DidNotApprove.__name__
