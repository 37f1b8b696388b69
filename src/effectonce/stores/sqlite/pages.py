"""What lists and pages ask of a SQLite file. Each answer to a page looks at a bounded number of
rows.

Theory of operation. An index by age would cost every call. There is an order by age already,
that of the rows themselves: they are written as they come, and keep their place. Rows in a state
that an ordinary call never has, or leaves, stand in indexes of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from math import inf
from typing import Any

from effectonce._core.keys import REFERENCE_LENGTH
from effectonce._core.ops import Browse, Search, Tally
from effectonce._core.pages import (
    Beside,
    Count,
    Counts,
    Paging,
    Recent,
    Recently,
    Refer,
    newest_first,
)
from effectonce._core.record import Record, State
from effectonce.stores import _rows
from effectonce.stores.sqlite.connection import SqliteConnection
from effectonce.stores.sqlite.statements import (
    BROWSE,
    BROWSE_OF,
    OPEN,
    RARE,
    RARELY,
    READ,
    SEARCH,
    SEARCH_REFERENCE,
    TALLY,
)

_ALL = 2**63 - 1
_INDEXED = {
    state: f"INDEXED BY effects_rare WHERE {RARE} AND state = '{state}'" for state in sorted(RARELY)
}
_INDEXED[State.DISPATCHED] = f"INDEXED BY effects_open WHERE {OPEN} AND state = 'dispatched'"
# In one statement, so that the numbers are of one moment. The last two: how many there are of
# all, and how many of the newest are completed.
COUNT = f"""
SELECT {", ".join(f"(SELECT count(*) FROM (SELECT 1 FROM effects {rows} LIMIT ?1))" for rows in _INDEXED.values())},
       (SELECT count(*) FROM (SELECT 1 FROM effects LIMIT ?2)),
       (SELECT count(*) FROM (SELECT state FROM effects ORDER BY rowid DESC LIMIT ?3) WHERE state = 'completed')
"""
_WANTED = "tool, tenant, scope, created_at"
_FITS = (
    "(?1 IS NULL OR tool = ?1) AND (?2 IS NULL OR tenant = ?2) AND (?3 IS NULL OR scope = ?3) AND"
    " created_at >= ?4"
)
_NEXT: dict[State | None, str] = {
    state: (
        f"""
SELECT key, {_FITS} FROM (
SELECT key, {_WANTED} FROM effects {rows} AND (created_at, key) < (?5, ?6) ORDER BY created_at DESC, key DESC LIMIT ?7)
"""
    )
    for state, rows in _INDEXED.items()
}
# Those on their way are few, and in no order: as many as are looked at are put into one.
_NEXT[State.DISPATCHED] = f"""
SELECT key, {_FITS} FROM (
SELECT key, {_WANTED} FROM effects {_INDEXED[State.DISPATCHED]} AND (created_at, key) < (?5, ?6) LIMIT ?7)
 ORDER BY created_at DESC, key DESC
"""
WALK = (
    f"SELECT key, {_FITS} AND (?5 IS NULL OR state = ?5) FROM effects WHERE rowid < ?6 ORDER BY"
    " rowid DESC LIMIT ?7"
)
ROW = "SELECT rowid FROM effects WHERE key = ?"
NAMED = f"""
SELECT key FROM effects INDEXED BY effects_named
 WHERE {RARE} AND substr(key, -{REFERENCE_LENGTH}) >= ?1 AND substr(key, -{REFERENCE_LENGTH}) < ?1 || '~' AND (?2 IS NULL OR tenant = ?2)
 LIMIT ?3
"""
NEWEST = f"""
SELECT key FROM (SELECT key, tenant FROM effects ORDER BY rowid DESC LIMIT ?4)
 WHERE substr(substr(key, -{REFERENCE_LENGTH}), 1, length(?1)) = ?1 AND (?2 IS NULL OR tenant = ?2)
 LIMIT ?3
