"""A record as one string and back. Pure.

A fixed head that the scripts read and write (`lua/record.lua` has the same layout), five fields
that they need, and the rest as MessagePack. Times are IEEE doubles, so that nothing is rounded
and infinity is infinity; the key is in the string's name and not in the string.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import ceil, inf
from typing import cast

import msgspec
from msgspec import Struct

from effectonce._core.effect_ref import reference_of
from effectonce._core.guarantees import Terms
from effectonce._core.ops import Cell, Claim, Recorded
from effectonce._core.record import Evidence, Record, Request, State
from effectonce._core.rules import due_at
from effectonce._random import random_bits
from effectonce.errors import StoreUnavailable

VERSION = 1
CODES = {
    State.CLAIMED: 1,
    State.DISPATCHED: 2,
    State.COMPLETED: 3,
    State.FAILED: 4,
    State.IN_DOUBT: 5,
    State.TOMBSTONE: 6,
}
_STATES = (State.ABSENT, *CODES)
_VERSION, _KNOWN = bytes([VERSION]), frozenset(CODES.values())
_DECIDED = (CODES[State.COMPLETED], CODES[State.FAILED])
_HEAD = struct.Struct("<BBQddIIddddQIdIIII")
# where the times of a birth begin and end, and where the lengths of its texts begin
_CHANGED, _TIMES, _LENGTHS = 34, 66, 86
_NEVER = (1 << 50) - 1
_DOUBLE = struct.Struct("<d")
_FOUR = struct.Struct("<IIII").pack
_REVISION = struct.Struct("<Q")
_CELL_HEAD = _REVISION.size + _DOUBLE.size
_MEMBER = struct.Struct(">d")


class _Rest(Struct, array_like=True, frozen=True):
    """What no script looks at."""

    terms: msgspec.Raw
    tenant: str
    scope: str
    step: str
    arguments: bytes
    after: str
    dtoken: str | None  # None: the same as the token
    reason: str
    evidence: tuple[Evidence, ...]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Rest).decode


def double(number: float) -> bytes:
    return _DOUBLE.pack(number)


def number(eight_bytes: bytes) -> float:
    value: float = _DOUBLE.unpack(eight_bytes)[0]
    return value


def member(created_at: float, key: str) -> bytes:
    """A record's place among those of its state: oldest first, as `lua/record.lua` writes it."""
    return _MEMBER.pack(created_at) + key.encode()


def scores(state: State) -> tuple[str, str]:
    """The range of a state's scores in a bucket's index: state, then 1/1024 s. The last: never."""
    return str(CODES[state] << 50), str((CODES[state] + 1 << 50) - 1)


def score(record: Record) -> int:
    """The place of a record not in doubt in its bucket's index, as `lua/record.lua` writes it."""
    due = due_at(record)
    return (CODES[record.state] << 50) + (_NEVER if due == inf else min(ceil(due * 1024), _NEVER))


def first_revision() -> int:
    """Not 1: a key forgotten and used again must not look like a revision a process saw before."""
    return random_bits(48) | 1  # it need not be unguessable, only another one


def write(record: Record, revision: int) -> bytes:
    """The string of a record."""
    r = record.request
    token, fingerprint, latch = record.token.encode(), r.fingerprint.encode(), r.latch.encode()
    by, outcome = record.settled_by.encode(), record.outcome
    dtoken = None if record.dtoken == record.token else record.dtoken
    rest = _encode(
        _Rest(
            _write_terms(r.terms),
            r.tenant,
            r.scope,
            r.step,
            r.arguments,
            r.after,
            dtoken,
            record.reason,
            record.evidence,
        )
    )
    head = _HEAD.pack(
        VERSION,
        CODES[record.state],
        revision,
        record.decided_at,
        record.dedup_until,
        len(by),
        len(outcome),
        record.lease_until,
        record.created_at,
        record.first_dispatch_at,
        record.sent_until,
        record.epoch,
        record.sends,
        r.terms.window_s,
        len(token),
        len(fingerprint),
        len(latch),
        len(rest),
    )
    return b"".join((head, token, fingerprint, latch, rest, by, outcome))


class PackedRecord(Struct, frozen=True):
    """What all calls of a tool are born with, in parts: before and behind the revision, etc."""

    version: bytes
    decided: bytes
    times: bytes
    counts: bytes
    terms: msgspec.Raw


def pack_birth(record: Record) -> PackedRecord:
    before, times, rest = born(record, due_at(record))
    return PackedRecord(
        before[:2],
        before[10:],
        times,
        rest[: _LENGTHS - _TIMES],
        _write_terms(record.request.terms),
    )


