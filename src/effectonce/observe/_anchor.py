"""Anchors: how far the streams of an audit had come at some time, as a line to keep where the
store's writers cannot write. Pure.

    {"schema": "effectonce.anchor/1", "at": "2026-11-16T20:00:00Z", "streams":
     {"<name>": {"entries": 12, "mark": "<hex>", "until": 1.8e9, "whole_until": 1.7e9}}}

A mark is a digest of everything before it. So an audit whose marks fit, and that still has these
at these places, has all that it had then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Literal

import msgspec
from msgspec import Struct

from effectonce.errors import ContractViolation
from effectonce.observe._hash_chain import Head, began_at
from effectonce.observe._verification import AuditNote


class Reached(Struct, frozen=True):
    """How far one stream had come."""

    entries: int  # the number of its last entry
    mark: str
    until: float  # it is kept as long, and is not missed afterwards
    whole_until: float = 0.0  # so long its first entry is kept, and with it all


class Anchor(Struct, frozen=True):
    schema: Literal["effectonce.anchor/1"]
    at: str
    streams: Mapping[str, Reached]


def anchor_line(heads: Iterable[Head], now: float) -> str:
    """One line of JSON."""
    reached = {
        head.stream: Reached(
            head.last, head.mark.hex(), head.at + head.keep_s, began_at(head.stream) + head.keep_s
        )
        for head in heads
    }
    at = datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return msgspec.json.encode(Anchor("effectonce.anchor/1", at, reached)).decode()


def notes_of(lines: Iterable[str]) -> list[AuditNote]:
    """What anchors say of streams. An unreadable line is refused: it may be the one that tells."""
    notes: list[AuditNote] = []
    for number, line in enumerate(lines, start=1):
        try:
            notes += _notes(line) if line.strip() else []
        except (msgspec.MsgspecError, ValueError) as error:
            raise ContractViolation(
                f"anchor {number} cannot be read ({error}): it is a line that `effectonce audit"
                " anchor` wrote"
            ) from None
    return notes


def _notes(line: str) -> list[AuditNote]:
    anchor = msgspec.json.decode(line, type=Anchor)
    why = f"it was anchored on {anchor.at}"
    return [
        AuditNote(stream, to.entries, bytes.fromhex(to.mark), to.until, why, to.whole_until)
        for stream, to in anchor.streams.items()
    ]
