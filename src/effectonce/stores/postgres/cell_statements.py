"""What PostgreSQL is asked about cells."""

from __future__ import annotations

from effectonce._core.ops import ListCells, WriteCell
from effectonce.stores.postgres.binary import pack_float, pack_int, pack_text
from effectonce.stores.postgres.statements import (
    BYTES,
    DURABLE,
    FLOAT,
    INT,
    NOW,
    TEXT,
    BoundStatement,
    statement,
)

CELL = statement(
    f"""
SELECT {NOW}, value, revision FROM (VALUES (1)) AS one LEFT JOIN effectonce.cells ON name = $2 AND forget_at > {NOW}
""",
    *(FLOAT, TEXT),
)

# Of two that saw the same revision the second waits for the first one's lock, and then finds
# another revision: it gets (false, and what it saw before), and has to look again, because this
# statement cannot see what came after it began.
WRITE_CELL = statement(
    f"""
WITH stands AS MATERIALIZED (
  SELECT value, revision FROM effectonce.cells WHERE name = $2 AND forget_at > {NOW}
), written AS (
  INSERT INTO effectonce.cells AS cell (name, value, forget_at)
  SELECT $2, $4, {NOW} + $5 WHERE coalesce((SELECT revision FROM stands), 0) = $3 AND {DURABLE}
      ON CONFLICT (name) DO UPDATE SET value = excluded.value, revision = cell.revision + 1, forget_at = excluded.forget_at
   WHERE CASE WHEN cell.forget_at > {NOW} THEN cell.revision ELSE 0 END = $3
  RETURNING true
)
SELECT {NOW}, stands.value, stands.revision, EXISTS (SELECT FROM written) FROM (VALUES (1)) AS one LEFT JOIN stands ON true
""",
    *(FLOAT, TEXT, INT, BYTES, FLOAT),
)

_LISTED_CELLS = f"""
SELECT name, value FROM effectonce.cells WHERE name > $2 AND name < $3 AND forget_at > {NOW} ORDER BY name LIMIT $4
"""

LISTED_CELLS = statement(_LISTED_CELLS, FLOAT, TEXT, TEXT, INT)

LISTED_CELLS_BACKWARDS = statement(
    _LISTED_CELLS.replace("name LIMIT", "name DESC LIMIT"), FLOAT, TEXT, TEXT, INT
)

# A cell that another process is writing again just now is not past its time any more, or is left
# for the next sweep.
FORGET = statement(
    f"""
DELETE FROM effectonce.cells WHERE name IN (
  SELECT name FROM effectonce.cells WHERE forget_at <= {NOW} ORDER BY forget_at LIMIT $2 FOR UPDATE SKIP LOCKED)
""",
    *(FLOAT, INT),
)


def cell(name: str, now: bytes | None) -> BoundStatement:
    return BoundStatement(CELL, (now, pack_text(name)))


def write_cell(op: WriteCell, now: bytes | None) -> BoundStatement:
    return BoundStatement(
        WRITE_CELL,
        (now, pack_text(op.name), pack_int(op.revision), op.value, pack_float(op.keep_s)),
    )


def listed_cells(op: ListCells, now: bytes | None) -> BoundStatement:
    first, last = op.bounds
    asked = LISTED_CELLS_BACKWARDS if op.backwards else LISTED_CELLS
    return BoundStatement(asked, (now, pack_text(first), pack_text(last), pack_int(op.limit)))


def forget(limit: int, now: bytes | None) -> BoundStatement:
    return BoundStatement(FORGET, (now, pack_int(limit)))
