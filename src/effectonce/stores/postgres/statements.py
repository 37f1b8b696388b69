"""Every statement of the PostgreSQL store, and how values travel in it. Pure: nothing here talks
to a server.

All parameters and results are binary, so a number is packed once and never parsed. Text cannot
hold U+0000 there: it is escaped.

Rule 1: $1 is the time if a test has a clock of its own, else null. The server's clock is
`statement_timestamp()`: one value for a whole statement, and unlike `now()` it moves on within a
tool's transaction.
Rule 2: a statement that writes asks for a durable commit itself (`DURABLE`). A setting of the
session would be lost behind a pooler, and the defaults of a role or a database are not ours to
set.
Rule 3: a statement's name is made from its text. Behind a pooler another release may have
prepared its own statements in our session.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from msgspec import Struct

from effectonce._core.guarantees import Terms
from effectonce._core.keys import REFERENCE_LENGTH
from effectonce._core.ops import Browse, Claim, Complete, Search
from effectonce._core.record import Record, State
from effectonce._core.rules import due_at
from effectonce.stores import _rows
from effectonce.stores.postgres.binary import (
    pack_float,
    pack_int,
    pack_text,
    unpack_float,
    unpack_int,
    unpack_text,
)

TEXT, FLOAT, INT, BYTES = 25, 701, 20, 17  # the type numbers of text, float8, int8 and bytea
TERMS_MAX = 1024
Parameters = Sequence["bytes | None"]


class Statement(NamedTuple):
    name: bytes
    sql: bytes
    types: tuple[int, ...]
    formats: tuple[int, ...]


def statement(sql: str, *types: int) -> Statement:
    return Statement(
        b"effectonce_" + sha256(sql.encode()).hexdigest()[:20].encode(),
        sql.encode(),
        types,
        (1,) * len(types),
    )


class BoundStatement(Struct, frozen=True):
    """One statement with its parameters."""

    statement: Statement
    parameters: Parameters


# ---------------------------------------------------------------- columns

_TYPES = dict.fromkeys((*_rows.BIRTH, *_rows.LIFE), TEXT) | {
    "arguments": BYTES,
    "created_at": FLOAT,
    "epoch": INT,
    "lease_until": FLOAT,
    "sends": INT,
    "first_dispatch_at": FLOAT,
    "sent_until": FLOAT,
    "outcome": BYTES,
    "decided_at": FLOAT,
    "dedup_until": FLOAT,
    "window_s": FLOAT,
    "due_at": FLOAT,
}
_WRITTEN = (*_rows.BIRTH, *_rows.LIFE)
_READ = ", ".join(("revision", *_rows.COLUMNS))
_AT_BIRTH = (*_rows.BIRTH, *_rows.LIFE[:8], "due_at")  # the rest has defaults

NOW = "coalesce($1, date_part('epoch', statement_timestamp()))"
DURABLE = """set_config('synchronous_commit',
                   CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true) <> ''"""
_OUTCOME_PENDING = (
    "latch <> '' AND (state IN ('dispatched', 'in_doubt') OR (state = 'claimed' AND sends > 0))"
)


def _places(names: Sequence[str], first: int) -> dict[str, str]:
    return {name: f"${number}" for number, name in enumerate(names, first)}


def _types(names: Sequence[str]) -> tuple[int, ...]:
    return tuple(_TYPES[name] for name in names)


# ---------------------------------------------------------------- the exchanges

_BORN = _places(_AT_BIRTH, 2)
_BORN_AT = _BORN | {
    "created_at": f"{NOW} + {_BORN['created_at']}",
    "lease_until": f"{NOW} + {_BORN['lease_until']}",
    "first_dispatch_at": (
        f"CASE WHEN {_BORN['sends']} > 0 THEN {NOW} + {_BORN['first_dispatch_at']} ELSE 0 END"
    ),
    "sent_until": f"CASE WHEN {_BORN['sends']} > 0 THEN {NOW} + {_BORN['sent_until']} ELSE 0 END",
    "due_at": f"{NOW} + {_BORN['due_at']}",
}
# Look first: a replay then never opens the indexes for writing. The indexes decide between two
# calls that see nothing at the same time: one is born; the other gets (false, no row) and has to
# look again, because this statement cannot see what came after it began.
_BEAR = f"""
WITH seen AS MATERIALIZED (
  SELECT fingerprint, state, outcome, decided_at, dedup_until, settled_by FROM effectonce.effects WHERE key = $2
), born AS (
  INSERT INTO effectonce.effects ({", ".join(_AT_BIRTH)})
  SELECT {", ".join(_BORN_AT[name] for name in _AT_BIRTH)}
   WHERE NOT EXISTS (SELECT FROM seen) AND {DURABLE}
      ON CONFLICT DO NOTHING
  RETURNING true
)
SELECT EXISTS (SELECT FROM born), {NOW}, seen.* FROM (VALUES (1)) AS one LEFT JOIN seen ON true
"""
# What is not sent yet is not in the index of pending outcomes, so it asks; if its step is taken
# a moment later, its dispatch finds out.
_UNLATCHED = (
    f"NOT EXISTS (SELECT FROM effectonce.effects WHERE {_OUTCOME_PENDING} AND latch ="
    f" {_BORN['latch']})"
)
BEAR = statement(_BEAR, FLOAT, *_types(_AT_BIRTH))
BEAR_UNSENT = statement(
    _BEAR.replace(DURABLE, f"{DURABLE} AND {_UNLATCHED}"), FLOAT, *_types(_AT_BIRTH)
)

LOOK = statement(
    f"""
