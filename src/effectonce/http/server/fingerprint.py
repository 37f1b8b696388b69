"""What a request asks for: two requests that ask for the same have the same fingerprint, however
they were written down.

    JSON            its canonical form: spaces, the order of members and 1.0 for 1 do not matter;
                    null and absent are two things
    multipart       the parts, byte for byte; the boundary, which is drawn anew for each attempt,
                    does not matter, up to 10,000 parts
    anything else   the bytes; so is JSON that does not fit into memory, unless members of it were
                    chosen

What looks like JSON and is none, or has a member twice, or numbers that no canonical form has,
is compared byte for byte: a difference that does not matter is then a conflict, which is
reported; two requests are never taken for one.
"""

from __future__ import annotations

import hashlib
import mmap
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from msgspec import DecodeError, Struct
from msgspec.json import Decoder

from effectonce._core.canonical import NotCanonical, canonical, fingerprint
from effectonce._core.strict_json import exact_number, read_exactly
from effectonce.http.server.spooled_body import PIECE

PARTS_MAX = 10_000  # each costs some calls, and a body that is made of boundaries has millions
_JSON = re.compile(r"application/(?:[^;]*\+)?json")
_UTF8 = re.compile(r'charset="?utf-8"?', re.IGNORECASE)
_QUICK = Decoder(float_hook=exact_number)
_BOUNDARY = re.compile(r'boundary=(?:"([^"]+)"|([^";\s]+))', re.IGNORECASE)


class Fields(Struct, frozen=True):
    """Which members of a JSON object count. A path like `payment.amount` leads through objects."""

    include: tuple[str, ...] = ()  # none: all of them
    exclude: tuple[str, ...] = ()

    @property
    def chosen(self) -> bool:
        return bool(self.include or self.exclude)


class ParsedRequest(Struct, frozen=True):
    """The part of a request that says what it wants, without its body."""

    path: str
    query: str
    content_type: str
    content_encoding: str


def fingerprint_of(
    asked: ParsedRequest, body: bytes | mmap.mmap, fields: Fields, secret: bytes
) -> str:
    """The digest of everything that must match when a key comes again."""
    form, content_type, digest = _digest(asked, body, fields)
    document = [asked.path, asked.query, content_type, asked.content_encoding, form, digest]
    return fingerprint(canonical(document), secret)


def _digest(asked: ParsedRequest, body: bytes | mmap.mmap, fields: Fields) -> tuple[str, str, str]:
    """How the body was read, its type as far as it matters, and its digest."""
    media, parameters, is_json = _media(asked.content_type)
    if is_json and (isinstance(body, bytes) or fields.chosen):
        written = _canonical_json(body[:], fields)
        if written is not None:
            return "json", _without_utf8(media, parameters), hashlib.sha256(written).hexdigest()
    boundary = _BOUNDARY.search(parameters)
    if media.startswith("multipart/") and boundary is not None:
        digest = _parts(body, (boundary[1] or boundary[2]).encode("latin-1", "replace"))
        if digest is not None:
            return "parts", media + _BOUNDARY.sub("", parameters), digest
    return "bytes", asked.content_type, hashlib.sha256(body).hexdigest()


@lru_cache(maxsize=64)  # an API is asked in few of them
def _media(content_type: str) -> tuple[str, str, bool]:
    """The type itself, its parameters, and whether it is JSON."""
    media, _, parameters = content_type.partition(";")
    media = media.strip().lower()
    return media, parameters.strip(), _JSON.fullmatch(media) is not None


# ---------------------------------------------------------------- JSON


def _without_utf8(media: str, parameters: str) -> str:
    """The JSON type. Parameters (a version) may mean something, but for what holds for all JSON."""
    plain = not parameters or _UTF8.fullmatch(parameters) is not None
    return media if plain else f"{media};{parameters}"


def _canonical_json(body: bytes, fields: Fields) -> bytes | None:
    """None: this is not JSON that every parser reads alike."""
    if not fields.chosen and (written := _quickly(body)) is not None:
        return written
    try:
        return canonical(_chosen(read_exactly(body.decode()), fields))
    except (ValueError, ArithmeticError, RecursionError, NotCanonical):
        # some exponents are beyond any Decimal
        return None


def _quickly(body: bytes) -> bytes | None:
    """The canonical form of JSON that has no escapes; None: read it exactly.

    The quick reader keeps the last of two members with one name. Without escapes every quote is
    the end of a string, so a member that was lost is missed by its quotes.
    """
    if b"\\" in body:
        return None
    try:
        written = canonical(_QUICK.decode(body))
    except (ValueError, ArithmeticError, RecursionError, DecodeError):
        return None
    return written if written.count(b'"') == body.count(b'"') else None


def _chosen(document: Any, fields: Fields) -> Any:
    if not fields.chosen or not isinstance(document, dict):
        return document
    if fields.include:
        paths = fields.include
        document = {path: found for path in paths for found in _at(document, path.split("."))}
    for path in fields.exclude:
        document = _without(document, path.split("."))
    return document


def _at(document: Any, path: list[str]) -> Iterable[Any]:
    """What stands there, if something does: null is something."""
    for name in path:
        if not isinstance(document, Mapping) or name not in document:
            return
        document = document[name]
    yield document


def _without(document: Any, path: list[str]) -> Any:
    if not isinstance(document, Mapping) or path[0] not in document:
        return document
    rest = {name: value for name, value in document.items() if name != path[0]}
    return rest if len(path) == 1 else {**rest, path[0]: _without(document[path[0]], path[1:])}


# ---------------------------------------------------------------- multipart


def _parts(body: bytes | mmap.mmap, boundary: bytes) -> str | None:
    """Digest of the parts, each behind its length. None: not multipart, or too many parts."""
    delimiter, opening, digest = b"\r\n--" + boundary, b"--" + boundary, hashlib.sha256()
    if body[: len(opening)] != opening:
        return None
    start, parts = len(opening), 0
    while (end := body.find(delimiter, start)) >= 0:
        parts += 1
        if parts > PARTS_MAX:
            return None
        digest.update(b"%d:" % (end - start))
        for at in range(start, end, PIECE):
            digest.update(body[at : min(end, at + PIECE)])
        start = end + len(delimiter)
    digest.update(b"end:")
    digest.update(body[start:])
    return digest.hexdigest()
