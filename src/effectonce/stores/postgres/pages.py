"""What pages ask of PostgreSQL: each answer looks at a bounded number of rows, through an index;
only a whole reference may take all keys.

Theory of operation. Rare states share one index by age, what is sent and what is completed have
one each (`migrations/postgres_0005.sql`). A plan for any state could use none of them, so each
state is named where its rows are read. `ORDER BY` and `LIMIT` stand there, also where only the
number of rows matters: without an order, PostgreSQL may read the whole table for a state that
few rows have.
"""

from __future__ import annotations

from math import inf
from typing import Any

from effectonce._core.keys import REFERENCE_LENGTH
from effectonce._core.pages import Beside, Count, Counts, Paging, Recently, Refer
from effectonce._core.record import Record, State
from effectonce.stores import _rows
from effectonce.stores.postgres import binary
from effectonce.stores.postgres import statements as sql
from effectonce.stores.postgres.binary import pack_float, pack_int, pack_text
from effectonce.stores.postgres.statements import FLOAT, INT, TEXT, BoundStatement, statement

_STATES = tuple(state for state in State if state is not State.ABSENT)
_COLUMNS = ", ".join(f"e.{name}" for name in ("revision", *_rows.COLUMNS))
_WIDTH = 1 + len(_rows.COLUMNS)


def _of_each(rows: str, states: tuple[State, ...] = _STATES) -> str:
    """The same rows of each state, one state after the other."""
    return "\n  UNION ALL ".join(f"({rows.replace('STATE', repr(str(state)))})" for state in states)


COUNT = statement(
    _of_each(
        "SELECT STATE::text, count(*) FROM (SELECT created_at FROM effectonce.effects WHERE state ="
        " STATE ORDER BY created_at LIMIT $1) AS found_there"
    ),
    INT,
)
_NEXT = """
  SELECT key, created_at, ($2::text IS NULL OR tool = $2) AND ($3::text IS NULL OR tenant = $3)
         AND ($4::text IS NULL OR scope = $4) AND created_at >= $5 AS fits
    FROM effectonce.effects
   WHERE state = STATE AND ($1::text IS NULL OR $1 = STATE) AND created_at <= $6 AND (created_at, key) < ($6, $7)
   ORDER BY created_at DESC, key DESC LIMIT $8
"""
# The next rows of each state, of these the newest, and of these what fits; and the last one, for
# where to go on.
RECENT = statement(
    f"""
WITH looked AS MATERIALIZED (
  SELECT * FROM ({_of_each(_NEXT)}) AS next_ones ORDER BY created_at DESC, key DESC LIMIT $8
), numbered AS MATERIALIZED (
  SELECT key, fits, row_number() OVER ages AS place, count(*) FILTER (WHERE fits) OVER ages AS number
    FROM looked WINDOW ages AS (ORDER BY created_at DESC, key DESC)
)
SELECT {_COLUMNS}, (fits AND number <= $9)::int::int8, place
  FROM numbered CROSS JOIN LATERAL (SELECT * FROM effectonce.effects WHERE key = numbered.key OFFSET 0) AS e
 WHERE fits AND number <= $9 OR place = (SELECT max(place) FROM numbered)
 ORDER BY place
""",
    *(TEXT, TEXT, TEXT, TEXT, FLOAT, FLOAT, TEXT, INT, INT),
)
_NEWEST = (
    "SELECT key, tenant FROM effectonce.effects WHERE state = STATE ORDER BY created_at DESC"
    " LIMIT $4"
)
_OF_FOUND = f"""
SELECT {_COLUMNS} FROM found CROSS JOIN LATERAL (SELECT * FROM effectonce.effects WHERE key = found.key OFFSET 0) AS e
 WHERE $2::text IS NULL OR e.tenant = $2
 ORDER BY e.created_at DESC, e.key DESC LIMIT $3
"""
# First among rare states and the newest. If it is not there, PostgreSQL goes on to all keys, and
# otherwise it does not.
REFER = statement(
    f"""
WITH quickly AS MATERIALIZED (
  (SELECT key FROM effectonce.effects
    WHERE state IN ('claimed', 'failed', 'in_doubt', 'tombstone') AND ($2::text IS NULL OR tenant = $2)
      AND right(key, {REFERENCE_LENGTH}) >= $1 AND right(key, {REFERENCE_LENGTH}) < $1 || '~'
    ORDER BY right(key, {REFERENCE_LENGTH}) LIMIT $3)
   UNION
  SELECT key FROM ({_of_each(_NEWEST, (State.DISPATCHED, State.COMPLETED))}) AS newest
   WHERE left(right(key, {REFERENCE_LENGTH}), length($1)) = $1 AND ($2::text IS NULL OR tenant = $2)
), found AS MATERIALIZED (
  SELECT key FROM quickly
   UNION ALL
  SELECT key FROM effectonce.effects
   WHERE right(key, {REFERENCE_LENGTH}) = $1 AND length($1) = {REFERENCE_LENGTH} AND NOT EXISTS (SELECT FROM quickly)
)
{_OF_FOUND}
""",
    *(TEXT, TEXT, INT, INT),
)
REFER_BESIDE = statement(
    f"""
WITH found AS MATERIALIZED (
  SELECT key FROM effectonce.effects WHERE key >= $4 AND key < $5 AND right(key, {REFERENCE_LENGTH}) = $1
)
{_OF_FOUND}
""",
    *(TEXT, TEXT, INT, TEXT, TEXT),
)
BESIDE = statement(
    f"SELECT {_COLUMNS} FROM effectonce.effects AS e WHERE e.key >= $1 AND e.key < $2 ORDER BY"
    " e.key LIMIT $3",
    *(TEXT, TEXT, INT),
)


