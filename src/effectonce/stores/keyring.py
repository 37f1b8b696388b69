"""The keys that seal what is stored.

    v1 sealed <key id> <nonce><ciphertext>          AES-256-GCM

Theory of operation. A write may come twice, because its acknowledgement was lost, and the record
then compares what it holds with what it is given. So sealing the same bytes for the same place
must give the same bytes: the nonce is not random but the beginning of an HMAC over the place and
the plaintext, under a key of its own (the idea of AES-SIV). Two different plaintexts share a
nonce as rarely as they would by chance. What an observer learns is whether one field of one row
was written with the same content twice. AES-GCM-SIV is made for this, but needs OpenSSL 3.2,
which the distributions' own builds of `cryptography` may not have.

The place is the effect's key and the name of the field. It is authenticated, so a ciphertext
that is moved to another row or field does not open. Tenant and tool need not be in it: the
effect's key is derived from them, and most writes know nothing else.
"""

from __future__ import annotations

import base64
import hmac
import os
import re
import threading
import time
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any, Self

import msgspec

from effectonce._core.codec import SEALED
from effectonce.errors import ContractViolation

KEY_BYTES, NONCE_BYTES = 32, 12
# no space, colon or comma: it stands in what is stored, and in the environment
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_URL_SAFE = str.maketrans("-_", "+/")
_pack = msgspec.msgpack.Encoder().encode


class NotOpened(ValueError):
    """These bytes do not open here; the message says why."""


class _Key:
    """One key, ready to use. It keeps what was derived, not the key itself, and prints neither."""

    __slots__ = ("_aead", "nonce_key")

    def __init__(self, key: bytes) -> None:
        aead, hkdf, sha256 = _cryptography()
        derived = hkdf(
            algorithm=sha256(), length=2 * KEY_BYTES, salt=None, info=b"effectonce v1 at rest"
        ).derive(key)
        self._aead, self.nonce_key = aead(derived[:KEY_BYTES]), derived[KEY_BYTES:]

    def seal(self, data: bytes, place: bytes) -> bytes:
        nonce = hmac.digest(self.nonce_key, place + data, "sha256")[:NONCE_BYTES]
        sealed: bytes = self._aead.encrypt(nonce, data, place)
        return nonce + sealed

    def open(self, sealed: bytes, place: bytes) -> bytes | None:
        """The plaintext; None if it was not sealed here, by this key, for this place."""
        from cryptography.exceptions import InvalidTag

        try:
            opened: bytes = self._aead.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], place)
        except (InvalidTag, ValueError):  # ValueError: too short to hold a nonce
            return None
        return opened


