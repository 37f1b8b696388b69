"""The form of the audit, and how a change of it is found. Pure.

Theory of operation. Every process writes a chain of its own, a stream, so that none waits for
another. An entry's mark is a digest of the mark before it and of the entry, under the guard's
secret if it has one. Entries are written in batches, one cell each, and no cell is ever written
twice; with each batch a second, small cell says how far the stream has come: its head. A new
stream notes the heads that it finds.

 1. A changed entry does not fit its mark; a changed mark does not fit the next one; a changed
    batch does not fit its seal.
 2. A batch that is missing in the middle leaves a gap in the numbers.
 3. A batch that is missing at the end is further than the head says it came. A head that is
    gone, or put back, is missed as well.
 4. A whole stream that is gone, head and all, was noted by a later stream, or by a head that is
    kept elsewhere.
 5. A process that is killed leaves a stream without an end. That is not a flaw: what it had
    written fits.

Without a secret anybody who can write to the store can make a new chain that fits. Then only a
head, or an anchor (`_anchor.py`), that is kept elsewhere tells. A stream whose marks are made
with a secret says so in its name, which is in every batch and in what later streams note:
verifying without the secret reports that the marks were not checked. Who renames all of it as
well is found by the secret, or by an anchor, and by nothing else.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from effectonce._core.codec import printable
from effectonce._core.effect_ref import INSIDE, EffectRef
from effectonce.observe.events import Event

BATCHES, HEADS = "audit/", "audit-head/"
START = b""
KEYED = "k"  # the end of the name of a stream whose marks are made with a secret
UNREADABLE = (
    "cannot be read: it was changed, or it is not sealed, or sealed with a key that this process"
    " does not have"
)
_BEGAN = re.compile("[0-9a-f]{12}")
_encode = msgspec.msgpack.Encoder().encode


class Entry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the audit."""

    number: int  # in its stream, from 1
    at: float
    event: str
    stream: str = ""  # which process wrote it; its beginning is when that started
    tool: str = ""
    effect: str = ""  # its reference, never its key
    tenant: str = ""
    scope: str = ""
    step: str = ""
    attempt: int = 0
    outcome: str = ""
    error: str = ""
    bucket: str = ""
    certainty: str = ""
    dependency: str = ""
    duration_s: float | None = None
    age_s: float | None = None
    delay_s: float | None = None
    count: int = 0
    by: str = ""
    reason: str = ""
    fingerprint: str = ""
    arguments: Mapping[str, str] = {}
    # of other streams: number and mark of the last entry, when it was written
    heads: Mapping[str, tuple[int, bytes, float]] = {}


_SHARED = tuple(
    name
    for name in Entry.__struct_fields__
    if name in Event.__struct_fields__ and name not in ("effect", "at")
)
FINGERPRINT_LENGTH = 16


def entry_of(event: Event) -> dict[str, Any]:
    """An event as it is written down; its number comes later."""
    data: dict[str, Any] = {"event": event.name, "at": event.at}
    data |= {name: _written(value) for name in _SHARED if (value := getattr(event, name))}
    if "fingerprint" in data:
        data["fingerprint"] = event.fingerprint[-FINGERPRINT_LENGTH:]
    if event.effect is not None and event.effect.key:
        data |= _place(event.effect)
    return data


def _written(value: Any) -> Any:
    """What can be written. One entry that cannot would take those written with it along."""
    return printable(value) if isinstance(value, str) and not value.isascii() else value


def _place(effect: EffectRef) -> dict[str, str]:
    """Which effect, and where. A nested call's step is made of a key: named as that effect is."""
    nested = effect.step.startswith(INSIDE) and len(effect.step) == len(INSIDE) + len(effect.key)
    step = INSIDE + EffectRef("", effect.step).reference if nested else effect.step
    reference, tenant, scope = effect.reference, effect.tenant, effect.scope
    return {"effect": reference, "tenant": tenant, "scope": scope, "step": step}


# ---------------------------------------------------------------- marks