def query(op: Paging) -> BoundStatement:
    match op:
        case Count(limit):
            return BoundStatement(COUNT, (pack_int(limit + 1),))
        case Beside(limit=limit):
            return BoundStatement(BESIDE, (*map(pack_text, op.bounds), pack_int(limit)))
        case Refer(reference, tenant, limit, looked_at, beginning):
            wanted = (pack_text(reference), _text(tenant), pack_int(limit))
            if beginning:
                return BoundStatement(REFER_BESIDE, (*wanted, *map(pack_text, op.bounds)))
            return BoundStatement(REFER, (*wanted, pack_int(looked_at)))
        case _:
            created_at, key = (
                (inf, "") if op.after is None else (op.after.created_at, op.after.request.key)
            )
            filters = (
                _text(op.state),
                _text(op.tool),
                _text(op.tenant),
                _text(op.scope),
                pack_float(op.since),
            )
            return BoundStatement(
                RECENT,
                (
                    *filters,
                    pack_float(created_at),
                    pack_text(key),
                    pack_int(op.looks),
                    pack_int(op.limit),
                ),
            )


def _text(value: str | None) -> bytes | None:
    return None if value is None else pack_text(value)


def reply(op: Paging, result: Any) -> Counts | Recently | tuple[Record, ...]:
    rows, get = range(result.ntuples), result.get_value
    if isinstance(op, Count):
        numbers = {
            _rows.STATES[get(row, 0).decode()]: binary.unpack_int(get(row, 1)) for row in rows
        }
        more = frozenset(state for state, number in numbers.items() if number > op.limit)
        return Counts(
            {state: min(number, op.limit) for state, number in numbers.items() if number}, more
        )
    records = [sql.record(result, row, 0)[0] for row in rows]
    if isinstance(op, Refer | Beside):
        return tuple(records)
    found = tuple(
        record
        for row, record in zip(rows, records, strict=True)
        if binary.unpack_int(get(row, _WIDTH))
    )
    looked_at = binary.unpack_int(get(rows[-1], _WIDTH + 1)) if records else 0
    ended = looked_at < op.looks and len(found) < op.limit
    return Recently(found, None if ended else found[-1] if len(found) == op.limit else records[-1])