class Keyring:
    """The keys that seal arguments, results and evidence in the store: one for new writes, all
    of them for reading.

    *keys* are 32 random bytes each, under an id that is stored beside what they seal. *primary*
    is the one for new writes; by default the first. What is not sealed is not believed: anyone
    who can write to the store may have put it there. Records from before encryption are read
    until the day *plaintext_until*.
    """

    def __init__(
        self,
        keys: Mapping[str, bytes],
        *,
        primary: str | None = None,
        plaintext_until: date | str | None = None,
    ) -> None:
        if not isinstance(keys, Mapping):  # not quoted: it may be a key
            raise ContractViolation(
                "a keyring takes keys by their ids: Keyring({'2026-11': key}). From text,"
                " Keyring.from_env() reads them."
            )
        if not keys:
            raise ContractViolation(
                "a keyring needs a key. Make one with Keyring.generate('2026-11')."
            )
        self._plaintext_until = _end_of(plaintext_until)
        self._lock = threading.Lock()
        self._keys = {key_id: _made(key_id, key) for key_id, key in keys.items()}
        self._primary = next(iter(keys)) if primary is None else primary
        if self._primary not in self._keys:
            raise ContractViolation(
                f"primary={primary!r} is not in this keyring; it has {', '.join(self._keys)}"
            )

    @classmethod
    def from_env(
        cls, name: str = "EFFECTONCE_KEYS", *, plaintext_until: date | str | None = None
    ) -> Self:
        """Read `id:base64,id:base64` from an environment variable. The first one seals, all of
        them open.

        Unless it is given, EFFECTONCE_PLAINTEXT_UNTIL says until when records from before
        encryption are read.
        """
        entries = [entry.strip() for entry in os.environ.get(name, "").split(",") if entry.strip()]
        if not entries:
            raise ContractViolation(
                f"the environment variable {name} is empty or missing. Set it to id:base64 of 32"
                " random bytes; Keyring.generate('2026-11') makes one."
            )
        keys: dict[str, bytes] = {}
        for number, entry in enumerate(entries, start=1):
            key_id, _, text = entry.partition(":")
            try:
                key = base64.b64decode(text.translate(_URL_SAFE), validate=True)
            except ValueError:
                key = b""
            # nothing of it is quoted: any part may be the key
            if len(key) != KEY_BYTES or _NAME.fullmatch(key_id) is None:
                raise ContractViolation(
                    f"entry {number} of {name} is not id:base64 of {KEY_BYTES} bytes."
                    " Keyring.generate('2026-11') makes one."
                ) from None
            if key_id in keys:
                raise ContractViolation(f"{name} has two keys with the id {key_id!r}")
            keys[key_id] = key
        return cls(
            keys, plaintext_until=plaintext_until or os.environ.get("EFFECTONCE_PLAINTEXT_UNTIL")
        )

    @staticmethod
    def generate(key_id: str) -> str:
        """A new random key as `from_env` reads it: `id:base64`."""
        return f"{_checked(key_id)}:{base64.b64encode(os.urandom(KEY_BYTES)).decode()}"

    @property
    def primary(self) -> str:
        """The id of the key that seals new writes."""
        return self._primary

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of all keys."""
        return tuple(self._keys)

    def add(self, key_id: str, key: bytes, *, primary: bool = False) -> None:
        """Add a key while running; *primary*: seal with it from now on. Repeats are harmless."""
        made = _made(key_id, key)
        with self._lock:
            known = self._keys.get(key_id)
            if known is not None and known.nonce_key != made.nonce_key:
                raise ContractViolation(
                    f"the keyring has another key with the id {key_id!r}, and what that one sealed"
                    " could not be read any more. Nothing was changed. Give the new key an id of"
                    " its own."
                )
            self._keys = {**self._keys, key_id: made}  # replaced, not changed: readers take no lock
            if primary:
                self._primary = key_id  # after the key is there

    def __repr__(self) -> str:
        return f"Keyring({', '.join(self._keys)}; primary={self._primary})"

    # ------------------------------------------------------------ sealing

    def seal(self, data: bytes, effect_key: str, field: str) -> bytes:
        """Seal what goes into this field of this effect's record. Nothing stays nothing."""
        if data == b"":
            return data
        primary = self._primary
        return (
            SEALED
            + primary.encode()
            + b" "
            + self._keys[primary].seal(data, _place(effect_key, field))
        )

    def open(self, data: bytes, effect_key: str, field: str) -> bytes:
        """What was sealed into this field of this effect's record. Raises `NotOpened` with why."""
        if data == b"":
            return data
        if not data.startswith(SEALED):
            if time.time() >= self._plaintext_until:
                raise NotOpened(
                    "it is not sealed, and anyone who can write to the store may have put it there"
                )
            return data
        name, _, sealed = data[len(SEALED) :].partition(b" ")
        key_id = name.decode("ascii", "replace")
        key = self._keys.get(key_id)
        if key is None:
            raise NotOpened(f"it was sealed with key {key_id!r}, which this process does not have")
        opened = key.open(sealed, _place(effect_key, field))
        if opened is None:
            raise NotOpened(
                "it was changed in the store, belongs to another effect, or was sealed with"
                f" another key that was called {key_id!r}"
            )
        return opened


def _end_of(day: date | str | None) -> float:
    """The end of this day, in UTC. None has ended."""
    if not day:
        return 0.0
    try:
        last = (
            date.fromisoformat(day) if isinstance(day, str) else date(day.year, day.month, day.day)
        )
    except (ValueError, AttributeError):
        raise ContractViolation(
            f"plaintext_until={day!r} is no day. Write it as 2026-12-31."
        ) from None
    return datetime(last.year, last.month, last.day, tzinfo=UTC).timestamp() + 86_400


def _place(effect_key: str, field: str) -> bytes:
    """MessagePack gives each part's length: no place reads like the beginning of another."""
    return _pack(("effectonce sealed v1", effect_key, field))


def _checked(key_id: str) -> str:
    # as below
    if not isinstance(key_id, str) or _NAME.fullmatch(key_id) is None:  # type: ignore[redundant-expr]
        raise ContractViolation(
            f"{key_id!r} is not an id of a key: use up to 64 letters, digits, dots, dashes and"
            " underscores"
        )
    return key_id


def _made(key_id: str, key: bytes) -> _Key:
    # callers without a type checker
    if not isinstance(key, bytes) or len(key) != KEY_BYTES:  # type: ignore[redundant-expr]
        raise ContractViolation(
            f"the key {_checked(key_id)!r} is not {KEY_BYTES} bytes. Make one with"
            f" os.urandom({KEY_BYTES})."
        )
    _checked(key_id)
    return _Key(key)


def _cryptography() -> tuple[Any, Any, Any]:
    """Imported when a keyring is made, never before: it is an optional extra."""
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF
    except ImportError as error:
        raise ContractViolation(
            f"a keyring needs the package cryptography, which is not installed ({error}). Run: pip"
            " install 'effectonce[encryption]'"
        ) from error
    return AESGCM, HKDF, SHA256
