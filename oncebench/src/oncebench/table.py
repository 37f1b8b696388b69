"""The table: subjects by scenarios, as JSON, as Markdown, and as one page of HTML.

The page needs no JavaScript and nothing else from anywhere. Each cell that is not right opens its
history, and the line that plays it again.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from oncebench import __version__
from oncebench.scenarios import RARE, scenarios

SHOWN = {"ok": "✓", "D": "D", "F": "F", "L": "L", "W": "W", "N": "-", "U": "~"}
MEANS = {
    "ok": "right",
    "D": "duplicate: more effects than were wanted",
    "F": "false report: a caller was told what is not so",
    "L": "lost: it never happened, and no caller was told so, or told to look",
    "W": "wedged: a person is needed although the truth was to be had",
    "N": "not scored: it says that it does not do this, its adapter does not play it, or it does"
    " not run here",
    "U": "not the same each time it was played: neither a pass nor a fault, and in no figure",
}
CONFIGURATIONS = ("as shipped", "best")
PARTS = tuple(part for part, _ in RARE.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    subject: str
    name: str
    kind: str
    version: str
    configuration: str
    cells: dict[str, dict[str, Any]]

    def count(self, verdict: str) -> int:
        return sum(cell["verdict"] == verdict for cell in self.cells.values())

    @property
    def persons_per_1000(self) -> int | None:
        """Of the faults that are the same for all: T26 hits each subject at its own system calls.
        What was not played is in neither number.
        """
        played = [c for c in self.cells.values() if not rare_part(c) and c["scenario"] != "T26"]
        faults = sum(c["faults"] for c in played)
        persons = sum(min(c["persons"], c["faults"]) for c in played)
        return round(1000 * persons / faults) if faults else None

    @property
    def effects_per_wish(self) -> float | None:
        wishes = sum(c["wishes"] for c in self.cells.values())
        return sum(c["effects"] for c in self.cells.values()) / wishes if wishes else None

    @property
    def seconds(self) -> float | None:
        """From the first call of a cell to the last word about it, on average."""
        took = [c["seconds"] for c in self.cells.values() if c["wishes"]]
        return sum(took) / len(took) if took else None


def rare_part(cell: dict[str, Any]) -> str:
    """Which part of what few subjects offer; "": a cell that all could play. It is counted apart,
    so that who offers it can lose nothing by it beside who does not.
    """
    needs = (*scenarios()[cell["scenario"]].needs, cell["temperament"])
    return next((part for need, (part, _) in RARE.items() if need in needs), "")


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def rows(cells: Iterable[dict[str, Any]]) -> list[Row]:
    """One row for each subject and configuration. A later line of a cell replaces an earlier."""
    found: dict[tuple[str, str], dict[str, dict[str, Any]]] = defaultdict(dict)
    for cell in cells:
        name = f"{cell['scenario']}/{cell['temperament']}"
        found[cell["subject"], cell["configuration"]][name] = cell
    made = [
        Row(
            subject=subject,
            name=next(iter(played.values())).get("name") or subject,
            kind=next(iter(played.values())).get("kind", ""),
            version=next(iter(played.values())).get("version", ""),
            configuration=configuration,
            cells=played,
        )
        for (subject, configuration), played in found.items()
    ]
    order = {"library": 0, "engine": 1, "framework": 2, "control": 3}
    return sorted(made, key=lambda r: (order.get(r.kind, 4), _faulty(r), r.name, r.configuration))


def _faulty(row: Row) -> tuple[int, int, int]:
    common = [cell["verdict"] for cell in row.cells.values() if not rare_part(cell)]
    bad = sum(common.count(verdict) for verdict in "DFL")
    return (bad, common.count("W"), row.persons_per_1000 or 0)


HEAD = (
    *("subject", "version", "", "✓", "D", "F", "L", "W", "-", "~"),
    *("persons per 1,000 faults", "effects per wish", "seconds per cell"),
)


def _summary(row: Row) -> list[str]:
    counts = [str(row.count(verdict)) for verdict in SHOWN]
    figures = [_figure(row.effects_per_wish, 2), _figure(row.seconds, 1)]
    return [row.name, row.version, row.configuration, *counts, _persons(row), *figures]


def as_markdown(made: Sequence[Row], *, command: str, date: str) -> str:
    """A line for each subject. What became of each cell is on the page of HTML."""
    lines = [f"oncebench {__version__}, {date}: `{command}`"]
    for kind in dict.fromkeys(row.kind for row in made):
        subjects: dict[str, dict[str, Row]] = defaultdict(dict)
        for row in made:
            if row.kind == kind:
                subjects[row.name][row.configuration] = row
        head = (kind, "version", "as shipped", "persons", "best configured", "persons")
        lines += ["", _line(head), "|" + "---|" * len(head)]
        for name in sorted(subjects, key=lambda name: _rank(subjects[name])):
            of = subjects[name]
            shown = [text for c in CONFIGURATIONS for text in _brief(of.get(c))]
            lines.append(_line((name, next(iter(of.values())).version, *shown)))
    rare = ("what few offer", *(f"{what}, {c}" for what in PARTS for c in CONFIGURATIONS))
    lines += ["", _line(rare), "|" + "---|" * len(rare), *_rare(made)]
    lines += ["", *(f"- **{SHOWN[v]}** {meaning}" for v, meaning in MEANS.items())]
    return "\n".join([*lines, "- **persons** are needed for 1,000 faults"]) + "\n"


def _rare(made: Sequence[Row]) -> Iterator[str]:
    """A line for each subject that offers approvals, or transactions to share."""
    for name in dict.fromkeys(row.name for row in made):
        of = {row.configuration: row for row in made if row.name == name}
        shown = [_counts(of.get(c), what) for what in PARTS for c in CONFIGURATIONS]
        if any(shown):
            yield _line((name, *shown))


def _line(texts: Iterable[str]) -> str:
    return f"| {' | '.join(texts)} |"


def _rank(of: dict[str, Row]) -> list[tuple[int, int, int]]:
    """Subjects by their best configuration."""
    return [_faulty(of[c]) for c in reversed(CONFIGURATIONS) if c in of]


def _brief(row: Row | None) -> tuple[str, str]:
    """How often each verdict was given in what all could play: `12 ✓, 3 D`; and the persons."""
    return ("", "") if row is None else (_counts(row, ""), _persons(row))


def _counts(row: Row | None, rare: str) -> str:
    """How often each verdict was given in a rare part, or in what all could play."""
    counted = (
        {}
        if row is None
        else Counter(
            cell["verdict"]
            for cell in row.cells.values()
            if rare_part(cell) == rare and (not rare or cell["verdict"] != "N")
        )
    )
    return ", ".join(f"{counted[v]} {SHOWN[v]}" for v in SHOWN if v in counted)


def _persons(row: Row) -> str:
    return _figure(row.persons_per_1000, 0)


def _figure(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _columns(made: Sequence[Row]) -> list[str]:
    played = {name for row in made for name in row.cells}
    ordered = [f"{s.name}/{t}" for s in scenarios().values() for t in s.temperaments]
    return [name for name in ordered if name in played]


def as_json(made: Sequence[Row], *, command: str, date: str) -> str:
    return json.dumps(
        {
            "oncebench": __version__,
            "date": date,
            "command": command,
            "subjects": [
                {
                    "subject": row.subject,
                    "name": row.name,
                    "kind": row.kind,
                    "version": row.version,
                    "configuration": row.configuration,
                    "persons_per_1000_faults": row.persons_per_1000,
                    "effects_per_wish": row.effects_per_wish,
                    "seconds_per_cell": row.seconds,
                    "cells": row.cells,
                }
                for row in made
            ],
        },
        indent=1,
    )


# ---------------------------------------------------------------- one page

CONTEST = (
    "Play it with the line that it shows. If the adapter uses your library in another way than"
    " your README says, the adapter is wrong: send a better one."
    " An adapter is one short module; the docstring of <code>oncebench.kit</code> says what is in"
    " it."
)

STYLE = """
:root { color-scheme: light dark; --line: #ccd; --bad: #b3261e; --warn: #8a5a00; --ok: #1b6e3c }
@media (prefers-color-scheme: dark) {
  :root { --line: #445; --bad: #ff8a80; --warn: #ffcc66; --ok: #7ddc9f }
}
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem }
table { border-collapse: collapse; font-size: .9rem }
.wide { overflow-x: auto }
th, td { border: 1px solid var(--line); padding: .25rem .5rem; text-align: left }
td.n { text-align: right; font-variant-numeric: tabular-nums }
.D, .F, .L { color: var(--bad); font-weight: 700 }
.W { color: var(--warn); font-weight: 700 }
.ok { color: var(--ok) }
details { margin: .4rem 0; border: 1px solid var(--line); padding: .3rem .6rem }
pre { overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere; font-size: .85rem }
@media print { details { break-inside: avoid } body { margin: 0 } }
"""


def as_html(made: Sequence[Row], *, command: str, date: str) -> str:
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>oncebench: who lands an effect once</title><style>{STYLE}</style></head><body>",
        "<h1>Who lands an effect once</h1>",
        f"<p>oncebench {__version__}, {escape(date)}. Command: <code>{escape(command)}</code></p>",
        "<ul>",
        *(f"<li><b class={v}>{SHOWN[v]}</b> {escape(means)}</li>" for v, means in MEANS.items()),
        "</ul>",
        "<h2>Subjects</h2>",
        _html_table(HEAD, [_html_summary(row) for row in made]),
        "<h2>Every cell</h2>",
        _html_matrix(made),
        "<h2>What is not right, or not the same each time, and how to see it yourself</h2>",
        *(_html_details(row) for row in made),
        "<h2>Scenarios</h2>",
        *(
            f"<details id={s.name}><summary>{escape(s.name)}: {escape(s.title)}</summary>"
            f"<pre>{escape(s.text)}</pre></details>"
            for s in scenarios().values()
        ),
        "<h2>To contest a cell</h2>",
        f"<p>{CONTEST}</p>",
        "</body></html>",
    ]
    return "\n".join(parts)


def _html_summary(row: Row) -> str:
    first, *others = (escape(text) for text in _summary(row))
    cells = "".join(f'<td class="n">{text}</td>' for text in others[2:])
    return f'<tr><th scope="row">{first}</th><td>{others[0]}</td><td>{others[1]}</td>{cells}</tr>'


def _html_table(head: Sequence[str], body: Sequence[str]) -> str:
    cells = "".join(
        f'<th scope="col">{escape(text)}</th>' if text else "<td></td>" for text in head
    )
    return (
        '<div class="wide" tabindex="0" role="region" aria-label="table"><table><thead>'
        f"<tr>{cells}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def _html_matrix(made: Sequence[Row]) -> str:
    columns = _columns(made)
    body = []
    for row in made:
        cells = []
        for name in columns:
            verdict = row.cells[name]["verdict"] if name in row.cells else ""
            mark = SHOWN.get(verdict, "")
            if verdict not in {"", "ok"}:
                mark = f'<a class={verdict} href="#{_anchor(row, name)}">{mark}</a>'
            cells.append(f'<td class="{verdict}">{mark}</td>')
        body.append(
            f'<tr><th scope="row">{escape(row.name)}, {row.configuration}</th>{"".join(cells)}</tr>'
        )
    return _html_table(("subject", *columns), body)


def _anchor(row: Row, name: str) -> str:
    return f"{row.subject}-{row.configuration}-{name}".replace(" ", "-").replace("/", "-")


def _html_details(row: Row) -> str:
    shown = [c for c in row.cells.values() if c["verdict"] != "ok"]
    if not shown:
        return ""
    title = f"<h3>{escape(row.name)}, {row.configuration} ({escape(row.version)})</h3>"
    parts = []
    for cell in shown:
        name = f"{cell['scenario']}/{cell['temperament']}"
        parts.append(
            f'<details id="{_anchor(row, name)}"><summary><b class={cell["verdict"]}>'
            f"{SHOWN[cell['verdict']]}</b> {escape(name)}: {escape(cell['why'])}</summary>"
            f"<p>Seen {escape(cell['seen'])}. Again: <code>{escape(cell['again'])}</code></p>"
            f"<pre>{escape(chr(10).join(cell['history']))}</pre></details>"
        )
    return title + "".join(parts)
