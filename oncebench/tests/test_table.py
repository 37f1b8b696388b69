"""The table, from the cells that were played."""

from __future__ import annotations

import json

from oncebench import table


def cell(subject, scenario, verdict, *, kind="library", configuration="best", **more):
    return {
        "subject": subject,
        "name": f"<{subject}>",
        "kind": kind,
        "version": f"{subject} 1.0",
        "configuration": configuration,
        "scenario": scenario,
        "temperament": "deaf",
        "verdict": verdict,
        "why": "wish 'pay': <why>",
        "seen": "3 of 3",
        "again": f"oncebench score --subject {subject} --only {scenario}/deaf",
        "history": ["counted: /pay o1"],
        "persons": 0,
        "faults": 1,
        "wishes": 1,
        "effects": 1,
        "seconds": 2.0,
        **more,
    }


CELLS = [
    cell("twice", "T04", "D", effects=2),
    cell("twice", "T43", "ok"),
    cell("sure", "T04", "ok", persons=1),
    cell("sure", "T43", "ok"),
    cell("sure", "T43", "N", configuration="as shipped", faults=0, wishes=0),
    cell("engine", "T04", "W", kind="engine", persons=1),
]
SAYS = {"command": "make prove", "date": "2026-11-18"}


def test_markdown_has_a_line_for_each_subject_the_best_first():
    shown = table.as_markdown(table.rows(CELLS), **SAYS).splitlines()

    assert shown[0].endswith("2026-11-18: `make prove`")
    assert [line for line in shown if " 1.0 |" in line] == [
        "| <sure> | sure 1.0 | 1 - | - | 2 ✓ | 500 |",
        "| <twice> | twice 1.0 |  |  | 1 ✓, 1 D | 0 |",
        "| <engine> | engine 1.0 |  |  | 1 W | 1000 |",
    ]


def test_what_few_offer_is_counted_apart():
    cells = [
        cell("sure", "T04", "ok"),
        cell("sure", "T33", "W"),
        cell("sure", "T35", "ok"),
        cell("sure", "T43", "ok", temperament="transaction"),
        cell("plain", "T04", "W", persons=1),
        cell("plain", "T33", "N"),
    ]
    shown = table.as_markdown(table.rows(cells), **SAYS).splitlines()

    assert [line for line in shown if " 1.0 |" in line] == [
        "| <sure> | sure 1.0 |  |  | 1 ✓ | 0 |",
        "| <plain> | plain 1.0 |  |  | 1 W | 1000 |",
    ]
    assert "| <sure> |  | 1 ✓, 1 W |  | 1 ✓ |" in shown
    assert not any(line.startswith("| <plain> |  |") for line in shown)


def test_persons_are_of_the_faults_that_all_subjects_are_played_with():
    shared = cell("sure", "T43", "ok", temperament="transaction", faults=9)
    killed = cell("sure", "T26", "ok", faults=6)

    (row,) = table.rows([cell("sure", "T04", "ok", persons=1), shared, killed])

    assert row.persons_per_1000 == 1000


def test_a_cell_that_was_played_again_is_shown_as_it_came_out_then():
    (row,) = table.rows([cell("sure", "T04", "D"), cell("sure", "T04", "ok")])

    assert row.count("D") == 0


def test_the_page_shows_each_wrong_cell_with_its_history_and_its_line():
    page = table.as_html(table.rows(CELLS), **SAYS)

    assert '<a class=D href="#twice-best-T04-deaf">D</a>' in page
    assert 'id="twice-best-T04-deaf"' in page
    assert "wish &#x27;pay&#x27;: &lt;why&gt;" in page
    assert "&lt;twice&gt;, best" in page
    assert "<script" not in page
    assert "oncebench score --subject twice --only T04/deaf" in page
    assert 'id="sure-best-T04-deaf"' not in page


def test_json_has_every_cell_and_what_they_come_to():
    found = json.loads(table.as_json(table.rows(CELLS), **SAYS))

    twice = next(subject for subject in found["subjects"] if subject["subject"] == "twice")
    assert (twice["effects_per_wish"], twice["seconds_per_cell"]) == (1.5, 2.0)
    assert sum(len(subject["cells"]) for subject in found["subjects"]) == len(CELLS)
