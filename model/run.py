"""Check the model: the protocol must hold, and every sabotage of it must be found.

    python model/run.py            all cases at full bounds, then Spin if it is there (minutes)
    python model/run.py --quick    smaller bounds, no Spin (a few seconds)
    python model/run.py --spin     Spin only
    python model/run.py --traces   also print the shortest way to each violation
    python model/run.py --json     one object for each line, for machines

Exits with 1 if anything is not as expected, or if nothing was checked.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass

import spending
import spin
from cases import BAD, GOOD, QUICK
from explore import Report, explore

WIDTHS = (58, 11, 12, 6, 8)


@dataclass(frozen=True)
class Line:
    """One row of the table."""

    name: str
    states: int
    transitions: int
    stuck: int | None  # None: not asked
    seconds: float
    result: str
    as_expected: bool
    trace: tuple[str, ...] = ()


def main() -> int:
    options = _options()
    lines = []
    if not options.json:
        print(_row("case", "states", "transitions", "stuck", "seconds", "result"))
    for line in _lines(options):
        lines.append(line)
        print(
            json.dumps(asdict(line)) if options.json else _text(line, traces=options.traces),
            flush=True,
        )
    failed = [line.name for line in lines if not line.as_expected]
    if not options.json:
        print(
            f"{len(lines) - len(failed)} of {len(lines)} as expected"
            + "".join(f"\nNOT AS EXPECTED: {name}" for name in failed)
        )
    return 1 if failed or not lines else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="smaller bounds, no Spin")
    parser.add_argument("--spin", action="store_true", help="Spin only")
    parser.add_argument(
        "--traces", action="store_true", help="print the shortest way to each violation"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object for each line")
    return parser.parse_args()


def _lines(options: argparse.Namespace) -> Iterator[Line]:
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        if not options.spin:
            yield from map(
                _explored, pool.map(explore, (*(QUICK if options.quick else GOOD), *BAD))
            )
            spends = spending.QUICK if options.quick else spending.GOOD
            yield from map(_spent, pool.map(spending.explore, (*spends, *spending.BAD)))
        if options.quick and not options.spin:
            return
        if spin.available():
            yield from map(_checked, pool.map(spin.check, spin.MODELS))
        else:
            print(spin.INSTALL, file=sys.stderr)


def _explored(report: Report) -> Line:
    expected = report.case.expect
    if expected in report.violations:
        result, trace = (
            f"found in {len(report.violations[expected])} steps: {expected}",
            report.violations[expected],
        )
    elif report.violations:
        flaw, trace = next(iter(report.violations.items()))
        result = f"VIOLATED in {len(trace)} steps: {flaw}"
    else:
        result, trace = "NOT FOUND" if expected else "STUCK" if report.stuck else "holds", []
    figures = (report.states, report.transitions, report.stuck, round(report.seconds, 1))
    return Line(report.case.name, *figures, result, report.as_expected, tuple(trace))


def _spent(report: spending.Explored) -> Line:
    """Of what its end shows, nothing can be stuck: there, what is left is spent."""
    expected, result = report.case.expect, "holds"
    if report.flaw:
        found = "found" if report.as_expected else "VIOLATED"
        result = f"{found} in {len(report.trace)} steps: {report.flaw}"
    elif expected:
        result = "NOT FOUND"
    figures = (report.states, report.transitions, None, round(report.seconds, 1))
    return Line(report.case.name, *figures, result, report.as_expected, report.trace)


def _checked(checked: spin.Checked) -> Line:
    expected = checked.model.holds
    result = {
        (True, True): "holds",
        (False, False): "found",
        (True, False): "NOT FOUND",
        (False, True): "VIOLATED",
    }
    figures = (checked.states, checked.transitions, None, round(checked.seconds, 1))
    return Line(
        checked.model.name, *figures, result[checked.holds, expected], checked.holds == expected
    )


def _text(line: Line, *, traces: bool) -> str:
    figures = (
        f"{line.states:,}",
        f"{line.transitions:,}",
        "-" if line.stuck is None else f"{line.stuck}",
        f"{line.seconds:.1f}",
    )
    shown = line.trace if traces or not line.as_expected else ()
    steps = (f"{number:>8}. {step}" for number, step in enumerate(shown, 1))
    return "\n".join((_row(line.name, *figures, line.result), *steps))


def _row(name: str, *cells: str) -> str:
    *figures, result = cells
    return (
        f"{name:<{WIDTHS[0]}}"
        + "".join(f"{cell:>{width}}" for cell, width in zip(figures, WIDTHS[1:], strict=True))
        + f"  {result}"
    )


if __name__ == "__main__":
    sys.exit(main())
