"""Statements about many records at once: the two writes of an ordinary call, and the read of its
replay. Pure.

Theory of operation. A column of texts is one parameter, joined here and taken apart by the
server; a column of anything else is one array. So there is one statement, and one plan, for any
number of rows. Its answer names the rows that it did nothing for: usually none.

Rule 1: no two rows of one statement have the same key. Which of them was written would not be
known. Rule 2: rows are written in the order of their latch and key, in whatever order they were
asked for: two batches rarely wait for each other. Rule 3: `TOGETHER` is sent before these
statements, in their transaction. It asks for a durable commit, once for all rows; and it rules
out plans that read the whole table, which may be best for a small one and are kept when it has
grown: each row is looked up by its key.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct as Packer

from msgspec import Struct

from effectonce._core.ops import Claim, Complete
from effectonce._core.record import Record, Request
from effectonce._core.rules import due_at
from effectonce.stores import _rows
from effectonce.stores.postgres import binary
from effectonce.stores.postgres import statements as sql
from effectonce.stores.postgres.statements import BYTES, FLOAT, INT, TEXT, BoundStatement, statement

# a larger value is written by a statement of its own: the server copies the rows of these
# statements
ROW_MAX_B = 16_384
_SEPARATOR = "\x1b,"  # `pack_text` leaves no escape that a comma follows
_ARRAYS = {FLOAT: 1022, INT: 1016, BYTES: 1001}  # the type numbers of arrays of these

# ---------------------------------------------------------------- statements

_TEXTS = (
    "key",
    "fingerprint",
    "terms",
    "tenant",
    "scope",
    "step",
    "latch",
    "tool",
    "state",
    "token",
)
_FLOATS = ("created_at", "lease_until", "first_dispatch_at", "sent_until", "due_at", "window_s")
_INTS = ("epoch", "sends")
_COLUMNS = (*_TEXTS, "arguments", "after", "dtoken", *_FLOATS, *_INTS)


def _column(number: int) -> str:
    return f"string_to_array(${number}, E'\\x1b,')"


def _values() -> Iterable[str]:
    """What each of `_COLUMNS` becomes. Born at time zero: every time but the window begins now."""
    yield from (f"asked.{name}" for name in (*_TEXTS, "arguments"))
    yield from ("''", "asked.token")
    for number, name in enumerate(_FLOATS, 1):
        value = f"$13[{len(_FLOATS)} * (place - 1) + {number}]"
        yield value if name == "window_s" else f"{sql.NOW} + {value}"
    yield from (
        f"$14[{len(_INTS)} * (place - 1) + {number}]" for number in range(1, len(_INTS) + 1)
    )


_KNOWN = ("fingerprint", "state", "outcome", "decided_at", "dedup_until", "settled_by")
# LIMIT keeps the planner from making a join of it, whose best plan may be to read the whole table.
_LOOKED_UP = (
    f"LATERAL (SELECT {', '.join(_KNOWN)} FROM effectonce.effects WHERE key = given.key LIMIT 1)"
)
# As `BEAR`: look first, and let the indexes decide between those that see nothing at the same
# time. A row that is neither born nor seen has to look again; so has the second of two rows that
# share a latch.
BEAR_MANY = statement(
    f"""
WITH asked AS MATERIALIZED (
  SELECT {", ".join(f"given.{name}" for name in (*_TEXTS, "arguments"))}, place::int,
         {", ".join(f"seen.{name} AS seen_{name}" for name in _KNOWN)}
    FROM unnest({", ".join(_column(number) for number in range(2, 2 + len(_TEXTS)))}, $12)
         WITH ORDINALITY AS given ({", ".join(_TEXTS)}, arguments, place)
         LEFT JOIN {_LOOKED_UP} AS seen ON true
), born AS (
  INSERT INTO effectonce.effects ({", ".join(_COLUMNS)})
  SELECT {", ".join(_values())}
    FROM asked WHERE seen_state IS NULL
   ORDER BY latch COLLATE "C", key COLLATE "C"
      ON CONFLICT DO NOTHING
  RETURNING key
)
SELECT place, {sql.NOW}, {", ".join(f"seen_{name}" for name in _KNOWN)} FROM asked WHERE key NOT IN (SELECT key FROM born)
""",
    *(FLOAT, *[TEXT] * len(_TEXTS), _ARRAYS[BYTES], _ARRAYS[FLOAT], _ARRAYS[INT]),
)

# As `FINISH`. The rows that were not completed are to be looked at more closely. A key that
# equals any of one is not what a merge join is made of, and a state that comes with the rows
# lets no index stand for it: so no plan begins with the records.
FINISH_MANY = statement(
    f"""
