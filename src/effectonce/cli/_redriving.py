"""Redriving many letters from a terminal: first what would be done, then one after the other,
until you stop it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from effectonce.cli._console import busy
from effectonce.cli._find import find_all
from effectonce.cli._interrupt import Interruption
from effectonce.cli._letters import every
from effectonce.cli._output import EFFECT, TOOL, WHY, Column
from effectonce.recovery.pace import Pace
from effectonce.views.letters import WHAT
from effectonce.views.tools import tools_of

if TYPE_CHECKING:
    from asyncio import Runner

    from effectonce import Guard
    from effectonce.dead_letters import Redriven, Wanted

SHOWN = 10
DUE, DONE = "would_run", ("done", "replayed")
ROWS = [
    EFFECT,
    TOOL,
    Column("WHAT", lambda item: WHAT[item["what"]], plain=lambda item: item["what"], whole=True),
    WHY,
]


def summary(items: Sequence[dict[str, Any]]) -> str:
    """How many of each."""
    counts = Counter(item["what"] for item in items)
    return ", ".join(f"{count:,} {WHAT[what]}" for what, count in counts.items()) + "."


def preview(items: Sequence[dict[str, Any]]) -> str:
    """What you are asked to confirm: the first letters, and how many there are of each kind."""
    lines = [f"  {item['reference']}  {item['tool']}" for item in items if item["what"] == DUE]
    more = [f"  and {len(lines) - SHOWN:,} more"] if len(lines) > SHOWN else []
    return "\n".join([*lines[:SHOWN], *more, summary(items)])


def due(items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [item for item in items if item["what"] == DUE]


class Redriving:
    """The letters of one command, and what comes of them."""

    def __init__(self, guard: Guard, *, early: bool) -> None:
        self._guard, self._early = guard, early
        self._interruption = Interruption()

    @property
    def stopped(self) -> bool:
        return self._interruption.stopped

    def plan(
        self, references: tuple[str, ...], wanted: Wanted, limit: int | None
    ) -> list[dict[str, Any]]:
        """What would be done, with nothing sent. *limit* counts what would be redriven."""
        letters = self._guard.dead_letters
        items: list[dict[str, Any]] = []
        left = inf if limit is None else limit
        with busy("Looking at letters") as how_far:
            for key in self._keys(references, wanted):
                items.append(_item(letters.foresee(key, early=self._early)))
                left -= items[-1]["what"] == DUE
                how_far(f"{len(items):,}")
                if left == 0:
                    break
        return items

    def _keys(self, references: tuple[str, ...], wanted: Wanted) -> Iterator[str]:
        if references:
            yield from (record.request.key for record in find_all(self._guard, references))
        else:
            yield from (letter.key for letter in every(self._guard, wanted))

    def go(
        self, items: Sequence[dict[str, Any]], *, by: str, reason: str, rps: float
    ) -> list[dict[str, Any]]:
        """Redrive what is due, one by one. What was not tried when you stopped it is reported."""
        import asyncio

        pace, total, number = Pace(rps), len(due(items)), 0
        done = []
        with busy("Redriving") as how_far, self._interruption.watched(), asyncio.Runner() as runner:
            for item in items:
                if item["what"] != DUE:
                    done.append(item)
                elif self.stopped:
                    done.append({**item, "what": "not_tried"})
                else:
                    number += 1
                    how_far(f"{number:,} of {total:,}")
                    done.append(_item(self._one(item, by, reason, runner)))
                    if done[-1]["ran"] and number < total:
                        self._interruption.pause(pace.next_s())
        return done

    def _one(self, item: dict[str, Any], by: str, reason: str, runner: Runner) -> Redriven:
        """One loop for all async ones: a client does not outlive the loop it was opened in."""
        letters, key = self._guard.dead_letters, item["_key"]
        if tools_of(self._guard)[item["tool"]].is_async:
            return runner.run(letters.aredrive(key, by=by, reason=reason, early=self._early))
        return letters.redrive(key, by=by, reason=reason, early=self._early)


def _item(redriven: Redriven) -> dict[str, Any]:
    return {
        "reference": redriven.effect.reference,
        "tool": redriven.effect.tool,
        "what": redriven.what,
        "why": redriven.why or None,
        "ran": redriven.ran,
        "_key": redriven.effect.key,
    }
