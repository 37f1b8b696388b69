"""Entries of the audit as data and in words. They are read here, and never written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from effectonce._core.ops import ListCells
from effectonce.observe._hash_chain import BATCHES, Entry, shown
from effectonce.observe._verification import SLACK_S
from effectonce.observe.audit import Audit
from effectonce.views.history import taken_for
from effectonce.views.times import iso, span

if TYPE_CHECKING:
    from effectonce import Guard
    from effectonce._core.record import Record


def is_there(guard: Guard) -> bool:
    """Was one written?"""
    return bool(guard.store.apply(ListCells(BATCHES, "", 1)))


def entries_about(guard: Guard, record: Record, reference: str) -> list[Entry]:
    """The audit of an effect; nothing if it cannot be opened. Looks further back: clocks differ."""
    if not is_there(guard):
        return []
    return Audit(guard.store, keyring=guard.keyring).entries(
        effect=reference, since=record.created_at - SLACK_S, limit=None
    )


def as_data(entry: Entry) -> dict[str, Any]:
    """An entry as `effectonce.entry/1`: what it says, without what it does not."""
    return {**shown(entry), "at": iso(entry.at)}


def describe(entry: Entry) -> str:
    """What an entry says beside its name, in a few words."""
    verdict = taken_for(entry.bucket, entry.certainty)
    parts = (
        f"attempt {entry.attempt}" if entry.attempt else "",
        entry.outcome.replace("_", " "),
        f"{entry.error} ({verdict})" if entry.error and verdict else entry.error or verdict,
        f"{entry.count} times" if entry.event == "dispatched" and entry.count > 1 else "",
        f"in {entry.delay_s:.1f} s" if entry.delay_s is not None else "",
        f"after {span(entry.age_s)}" if entry.age_s is not None else "",
        entry.dependency,
        f"by {entry.by}" if entry.by else "",
        entry.reason,
    )
    return "; ".join(part for part in parts if part)
