"""What must come out as known. If one control does not, the kit is wrong, and the run is void."""

from __future__ import annotations

from oncebench.scenarios import scenarios
from oncebench.score import Cell, play
from oncebench.stage import Subject

EXPECTED = {
    "control_naive": {
        "T04/deaf": "D",
        "T43/keys": "D",
        "T18/deaf": "D",
        "T34/deaf": "D",
        "T05/deaf": "ok",
    },
    "control_never_again": {"T04/keys": "W", "T05/deaf": "W", "T04/deaf": "ok"},
    "control_oracle": {"T04/deaf": "ok", "T09/deaf": "ok", "T43/asks": "ok", "T33/deaf": "ok"},
}


BUGS = {
    "the claim is not atomic": ("T18/deaf", "D"),
    "the lease is ignored": ("T14/deaf", "D"),
    "what may have been sent is sent again": ("T43/deaf", "D"),
    "any error is taken for a no": ("T04/deaf", "D"),
    "the record is forgotten when it is done": ("T37/deaf", "D"),
    "the result is not kept": ("T37/deaf", "F"),
    "it is noted before it is done": ("T09/keys", "F"),
    "a claim is never released": ("T05/deaf", "W"),
}


class Void(Exception):
    """A control came out wrong."""


def check_controls(python: str) -> list[Cell]:
    """Play the controls, each in what shows it best."""
    plays = [
        (Subject(adapter=adapter, python=python), name, verdict)
        for adapter, expected in EXPECTED.items()
        for name, verdict in expected.items()
    ]
    plays += [
        (Subject(adapter="control_broken_store", python=python, bug=bug), name, verdict)
        for bug, (name, verdict) in BUGS.items()
    ]
    return [_checked(subject, name, verdict) for subject, name, verdict in plays]


def _checked(subject: Subject, name: str, verdict: str) -> Cell:
    scenario, temperament = name.split("/")
    cell = play(subject, scenarios()[scenario], temperament, confirm=1)  # type: ignore[arg-type]
    if cell.verdict != verdict:
        which = f"{subject.adapter} ({subject.bug})" if subject.bug else subject.adapter
        raise Void(
            f"the run is void: {which} must be {verdict} in {name}, and is"
            f" {cell.verdict} ({cell.why})"
        )
    return cell