SELECT false, {NOW}, fingerprint, state, outcome, decided_at, dedup_until, settled_by FROM effectonce.effects WHERE key = $2
""",
    *(FLOAT, TEXT),
)

# A record that has its outcome already, in place of both statements about it.
_AT_ONCE = (*_AT_BIRTH, "outcome", "decided_at", "dedup_until", "settled_by")
_ENDED = _places(_AT_ONCE, 2)
_ENDED_AT = _ENDED | {
    name: f"{NOW} + {_ENDED[name]}"
    for name in _AT_ONCE
    if _TYPES[name] == FLOAT and name != "window_s"
}
ENTER = statement(
    f"""
INSERT INTO effectonce.effects ({", ".join(_AT_ONCE)})
SELECT {", ".join(_ENDED_AT[name] for name in _AT_ONCE)} WHERE {DURABLE}
    ON CONFLICT DO NOTHING
""",
    FLOAT,
    *_types(_AT_ONCE),
)

# T5. The window is the one that was pinned when the record was born.
FINISH = statement(
    f"""
UPDATE effectonce.effects
   SET state = 'completed', outcome = $5, settled_by = $6, lease_until = {NOW}, decided_at = {NOW},
       dedup_until = {NOW} + window_s, due_at = {NOW} + window_s, revision = revision + 1
 WHERE key = $2 AND token = $3 AND epoch = $4 AND state = 'dispatched' AND {DURABLE}
""",
    *(FLOAT, TEXT, TEXT, INT, BYTES, TEXT),
)

SEE = statement(
    f"""
SELECT {NOW}, e.* FROM (VALUES (1)) AS one LEFT JOIN (
  SELECT 'record' AS role, {_READ} FROM effectonce.effects WHERE key = $2
   UNION ALL
  SELECT 'rival', {_READ} FROM effectonce.effects
   WHERE {_OUTCOME_PENDING} AND key <> $2 AND latch = coalesce((SELECT latch FROM effectonce.effects WHERE key = $2), $3)
   UNION ALL
  SELECT 'predecessor', {_READ} FROM effectonce.effects WHERE key = $4 AND $4 <> ''
) AS e ON true
""",
    *(FLOAT, TEXT, TEXT, TEXT),
)

_PUT = _places(_WRITTEN, 1)
INSERT = statement(
    f"""
INSERT INTO effectonce.effects ({", ".join(_WRITTEN)})
SELECT {", ".join(_PUT.values())} WHERE {DURABLE}
    ON CONFLICT DO NOTHING
""",
    *_types(_WRITTEN),
)
UPDATE = statement(
    f"""
UPDATE effectonce.effects
   SET {", ".join(f"{name} = {place}" for name, place in _PUT.items() if name != "key")}, revision = revision + 1
 WHERE key = $1 AND revision = ${len(_WRITTEN) + 1} AND {DURABLE}
""",
    *(*_types(_WRITTEN), INT),
)
# T5b ends in a state that leaves the index of pending outcomes, so it passes through one that is
# in it: a claim of another call of the step at the same time waits for this transaction, or this
# one fails. The leap keeps the second write from meeting another one. A record that is completed
# already stays so: late evidence about it must not wait for the step's other call.
LEAP = 10**12
LIFT = statement(
    "UPDATE effectonce.effects SET state = CASE state WHEN 'completed' THEN state ELSE 'dispatched'"
    f" END, revision = revision + {LEAP} WHERE key = $1 AND revision = $2",
    TEXT,
    INT,
)
DELETE = statement(
    f"DELETE FROM effectonce.effects WHERE key = $1 AND revision = $2 AND {DURABLE}", TEXT, INT
)

_DUE = (
    f"SELECT {_READ}, due_at FROM effectonce.effects WHERE due_at < 'infinity' AND due_at <= {NOW}"
)
# Those that are on their way have an index of their own, and are few.
DUE = statement(
    f"""
