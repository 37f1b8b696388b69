"""The audit of a guard, read and never written: entries as data and in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from effectonce._core.ops import ListCells
from effectonce.cli._app import made_here
from effectonce.cli._console import say
from effectonce.cli._exits import NOT_ALLOWED, Stop
from effectonce.cli._history import taken_for
from effectonce.cli._settings import setting
from effectonce.cli._times import iso, span
from effectonce.observe._chain import BATCHES, SLACK_S, Entry, shown
from effectonce.observe.audit import Audit

if TYPE_CHECKING:
    from effectonce import Guard
    from effectonce._core.records import Record

SEALED = "This audit is sealed, and there is no key here."
KEYS = "Give --app, or the keys (EFFECTONCE_KEYS, keys_file)."


def audit_of(guard: Guard) -> Audit:
    """One to read with. What a guard without a secret wrote can be verified without knowing it; all else takes your guard."""
    return Audit(guard.store, keyring=guard.keyring) if made_here(guard) else Audit(guard)


def is_there(guard: Guard) -> bool:
    """Did anybody write one?"""
    return bool(guard.store.apply(ListCells(BATCHES, "", 1)))


def say_if_left_out(guard: Guard) -> None:
    """A decision that was made through a store alone is on the record, and not in its audit: the chain is your guard's to write."""
    if made_here(guard) and is_there(guard):
        say("The audit has no entry of this: it is on the record alone. With --app, your guard writes it there as well.")


def entries(guard: Guard, *, limit: int | None, **wanted: Any) -> list[Entry]:
    """The newest that fit, oldest first. One that cannot be opened is no empty one."""
    if not is_there(guard):
        return []
    audit, tenant = audit_of(guard), setting("tenant")
    found = audit.entries(limit=None if tenant else limit, **wanted)
    if not found and not audit.entries(limit=1):
        raise Stop(SEALED, NOT_ALLOWED, KEYS)
    if tenant:
        found = [entry for entry in found if entry.tenant == tenant]
    return found if limit is None else found[-limit:]


def entries_about(guard: Guard, record: Record, reference: str) -> list[Entry]:
    """What the audit has about one effect; nothing if it cannot be opened. Clocks differ, so it looks a little further back."""
    if not is_there(guard):
        return []
    return audit_of(guard).entries(effect=reference, since=record.created_at - SLACK_S, limit=None)


def as_data(entry: Entry) -> dict[str, Any]:
    """An entry as `effectonce.entry/1`: what it says, without what it does not."""
    return {**shown(entry), "at": iso(entry.at)}


def told(entry: Entry) -> str:
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