WITH asked AS MATERIALIZED (
  SELECT *, 'dispatched' AS state FROM unnest({_column(2)}, {_column(3)}, $4, $5, {_column(6)})
         WITH ORDINALITY AS given (key, token, epoch, outcome, settled_by, place)
   ORDER BY key COLLATE "C"
), done AS (
  UPDATE effectonce.effects AS e
     SET state = 'completed', outcome = asked.outcome, settled_by = asked.settled_by, lease_until = {sql.NOW}, decided_at = {sql.NOW},
         dedup_until = {sql.NOW} + window_s, due_at = {sql.NOW} + window_s, revision = revision + 1
    FROM asked
   WHERE e.key = ANY (ARRAY[asked.key]) AND e.token = asked.token AND e.epoch = asked.epoch AND e.state = asked.state
  RETURNING e.key
)
SELECT place::int FROM asked WHERE key NOT IN (SELECT key FROM done)
""",
    *(FLOAT, TEXT, TEXT, _ARRAYS[INT], _ARRAYS[BYTES], TEXT),
)

LOOK_MANY = statement(
    f"""
SELECT place::int, {sql.NOW}, seen.* FROM unnest({_column(2)}) WITH ORDINALITY AS given (key, place) CROSS JOIN {_LOOKED_UP} AS seen
""",
    *(FLOAT, TEXT),
)

# ---------------------------------------------------------------- values


class PackedArrays(Struct, frozen=True):
    """What all calls of a tool are born with: as rows of many, and as the parameters of one."""

    terms: str
    tool: str
    state: str
    floats: bytes
    ints: bytes
    parameters: tuple[bytes, ...]


_LENGTH = Packer(">i").pack
_FLOAT_ELEMENT, _INT_ELEMENT = Packer(">id").pack, Packer(">iq").pack
# one dimension, without nulls, of this type, so many, the first is number 1
_ARRAY = Packer(">iiIii").pack


def pack_birth(record: Record) -> PackedArrays:
    terms = record.request.terms
    floats = (
        record.created_at,
        record.lease_until,
        record.first_dispatch_at,
        record.sent_until,
        due_at(record),
        terms.window_s,
    )
    return PackedArrays(
        _rows.write_terms(terms),
        terms.tool,
        str(record.state),
        b"".join([_FLOAT_ELEMENT(8, number) for number in floats]),
        b"".join([_INT_ELEMENT(8, number) for number in (record.epoch, record.sends)]),
        sql.pack_birth(record),
    )


def _texts(values: Sequence[str]) -> bytes:
    joined = _SEPARATOR.join(values)
    if joined.count("\x1b") >= len(values) or "\0" in joined:
        return _SEPARATOR.encode().join(map(binary.pack_text, values))
    return joined.encode()


def _array(of: int, count: int, elements: Iterable[bytes]) -> bytes:
    return b"".join((_ARRAY(1, 0, of, count, 1), *elements))


def _byte_strings(values: Sequence[bytes]) -> bytes:
    return _array(
        BYTES, len(values), [part for value in values for part in (_LENGTH(len(value)), value)]
    )


def bear_many(
    claims: Sequence[Claim], packed: Sequence[PackedArrays], now: bytes | None
) -> BoundStatement:
    requests = [op.request for op in claims]
    return BoundStatement(
        BEAR_MANY,
        (
            now,
            _texts([r.key for r in requests]),
            _texts([r.fingerprint for r in requests]),
            _texts([p.terms for p in packed]),
            _texts([r.tenant for r in requests]),
            _texts([r.scope for r in requests]),
            _texts([r.step for r in requests]),
            _texts([r.latch for r in requests]),
            _texts([p.tool for p in packed]),
            _texts([p.state for p in packed]),
            _texts([op.token for op in claims]),
            _byte_strings([r.arguments for r in requests]),
            _array(FLOAT, len(_FLOATS) * len(packed), [p.floats for p in packed]),
            _array(INT, len(_INTS) * len(packed), [p.ints for p in packed]),
        ),
    )


def finish_many(ops: Sequence[Complete], now: bytes | None) -> BoundStatement:
    return BoundStatement(
        FINISH_MANY,
        (
            now,
            _texts([op.key for op in ops]),
            _texts([op.token for op in ops]),
            _array(INT, len(ops), [_INT_ELEMENT(8, op.epoch) for op in ops]),
            _byte_strings([op.outcome for op in ops]),
            _texts([op.by for op in ops]),
        ),
    )


def look_many(requests: Sequence[Request], now: bytes | None) -> BoundStatement:
    return BoundStatement(LOOK_MANY, (now, _texts([r.key for r in requests])))
