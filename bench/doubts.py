"""How many faults end with a person, and does any end with a duplicate, a lost effect or a false report?

    python bench/doubts.py [--quick] [--json] [--only NAME]...

22 faults (bugs before sending, refused connections, lost and broken answers, 4xx, 429, 5xx, bugs after the answer) meet a tool with one POST
in six contracts: two kinds, and a bank that gives no help, honours keys, or can be asked. A fault hits the first call of an effect. Then the
same call comes twice more without it, as an orchestrator retries, and the reconciler runs where there is a probe. The bank is another
process, and its ledger is the truth. A cell ends

- right: one effect, and the last call says that it happened; or none, and the last call says that the bank refused it,
- with a person: the last call cannot say what happened, or still fails though the fault is over,
- with a duplicate,
- lost: nothing happened, and the last call fails for good though the bank would do it,
- with a false report: a call said that it failed for good though it happened, or that it is done though it was not.

The exit code is 1 if ours had a duplicate, a lost effect or a false report.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import _doubts_ours
import _doubts_peers
from _doubts_bank import Bank, bank
from _doubts_cells import FAULTS, Verdict
from _paired import machine, options

QUICK = ("bug before", "closed after", "404", "not JSON")
QUICK_SUBJECTS = ("effectonce, protect and through", "effectonce async, protect and through")
DEADLINE_S = 600.0


@dataclass(frozen=True, slots=True)
class Row:
    """What became of all the cells of one subject."""

    subject: str
    faults: int
    right: int
    persons: int
    duplicates: int
    lost: int
    false: int

    @property
    def persons_per_1000(self) -> int:
        return round(1000 * self.persons / self.faults)


def counted(subject: str, cells: Iterable[Mapping[str, Any]]) -> Row:
    ends = Counter(Verdict(cell["verdict"]) for cell in cells)
    return Row(
        subject=subject,
        faults=ends.total(),
        right=ends[Verdict.RIGHT],
        persons=ends[Verdict.PERSON],
        duplicates=ends[Verdict.DUPLICATE],
        lost=ends[Verdict.LOST],
        false=ends[Verdict.FALSE],
    )


def cells_of(subject: str, bank: Bank, faults: Iterable[str]) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, Path(__file__).with_name("_doubts_run.py"), subject, str(bank.port), folder, *faults]
        try:
            run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            raise SystemExit(f"{subject} did not come to an end within {DEADLINE_S:g} s") from None
    if run.returncode != 0:
        raise SystemExit(f"{subject}: {run.stderr}")
    cells: list[dict[str, Any]] = json.loads(run.stdout.splitlines()[-1])
    return cells


def chosen_subjects(only: list[str] | None, *, quick: bool) -> list[str]:
    """The subjects whose names contain one of *only*. Without it: all that are installed."""
    everything = [*_doubts_ours.SUBJECTS, *(name for name in _doubts_peers.SUBJECTS if peer_of(name) not in missing())]
    if only is None:
        return list(QUICK_SUBJECTS) if quick else everything
    chosen = [subject for subject in everything if any(part in subject for part in only)]
    if not chosen:
        absent = f". Not installed: {', '.join(missing())}" if missing() else ""
        raise SystemExit(f"no subject has {' or '.join(map(repr, only))} in its name: {'; '.join(everything)}{absent}")
    return chosen


def ours_failed(rows: Iterable[Row]) -> bool:
    """Did ours do what it never may? What peers do is shown, and is no failure."""
    return any(row.duplicates or row.lost or row.false for row in rows if row.subject in _doubts_ours.SUBJECTS)


def peer_of(subject: str) -> str:
    return subject.partition(",")[0]


def missing() -> list[str]:
    return [peer for peer, module in _doubts_peers.MODULES.items() if importlib.util.find_spec(module) is None]


def notes_about(subjects: Iterable[str]) -> dict[str, str]:
    """The machine, and what is to be known about the peers among *subjects*."""
    peers = [peer for peer in _doubts_peers.NOTES if peer in map(peer_of, subjects)]
    about = machine() | {f"{peer} {version(peer)}": _doubts_peers.NOTES[peer] for peer in peers}
    return about | ({"left out, not installed": ", ".join(missing())} if missing() else {})


def show(rows: list[Row], notes: Mapping[str, str]) -> None:
    wide = max(len(row.subject) for row in rows)
    print(f"{'':<{wide}}  faults  right  persons per 1,000  duplicates  lost  false")
    for row in rows:
        print(
            f"{row.subject:<{wide}}  {row.faults:>6}  {row.right:>5}  {row.persons_per_1000:>17}  {row.duplicates:>10}  "
            f"{row.lost:>4}  {row.false:>5}"
        )
    print()
    for name, value in notes.items():
        print(f"{name}: {value}")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", action="append", metavar="NAME", help="subjects with NAME in their name; may be repeated")


def main() -> int:
    chosen = options(__doc__, more=arguments)
    faults = QUICK if chosen.quick else FAULTS
    cells: dict[str, list[dict[str, Any]]] = {}
    for subject in chosen_subjects(chosen.only, quick=chosen.quick):
        with bank() as other_process:
            cells[subject] = cells_of(subject, other_process, faults)
    rows = [counted(subject, ends) for subject, ends in cells.items()]
    notes = notes_about(cells)
    if chosen.json:
        figures = [asdict(row) | {"persons_per_1000": row.persons_per_1000, "cells": cells[row.subject]} for row in rows]
        print(json.dumps({"notes": notes, "rows": figures}, indent=1))
    else:
        show(rows, notes)
    return 1 if ours_failed(rows) else 0


if __name__ == "__main__":
    sys.exit(main())
