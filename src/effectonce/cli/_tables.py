"""The tables as pages: `effectonce classify --tables` and `--gate`, and the reference."""

from __future__ import annotations

from collections.abc import Iterator

from effectonce import Bucket, Certainty
from effectonce._core.classification.tables import TABLES, VERSION
from effectonce._core.classification.tables._row import WHY, Table, TableRow
from effectonce._core.classification.verdicts import RETRYABLE, SCOPES, Scope
from effectonce._core.decisions import GATE, DecisionRow

CERTAINTY = {
    Certainty.NOT_SENT: "nothing left this process",
    Certainty.REJECTED: "it was answered: it was not done",
    Certainty.AMBIGUOUS: "it may or may not have happened",
    Certainty.ACTED: "it was done; what came back is no use",
}


def markdown() -> str:
    """All tables, in the order in which they are asked."""
    tables = (line for table in TABLES for line in _table(table))
    return "\n".join([f"Tables of {VERSION}.", "", *_buckets(), "", *tables])


def gate_markdown() -> str:
    """The gate, row by row: the first that fits decides."""
    lines = ["| | error | effect | the call | then | because |", "|---|---|---|---|---|---|"]
    for number, row in enumerate(GATE, 1):
        buckets = "any"
        if row.buckets is not None:
            buckets = ", ".join(f"`{bucket}`" for bucket in Bucket if bucket in row.buckets)
        worth = _condition(row.worthwhile, "worth another attempt")
        error = "; ".join([buckets, *worth, *_condition(row.delay, "a delay is named")])
        effect = {None: "", True: "certainly none", False: "perhaps"}[row.certain]
        then = f"**{row.action.replace('_', ' ')}**"
        lines.append(f"| {number} | {error} | {effect} | {_call(row)} | {then} | {row.why} |")
    return "\n".join(lines)


def _condition(fact: bool | None, words: str) -> list[str]:  # noqa: FBT001  # a cell of the table
    return [] if fact is None else [words if fact else f"not {words}"]


def _call(row: DecisionRow) -> str:
    repeatable = {None: "", True: "may be repeated", False: "must not be repeated"}[row.repeatable]
    probe = {None: "", True: "has a probe", False: "has no probe"}[row.probe]
    return ", ".join(part for part in (repeatable, probe) if part)


def _buckets() -> Iterator[str]:
    yield "| bucket | what happened | tried again | who is affected |"
    yield "|---|---|---|---|"
    for bucket in Bucket:
        again = "yes" if bucket in RETRYABLE else "no"
        what = WHY.get(bucket, "not known what it means")
        yield f"| `{bucket}` | {what} | {again} | {SCOPES.get(bucket, Scope.REQUEST)} |"


def _table(table: Table) -> Iterator[str]:
    yield f"### {table.name}"
    yield ""
    yield f"Checked against {table.checked}."
    yield ""
    yield "| signal | | bucket | certainty | |"
    yield "|---|---|---|---|---|"
    for row in table.rows:
        verdict = f"`{row.verdict.bucket}` | {row.verdict.certainty}"
        yield f"| {row.signal} | {_names(row)} | {verdict} | {_notes(row)} |"
    yield ""


def _names(row: TableRow) -> str:
    return ", ".join(f"“{name}”" if row.signal == "text" else f"`{name}`" for name in row.names)


def _notes(row: TableRow) -> str:
    verdict = row.verdict
    notes = [verdict.why] if verdict.why != WHY[verdict.bucket] else []
    if verdict.retry is not None:
        notes.append("tried again" if verdict.retry else "not tried again")
    if verdict.scope is not SCOPES.get(verdict.bucket, Scope.REQUEST):
        notes.append(f"affects the {verdict.scope}")
    if verdict.retry_after_s is not None:
        notes.append(f"after {verdict.retry_after_s:g} s")
    if row.settled:
        notes.append("whatever the message says")
    if row.weak and row.signal == "text":
        notes.append("if no delay is named")
    elif row.weak:
        notes.append("unless something better is known")
    return "; ".join(notes)
