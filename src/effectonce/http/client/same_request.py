"""When two requests of a tool are the same one: the second is a repeat of the first, and not
another effect.

What is compared is the query and the body; the method and the path are the place that both go
to. The host is not: another one may stand in. Nor are headers. Two requests that differ only in
what changes from one attempt to the next are the same:

    a time          that is within minutes of the clock: of day, in Unix seconds or smaller units,
                    or inside a UUID. A date that was chosen, such as an appointment, is not: two
                    of them are two requests
    by its name     a clock, a nonce, a count of attempts, and the id of one call unless it is a
                    number, as `check_stable` knows them; and a random UUID in a field that says
                    that it is the message's own. In all others it is taken for what it is about: a
                    customer

This is looked for in JSON and in forms, up to 1 MiB. Other bodies are compared byte for byte,
multipart without its boundary. A body that can be read only once is never the same as another.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qsl
from uuid import UUID

from effectonce._core.canonical import NotCanonical, canonical
from effectonce._core.keys import unstable_name
from effectonce._core.strict_json import read_exactly
from effectonce.http.server.fingerprint import Fields, ParsedRequest, fingerprint_of

READ_MAX = 1 << 20
NEAR_S = 300.0  # a time that a request was made at: not longer ago than an attempt takes
UNITS = (1, 1_000, 1_000_000, 1_000_000_000)
_TIME = re.compile(
    r"\d{4}-?\d\d-?\d\d[T ]\d\d:?\d\d(?::?\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?", re.IGNORECASE
)
_DIGITS = re.compile(r"(?<![\d.])\d{10,19}(?:\.\d+)?(?!\d)")
_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)
_OWN_ID = frozenset(
    {
        "uuid",
        "guid",
        "message_id",
        "event_id",
        "idempotency_key",
        "client_token",
        "client_request_token",
    }
)
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def fingerprints(
    query: str, headers: Mapping[str, str], body: bytes | None, now: float
) -> frozenset[str]:
    """Two requests that share one of these are the same. Empty: its body can be read only once."""
    if body is None:
        return frozenset()
    content_type, encoding = headers.get("content-type", ""), headers.get("content-encoding", "")
    whole = ParsedRequest("", query, content_type, encoding)
    lasting = ParsedRequest("", _form(query, now).decode(), content_type, encoding)
    kept = _lasting(content_type, body, now)
    exactly = f"whole {fingerprint_of(whole, body, Fields(), b'')}"
    return frozenset({exactly, f"lasting {fingerprint_of(lasting, kept, Fields(), b'')}"})


def _lasting(content_type: str, body: bytes, now: float) -> bytes:
    """The body without what changes between attempts; all of it, if it cannot be read."""
    media = content_type.partition(";")[0].strip().lower()
    if len(body) > READ_MAX:
        return body
    try:
        if media.endswith(("/json", "+json")):
            return canonical(_kept("", read_exactly(body.decode()), now))
        if media == "application/x-www-form-urlencoded":
            return _form(body.decode("latin-1"), now)
    except (ValueError, ArithmeticError, RecursionError, NotCanonical):
        pass
    return body


def _form(text: str, now: float) -> bytes:
    """As `metadata[request_id]=...` has it, the last part of a name says what a field holds."""
    kept = []
    for name, value in parse_qsl(text, keep_blank_values=True, encoding="latin-1"):
        last = name.rpartition("[")[2].rstrip("]")
        if not _changes(last, value):
            kept.append([name, _text(last, value, now)])
    return canonical(kept)


def _kept(name: str, value: Any, now: float) -> Any:
    match value:
        case dict():
            own = {"id"} if "jsonrpc" in value else set()
            return {
                each: _kept(each, its, now)
                for each, its in value.items()
                if each not in own and not _changes(each, its)
            }
        case list():
            return [_kept(name, each, now) for each in value]
        case str():
            return _text(name, value, now)
        case int() | float() | Decimal() if not isinstance(value, bool) and _near(
            float(value), now
        ):
            return "now"
        case _:
            return value


def _changes(name: str, value: Any) -> bool:
    """Does such a field change on every attempt? A request number may be what is asked about."""
    match unstable_name(_WORDS.sub("_", name).replace("-", "_")):
        case None:
            return False
        case "the id of one call":
            return isinstance(value, str) and not value.isdecimal()
        case _:
            return True


def _text(name: str, text: str, now: float) -> str:
    """A text without times that are now, and without an id that was made for it alone."""
    if len(text) < 10:  # nothing of this fits in
        return text
    own = _WORDS.sub("_", name).replace("-", "_").lower() in _OWN_ID

    def without_new(found: re.Match[str]) -> str:
        return "uuid" if _is_new(UUID(found[0]), now, own=own) else found[0]

    text = _UUID.sub(without_new, text)
    text = _TIME.sub(lambda found: "now" if _is_now(found[0], now) else found[0], text)
    return _DIGITS.sub(lambda found: "now" if _near(float(found[0]), now) else found[0], text)


def _is_new(uuid: UUID, now: float, *, own: bool) -> bool:
    match uuid.version:
        case 4:
            return own
        case 1:
            return _near((uuid.time - 0x01B21DD213814000) / 1e7, now)
        case 6:
            ticks = (uuid.int >> 80) << 12 | (uuid.int >> 64) & 0x0FFF
            return _near((ticks - 0x01B21DD213814000) / 1e7, now)
        case 7:
            return _near(uuid.int >> 80, now)
        case _:
            return False


def _is_now(text: str, now: float) -> bool:
    try:
        time = datetime.fromisoformat(text.upper().replace(",", "."))
        # without a zone, it may be ours
        read_as = (time, time.replace(tzinfo=UTC)) if time.tzinfo is None else (time,)
        return any(abs(each.timestamp() - now) <= NEAR_S for each in read_as)
    except (ValueError, OverflowError):  # no date, or none that a clock can show
        return False


def _near(number: float, now: float) -> bool:
    return any(abs(number / unit - now) <= NEAR_S for unit in UNITS)
