"""What SQLite is asked: the schema and the statements, and nothing that runs them."""

from __future__ import annotations

from effectonce._core.keys import REFERENCE_LENGTH
from effectonce._core.record import State
from effectonce.stores import _rows

SCHEMA_VERSION = 5
# SQLite uses a partial index only where a statement repeats its condition word for word.
OPEN = "(state = 'claimed' OR state = 'dispatched' OR state = 'in_doubt')"
RARE = "(state = 'claimed' OR state = 'failed' OR state = 'in_doubt' OR state = 'tombstone')"
RARELY = frozenset({State.CLAIMED, State.FAILED, State.IN_DOUBT, State.TOMBSTONE})
_DUE = "(state = 'completed' OR state = 'failed' OR state = 'tombstone') AND due_at < 9e999"

SCHEMA = f"""
CREATE TABLE IF NOT EXISTS effects (
  key               TEXT PRIMARY KEY,
  fingerprint       TEXT NOT NULL,
  terms             TEXT NOT NULL,
  tenant            TEXT NOT NULL,
  scope             TEXT NOT NULL,
  step              TEXT NOT NULL,
  arguments         BLOB NOT NULL,
  latch             TEXT NOT NULL,
  after             TEXT NOT NULL,
  created_at        REAL NOT NULL,
  tool              TEXT NOT NULL,
  window_s          REAL NOT NULL,
  state             TEXT NOT NULL,
  epoch             INTEGER NOT NULL,
  token             TEXT NOT NULL,
  lease_until       REAL NOT NULL,
  sends             INTEGER NOT NULL,
  dtoken            TEXT NOT NULL,
  first_dispatch_at REAL NOT NULL,
  sent_until        REAL NOT NULL,
  outcome           BLOB NOT NULL,
  decided_at        REAL NOT NULL,
  dedup_until       REAL NOT NULL,
  settled_by        TEXT NOT NULL,
  reason            TEXT NOT NULL,
  evidence          TEXT NOT NULL,
  due_at            REAL NOT NULL
) STRICT;
-- Since version 3 without IN: for a list of three, SQLite builds and drops a table of its own, four times in every write.
DROP INDEX IF EXISTS effects_open;
DROP INDEX IF EXISTS effects_due;
-- Few rows are open at any moment, so this stays small: who shares a latch, who is in doubt, whose owner vanished.
CREATE INDEX effects_open ON effects (state, latch, key) WHERE {OPEN};
-- What the sweeper looks for. A record without an outcome is not in it, and one that is remembered for ever neither.
CREATE INDEX effects_due ON effects (due_at) WHERE {_DUE};
-- What people browse, in their order, and by the reference that they have of it. An ordinary call is never in these, and pays nothing.
-- Version 4 had an index of doubts alone.
DROP INDEX IF EXISTS effects_in_doubt;
CREATE INDEX IF NOT EXISTS effects_rare ON effects (state, created_at, key) WHERE {RARE};
CREATE INDEX IF NOT EXISTS effects_rare_of ON effects (tenant, state, created_at, key) WHERE {RARE};
CREATE INDEX IF NOT EXISTS effects_named ON effects (substr(key, -{REFERENCE_LENGTH})) WHERE {RARE};
-- Since version 2: small values that processes share.
CREATE TABLE IF NOT EXISTS cells (
  name      TEXT PRIMARY KEY,
  value     BLOB NOT NULL,
  revision  INTEGER NOT NULL,
  forget_at REAL NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS cells_forget_at ON cells (forget_at);
"""

_COLUMNS = ", ".join(_rows.COLUMNS)
READ = f"SELECT {_COLUMNS} FROM effects WHERE key = ?"

# Is it there, and is it a known outcome of exactly this request, within its window? Then the
# rest of the row is the reply.
LOOK = """
SELECT state IN ('completed', 'failed') AND fingerprint = ? AND dedup_until > ?,
       state, outcome, ? - decided_at, dedup_until - ?, settled_by
  FROM effects WHERE key = ?
"""

_ROW = ", ".join(_rows.BIRTH + _rows.LIFE)
_VALUES = ", ".join("?" * len(_rows.BIRTH + _rows.LIFE))

# Not INSERT OR REPLACE: what becomes a tombstone keeps its row, and so its place among the
# others by age.
REPLACE = f"""
INSERT INTO effects ({_ROW}) VALUES ({_VALUES})
    ON CONFLICT (key) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in _rows.BIRTH[1:] + _rows.LIFE)}
"""

# T1 in one statement: born only if it is absent and no other call of its step was sent without
# an outcome. A rival leaves it without a fingerprint, and such a row is ignored. INSERT ...
# SELECT would do the same, and SQLite would build a table for it.
_OUTCOME_PENDING = " OR ".join(
    f"EXISTS (SELECT 1 FROM effects WHERE {OPEN} AND {which} AND latch = ?8)"
    for which in ("state = 'dispatched'", "state = 'in_doubt'", "state = 'claimed' AND sends > 0")
)

_UNLATCHED = f"CASE WHEN ?8 <> '' AND ({_OUTCOME_PENDING}) THEN NULL ELSE ?2 END"
_BIRTH = f"INSERT OR IGNORE INTO effects ({_ROW}) VALUES (?1, {_UNLATCHED}, {{rest}})"
BIRTH = _BIRTH.format(rest=", ".join(f"?{n}" for n in range(3, 1 + len(_rows.BIRTH + _rows.LIFE))))

