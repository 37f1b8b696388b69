"""A file that says what became of effects in doubt: rows of a bank's statement, with verdicts.

Nothing is settled while it is read. A file that is not whole (no table, a torn row, another
encoding) is refused with its line. A row that names nothing, several effects, or one that is
settled already is a problem of that row, and the other rows stand.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from effectonce._core.keys import REFERENCE_LENGTH
from effectonce._core.pages import Refer
from effectonce._core.record import Record, State
from effectonce._core.strict_json import read_exactly
from effectonce.recovery.bulk import Act

if TYPE_CHECKING:
    from effectonce.recovery.operations import GuardOperations

KEY, EFFECT, RESULT, VERDICT = "key", "effect", "result", "verdict"
_OTHER_NAMES = {"reference": EFFECT, "effect_id": EFFECT}
_REFERENCE = "eff_"
_NO_RESULT = object()


class BadVerdictFile(ValueError):
    """The file cannot be read as a table. Nothing of it was used."""


class RowProblem(NamedTuple):
    """A row that settles nothing, and why."""

    line: int
    why: str


class VerdictRow(NamedTuple):
    """What one row says."""

    line: int
    named: str
    act: Act
    result: Any


class VerdictTable(NamedTuple):
    """A whole file."""

    column: str  # what its rows are named by: `key`, `effect`, or a searchable term
    rows: list[VerdictRow]
    problems: list[RowProblem]


def read_verdicts(
    data: bytes, *, act: Act = "confirm", column: str | None = None, result: Any = _NO_RESULT
) -> VerdictTable:
    """Read and check a whole file. *column* names its effects, *result* is for rows without one.

    Raises `BadVerdictFile`.
    """
    lines = _table(data)
    if not lines:
        raise BadVerdictFile("it has no line that names its columns")
    names = [_OTHER_NAMES.get(name, name) for name in map(_named, lines[0][1])]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise BadVerdictFile(f"two columns are called {twice[0]!r}")
    column = _column(names, None if column is None else _named(column))
    rows: list[VerdictRow] = []
    problems: list[RowProblem] = []
    for line, cells in lines[1:]:
        if len(cells) != len(names):
            raise BadVerdictFile(
                f"line {line} has {len(cells)} cells, and there are {len(names)} columns"
            )
        row = {name: cell.strip() for name, cell in zip(names, cells, strict=True)}
        try:
            rows.append(_row(line, row, column, act, result))
        except ValueError as error:
            problems.append(RowProblem(line, str(error)))
    return VerdictTable(column, rows, problems)


def _table(data: bytes) -> list[tuple[int, list[str]]]:
    """Its rows, each with the number of its first line. Empty lines are none."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise BadVerdictFile(f"line {line} is not UTF-8: save the file as CSV UTF-8") from None
    first = text.partition("\n")[0]
    mark = next((mark for mark in "\t;" if mark in first and "," not in first), ",")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=mark, strict=True)
    found, line = list[tuple[int, list[str]]](), 1
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                found.append((line, cells))
            line = reader.line_num + 1
    except csv.Error as error:
        raise BadVerdictFile(f"line {line} is no row of a table: {error}") from None
    return found


def _named(column: str) -> str:
    return column.strip().casefold().replace(" ", "_")


def _column(names: Sequence[str], asked: str | None) -> str:
    """What names the effects."""
    if asked is not None:
        if asked not in names:
            raise BadVerdictFile(f"it has no column {asked!r}. There are {', '.join(names)}")
        return asked
    known = [name for name in (KEY, EFFECT) if name in names]
    terms = [name for name in names if name not in (RESULT, VERDICT)]
    candidates = known or terms
    if len(candidates) != 1:
        raise BadVerdictFile(
            "it is not clear which column names the effects: call it key or effect, or say which"
            f" it is. There are {', '.join(names)}"
        )
    return candidates[0]


def _row(line: int, row: dict[str, str], column: str, act: Act, default: Any) -> VerdictRow:
    if not row[column]:
        raise ValueError(f"it has no {column}")
    said = row.get(VERDICT, "").casefold() or act
    if said not in get_args(Act):
        raise ValueError(f"{said!r} is no verdict: it is {', '.join(get_args(Act))}")
    verdict: Act = said  # type: ignore[assignment]
    if verdict != "confirm":
        return VerdictRow(line, row[column], verdict, None)
    if not row.get(RESULT):
        if default is _NO_RESULT:
            raise ValueError("it has no result, which every later call gets (null is one)")
        return VerdictRow(line, row[column], verdict, default)
    try:
        return VerdictRow(line, row[column], verdict, read_exactly(row[RESULT]))
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise ValueError(f'its result is no JSON: {error}. A text needs quotes: "done"') from None


# ---------------------------------------------------------------- which effects


def matched(
    guard: GuardOperations, table: VerdictTable, *, tenant: str | None = None
) -> tuple[list[tuple[VerdictRow, Record]], list[RowProblem]]:
    """The rows that name one effect in doubt, and why the others do not. Nothing is changed."""
    found: list[tuple[VerdictRow, Record]] = []
    problems = list(table.problems)
    for row in table.rows:
        records = _records(guard, table.column, row.named, tenant)
        why = _unfit(records)
        if why:
            problems.append(RowProblem(row.line, why))
        else:
            found.append((row, records[0]))
    counts = Counter(record.request.key for _, record in found)
    lines = {
        key: [row.line for row, record in found if record.request.key == key]
        for key, count in counts.items()
        if count > 1
    }
    for key, doubled in lines.items():
        said = ", ".join(map(str, doubled))
        problems += [RowProblem(n, f"lines {said} name the same effect") for n in doubled]
        found = [pair for pair in found if pair[1].request.key != key]
    return found, sorted(problems)


def _records(
    guard: GuardOperations, column: str, named: str, tenant: str | None
) -> Sequence[Record]:
    if column == KEY:
        record = guard.find(named)
        return _of(tenant, () if record is None else (record,))
    if column == EFFECT:
        digits = named.casefold().removeprefix(_REFERENCE)
        if len(digits) != REFERENCE_LENGTH:
            return ()
        return guard.store.apply(Refer(digits, tenant, 2))
    return guard.search(named, tenant=tenant, limit=2, exact=True)


def _of(tenant: str | None, records: Iterable[Record]) -> Sequence[Record]:
    return [record for record in records if tenant in (None, record.request.tenant)]


def _unfit(records: Sequence[Record]) -> str:
    """Why these are not one effect in doubt; "" if they are."""
    if not records:
        return "no effect is known by it"
    if len(records) > 1:
        return "several effects are known by it: name each by its key or reference"
    state = records[0].state
    return "" if state is State.IN_DOUBT else f"it is not in doubt: it is {state}"