SELECT {NOW}, e.* FROM (VALUES (1)) AS one LEFT JOIN LATERAL (
  SELECT {_READ} FROM (
    ({_DUE} AND state <> 'dispatched' ORDER BY due_at LIMIT $2) UNION ALL ({_DUE} AND state = 'dispatched' ORDER BY due_at LIMIT $2)
  ) AS both_of_them ORDER BY due_at LIMIT $2
) AS e ON true
""",
    *(FLOAT, INT),
)
# A plan for any state cannot use the index of one of them, and one for any tenant none that has
# tenants.
LISTED, LISTED_OF = (
    {
        state: statement(
            f"""
SELECT {_READ} FROM effectonce.effects
 WHERE state = '{state}' AND {of} AND created_at >= $2 AND (created_at, key) > ($2, $3)
 ORDER BY created_at, key LIMIT $4
""",
            *(TEXT, FLOAT, TEXT, INT),
        )
        for state in State
    }
    for of in ("$1::text IS NULL", "tenant = $1")
)
# For an export, or a reference that is found nowhere else: every row is looked at.
SEARCHED = statement(
    f"""
SELECT {_READ} FROM effectonce.effects
 WHERE left(right(key, {REFERENCE_LENGTH}), length($1)) = $1
   AND ($2::text IS NULL OR tool = $2) AND ($3::text IS NULL OR state = $3)
   AND ($4::text IS NULL OR tenant = $4) AND ($5::text IS NULL OR scope = $5)
   AND created_at >= $6 AND (created_at, key) < ($7, $8)
 ORDER BY created_at DESC, key DESC LIMIT $9
""",
    *(TEXT, TEXT, TEXT, TEXT, TEXT, FLOAT, FLOAT, TEXT, INT),
)
COUNTED = statement("SELECT state, count(*) FROM effectonce.effects GROUP BY state")

# ---------------------------------------------------------------- cells


# ---------------------------------------------------------------- transactions

# Sent once for calls that share a transaction. None of them may hold up the others for long:
# they are asked again one by one. Rows of many calls are looked up one by one, and their plan is
# made once (see `shared_statements.py`).
TOGETHER = statement(f"""
SELECT set_config('lock_timeout', '100', true), set_config('plan_cache_mode', 'force_generic_plan', true),
       set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
       set_config('enable_mergejoin', 'off', true), set_config('enable_bitmapscan', 'off', true)
 WHERE {DURABLE}
""")
# A setting that ends with its transaction tells whether it is still the one that was lent, and
# the trigger of migration 3 whether it was we who asked for COMMIT.
BEGIN = f"""
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
INSERT INTO effectonce.lent SELECT txid_current() WHERE set_config('effectonce.lent', '1', true) <> '' AND {DURABLE}
"""
COMMIT = """
DELETE FROM effectonce.lent WHERE transaction = txid_current() AND set_config('effectonce.lent', 'ended', true) <> '';
COMMIT"""
LENT = statement("SELECT current_setting('effectonce.lent', true)")


# ---------------------------------------------------------------- values


_PACK: dict[int, Any] = {TEXT: pack_text, FLOAT: pack_float, INT: pack_int, BYTES: bytes}
_UNPACK: dict[int, Any] = {TEXT: unpack_text, FLOAT: unpack_float, INT: unpack_int, BYTES: bytes}
_PACKERS = tuple(_PACK[_TYPES[name]] for name in _WRITTEN)
_UNPACKERS = tuple(_UNPACK[_TYPES[name]] for name in _rows.COLUMNS)
_WIDTH = len(_rows.COLUMNS)


def bear(record: Record, now: bytes | None) -> BoundStatement:
    return BoundStatement(BEAR if record.sends else BEAR_UNSENT, (now, *_birth(record)))


def pack_birth(record: Record) -> tuple[bytes, ...]:
    """What all first claims of a tool have in common: `bear_first` says where each part stands."""
    whole = dict(zip(_AT_BIRTH, _birth(record), strict=True))
    return tuple(whole[name] for name in _OF_A_TOOL)


_OF_A_TOOL = (
    *_AT_BIRTH[2:3],
    *_AT_BIRTH[8:14],
    "lease_until",
    "sends",
    "first_dispatch_at",
    "sent_until",
    "due_at",
)


def bear_first(op: Claim, packed: tuple[bytes, ...], now: bytes | None) -> BoundStatement:
    """`bear` for a claim that dispatches. Its record is not made."""
    r = op.request
    texts = (r.key, r.fingerprint, r.tenant, r.scope, r.step, r.latch, op.token)
    joined = "".join(texts)
    pack = pack_text if "\x1b" in joined or "\0" in joined else str.encode
    key, fingerprint, tenant, scope, step, latch, token = map(pack, texts)
    (
        terms,
        after,
        created_at,
        tool,
        window_s,
        state,
        epoch,
        lease_until,
        sends,
        first_sent_at,
        sent_until,
        due,
    ) = packed
    before = (
        now,
        key,
        fingerprint,
        terms,
        tenant,
        scope,
        step,
        r.arguments,
        latch,
        after,
        created_at,
        tool,
        window_s,
    )
    return BoundStatement(
        BEAR,
        (*before, state, epoch, token, lease_until, sends, token, first_sent_at, sent_until, due),
    )


def enter(record: Record, now: bytes | None) -> BoundStatement:
    end = (
        record.outcome,
        pack_float(record.decided_at),
        pack_float(record.dedup_until),
        pack_text(record.settled_by),
    )
    return BoundStatement(ENTER, (now, *_birth(record), *end))


def _birth(record: Record) -> tuple[bytes, ...]:
    r = record.request
    terms, tool, window_s = _pack_terms(r.terms)
    return (
        pack_text(r.key),
        pack_text(r.fingerprint),
        terms,
        pack_text(r.tenant),
        pack_text(r.scope),
        pack_text(r.step),
        r.arguments,
        pack_text(r.latch),
        pack_text(r.after),
        pack_float(record.created_at),
        tool,
        window_s,
        str.encode(record.state),
        pack_int(record.epoch),
        pack_text(record.token),
        pack_float(record.lease_until),
        pack_int(record.sends),
        pack_text(record.dtoken),
        pack_float(record.first_dispatch_at),
        pack_float(record.sent_until),
        pack_float(due_at(record)),
    )


_terms_seen: dict[int, tuple[Terms, tuple[bytes, bytes, bytes]]] = {}


def _pack_terms(terms: Terms) -> tuple[bytes, bytes, bytes]:
    """A tool's calls share terms. Remembered by identity: hashing costs more than packing."""
    known = _terms_seen.get(id(terms))
    if known is not None and known[0] is terms:
        return known[1]
    packed = (
        pack_text(_rows.write_terms(terms)),
        pack_text(terms.tool),
        pack_float(terms.window_s),
    )
    if len(_terms_seen) >= TERMS_MAX:
        _terms_seen.clear()
    _terms_seen[id(terms)] = (terms, packed)  # held, so that nothing else gets its identity
    return packed


