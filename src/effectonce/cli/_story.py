"""The whole story of one effect on one screen, for a person who has a customer on the telephone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from effectonce._core.record import TERMINAL, Record, State
from effectonce.cli._commands import runnable
from effectonce.cli._console import console, in_markup
from effectonce.cli._effects import KEYS, STYLES, next_steps
from effectonce.cli._output import MORE, REVEAL, print_next, print_pairs
from effectonce.views.effects import reference, shown_state, verdict
from effectonce.views.history import partial_of
from effectonce.views.text import Screen
from effectonce.views.timeline import MARK, facts_of, not_kept, timeline
from effectonce.views.times import moment

if TYPE_CHECKING:
    from rich.console import Console

    from effectonce.observe import Entry

AUDIT_SHOWN = 12  # of the last entries: it should stay one screen


def tell(
    record: Record, now: float, audit: Sequence[Entry] = (), *, reveal: bool, undo: str = ""
) -> None:
    """Print it, with what the audit has about it."""
    screen, stands = console(), shown_state(record, now)
    mark, state, style = MARK.get(stands, "…"), stands.replace("_", " "), STYLES[stands]
    if partial_of(record) is not None:
        mark, style, state = "!", STYLES[State.IN_DOUBT], "completed in part"
    screen.print(
        f"[{style}]{mark} {state}[/]  [bold]{in_markup(record.request.terms.tool)}[/] "
        f" {reference(record)}"
    )
    screen.print(in_markup(verdict(record, now)))
    if undo:
        screen.print(in_markup(undo))
    screen.print()
    here = Screen(reveal=reveal, more=MORE, reveal_with=REVEAL, keys=KEYS)
    print_pairs(facts_of(record, now, here))
    screen.print()
    print_pairs(timeline(record, now, here, audit))
    print_pairs([(not_kept(record, audited=bool(audit)),)], last="dim")
    screen.print()
    if audit:
        _tell_audit(screen, audit)
    _tell_next(record, now)


def _tell_audit(screen: Console, audit: Sequence[Entry]) -> None:
    """The last entries: the beginning of a long one is in the timeline above."""
    from rich.text import Text

    from effectonce.views.audit import describe

    left = len(audit) - AUDIT_SHOWN
    rest = runnable(f"effectonce audit list --effect {audit[0].effect}")
    more = f"  the first {left:,} are not shown: {rest}" if left > 0 else ""
    screen.print(Text.assemble("in the audit", (more, "dim")), soft_wrap=True)
    print_pairs(
        [(moment(e.at), e.event.replace("_", " "), describe(e)) for e in audit[-AUDIT_SHOWN:]]
    )
    screen.print()


def _tell_next(record: Record, now: float) -> None:
    steps = [(what, runnable(command)) for what, command in next_steps(record, now)]
    report = partial_of(record)
    if report is not None:
        steps = [("put it right", report["corrective_action"]), *steps]
    print_next(steps, "Nothing to do." if record.state in TERMINAL else "Nothing to settle.")
