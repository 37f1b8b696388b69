"""Discarding dead letters from a terminal: which, what would be refused, and what was done."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from effectonce._core.record import TERMINAL, State
from effectonce.cli._ask import refuse_sealed
from effectonce.cli._audit import say_if_left_out
from effectonce.cli._commands import see
from effectonce.cli._console import busy, say
from effectonce.cli._effects import headline
from effectonce.cli._exits import CHANGED, Stop
from effectonce.cli._find import find_all
from effectonce.cli._interrupt import Interruption
from effectonce.cli._letters import every
from effectonce.cli._output import EFFECT, TOOL, WHY, Column
from effectonce.cli._undo_list import UndoList, default_name, undo_list
from effectonce.dead_letters._letter import is_dead
from effectonce.dead_letters._letters import GRACE_S, undiscardable
from effectonce.errors import ContractViolation
from effectonce.recovery.pace import Pace
from effectonce.views.effects import now_of, reference

if TYPE_CHECKING:
    from effectonce import Guard
    from effectonce._core.record import Record
    from effectonce.dead_letters import Letter, Wanted

SHOWN = 5
NO_WAY_BACK = "later calls get the failure; to do it after all takes a new step"
DISCARDED = [
    EFFECT,
    TOOL,
    Column("DISCARDED", lambda item: "yes" if item["discarded"] else "no", whole=True),
    WHY,
]


class Discarding:
    """The letters of one command, and what comes of them."""

    def __init__(self, guard: Guard, *, pace: float, file: Path | None) -> None:
        self._guard, self._pace, self._file = guard, Pace(pace), file
        self._interruption, self._named = Interruption(), False
        self._records: list[Record] = []

    @property
    def stopped(self) -> bool:
        return self._interruption.stopped

    def plan(self, references: tuple[str, ...], wanted: Wanted) -> list[Record]:
        """Which they are: shown, and nothing changed."""
        now, self._named = now_of(self._guard), bool(references)
        if references:
            self._records = find_all(self._guard, references)
            for record in self._records:
                the_letter(self._guard, record, now)
        else:
            with busy("Looking for letters"):
                self._records = [letter.record for letter in every(self._guard, wanted)]
        shown = self._records if references else self._records[:SHOWN]
        for record in shown:
            refuse_sealed(record)
            sent = " It may have happened: discarding says that it did not."
            say(f"{headline(record)}.{sent if record.sends else ''}")
        if len(shown) < len(self._records):
            sends = sum(record.sends > 0 for record in self._records)
            may = f", of which {sends:,} may have happened" if sends else ""
            say(f"and {len(self._records) - len(shown):,} more{may}.")
        return self._records

    def foresee(self) -> list[dict[str, Any]]:
        """What would be refused."""
        now = now_of(self._guard)
        return [_item(record, undiscardable(record, now), done=False) for record in self._records]

    def go(self, by: str, reason: str) -> list[dict[str, Any]]:
        """Discard one after the other, with a list of them if there may be many."""
        if not self._records:
            return []
        if self._named and self._file is None:
            items = self._each(by, reason, None)
        else:
            path = self._file or default_name("discard")
            with undo_list(path, by=by, reason=reason) as listed, self._interruption.watched():
                items = self._each(by, reason, listed)
            say(f"What was done, and why the rest was not: {path}")
        if any(item["discarded"] for item in items):
            say_if_left_out(self._guard)
        return items

    def _each(self, by: str, reason: str, listed: UndoList | None) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        with busy("Discarding") as how_far:
            for number, record in enumerate(self._records, 1):
                if self.stopped:
                    items.append(_item(record, "not tried", done=False))
                    continue
                if listed is not None:
                    listed.write(record, act="discard", what="trying")
                refused = self._discard(record, by, reason)
                items.append(_item(record, refused, done=not refused))
                if listed is not None:
                    listed.write(record, **_outcome(refused))
                how_far(f"{number:,} of {len(self._records):,}")
                if number < len(self._records):
                    self._interruption.pause(self._pace.next_s())
        return items

    def _discard(self, record: Record, by: str, reason: str) -> str:
        """Why it was refused; "" if it was not."""
        try:
            self._guard.dead_letters.discard(record.request.key, by=by, reason=reason)
        except ContractViolation as error:
            return str(error)
        return ""


def _outcome(refused: str) -> dict[str, Any]:
    if refused:
        return {"act": "discard", "what": "refused", "why": refused}
    return {"act": "discard", "what": "discarded", "why": None, "mend": None, "note": NO_WAY_BACK}


def _item(record: Record, why: str, *, done: bool) -> dict[str, Any]:
    about = {"reference": reference(record), "tool": record.request.terms.tool}
    return {**about, "discarded": done, "why": why or None}


def the_letter(guard: Guard, record: Record, now: float, *, failed: bool = False) -> Letter:
    """It as a dead letter. Stops if it is none."""
    letter = guard.dead_letters.show(record.request.key)
    dead = is_dead(record, now, GRACE_S) and (
        record.state not in TERMINAL or (failed and record.state is State.FAILED)
    )
    if letter is None or not dead:
        ref, state = reference(record), str(record.state).replace("_", " ")
        why = state if record.state in TERMINAL else f"{state}, and not given up on"
        raise Stop(f"{ref} is no dead letter: it is {why}.", CHANGED, see(ref))
    return letter
