"""Undoing an effect from a terminal: show which it is, ask, run the undo of its tool."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import TYPE_CHECKING, Any

from effectonce import ContractViolation, EffectOnceError
from effectonce.cli._app import app_here
from effectonce.cli._ask import make_sure, reason_given, who
from effectonce.cli._console import say
from effectonce.cli._effects import headline
from effectonce.cli._exits import FAILED, NOT_ALLOWED, Stop
from effectonce.cli._find import find_one
from effectonce.cli._output import print_one
from effectonce.recovery.undo import Undoing, why_not
from effectonce.views.effects import as_data, now_of
from effectonce.views.effects import reference as reference_of
from effectonce.views.tools import tools_of
from effectonce.views.undo import undo_data

if TYPE_CHECKING:
    from effectonce import Guard, Outcome
    from effectonce._core.record import Record


def run_undo(named: str, reason: str | None, *, yes: bool) -> None:
    by = who()
    with closing(app_here()) as guard:
        record = find_one(guard, named)
        refusal = why_not(record, now_of(guard))
        if refusal:
            raise Stop(f"{reference_of(record)} {refusal}", NOT_ALLOWED, "Nothing was sent.")
        say(headline(record))
        why = reason_given(reason)
        make_sure("Undo it?", yes=yes)
        try:
            outcome = _undone(guard, record, by, why)
        except ContractViolation as error:
            raise Stop(str(error), NOT_ALLOWED) from None
        except EffectOnceError as error:
            raise Stop(str(error), FAILED, error.corrective_action) from None
        after, now = guard.find(record.request.key) or record, now_of(guard)
        data = {**as_data(after, now), **undo_data(after, guard.find)}
    print_one(data, lambda: _tell(outcome), schema="effect")
    if outcome.status != "succeeded":
        raise SystemExit(FAILED)


def _undone(guard: Guard, record: Record, by: str, why: str) -> Outcome[Any]:
    key = record.request.key
    if Undoing(guard.store, tools_of(guard)).undo_of(record).is_async:
        return asyncio.run(guard.aundo(key, by=by, reason=why))
    return guard.undo(key, by=by, reason=why)


def _tell(outcome: Outcome[Any]) -> None:
    reference = outcome.effect.reference
    if outcome.error is not None:
        say(f"Not undone: {outcome.error}")
    elif outcome.replayed:
        say(f"It was undone before, by {reference}.")
    else:
        say(f"Undone, by {reference}.")
