"""`Idempotency-Key` as it stands in a header: a structured-field string (RFC 9651), or the bare
text that many clients send.

Strict is `"8e03978e-40d5-43dd-bc93-6894a57f9324"`, an Item that is a String; it may have
parameters, which mean nothing. Lenient is that, or `8e03978e-40d5-43dd-bc93-6894a57f9324`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import log2
from urllib.parse import unquote_to_bytes

RAW_MAX = 4096  # bytes of a header that are looked at: no key is that long

_STRING = r'"(?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*"'
_PARAMETER_VALUE = "|".join(
    (
        r"-?[0-9]{1,12}\.[0-9]{1,3}",
        r"-?[0-9]{1,15}",
        _STRING,
        r"[A-Za-z*][!#$%&'*+\-.^_`|~0-9A-Za-z:/]*",
        r":(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}(?:==)?|[A-Za-z0-9+/]{3}=?)?:",
        r"\?[01]",
        r"@-?[0-9]{1,15}",
        r'%"(?:[\x20\x21\x23\x24\x26-\x7e]|%[0-9a-f]{2})*"',
    )
)
_PARAMETERS = rf"(?:; *[a-z*][a-z0-9_\-.*]*(?:=(?:{_PARAMETER_VALUE}))?)*"
_ITEM = re.compile(rf" *({_STRING})({_PARAMETERS}) *")
_PLAIN = re.compile(r'"[\x20\x21\x23-\x5b\x5d-\x7e]*"')
_DISPLAY = re.compile(r'=%"([^"]*)"')
_ESCAPED = re.compile(r"\\(.)")
# visible ASCII, bar the quote and the comma: two keys are not one
_BARE = re.compile(r"[\x21\x23-\x2b\x2d-\x7e]+")


class Malformed(ValueError):
    """This header does not hold one key."""


def key_of(lines: Sequence[bytes], *, strict: bool) -> str:
    """The key that the header's lines hold, or `Malformed` with what is wrong with it."""
    raw = b", ".join(lines)  # as RFC 9651 has it: two lines are a list, and a list is no key
    if len(raw) > RAW_MAX:
        raise Malformed(f"it has {len(raw)} bytes")
    if not raw.isascii():
        raise Malformed("it has bytes that are not ASCII")
    text = raw.decode("ascii")
    # nothing to unescape, and no parameters: nearly every key
    if _PLAIN.fullmatch(text) is not None:
        return text[1:-1]
    item = _ITEM.fullmatch(text)
    if item is not None and _utf8(item[2]):
        return _ESCAPED.sub(r"\1", item[1][1:-1])
    if strict:
        raise Malformed('it is not a quoted string, such as "8e03978e-40d5-43dd-bc93-6894a57f9324"')
    bare = text.strip(" \t")
    if _BARE.fullmatch(bare) is None:
        raise Malformed(
            "it is neither a quoted string nor a word without spaces, quotes and commas"
        )
    return bare


def _utf8(parameters: str) -> bool:
    """A Display String parameter must be UTF-8; nothing else the pattern allows can be wrong."""
    try:
        for shown in _DISPLAY.findall(parameters):
            unquote_to_bytes(shown).decode()
    except UnicodeDecodeError:
        return False
    return True


def guessable(key: str, bits_min: float) -> bool:
    """Does a key, by its letters, say less? An upper bound: catches `1`, `test` and `aaaaaaaa`."""
    letters, length = set(key), len(key)
    # as often as one letter can be there: nothing with these letters says less
    most = length - len(letters) + 1
    if length * log2(length) - most * log2(most) >= bits_min:
        return False
    spent = sum([_information(key.count(letter)) for letter in letters])
    return _information(length) - spent < bits_min


def _information(count: int) -> float:
    return count * log2(count)
