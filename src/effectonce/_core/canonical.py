"""Canonical form and fingerprints, version 1.

What JSON carries exactly is written as RFC 8785 writes it, byte for byte. What JSON cannot carry
is written losslessly behind a `#`, which no JSON text can start with, so that a Decimal never
meets the string that looks like it. What has no stable identity (NaN, lone surrogates, arbitrary
objects) is refused. Strings are not normalised: NFC and NFD are two requests, as RFC 8785 has
it.

Two paths, one result. orjson writes the bytes in C, and they are taken if the value is made of
plain types only and no number needs another spelling; otherwise `_write` spells the value out,
at ten times the price.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import Any, cast
from unicodedata import normalize
from uuid import UUID

import orjson

VERSION = "v1"
INT_MAX = 2**53 - 1  # the last integer that every JSON reader agrees on

FLOAT_MIN, FLOAT_MAX = 1e-4, 1e15  # where every writer of floats agrees, bar whole numbers

# What is written as what it is. A subclass of one of these may hold more than is written.
_BARE: dict[type, None] = dict.fromkeys(
    (
        str,
        bool,
        int,
        float,
        dict,
        list,
        tuple,
        set,
        frozenset,
        Decimal,
        datetime,
        date,
        time,
        timedelta,
        UUID,
        bytes,
        bytearray,
    )
)
_HOLDERS = (dict, list, tuple, set, frozenset)
_BEYOND_SURROGATES = bytes(byte >= 0xEE for byte in range(256))
OPTIONS = (
    orjson.OPT_SORT_KEYS
    | orjson.OPT_STRICT_INTEGER
    | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)


class NotCanonical(ValueError):
    """This value has no canonical form, so it cannot identify a request."""


def canonical(value: Any) -> bytes:
    """Write *value* so that equal requests are equal bytes, in every process and every release."""
    try:
        encoded = orjson.dumps(value, option=OPTIONS)
        if is_plain(value) and (encoded.isascii() or sorts_alike(encoded)):
            return encoded
    except (TypeError, ValueError):
        pass  # not JSON, or not as RFC 8785 spells it: written, or refused with a reason, below
    parts: list[str] = []
    try:
        _write(value, parts.append)
    except RecursionError:
        raise NotCanonical("the value is nested too deeply or contains itself") from None
    return "".join(parts).encode()


def composed(value: Any) -> bytes:
    """The same in NFC: "é" is one text, however composed. Dicts sort by their composed names."""
    return normalize("NFC", canonical(_composed(value)).decode()).encode()


def _composed(value: Any) -> Any:
    if type(value) is dict:
        return {
            normalize("NFC", key) if isinstance(key, str) else key: _composed(part)
            for key, part in value.items()
        }
    return [_composed(part) for part in value] if type(value) is list else value


def is_plain(value: Any) -> bool:
    """Does orjson write this as RFC 8785? Non-JSON types, whole and extreme floats differ."""
    kind = type(value)
    if kind is dict:
        items = value.values()
    elif kind is list or kind is tuple:
        items = value
    else:
        items = (value,)
    # in one loop, without a generator or a call for each item: every key passes here
    for item in items:
        kind = type(item)
        if kind is str or kind is int:
            continue
        if kind is float:
            if not (FLOAT_MIN < abs(item) < FLOAT_MAX and item % 1):
                return False
        elif kind is dict or kind is list or kind is tuple:
            if not is_plain(item):
                return False
        elif kind is not bool and item is not None:
            return False
    return True


def sorts_alike(encoded: bytes) -> bool:
    """RFC 8785 sorts by UTF-16 unit, orjson by code point: alike if UTF-8 bytes are below 0xEE."""
    try:
        encoded.decode().encode("latin-1")  # far below, and the quickest to tell
    except UnicodeEncodeError:
        return 1 not in encoded.translate(_BEYOND_SURROGATES)
    return True


def fingerprint(document: bytes, secret: bytes = b"") -> str:
    """Digest canonical bytes. The version in front lets the form change without mistaking old
    for new.

    With a secret it is an HMAC: a reader of the store cannot try out amounts and card numbers
    until one fits.
    """
    if secret:
        return f"{VERSION}h:{hmac.digest(secret, b'fingerprint ' + document, 'sha256').hex()}"
    return f"{VERSION}:{hashlib.sha256(document).hexdigest()}"


def _write(value: Any, out: Any) -> None:
    if type(value) not in _BARE:
        _refuse_what_is_left_out(value)
    match value:
        case None:
            out("null")
        case bool():
            out("true" if value else "false")
        case str():
            out(_string(value))
        case int():
            out(str(int(value)) if -INT_MAX <= value <= INT_MAX else f"#int:{_digits(int(value))}")
        case float():
            out(number(value))
        case list() | tuple():
            _write_array("[", value, out)
        case Mapping():
            _write_object(value, out)
        case set() | frozenset():
            out("#set:[" + ",".join(sorted(canonical(item).decode() for item in value)) + "]")
        case _:
            _write_beyond_json(value, out)


def _write_array(opening: str, items: Iterable[Any], out: Any) -> None:
    for item in items:
        out(opening)
        _write(item, out)
        opening = ","
    out("[]" if opening == "[" else "]")


def _write_object(mapping: Mapping[Any, Any], out: Any) -> None:
    if any(not isinstance(key, str) for key in mapping):
        # {1: x} and {"1": x} are two requests, so these keys keep their types.
        pairs = sorted((canonical(key).decode(), value) for key, value in mapping.items())
        opening = "#map:{"
    else:
        for key in mapping:
            if type(key) is not str:
                _refuse_what_is_left_out(key)
        pairs = [(_string(key), mapping[key]) for key in sorted(mapping, key=_utf16)]
        opening = "{"
    for key, value in pairs:
        out(f"{opening}{key}:")
        _write(value, out)
        opening = ","
    out("}" if pairs else f"{opening}}}")


def _write_beyond_json(value: Any, out: Any) -> None:
    match value:
        case Enum():  # an Enum that is a str or an int went the way of its value
            out(f"#enum:{type(value).__name__}:")
            _write(value.value, out)
        case Decimal():
            out(f"#decimal:{_decimal(value)}")
        case datetime():
            out(f'#datetime:"{value.isoformat()}"')
        case date() | time():
            out(f'#{type(value).__name__}:"{value.isoformat()}"')
        case timedelta():
            out(f"#timedelta:{value // timedelta(microseconds=1)}")
        case UUID():
            out(f'#uuid:"{value}"')
        case bytes() | bytearray() | memoryview():
            out(f'#bytes:"{bytes(value).hex()}"')
        case _:
            out(f"#object:{type(value).__name__}:")
            _write_object(fields_of(value), out)


def _refuse_what_is_left_out(value: Any) -> None:
    """An `int`, `str` or `dict` subclass is written as its built-in type: it may hold no more."""
    cls = type(value)
    base = next((kind for kind in _BARE if issubclass(cls, kind)), None)
    if base is None:
        return
    # its attributes belong to the member, which its value names, unless two members have the same
    if isinstance(value, Enum):
        held = cast("Any", base)
        if sum(held.__eq__(member, value) is True for member in cls) > 1:
            raise NotCanonical(
                f"{cls.__qualname__}.{value.name} is the same {base.__name__} as another member;"
                " pass its name"
            )
        return
    slots = {
        name
        for each in cls.__mro__[: cls.__mro__.index(base)]
        for name in _slots(each)
        if hasattr(value, name)
    }
    beside = slots | {*getattr(value, "__dict__", ())}
    if issubclass(base, _HOLDERS):  # keeps its books in private, or has its items for attributes
        beside = {
            name
            for name in beside
            if not name.startswith("_") and not (isinstance(value, dict) and name in value)
        }
    if beside:
        raise NotCanonical(
            f"a {cls.__module__}.{cls.__qualname__} holds {', '.join(sorted(beside))} beside its"
            f" {base.__name__}, so two that differ only in that would be one request; pass plain"
            " data or a dataclass, or declare the argument volatile"
        )


def _slots(cls: type) -> Iterable[str]:
    slots = vars(cls).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else slots


def fields_of(value: Any) -> dict[str, Any]:
    """The fields of a dataclass, pydantic or msgspec model. It imports no optional library."""
    cls = type(value)
    names: Iterable[str] | None = getattr(
        cls, "__pydantic_fields__", getattr(cls, "__struct_fields__", None)
    )
    if hasattr(cls, "__dataclass_fields__"):
        # Of the object: variables of its class are none of it.
        names = own = {field.name for field in dataclasses.fields(value)}
        if "__dataclass_fields__" not in vars(cls) and not own.issuperset(
            getattr(value, "__dict__", ())
        ):
            raise NotCanonical(
                f"a {cls.__qualname__} has fields beyond those of the dataclass it inherits from;"
                " decorate it too"
            )
    if names is None:
        raise NotCanonical(
            f"a {cls.__module__}.{cls.__qualname__} has no stable identity; pass plain data, or"
            " declare the argument volatile"
        )
    fields = {name: getattr(value, name) for name in names}
    return fields | (getattr(value, "__pydantic_extra__", None) or {})


def _digits(value: int) -> str:
    try:
        return str(value)
    except ValueError as error:  # more than `sys.get_int_max_str_digits()`
        raise NotCanonical(f"an integer cannot be written: {error}") from None


def _string(text: str) -> str:
    try:
        # what a subclass holds, not what its own __str__ says
        return orjson.dumps(str.__str__(text)).decode()
    except TypeError:
        raise NotCanonical(
            "a string contains a lone surrogate, which no encoding can carry"
        ) from None


def _utf16(key: str) -> bytes:
    return key.encode("utf-16-be", "surrogatepass")


def _decimal(value: Decimal) -> str:
    """Equal decimals are equal text: 1.10 is 1.1. Never rounded to a context's precision."""
    if not value.is_finite():
        raise NotCanonical(f"{value} is not a number that can identify a request")
    sign, digits, exponent = value.as_tuple()
    text = "".join(map(str, digits)).lstrip("0")
    bare = text.rstrip("0")
    if not bare:
        return "0e0"
    return f"{'-' if sign else ''}{bare}e{int(exponent) + len(text) - len(bare)}"


def number(value: float) -> str:
    """Spell a float as ECMAScript does (RFC 8785 section 3.2.2.3)."""
    if not isfinite(value):
        raise NotCanonical(f"{value} is not a number that can identify a request")
    if value == 0:
        return "0"
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = (
        len(whole) + int(exponent or 0)
        if whole != "0"
        else int(exponent or 0) - (len(fraction) - len(digits))
    )
    digits = digits.rstrip("0")
    if len(digits) <= point <= 21:
        return sign + digits.ljust(point, "0")
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{digits.rjust(len(digits) - point, '0')}"
    power = f"e{point - 1:+d}"
    return sign + digits[0] + (f".{digits[1:]}" if len(digits) > 1 else "") + power