def look(key: str, now: bytes | None) -> BoundStatement:
    return BoundStatement(LOOK, (now, pack_text(key)))


def finish(op: Complete, now: bytes | None) -> BoundStatement:
    fence = (pack_text(op.key), pack_text(op.token), pack_int(op.epoch))
    return BoundStatement(FINISH, (now, *fence, op.outcome, pack_text(op.by)))


def see(key: str, latch: str, after: str, now: bytes | None) -> BoundStatement:
    return BoundStatement(SEE, (now, pack_text(key), pack_text(latch), pack_text(after)))


def swap(key: str, revision: int, after: Record | None) -> list[BoundStatement]:
    """In one transaction."""
    if after is None:
        return [BoundStatement(DELETE, (pack_text(key), pack_int(revision)))]
    values = (*_rows.birth(after), *_rows.life(after))
    packed = [pack(value) for pack, value in zip(_PACKERS, values, strict=True)]
    if revision == 0:
        return [BoundStatement(INSERT, packed)]
    if (
        after.state is State.COMPLETED
        and after.sends == 0
        and after.request.latch
        and not after.request.terms.steps
    ):
        lift = BoundStatement(LIFT, (pack_text(key), pack_int(revision)))
        return [lift, BoundStatement(UPDATE, [*packed, pack_int(revision + LEAP)])]
    return [BoundStatement(UPDATE, [*packed, pack_int(revision)])]


def due(limit: int, now: bytes | None) -> BoundStatement:
    return BoundStatement(DUE, (now, pack_int(limit)))


def listed(op: Browse) -> BoundStatement:
    listed, tenant = (LISTED, None) if op.tenant is None else (LISTED_OF, pack_text(op.tenant))
    created_at, key = op.after
    return BoundStatement(
        listed[op.state], (tenant, pack_float(created_at), pack_text(key), pack_int(op.limit))
    )


def searched(op: Search) -> BoundStatement:
    wanted = (
        None if value is None else pack_text(value)
        for value in (op.tool, op.state, op.tenant, op.scope)
    )
    created_at, key = op.before
    page = (pack_float(op.since), pack_float(created_at), pack_text(key), pack_int(op.limit))
    return BoundStatement(SEARCHED, (pack_text(op.reference), *wanted, *page))


def record(result: Any, row: int, first: int) -> tuple[Record, int]:
    """The record whose revision stands in column *first*, and that revision."""
    get = result.get_value
    columns = (get(row, column) for column in range(first + 1, first + 1 + _WIDTH))
    read = _rows.read(
        tuple(unpack(value) for unpack, value in zip(_UNPACKERS, columns, strict=True))
    )
    return read, unpack_int(get(row, first))