def born_of(op: Claim, packed: PackedRecord) -> tuple[bytes, bytes, bytes]:
    """`born` for a claim that dispatches. Its record is not made."""
    r = op.request
    token, fingerprint, latch = op.token.encode(), r.fingerprint.encode(), r.latch.encode()
    rest = _encode((packed.terms, r.tenant, r.scope, r.step, r.arguments, "", None, "", ()))
    lengths = _FOUR(len(token), len(fingerprint), len(latch), len(rest))
    return (
        b"".join((packed.version, _REVISION.pack(first_revision()), packed.decided)),
        packed.times,
        b"".join((packed.counts, lengths, token, fingerprint, latch, rest)),
    )


def born(record: Record, due: float) -> tuple[bytes, bytes, bytes]:
    """The string of a record whose times the server adds its clock to: what stands before, they
    and the sweep, what stands after.
    """
    written = write(record, first_revision())
    return written[:_CHANGED], written[_CHANGED:_TIMES] + double(due), written[_TIMES:]


def read(key: str, written: bytes) -> tuple[Record, int]:
    """The record of a string, and its revision."""
    try:
        return _read(key, written)
    except (struct.error, ValueError, msgspec.MsgspecError) as error:
        raise StoreUnavailable(
            f"the record of {reference_of(key)} cannot be read by this release ({error}). Nothing"
            " was changed. Upgrade effectonce here, unless another program wrote it."
        ) from error


def read_due(strings: Iterable[tuple[str, bytes]]) -> tuple[list[tuple[Record, int]], list[str]]:
    """The records of these, and references of the unreadable: a sweep goes on without them."""
    found: list[tuple[Record, int]] = []
    unreadable: list[str] = []
    for key, written in strings:
        try:
            found.append(read(key, written))
        except StoreUnavailable:
            unreadable.append(reference_of(key))
    return found, unreadable


def _read(key: str, written: bytes) -> tuple[Record, int]:
    if len(written) < _HEAD.size:
        raise ValueError(f"it has {len(written)} bytes")
    if written[:1] != _VERSION or written[1] not in _KNOWN:
        raise StoreUnavailable(
            f"the record of {reference_of(key)} was written by a newer release (version"
            f" {written[0]}, state {written[1]}), which this one would have to guess about. Nothing"
            " was changed. Upgrade effectonce here."
        )
    (
        _,
        state,
        revision,
        decided,
        dedup,
        by_n,
        outcome_n,
        lease,
        created,
        first,
        sent,
        epoch,
        sends,
        _,
        *lengths,
    ) = _HEAD.unpack_from(written)
    at, parts = _HEAD.size, []
    for length in (*lengths, by_n, outcome_n):
        parts.append(written[at : at + length])
        at += length
    rest = _decode(parts[3])
    token, outcome = parts[0].decode(), parts[5]
    request = Request(
        key,
        parts[1].decode(),
        _read_terms(bytes(rest.terms)),
        rest.tenant,
        rest.scope,
        rest.step,
        rest.arguments,
        parts[2].decode(),
        rest.after,
    )
    record = Record(
        request,
        _STATES[state],
        epoch,
        token,
        lease,
        created,
        sends,
        token if rest.dtoken is None else rest.dtoken,
        first,
        sent,
        outcome,
        decided,
        dedup,
        parts[4].decode(),
        rest.reason,
        rest.evidence,
    )
    return record, revision


def recorded(written: bytes, fingerprint: str, now: float) -> Recorded | None:
    """The outcome in this string, if it answers this request: a replay reads no more than that."""
    if len(written) < _HEAD.size:
        return None
    (
        version,
        state,
        _,
        decided_at,
        dedup_until,
        by_n,
        outcome_n,
        _,
        _,
        _,
        _,
        _,
        _,
        _,
        token_n,
        print_n,
        _,
        _,
    ) = _HEAD.unpack_from(written)
    at = _HEAD.size + token_n
    if (
        version != VERSION
        or state not in _DECIDED
        or dedup_until <= now
        or written[at : at + print_n] != fingerprint.encode()
    ):
        return None
    at = len(written) - outcome_n
    return Recorded(
        _STATES[state],
        written[at:],
        now - decided_at,
        dedup_until - now,
        written[at - by_n : at].decode(),
    )


def revision_after(seen: int) -> bytes:
    """The revision that a write makes of the one that was seen, as a cell begins with it."""
    return _REVISION.pack(seen + 1 if seen else first_revision())


def read_cell(reply: Sequence[bytes | None]) -> Cell:
    """The time, and the string of a cell or nothing."""
    now, written = number(cast(bytes, reply[0])), reply[1]
    return (
        Cell(now)
        if written is None
        else Cell(now, written[_CELL_HEAD:], _REVISION.unpack_from(written)[0])
    )


@lru_cache(maxsize=1024)  # a process has a few dozen tools
def _write_terms(terms: Terms) -> msgspec.Raw:
    return msgspec.Raw(_encode(terms))


@lru_cache(maxsize=1024)
def _read_terms(written: bytes) -> Terms:
    return msgspec.msgpack.decode(written, type=Terms)