"""
# Nothing but keys is read: they are in an index of their own. Where in a key the reference
# stands is cheaper to ask here than in SQL.
AMONG_KEYS = "SELECT key FROM effects WHERE key >= ? AND key < ? AND instr(key, ?)"
BESIDE = READ.replace("key = ?", "key >= ? AND key < ? LIMIT ?")


def answer(connection: SqliteConnection, op: Browse | Search | Tally | Paging) -> Any:
    """What people ask. The first three may look at every row; nothing else does."""
    match op:
        case Browse(state, tenant, after, limit):
            listed = BROWSE if tenant is None else BROWSE_OF
            return tuple(connection.records(listed[state], state, tenant, *after, limit))
        case Search(reference, tool, wanted, whose, scope, since, before, limit):
            sql, ending = (SEARCH, ()) if reference == "" else (SEARCH_REFERENCE, (reference,))
            return tuple(
                connection.records(sql, tool, wanted, whose, scope, since, *before, limit, *ending)
            )
        case Tally():
            return {State(state): count for state, count in connection.rows(TALLY)}
        case Count(limit):
            return _count(connection, limit)
        case Recent():
            return _recent(connection, op)
        case Beside(limit=limit):
            return tuple(connection.records(BESIDE, *op.bounds, limit))
        case _:
            return _referred(connection, op)


def _referred(connection: SqliteConnection, op: Refer) -> tuple[Record, ...]:
    found = () if op.beginning else _quickly(connection, op)
    if not found and op.is_whole:
        keys = (
            key
            for (key,) in connection.rows(AMONG_KEYS, *op.bounds, op.reference)
            if op.fits_key(key)
        )
        found = [
            record
            for record in _records(connection, keys)
            if op.tenant in (None, record.request.tenant)
        ]
    return tuple(newest_first(found)[: op.limit])


def _quickly(connection: SqliteConnection, op: Refer) -> Sequence[Record]:
    named = connection.rows(NAMED, op.reference, op.tenant, op.limit)
    newest = connection.rows(NEWEST, op.reference, op.tenant, op.limit, op.looked_at)
    return _records(connection, dict.fromkeys(key for (key,) in (*named, *newest)))


def _count(connection: SqliteConnection, limit: int) -> Counts:
    """What is completed is what no index has: all but the others, if all could be counted."""
    ((*others, total, newest),) = connection.rows(
        COUNT, limit + 1, enough := (limit + 1) * 6, limit
    )
    numbers = dict(zip(_INDEXED, others, strict=True))
    if total < enough:
        numbers[State.COMPLETED] = total - sum(others)
    else:
        numbers[State.COMPLETED] = newest if max(others) > limit else limit + 1
    more = frozenset(state for state, number in numbers.items() if number > limit)
    if total >= enough:
        more |= {State.COMPLETED}
    return Counts(
        {state: min(number, limit) for state, number in numbers.items() if number or state in more},
        more,
    )


def _recent(connection: SqliteConnection, op: Recent) -> Recently:
    wanted = (op.tool, op.tenant, op.scope, op.since)
    if op.state in _NEXT:
        created_at, key = (
            (inf, "") if op.after is None else (op.after.created_at, op.after.request.key)
        )
        rows = _looked_at(connection, _NEXT[op.state], *wanted, created_at, key, op.looks)
    else:
        rows = _looked_at(
            connection, WALK, *wanted, op.state, _row_of(connection, op.after), op.looks
        )
    keys, last = op.shown(rows, op.looks)
    found = _records(connection, keys)
    return Recently(
        tuple(newest_first(found)), None if last is None else connection.record(READ, last)
    )


def _looked_at(
    connection: SqliteConnection, sql: str, *parameters: Any
) -> Iterator[tuple[str, bool]]:
    """One row after the other: who has seen enough reads no further."""
    with closing(connection.db.execute(sql, parameters)) as rows:
        yield from rows


def _row_of(connection: SqliteConnection, record: Record | None) -> int:
    """Its place among the others by age. One that is gone has none, and nothing comes after it."""
    if record is None:
        return _ALL
    rows = connection.rows(ROW, record.request.key)
    return int(rows[0][0]) if rows else 0


def _records(connection: SqliteConnection, keys: Iterable[str]) -> list[Record]:
    rows = (connection.rows(READ, key) for key in keys)
    return [_rows.read(row) for (row,) in rows]
