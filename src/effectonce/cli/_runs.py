"""Runs of workflows for the command line: as data, as rows, and one on a screen."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from effectonce._core.record import Record, State
from effectonce.cli._commands import runnable, see
from effectonce.cli._console import console, in_markup
from effectonce.cli._effects import STYLES
from effectonce.cli._exits import NOT_FOUND, Stop
from effectonce.cli._find import find_one
from effectonce.cli._output import (
    LAST,
    NARROWEST,
    REVEAL,
    Column,
    field,
    on_a_line,
    print_next,
    print_pairs,
    shortened,
    since,
    to_width,
    words,
)
from effectonce.views.effects import arguments_of, reference, shown_state
from effectonce.views.history import is_run, run_of, run_state, run_steps, run_verdict
from effectonce.views.runs import as_data, error_of, place, position, to_decide, why_of
from effectonce.views.text import SHOWN_MAX, Screen
from effectonce.views.times import moment

if TYPE_CHECKING:
    from effectonce import Guard

RUN_STYLES = {
    "running": "cyan",
    "waiting": "bold yellow",
    "completed": "green",
    "failed": "red",
    "tombstone": "dim",
}
MARK = {"running": "…", "waiting": "?", "completed": "✓", "failed": "✗", "tombstone": "·"}


def find_run(guard: Guard, named: str) -> Record:
    """The run of this name."""
    record = find_one(guard, named)
    if not is_run(record):
        run, ref = run_of(record), reference(record)
        advice = f"It is a step of {run}." if run else see(ref)
        raise Stop(f"{ref} is no run of a workflow.", NOT_FOUND, advice)
    return record


RUNS = [
    field("RUN", "reference", whole=True),
    field("WORKFLOW", "workflow"),
    words("STATE", "state", lambda item: RUN_STYLES[item["state"]]),
    field("BEGUN", "runs", right=True, whole=True),
    since("AGE", "_age_s", "began_at"),
    Column(
        "WHY",
        lambda item: "cancelled" if item["cancelled"] is not None else why_of(item),
        plain=lambda item: item["error"],
    ),
]


# ---------------------------------------------------------------- one on a screen


def tell(record: Record, steps: list[Record], now: float, *, reveal: bool) -> None:
    """Everything about a run: what it is, its steps and compensations, and what to do next."""
    screen, state, ref = console(), run_state(record, now), reference(record)
    screen.print(
        f"[{RUN_STYLES[state]}]{MARK[state]} {state}[/] "
        f" [bold]{in_markup(record.request.terms.tool)}[/]  {ref}"
    )
    screen.print(in_markup(run_verdict(record, now)))
    screen.print()
    arguments = arguments_of(record, reveal=reveal)
    data = as_data(record, now)
    ended = f", ended {moment(record.decided_at)}" if data["ended_at"] else ""
    times = f"{record.epoch} time{'s' * (record.epoch != 1)}"
    error = shortened(data["error"] or "", SHOWN_MAX)
    facts = [
        ("begun", f"{times}, first {moment(record.created_at)}{ended}"),
        ("stopped by" if state == "waiting" else "error", error),
        ("stopped", "" if data["error"] or data["cancelled"] else why_of(data)),
        ("arguments", arguments.words(Screen(reveal=reveal, reveal_with=REVEAL))),
        ("key", record.request.key if reveal else ""),
    ]
    print_pairs([(name, text) for name, text in facts if text])
    for title, rows in (
        ("steps", [s for s in steps if not position(s)[0]]),
        ("compensations", [s for s in steps if position(s)[0]]),
    ):
        if rows:
            screen.print()
            screen.print(title, style="bold")
            _tell_steps(rows, now)
    screen.print()
    _tell_next(record, steps, state, now)


def _tell_steps(steps: list[Record], now: float) -> None:
    from rich.cells import cell_len
    from rich.text import Text

    screen = console(width_max=sys.maxsize)
    rows = []
    for step in steps:
        _, number, called = position(step)
        became = shown_state(step, now).replace("_", " ")
        cells = (f"{number}", called, became, reference(step), error_of(step))
        rows.append([on_a_line(cell) for cell in cells])
    widths = [max(cell_len(row[n]) for row in rows) for n in range(5)]
    # a long name must not hide what became of it
    room = screen.width - sum(widths) + widths[1] + widths[4] - min(widths[4], LAST) - 10
    widths[1] = min(widths[1], max(room, NARROWEST))
    for row, step in zip(rows, steps, strict=True):
        state = Text(to_width(row[2], widths[2]), STYLES[shown_state(step, now)])
        place, name = row[0].rjust(widths[0] + 2), to_width(row[1], widths[1])
        line = Text("  ").join([Text(place), Text(name), state, Text(row[3]), Text(row[4])])
        line.rstrip()
        screen.print(line, no_wrap=True, overflow="ellipsis", crop=True)


def _tell_next(record: Record, steps: list[Record], state: str, now: float) -> None:
    doubts = [step for step in steps if state == "waiting" and step.state is State.IN_DOUBT]
    rows = [
        (f"settle {place(step)}", f"effectonce effect show {reference(step)}") for step in doubts
    ]
    rows += [
        (f"decide {what}", f"effectonce approve show {ref}") for what, ref in to_decide(steps, now)
    ]
    rows += run_steps(record, reference(record), now)
    print_next([(what, runnable(command)) for what, command in rows], "Nothing to do.")
