"""What every SQL store shares: a record as a row and back. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import msgspec
import orjson

from effectonce._core.effect_ref import reference_of
from effectonce._core.guarantees import Terms
from effectonce._core.record import Evidence, Record, Request, State
from effectonce._core.rules import due_at

# Written once, when the record is born.
BIRTH = (
    "key",
    "fingerprint",
    "terms",
    "tenant",
    "scope",
    "step",
    "arguments",
    "latch",
    "after",
    "created_at",
    "tool",
    "window_s",
)
# Written by every transition.
LIFE = (
    "state",
    "epoch",
    "token",
    "lease_until",
    "sends",
    "dtoken",
    "first_dispatch_at",
    "sent_until",
    "outcome",
    "decided_at",
    "dedup_until",
    "settled_by",
    "reason",
    "evidence",
    "due_at",
)
# `tool`, `window_s` and `due_at` repeat what the others say: for people, for one-statement
# completions, for the sweep.
COLUMNS = BIRTH[:-2] + LIFE[:-1]


def birth(record: Record) -> tuple[Any, ...]:
    r = record.request
    return (
        r.key,
        r.fingerprint,
        write_terms(r.terms),
        r.tenant,
        r.scope,
        r.step,
        r.arguments,
        r.latch,
        r.after,
        record.created_at,
        r.terms.tool,
        r.terms.window_s,
    )


def life(record: Record) -> tuple[Any, ...]:
    return (
        str(record.state),  # a driver asks what else it may be, and that takes longer
        record.epoch,
        record.token,
        record.lease_until,
        record.sends,
        record.dtoken,
        record.first_dispatch_at,
        record.sent_until,
        record.outcome,
        record.decided_at,
        record.dedup_until,
        record.settled_by,
        record.reason,
        _write_evidence(record.evidence) if record.evidence else "",
        due_at(record),
    )


def first_send(record: Record) -> tuple[Any, ...] | None:
    """What tells a record just born and sent from others of that kind; None: of another kind."""
    if (
        record.state is not State.DISPATCHED
        or record.epoch != 1
        or record.sends != 1
        or record.request.after
    ):
        return None
    *who, arguments, latch, _, created_at, tool, window_s = birth(record)
    # Not as bytes: of those, SQLite's driver asks what else they may be, and that takes longer.
    born = (*who, bytearray(arguments), latch, created_at, tool, window_s)
    sent = (
        record.token,
        record.lease_until,
        record.dtoken,
        record.first_dispatch_at,
        record.sent_until,
        due_at(record),
    )
    return born + sent


def read(row: tuple[Any, ...]) -> Record:
    """One row of `COLUMNS` as a record."""
    key, fingerprint, terms, tenant, scope, step, arguments, latch, after, created_at = row[:10]
    (
        state,
        epoch,
        token,
        lease_until,
        sends,
        dtoken,
        first,
        sent_until,
        outcome,
        decided,
        dedup,
        by,
        reason,
        evidence,
    ) = row[10:]
    if state not in STATES:
        raise ValueError(
            f"the record of {reference_of(key)} is in a state that this release does not know"
            f" ({state!r}), and it does not guess. Upgrade effectonce here"
        )
    return Record(
        Request(key, fingerprint, _read_terms(terms), tenant, scope, step, arguments, latch, after),
        STATES[state],
        epoch,
        token,
        lease_until,
        created_at,
        sends,
        dtoken,
        first,
        sent_until,
        outcome,
        decided,
        dedup,
        by,
        reason,
        _read_evidence(evidence) if evidence else (),
    )


def read_due(rows: Iterable[tuple[Any, ...]]) -> tuple[list[Record], list[str]]:
    """The records of these rows, and references of the unreadable: a sweep goes on without them."""
    found: list[Record] = []
    unreadable: list[str] = []
    for row in rows:
        try:
            found.append(read(row))
        except UNREADABLE:
            unreadable.append(reference_of(str(row[0])))
    return found, unreadable


# a row of a newer release, or one that another program has written
UNREADABLE = (KeyError, ValueError, TypeError)
STATES = {str(state): state for state in State}


@lru_cache(maxsize=1024)
def write_terms(terms: Terms) -> str:
    # JSON has no infinity, so numbers are written as text. What is as usual is left out: every
    # record carries this.
    fields = {name: getattr(terms, name) for name in Terms.__struct_fields__}
    usual = dict(
        zip(reversed(Terms.__struct_fields__), reversed(Terms.__struct_defaults__), strict=False)
    )
    unusual = {
        name: value for name, value in fields.items() if name not in usual or value != usual[name]
    }
    return orjson.dumps(
        {name: repr(v) if isinstance(v, float) else v for name, v in unusual.items()}
    ).decode()


@lru_cache(maxsize=1024)
def _read_terms(text: str) -> Terms:
    return msgspec.convert(orjson.loads(text), Terms, strict=False)


def _write_evidence(evidence: tuple[Evidence, ...]) -> str:
    return orjson.dumps([[e.at, e.note, e.outcome.hex()] for e in evidence]).decode()


def _read_evidence(text: str) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(at, note, bytes.fromhex(outcome)) for at, note, outcome in orjson.loads(text)
    )
