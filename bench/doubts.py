"""How many faults end with a person, and does any end with a duplicate, a lost effect or a false
report?

    python bench/doubts.py [--quick] [--json] [--only NAME]... [--section NAME]...

22 faults (bugs before sending, refused connections, lost and broken answers, 4xx, 429, 5xx, bugs
after the answer) meet a tool with one POST in six contracts: two kinds, and a bank that gives no
help, honours keys, or can be asked. A fault hits the first call of an effect. Then the same call
comes twice more without it, as an orchestrator retries, and the reconciler runs where there is a
probe. The bank is another process, and its ledger is the truth. A cell ends

- right: one effect, and the last call says that it happened; or none, and the last call says
  that the bank refused it,
- with a person: the last call cannot say what happened, or still fails though the fault is over,
- with a duplicate,
- lost: nothing happened, and the last call fails for good though the bank would do it,
- with a false report: a call said that it failed for good though it happened, or that it is done
  though it was not.

Further sections have tables of their own, so that the first one stays comparable: processes that
are killed at five points, other clients than httpx, the tool as a step of a workflow, the faults
of a tool server behind `effectonce mcp`, and tools that name their provider (packs). *Floor* is
what nothing but a person can settle: the request left, no answer to it is known any more, and the
bank cannot say what became of it.

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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import _doubts_killed
import _doubts_mcp
import _doubts_more
import _doubts_ours
import _doubts_packs
import _doubts_peers
from _doubts_bank import KILLED_AFTER, Bank, bank
from _doubts_cells import FAULTS, KILLED_EARLY, Verdict
from _paired import machine, options

QUICK = ("bug before", "closed after", "404", "not JSON")
QUICK_SUBJECTS = ("effectonce, protect and through", "effectonce async, protect and through")
DEADLINE_S = 600.0


@dataclass(frozen=True, slots=True)
class Section:
    """Some subjects under some faults. Their cells are run by a script of its own."""

    name: str
    script: str
    subjects: tuple[str, ...]
    faults: tuple[str, ...]
    quick_subjects: tuple[str, ...]
    quick_faults: tuple[str, ...]
    total: bool = False  # its table ends with the sum of its subjects


WIRE = Section(
    "faults on the wire, and bugs",
    "_doubts_run.py",
    (*_doubts_ours.SUBJECTS, *_doubts_peers.SUBJECTS),
    FAULTS,
    QUICK_SUBJECTS,
    QUICK,
)
MORE = (
    Section(
        "killed processes",
        "_doubts_killed.py",
        tuple(_doubts_killed.OURS),
        _doubts_killed.POINTS,
        tuple(_doubts_killed.OURS)[1:],
        (KILLED_EARLY, KILLED_AFTER),
    ),
    Section(
        "other clients",
        "_doubts_run.py",
        _doubts_more.CLIENTS,
        FAULTS,
        _doubts_more.CLIENTS[1:],
        QUICK,
    ),
    Section(
        "a step of a workflow",
        "_doubts_run.py",
        _doubts_more.WORKFLOWS,
        FAULTS,
        _doubts_more.WORKFLOWS,
        QUICK,
    ),
    Section(
        "a tool server behind MCP",
        "_doubts_mcp.py",
        _doubts_mcp.SUBJECTS,
        _doubts_mcp.FAULTS,
        (),
        (),
    ),
    Section(
        "packs: it honours keys",
        "_doubts_packs.py",
        _doubts_packs.KEYED,
        FAULTS,
        (),
        _doubts_packs.QUICK,
        total=True,
    ),
    Section(
        "packs: it can be asked",
        "_doubts_packs.py",
        _doubts_packs.CAN_BE_ASKED,
        FAULTS,
        (),
        _doubts_packs.QUICK,
        total=True,
    ),
    Section(
        "packs: not found is proof",
        "_doubts_packs.py",
        _doubts_packs.PROVING,
        FAULTS,
        (),
        _doubts_packs.QUICK,
        total=True,
    ),
)
SECTIONS = (WIRE, *MORE)


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
    floor: int

    @property
    def persons_per_1000(self) -> int:
        return round(1000 * self.persons / self.faults)

    @property
    def floor_per_1000(self) -> int:
        return round(1000 * self.floor / self.faults)


def counted(subject: str, cells: Sequence[Mapping[str, Any]]) -> Row:
    ends = Counter(Verdict(cell["verdict"]) for cell in cells)
    return Row(
        subject=subject,
        faults=ends.total(),
        right=ends[Verdict.RIGHT],
        persons=ends[Verdict.PERSON],
        duplicates=ends[Verdict.DUPLICATE],
        lost=ends[Verdict.LOST],
        false=ends[Verdict.FALSE],
        floor=sum(cell["floor"] for cell in cells),
    )


def cells_of(script: str, subject: str, bank: Bank, faults: Iterable[str]) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            Path(__file__).with_name(script),
            subject,
            str(bank.port),
            folder,
            *faults,
        ]
        try:
            run = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=DEADLINE_S
            )
        except subprocess.TimeoutExpired:
            raise SystemExit(f"{subject} did not come to an end within {DEADLINE_S:g} s") from None
    if run.returncode != 0:
        raise SystemExit(f"{subject}: {run.stderr}")
    cells: list[dict[str, Any]] = json.loads(run.stdout.splitlines()[-1])
    return cells


def chosen_subjects(section: Section, only: list[str] | None, *, quick: bool) -> list[str]:
    """The subjects whose names contain one of *only*. Without it: all that are installed."""
    everything = [name for name in section.subjects if peer_of(name) not in missing()]
    if only is None:
        return list(section.quick_subjects) if quick else everything
    return [subject for subject in everything if any(part in subject for part in only)]


def chosen(
    only: list[str] | None, sections: list[str] | None, *, quick: bool
) -> dict[Section, list[str]]:
    """What is to be run: the subjects of each section."""
    asked = [
        each for each in SECTIONS if sections is None or any(part in each.name for part in sections)
    ]
    if not asked:
        raise SystemExit(
            f"no section has {_or(sections)} in its name:"
            f" {'; '.join(each.name for each in SECTIONS)}"
        )
    found = {section: chosen_subjects(section, only, quick=quick) for section in asked}
    if not any(found.values()):
        absent = f". Not installed: {', '.join(missing())}" if missing() else ""
        everything = dict.fromkeys(
            name for section in asked for name in chosen_subjects(section, None, quick=False)
        )
        raise SystemExit(f"no subject has {_or(only)} in its name: {'; '.join(everything)}{absent}")
    return {section: subjects for section, subjects in found.items() if subjects}


def _or(names: list[str] | None) -> str:
    return " or ".join(map(repr, names or ()))


def ours_failed(rows: Iterable[Row]) -> bool:
    """Did ours do what it never may? What peers do is shown, and is no failure."""
    return any(
        row.duplicates or row.lost or row.false
        for row in rows
        if row.subject.startswith("effectonce")
    )


def peer_of(subject: str) -> str:
    return subject.partition(",")[0]


def missing() -> list[str]:
    return [
        peer
        for peer, module in _doubts_peers.MODULES.items()
        if importlib.util.find_spec(module) is None
    ]


def notes_about(subjects: Iterable[str]) -> dict[str, str]:
    """The machine, and what is to be known about the peers among *subjects*."""
    peers = [peer for peer in _doubts_peers.NOTES if peer in map(peer_of, subjects)]
    about = machine() | {f"{peer} {version(peer)}": _doubts_peers.NOTES[peer] for peer in peers}
    return about | ({"left out, not installed": ", ".join(missing())} if missing() else {})


def summed(rows: Sequence[Row]) -> Row:
    counts = [name for name in Row.__slots__ if name != "subject"]
    sums = {name: sum(getattr(row, name) for row in rows) for name in counts}
    return Row(subject=f"all {len(rows)}", **sums)


def show(name: str, rows: list[Row], *, total: bool) -> None:
    wide = max(len(name), *(len(row.subject) for row in rows))
    print(f"{name:<{wide}}  faults  right  persons per 1,000  floor  duplicates  lost  false")
    for row in [*rows, summed(rows)] if total else rows:
        print(
            f"{row.subject:<{wide}}  {row.faults:>6}  {row.right:>5}  {row.persons_per_1000:>17} "
            f" {row.floor_per_1000:>5}  {row.duplicates:>10}  {row.lost:>4}  {row.false:>5}"
        )
    print()


def figures(row: Row, cells: list[dict[str, Any]]) -> dict[str, Any]:
    return asdict(row) | {
        "persons_per_1000": row.persons_per_1000,
        "floor_per_1000": row.floor_per_1000,
        "cells": cells,
    }


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        help="subjects with NAME in their name; may be repeated",
    )
    parser.add_argument(
        "--section",
        action="append",
        metavar="NAME",
        help="sections with NAME in their name; may be repeated",
    )


def main() -> int:
    asked = options(__doc__, more=arguments)
    rows: dict[str, list[Row]] = {}
    figured: dict[str, list[dict[str, Any]]] = {}
    subjects: list[str] = []
    for section, names in chosen(asked.only, asked.section, quick=asked.quick).items():
        rows[section.name], figured[section.name] = [], []
        for subject in names:
            with bank() as other_process:
                cells = cells_of(
                    section.script,
                    subject,
                    other_process,
                    section.quick_faults if asked.quick else section.faults,
                )
            row = counted(subject, cells)
            rows[section.name].append(row)
            figured[section.name].append(figures(row, cells))
        subjects += names
        if not asked.json:
            show(section.name, rows[section.name], total=section.total)
    if asked.json:
        first = figured.pop(WIRE.name, [])
        print(
            json.dumps(
                {"notes": notes_about(subjects), "rows": first, "sections": figured}, indent=1
            )
        )
    else:
        for name, value in notes_about(subjects).items():
            print(f"{name}: {value}")
    return 1 if ours_failed(row for each in rows.values() for row in each) else 0


if __name__ == "__main__":
    sys.exit(main())
