"""How the approval of a call stands: as data, in a sentence, and in the story of its effect."""

from __future__ import annotations

from typing import Any

from effectonce._core.record import APPROVED, Record
from effectonce.approvals._standing import Standing, signed
from effectonce.views.text import Screen
from effectonce.views.times import iso, moment, span

WAITING = "needs_approval"  # the state of a record that waits, where people see it


def approval_data(standing: Standing | None) -> dict[str, Any] | None:
    """As `approval` of `effectonce.effect/1`."""
    if standing is None:
        return None
    return {
        "state": standing.state,
        "asked_by": standing.asked_by or None,
        "asked_at": iso(standing.asked_at),
        "by": standing.by or None,
        "reason": standing.reason or None,
        "at": iso(standing.at),
        "until": None if standing.until is None else iso(standing.until),
    }


def approval_verdict(standing: Standing, now: float) -> str:
    """What is known about a call that was not sent, and why not."""
    until_s = 0.0 if standing.until is None else standing.until - now
    match standing.state:
        case "waiting":
            return "It waits for a person to approve it. Nothing was sent."
        case "expired":
            return (
                f"It waits for a person: {standing.by} approved it, and that ended"
                f" {span(-until_s)} ago before a call used it. Nothing was sent."
            )
        case "approved":
            return (
                f"{standing.by} approved it, and no call has used that yet. The next call with"
                f" these arguments sends it, if it comes within {span(until_s)}."
            )
        case _:
            return f"It did not happen: rejected by {standing.by}. Every later call gets that."


def approval_facts(standing: Standing | None, screen: Screen) -> list[tuple[str, str]]:
    """Who asked, and who decided."""
    if standing is None:
        return []
    rows = [("asked by", standing.asked_by)]
    reason = f": {screen.shorten(standing.reason)}" if standing.reason else ""
    if standing.state == "rejected":
        return [*rows, ("rejected by", f"{standing.by}{reason}")]
    if standing.by:
        ends = {"approved": "until", "expired": "until, unused,"}.get(standing.state, "")
        until = "" if standing.until is None else f", {ends} {moment(standing.until)} UTC"
        rows.append(("approved by", f"{standing.by}{until}{reason}"))
    return rows


def approval_moments(
    record: Record, standing: Standing, now: float, screen: Screen
) -> list[tuple[float, str]]:
    """What was asked and decided before anything was sent."""
    who = f" by {standing.asked_by}" if standing.asked_by else ""
    moments = [(standing.asked_at, f"approval was asked for{who}")]
    for entry in record.evidence:
        if entry.note == APPROVED:
            by, reason = signed(record, entry)
            moments.append((entry.at, f"approved by {by}: {screen.shorten(reason)}"))
    if standing.until is not None:
        ends = "ends" if standing.until > now else "ended, unused"
        moments.append((standing.until, f"the approval {ends}"))
    return moments
