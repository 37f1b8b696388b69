"""Settling many effects in doubt from a terminal: first what would be settled, then one after the
other, with a list of what was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from effectonce.cli._ask import make_sure, reason_given, refuse_sealed, who
from effectonce.cli._audit import say_if_left_out
from effectonce.cli._commands import runnable
from effectonce.cli._console import busy, say
from effectonce.cli._exits import FAILED, INTERRUPTED, Stop
from effectonce.cli._interrupt import Interruption
from effectonce.cli._output import EFFECT, TOOL, WHY, Column, for_machines, print_rows, shape
from effectonce.cli._undo_list import UndoList, default_name, undo_list
from effectonce.recovery.bulk import Act, BulkDecision, SettledEffect, mending, settle_each
from effectonce.recovery.in_doubt import NOT_HONOURED
from effectonce.recovery.verdict_file import BadVerdictFile, RowProblem, matched, read_verdicts
from effectonce.views.doubts import SETTLED
from effectonce.views.effects import may_resend, now_of, place_of, reference
from effectonce.views.times import span

if TYPE_CHECKING:
    from effectonce import Guard
    from effectonce._core.record import Record

EXAMPLES = 5
ROWS = [
    EFFECT,
    TOOL,
    Column("WHAT", lambda item: SETTLED[item["what"]], plain=lambda item: item["what"], whole=True),
    WHY,
]


class Settling:
    """The effects of one command, what is said about them, and what comes of them."""

    def __init__(
        self, guard: Guard, *, per_s: float, yes: bool, dry_run: bool, file: Path | None
    ) -> None:
        self._guard, self._per_s, self._yes, self._dry_run = guard, per_s, yes, dry_run
        self._file = file
        self._problems: list[RowProblem] = []  # rows of a file that cannot be used

    def settle(self, act: Act, records: Sequence[Record], reason: str | None, result: Any) -> None:
        """One decision about all of them."""
        self._preview(records, [act])
        if not records:
            return
        by, why = who(), reason_given(reason)
        decision = BulkDecision(act=act, by=by, reason=why, result=result)
        self._go([(record, decision) for record in records], by, why)

    def settle_rows(self, file: str, data: bytes, act: Act, reason: str | None, **how: Any) -> None:
        """What the rows of a file say. Rows that cannot be used are reported and change nothing."""
        tenant = how.pop("tenant")
        try:
            table = read_verdicts(data, act=act, **how)
        except BadVerdictFile as error:
            raise Stop(f"{file}: {error}.", FAILED, "Nothing was changed.") from None
        with busy("Looking for effects"):
            found, self._problems = matched(self._guard, table, tenant=tenant)
        self._preview([record for _, record in found], [row.act for row, _ in found])
        _print_problems(self._problems)
        if found:
            by, why = who(), reason_given(reason)
            decisions = [
                (record, BulkDecision(act=row.act, by=by, reason=why, result=row.result))
                for row, record in found
            ]
            self._go(decisions, by, why)
        if self._problems:
            raise SystemExit(FAILED)

    def _preview(self, records: Sequence[Record], acts: Iterable[Act]) -> None:
        """What you are asked to confirm."""
        say(preview(records, now_of(self._guard)))
        again = set(acts) == {"retry"}
        kept = sum(not may_resend(record, now_of(self._guard)) for record in records if again)
        if kept:
            say(f"{kept:,} of them would be refused: {NOT_HONOURED}.")
        for record in records[:1]:
            refuse_sealed(record)

    def _go(self, decisions: Sequence[tuple[Record, BulkDecision]], by: str, reason: str) -> None:
        acts = Counter(decision.act for _, decision in decisions)
        what = ", ".join(f"{act} {count:,}" for act, count in acts.items())
        if self._dry_run:
            say(f"This would be written, by {by}: {what}. Nothing was changed.")
            return
        make_sure(f"Write this down: {what}?", yes=self._yes)
        path = self._file or default_name("-".join(acts))
        interruption = Interruption()
        with undo_list(path, by=by, reason=reason) as listed, interruption.watched():
            done = self._each(decisions, listed, interruption)
        say_if_left_out(self._guard)
        _print_done(done, path, self._problems)
        if interruption.stopped:
            say("Stopped. What was not tried is in doubt as before.")
            raise SystemExit(INTERRUPTED)
        if any(each.what == "refused" for each in done):
            raise SystemExit(FAILED)

    def _each(
        self,
        decisions: Sequence[tuple[Record, BulkDecision]],
        listed: UndoList,
        interruption: Interruption,
    ) -> list[SettledEffect]:
        def announced() -> Iterable[tuple[Record, BulkDecision]]:
            for record, decision in decisions:
                if not interruption.stopped:
                    listed.write(record, act=decision.act, what="trying")
                yield record, decision

        done: list[SettledEffect] = []
        settling = settle_each(
            self._guard,
            announced(),
            per_s=self._per_s,
            pause=interruption.pause,
            stopped=lambda: interruption.stopped,
        )
        with busy("Settling") as how_far:
            for each, (record, decision) in zip(settling, decisions, strict=True):
                listed.write(record, **_outcome(each, decision.act))
                done.append(each)
                how_far(f"{len(done):,} of {len(decisions):,}")
        return done


def preview(records: Sequence[Record], now: float) -> str:
    """How many, of which tools, how old, and some of them."""
    if not records:
        return "Nothing that is in doubt fits. Nothing was changed."
    tools = Counter(record.request.terms.tool for record in records)
    ages = sorted(now - record.decided_at for record in records)
    named = ", ".join(f"{count:,} of {tool}" for tool, count in tools.most_common())
    lines = [
        f"{len(records):,} in doubt: {named}; for {span(ages[0])} to {span(ages[-1])}.",
        *(f"  {reference(record)}  {place_of(record)}" for record in records[:EXAMPLES]),
    ]
    if len(records) > EXAMPLES:
        lines.append(f"  and {len(records) - EXAMPLES:,} more")
    return "\n".join(lines)


def _outcome(each: SettledEffect, act: Act) -> dict[str, Any]:
    """What came of it, and what can still mend it."""
    outcome: dict[str, Any] = {"act": act, "what": each.what, "why": each.why or None}
    if each.done:
        command, note = mending(act, each.effect.reference)
        outcome |= {"mend": None if command is None else runnable(command), "note": note}
    return outcome


def _print_problems(problems: Sequence[RowProblem]) -> None:
    if problems:
        say(f"{len(problems):,} line{'s' * (len(problems) != 1)} cannot be used:")
        for problem in problems:
            say(f"  line {problem.line}: {problem.why}")


def _print_done(done: Sequence[SettledEffect], path: Path, problems: Sequence[RowProblem]) -> None:
    """Programs get all of them; people those that were left, and how many were not."""
    items = [
        {
            "reference": each.effect.reference,
            "tool": each.effect.tool,
            "what": each.what,
            "why": each.why or None,
        }
        for each in done
        if not each.done or shape() != "table"
    ]
    counts = Counter(each.what for each in done)
    listed = {
        "undo_list": str(path),
        "counts": dict(sorted(counts.items())),
        "problems": [problem._asdict() for problem in problems],
    }
    if items or for_machines():
        print_rows(items, ROWS, schema="settled", plural="settled", empty="", **listed)
    said = ", ".join(f"{count:,} {SETTLED[what]}" for what, count in counts.items())
    say(f"{said}. What was done, and what can mend it: {path}")
