"""What must come out as known. If one control does not, the kit is wrong, and the run is void."""

from __future__ import annotations

from oncebench.scenarios import scenarios
from oncebench.score import Cell, play
from oncebench.stage import Subject

EXPECTED = {
    "control_naive": {"T04/deaf": "D", "T43/keys": "D", "T18/deaf": "D", "T05/deaf": "ok"},
    "control_never_again": {"T04/keys": "W", "T05/deaf": "W", "T04/deaf": "ok"},
    "control_oracle": {"T04/deaf": "ok", "T09/deaf": "ok", "T43/asks": "ok", "T06/deaf": "ok"},
}


class Void(Exception):
    """A control came out wrong."""


def check_controls(python: str) -> list[Cell]:
    """Play the controls, each in what shows it best."""
    cells = []
    for adapter, expected in EXPECTED.items():
        for name, verdict in expected.items():
            scenario, temperament = name.split("/")
            cell = play(
                Subject(adapter=adapter, python=python),
                scenarios()[scenario],
                temperament,  # type: ignore[arg-type]
                confirm=1,
            )
            if cell.verdict != verdict:
                raise Void(
                    f"the run is void: {adapter} must be {verdict} in {name}, and is"
                    f" {cell.verdict} ({cell.why})"
                )
            cells.append(cell)
    return cells
