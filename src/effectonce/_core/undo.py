"""The undo of an effect: an effect of its own, whose key is made of that of the effect it undoes.

So it happens once, however often it is asked for. Who asked for it and why is left on the effect
that is undone, before anything is sent.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from effectonce._core.effect_ref import EffectRef
from effectonce._core.keys import undo_key
from effectonce._core.ops import Attest
from effectonce._core.record import Evidence, Record
from effectonce._core.resolved import resolved

NOTE = "its undo was asked for"
SUFFIX = ".undo"  # of the tool's name
_STEP = "undo of "  # and the reference of what it undoes
_OK = b"v1 ok "
UNREADABLE = "it cannot be read here"


class UndoRequest(Struct, frozen=True):
    """Who asked for the undo of an effect, and why."""

    by: str
    reason: str
    key: str = ""  # of the undo
    at: float = 0.0


def asked(record: Record, by: str, reason: str, secret: bytes) -> Attest:
    """The write that leaves it on the effect that is to be undone."""
    key = undo_key(record.request.key, secret)
    return Attest(record.request.key, NOTE, _OK + msgspec.json.encode(UndoRequest(by, reason, key)))


def read_request(entry: Evidence) -> UndoRequest | None:
    """What an entry says about an undo; None: nothing."""
    if entry.note != NOTE:
        return None
    try:
        read = msgspec.json.decode(entry.outcome.removeprefix(_OK), type=UndoRequest)
    except (msgspec.MsgspecError, UnicodeDecodeError):  # it is sealed
        return UndoRequest("", UNREADABLE, at=entry.at)
    return UndoRequest(read.by, read.reason, read.key, entry.at)


def place_of(record: Record, secret: bytes) -> EffectRef:
    """Where the undo of this effect is. Its step is for people, and no part of its key."""
    request = record.request
    whose = EffectRef(request.terms.tool, request.key)
    return EffectRef(
        f"{request.terms.tool}{SUFFIX}",
        undo_key(request.key, secret),
        request.tenant,
        request.scope,
        f"{_STEP}{whose.reference}",
    )


def undoes(record: Record) -> str | None:
    """The reference of the effect that this one undoes; None: it is no undo."""
    named = record.request.terms.tool.endswith(SUFFIX) and record.request.step.startswith(_STEP)
    return record.request.step.removeprefix(_STEP) if named else None


resolved(UndoRequest)
