"""`oncebench score`: several subjects at a time, and a run that goes on where it stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

NAIVE = ("--subject", "control_naive")
NEVER = ("--subject", "control_never_again")


@pytest.fixture
def score(tmp_path):
    command = [sys.executable, "-m", "oncebench", "score", "--no-controls", "--confirm", "1"]
    command += ["--python", sys.executable, "--into", str(tmp_path / "cells")]

    def start(*arguments):
        return subprocess.Popen(
            [*command, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            preexec_fn=listening,  # noqa: PLW1509
        )

    def listening():  # a shell's background job ignores it, and so do its children
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    return start


@pytest.fixture
def cells(tmp_path):
    def read():
        found = [json.loads(line) for line in (tmp_path / "cells").read_text().splitlines()]
        return [(c["subject"], f"{c['scenario']}/{c['temperament']}", c["verdict"]) for c in found]

    return read


def ended(process):
    out, err = process.communicate(timeout=300)
    return process.returncode, out.splitlines(), err


def test_subjects_play_at_the_same_time_and_each_line_says_whose_it_is(score, cells):
    code, lines, _ = ended(score(*NAIVE, *NEVER, "--only", "T05/deaf", "--jobs", "2"))

    assert code == 1
    assert sorted(line.split()[0] for line in lines[:2]) == ["control_naive", "control_never_again"]
    assert all(" begins " in line for line in lines[:2]), "the second waited for the first"
    assert all(line.startswith(("control_naive ", "control_never_again ")) for line in lines)
    assert sorted(cells()) == [
        ("control_naive", "T05/deaf", "ok"),
        ("control_never_again", "T05/deaf", "W"),
    ]


def test_what_the_file_has_is_not_played_again_and_still_counts(score, cells):
    ended(score(*NAIVE, "--only", "T04/deaf"))

    code, lines, _ = ended(score(*NAIVE, "--only", "T04/deaf", "--only", "T42"))

    assert code == 1
    assert any("1 of 2 cells are kept from before" in line for line in lines)
    assert [cell for _, cell, _ in cells()] == ["T04/deaf", "T42/deaf"]
    ended(score(*NAIVE, "--only", "T42", "--again"))
    assert [cell for _, cell, _ in cells()] == ["T04/deaf", "T42/deaf", "T42/deaf"]


@pytest.mark.long  # what the file has is not played again: the test above
def test_a_run_that_is_stopped_goes_on(score, cells):
    played = [f"{name}/deaf" for name in ("T04", "T05", "T33", "T34", "T36", "T42")]
    only = [word for name in played for word in ("--only", name)]
    first = score(*NAIVE, *only)
    next(line for line in first.stdout if "T04/deaf" in line)  # each of the others takes a second
    first.send_signal(signal.SIGINT)
    code, _, err = ended(first)
    before = cells()

    code_then, _, _ = ended(score(*NAIVE, *only))

    assert (code, code_then) == (130, 1), err
    assert "goes on here" in err
    assert 1 <= len(before) < len(played)
    assert cells()[: len(before)] == before
    assert [cell for _, cell, _ in cells()] == played


def test_a_subject_of_another_version_is_played(score, cells, tmp_path):
    ended(score(*NAIVE, "--only", "T42"))
    line = json.loads((tmp_path / "cells").read_text())
    (tmp_path / "cells").write_text(json.dumps({**line, "version": "naive 0.9"}) + "\n")

    ended(score(*NAIVE, "--only", "T42"))

    assert len(cells()) == 2