class EntryBatch(Struct, frozen=True, array_like=True):
    """Entries that were written together."""

    version: int
    stream: str
    number: int  # of the batch, from 0
    first: int  # the number of the first entry
    before: bytes  # the mark of the entry before
    at: float  # when it was written
    before_at: float  # when the batch before it was
    keep_s: float
    closed: bool  # the stream ends here
    lines: tuple[tuple[bytes, bytes], ...]  # each entry and its mark
    seal: bytes = b""

    @property
    def last(self) -> int:
        return self.first + len(self.lines) - 1

    @property
    def mark(self) -> bytes:
        return self.lines[-1][1]

    def entries(self) -> list[Entry]:
        return [_decode_entry(line) for line, _ in self.lines]


class Head(Struct, frozen=True, array_like=True):
    """How far a stream has come."""

    stream: str
    batch: int
    last: int
    mark: bytes
    at: float
    keep_s: float
    closed: bool
    seal: bytes = b""


_decode_batch = msgspec.msgpack.Decoder(EntryBatch).decode
_decode_head = msgspec.msgpack.Decoder(Head).decode
_decode_entry = msgspec.msgpack.Decoder(Entry).decode


class Marks:
    """Makes and checks marks, under a secret or without."""

    def __init__(self, secret: bytes = b"") -> None:
        self._secret = hmac.digest(secret, b"effectonce v1 audit", "sha256") if secret else b""
        self.keyed = bool(secret)

    def can_check(self, stream: str) -> bool:
        """False: its marks are made with a secret, and there is none here."""
        return self.keyed or not stream.endswith(KEYED)

    def of(self, *parts: bytes) -> bytes:
        data = b"".join(parts)  # every part but the last has a fixed length, or is the beginning
        if self._secret:
            return hmac.digest(self._secret, data, "sha256")
        return hashlib.sha256(data).digest()

    def batch(self, unsealed: EntryBatch) -> bytes:
        """A batch as a cell holds it."""
        return _encode(msgspec.structs.replace(unsealed, seal=self.of(_encode(_bare(unsealed)))))

    def head(self, unsealed: Head) -> bytes:
        return _encode(msgspec.structs.replace(unsealed, seal=self.of(_encode(unsealed))))

    def lines(self, before: bytes, entries: Iterable[Entry]) -> tuple[tuple[bytes, bytes], ...]:
        made = []
        for entry in entries:
            line = _encode(entry)
            before = self.of(before, line)
            made.append((line, before))
        return tuple(made)

    def fits(self, batch: EntryBatch) -> bool:
        return hmac.compare_digest(batch.seal, self.of(_encode(_bare(batch))))

    def head_fits(self, head: Head) -> bool:
        return hmac.compare_digest(
            head.seal, self.of(_encode(msgspec.structs.replace(head, seal=b"")))
        )

    def changed(self, batch: EntryBatch) -> list[int]:
        """The numbers of entries that do not fit their marks."""
        found, before = [], batch.before
        for number, (line, mark) in enumerate(batch.lines, batch.first):
            if not hmac.compare_digest(mark, self.of(before, line)):
                found.append(number)
            before = mark
        return found


def _bare(batch: EntryBatch) -> EntryBatch:
    """What the seal is about: the lines have their own marks, and the last one stands for all."""
    return msgspec.structs.replace(
        batch, lines=((b"", batch.mark),) if batch.lines else (), seal=b""
    )


def began_at(stream: str) -> float:
    """When the process of a stream began it, which its name says; 0 if it does not."""
    began = stream.partition("-")[0]
    return int(began, 16) / 1000 if _BEGAN.fullmatch(began) else 0.0


def read_batch(data: bytes) -> EntryBatch | None:
    try:
        batch = _decode_batch(data)
        batch.entries()
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return batch if batch.version == 1 and batch.lines else None


def read_head(data: bytes) -> Head | None:
    try:
        return _decode_head(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def shown(entry: Entry) -> dict[str, Any]:
    """An entry for people and machines: what it says, without what it does not."""
    return {
        name: value
        for name, value in asdict(entry).items()
        if value not in (None, "", 0, {}) and name != "heads"
    }
