"""Find one effect by what a person has of it: a reference, the beginning of one, or a key."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from effectonce._core.keys import KEY_LENGTH, REFERENCE_LENGTH
from effectonce._core.ops import Find, Search
from effectonce._core.pages import Refer
from effectonce.cli._commands import runnable
from effectonce.cli._console import busy
from effectonce.cli._effects import headline
from effectonce.cli._exits import NOT_FOUND, Stop
from effectonce.cli._settings import setting
from effectonce.views.effects import reference

if TYPE_CHECKING:
    from effectonce import Guard
    from effectonce._core.record import Record

PREFIX, SHORTEST, SHOWN = "eff_", 4, 6


def find_one(guard: Guard, named: str) -> Record:
    """The effect of this name. If there is none, or more than one, say which it might be."""
    if len(named) == KEY_LENGTH and not named.startswith(PREFIX):
        record = guard.store.apply(Find(named))
        if record is None or (setting("tenant") or record.request.tenant) != record.request.tenant:
            raise Stop("there is no effect with this key.", NOT_FOUND)
        return record
    digits = named.removeprefix(PREFIX).rstrip("…").lower()
    if re.fullmatch(rf"[0-9a-f]{{{SHORTEST},{REFERENCE_LENGTH}}}", digits) is None:
        raise click.UsageError(
            f"{named!r} is no reference: give {PREFIX} and its 12 digits, or at least the first"
            f" {SHORTEST}."
        )
    found = _search(guard, digits)
    if not found:
        raise Stop(f"there is no effect {PREFIX}{digits}.", NOT_FOUND, _nearest(guard, digits))
    if len(found) > 1:
        listed = "\n".join(f"  {headline(record)}" for record in found[:SHOWN])
        raise click.UsageError(
            f"{PREFIX}{digits} fits {len(found)} effects or more. Give more of it:\n{listed}"
        )
    return found[0]


def find_all(guard: Guard, names: tuple[str, ...]) -> list[Record]:
    """Each of them once, in the order in which they were named."""
    found = (find_one(guard, name) for name in names)
    return list({record.request.key: record for record in found}.values())


def _search(guard: Guard, digits: str) -> tuple[Record, ...]:
    tenant = setting("tenant") or None
    with busy(f"Looking for {PREFIX}{digits}"):
        if len(digits) == REFERENCE_LENGTH:
            return guard.store.apply(Refer(digits, tenant, SHOWN))
        return guard.store.apply(Search(digits, tenant=tenant, limit=SHOWN))


def _nearest(guard: Guard, digits: str) -> str:
    """A digit near the end was mistyped, or the reference is from another store."""
    alike = _search(guard, digits[:SHORTEST]) if len(digits) > SHORTEST else ()
    if alike:
        return f"Did you mean {' or '.join(reference(record) for record in alike[:3])}?"
    here = f"`{runnable('effectonce effect list')}` shows what is here."
    return f"Is it in another store, or was it forgotten? {here}"