# The same for a first send. What each of these has alike costs less as a part of the statement.
BIRTH_SENT = _BIRTH.format(
    rest=(
        "?3, ?4, ?5, ?6, ?7, ?8, '', ?9, ?10, ?11, 'dispatched', 1, ?12, ?13, 1, ?14, ?15, ?16,"
        " x'', 0.0, 9e999, '', '', '', ?17"
    )
)

UPDATE = f"UPDATE effects SET {', '.join(f'{name} = ?' for name in _rows.LIFE)} WHERE key = ?"

# T5 in one statement, for the second write of every call. 0 rows: look closer.
FINISH = """
UPDATE effects SET state = 'completed', outcome = ?, lease_until = ?, decided_at = ?,
       dedup_until = ? + window_s, due_at = ? + window_s, settled_by = ?
 WHERE key = ? AND state = 'dispatched' AND token = ? AND epoch = ?
"""

DELETE = "DELETE FROM effects WHERE key = ?"

RIVAL = f"""
SELECT {_COLUMNS} FROM effects
 WHERE {OPEN} AND latch = ? AND key <> ? AND (state <> 'claimed' OR sends > 0)
 ORDER BY key LIMIT 1
"""

# When was the last of those without an outcome sent first?
LAST_SENT = f"""
SELECT coalesce(max(first_dispatch_at), 0.0) FROM effects INDEXED BY effects_open
 WHERE {OPEN} AND sends > 0
"""

# By state, of all tenants (NULL) or of one. SQLite would take a wrong index, so each is named.
_BROWSE = """
SELECT {columns} FROM effects {indexed}
 WHERE {among} AND state = ?1 AND {tenant} AND (created_at, key) > (?3, ?4)
 ORDER BY created_at, key LIMIT ?5
"""

_OF_ANY = "(?2 IS NULL OR tenant = ?2)"

_OPEN_ONES, _COMPLETED_ONES, _RARE_ONES, _OF_ONE = (
    _BROWSE.format(columns=_COLUMNS, indexed=indexed, among=among, tenant=tenant)
    for indexed, among, tenant in (
        ("INDEXED BY effects_open", OPEN, _OF_ANY),
        ("", "true", _OF_ANY),
        ("INDEXED BY effects_rare", RARE, "?2 IS NULL"),
        ("INDEXED BY effects_rare_of", RARE, "tenant = ?2"),
    )
)

BROWSE = (
    dict.fromkeys(State, _OPEN_ONES)
    | {State.COMPLETED: _COMPLETED_ONES}
    | dict.fromkeys(RARELY, _RARE_ONES)
)

BROWSE_OF = BROWSE | dict.fromkeys(RARELY, _OF_ONE)

# For people, and rare: every row is looked at, because an index by age would cost every call.
# Only what is shown is sorted as a whole row.
SEARCH = f"""
SELECT {_COLUMNS} FROM effects WHERE rowid IN (
SELECT rowid FROM effects
 WHERE (?1 IS NULL OR tool = ?1) AND (?2 IS NULL OR state = ?2) AND (?3 IS NULL OR tenant = ?3) AND (?4 IS NULL OR scope = ?4)
   AND created_at >= ?5 AND (created_at, key) < (?6, ?7)
 ORDER BY created_at DESC, key DESC LIMIT ?8)
 ORDER BY created_at DESC, key DESC
"""

# By reference, the index of the keys is enough to find it.
_REFERRED = (
    f"key IN (SELECT key FROM effects WHERE substr(substr(key, -{REFERENCE_LENGTH}), 1, length(?9))"
    " = ?9)"
)

SEARCH_REFERENCE = SEARCH.replace("(?1 IS NULL", f"{_REFERRED} AND (?1 IS NULL")
TALLY = "SELECT state, count(*) FROM effects GROUP BY state"

DUE = f"""
SELECT * FROM (
SELECT {_COLUMNS} FROM effects INDEXED BY effects_open WHERE {OPEN} AND state IN ('claimed', 'dispatched') AND due_at <= ?1
 UNION ALL
SELECT {_COLUMNS} FROM effects INDEXED BY effects_due WHERE {_DUE} AND due_at <= ?1)
 LIMIT ?2
"""

CELL = "SELECT value, revision FROM cells WHERE name = ? AND forget_at > ?"

# 0 rows: it is not the revision that was seen. A name that was forgotten starts anywhere, so
# that no process mistakes it for an older one.
WRITE_CELL = """
INSERT INTO cells (name, value, revision, forget_at)
SELECT ?1, ?3, 1 + abs(random() % 1000000000000000), ?4
 WHERE ?2 = coalesce((SELECT revision FROM cells WHERE name = ?1 AND forget_at > ?5), 0)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value, revision = revision + 1, forget_at = excluded.forget_at
"""

LIST_CELLS = (
    "SELECT name, value FROM cells WHERE name > ? AND name < ? AND forget_at > ? ORDER BY name"
    " LIMIT ?"
)

LIST_CELLS_BACKWARDS = LIST_CELLS.replace("name LIMIT", "name DESC LIMIT")

KEEP_CELL = (
    "INSERT OR REPLACE INTO cells (name, value, revision, forget_at) VALUES (?, ?, 1, 9e999)"
)

FORGET_CELLS = (
    "DELETE FROM cells WHERE name IN (SELECT name FROM cells WHERE forget_at <= ? ORDER BY"
    " forget_at LIMIT ?)"
)
