"""Outcomes and arguments as bytes, version 1. A replay equals the original, type by type, or
says that it cannot.

    v1 ok <json>            a result that JSON carries exactly
    v1 tagged <json>        a result with tuples, bytes, decimals, dates, big integers, models...
    v1 error <json>         a definite failure: {"type", "message"}, and what it was taken to mean:
                            see attempts.py
    v1 partial <json>       a partial success: {"message", "done", "corrective_action"}
    v1 unavailable <json>   the effect happened, its result could not be stored: {"why"}; or cannot
                            be opened here, which is never stored
    v1 redacted <one of the above>      arguments, some of which were never stored: REDACTED or
                                        NOT_STORED stands for them
    v1 sealed <bytes>       any of the above, encrypted: see stores/keyring.py

No class is ever looked up by a name from the store: a model is stored as its fields and rebuilt
by the type that the running tool declares. Where it declares several, the stored name says which
of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from enum import Enum
from types import NoneType
from typing import Any

import msgspec
import orjson
from msgspec import Struct

from effectonce._core.tagged_json import (
    NotReadable,
    NotStorable,
    as_tagged,
    model_fields,
    read_tagged,
    rebuilt,
)
from effectonce._core.type_hints import arms, classes

OPTIONS = (
    orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)
OK, PARTIAL, SEALED, _REDACTED = b"v1 ok ", b"v1 partial ", b"v1 sealed ", b"v1 redacted "
_CLOSED = b'v1 unavailable {"closed":true,'
REDACTED, NOT_STORED = "[redacted]", "[not stored: a "
NOT_PLAIN = object()
SCALARS = frozenset({str, int, bool, NoneType})
# Far below what a store can take (Redis 512 MB, SQLite and PostgreSQL 1 GB) and still written
# within the time that a store is given.
STORED_BYTES_MAX = 16 << 20


def encode(value: Any, hint: Any = Any) -> bytes:
    """Store *value* so that `decode` gives an equal one; else, or if too large, `NotStorable`."""
    stored = _encoded(value, hint)
    if len(stored) > STORED_BYTES_MAX:
        raise NotStorable(
            f"it takes {len(stored):,} bytes, and at most {STORED_BYTES_MAX:,} are stored"
        )
    return stored


def _encoded(value: Any, hint: Any) -> bytes:
    try:
        plain = None if isinstance(value, Enum) and _is_declared_enum(hint) else _plain(value)
        if plain is not None:
            return OK + plain
        tagged = orjson.dumps(as_tagged(value))
        if _same(rebuilt(orjson.loads(tagged), hint), value):
            return b"v1 tagged " + tagged
    except Exception as error:
        # the value's own methods run here, and the effect has happened whatever they raise
        raise NotStorable(f"{type(value).__name__}: {printable(error)}") from error
    raise NotStorable(
        f"a {type(value).__name__} does not read back equal; declare it as the tool's return type"
    )


def _same(read: Any, value: Any) -> bool:
    """Equal; or read back but equal to nothing: NaN, a time in the hour that a zone has twice."""
    if read == value:
        return True
    if type(read) is not type(value) or type(value).__eq__ is object.__eq__:  # type: ignore[comparison-overlap]
        return False
    match value:
        case float() | Decimal():
            return value != value and read != read  # noqa: PLR0124
        case datetime():
            return bool(read.isoformat() == value.isoformat())
        case list() | tuple():
            return len(read) == len(value) and all(map(_same, read, value))
        case dict():
            return bool(read.keys() == value.keys()) and all(
                _same(read[key], value[key]) for key in value
            )
        case _ if (
            hasattr(value, "__pydantic_private__")
            and read.__pydantic_private__ != value.__pydantic_private__
        ):
            return False
        case _:
            return _same(model_fields(read), model_fields(value))


def _is_declared_enum(hint: Any) -> bool:
    """A str or int Enum equals its value, but a tool that declares it wants it back."""
    return any(issubclass(cls, Enum) for cls in classes(hint))


def _plain(value: Any) -> bytes | None:
    """The value as JSON, if JSON carries it exactly."""
    try:
        plain = orjson.dumps(value, option=OPTIONS)
    except (TypeError, ValueError):
        return None
    return plain if made_of_json(value) or orjson.loads(plain) == value else None


def plain(value: Any) -> bytes:
    """The value as it is stored, if it is plain data; b"": it is not, or it is too large."""
    try:
        # first: what holds itself is refused here
        stored = OK + orjson.dumps(value, option=OPTIONS)
        return stored if len(stored) <= STORED_BYTES_MAX and made_of_json(value) else b""
    except Exception:  # noqa: BLE001  # the tool has run: whatever this is, it is not the tool's
        return b""


def made_of_json(value: Any) -> bool:
    """Is it made of JSON's types, and no other written as one of them? Then it reads back equal."""
    kind = type(value)
    # every result passes here
    for item in value.values() if kind is dict else value if kind is list else (value,):
        kind = type(item)
        if kind is str or kind is int:
            continue
        if kind is dict or kind is list:
            if not made_of_json(item):
                return False
        elif not (kind is bool or item is None or (kind is float and item - item == 0)):
            # infinite, or no number
            return False
    return True


def encode_or_excuse(value: Any, hint: Any = Any) -> bytes:
    """Store *value*, or the reason why it cannot be stored: the effect has happened either way."""
    try:
        return encode(value, hint)
    except NotStorable as error:
        return excuse(printable(error))


def excuse(why: str) -> bytes:
    """What stands for a result that cannot be shown."""
    return b"v1 unavailable " + orjson.dumps({"why": why})


def closed(why: str) -> bytes:
    """Stands for what is there and does not open here: to be shown, never stored in its place."""
    return _CLOSED + orjson.dumps({"why": why})[1:]


def is_closed(data: bytes) -> bool:
    """Is it sealed, or does it stand for something that is?"""
    return data.startswith((SEALED, _CLOSED))


def encode_arguments(
    arguments: Mapping[str, Any], redacted: Sequence[str], hints: Mapping[str, Any]
) -> bytes:
    """Store arguments without secrets and non-data, marked: a probe cannot be asked with these."""
    left_out = dict.fromkeys(redacted, REDACTED)
    try:
        stored = encode({**arguments, **left_out} if left_out else arguments, hints)
        return _REDACTED + stored if left_out else stored
    except NotStorable:
        pass  # one of them, usually: a session or a client that it works with
    for name, value in arguments.items():
        if name not in left_out and not _storable(value, hints.get(name, Any)):
            left_out[name] = f"{NOT_STORED}{type(value).__name__}]"
    return _REDACTED + encode_or_excuse({**arguments, **left_out}, hints)


def _storable(value: Any, hint: Any) -> bool:
    try:
        encode(value, hint)
    except NotStorable:
        return False
    return True


def encode_error(error: BaseException, facts: Mapping[str, Any] | None = None) -> bytes:
    """Store a definite failure; *facts* are what else is known about it."""
    report = {**(facts or {}), "type": type(error).__qualname__, "message": printable(error)}
    return b"v1 error " + orjson.dumps(report)


def encode_partial(message: str, done: Any, corrective_action: str) -> bytes:
    """Store what a tool reported about a partial success."""
    try:
        readable = orjson.loads(orjson.dumps(as_tagged(done)))
        rebuilt(readable, Any)  # it will have to be read without a declared type
    except Exception:  # noqa: BLE001  # see `encode`
        readable = printable(done)
    report = {
        "message": printable(message),
        "done": readable,
        "corrective_action": printable(corrective_action),
    }
    stored = PARTIAL + orjson.dumps(report)
    return (
        stored
        if len(stored) <= STORED_BYTES_MAX
        else PARTIAL + orjson.dumps(report | {"done": printable(done)})
    )


_REPORTED = {
    b"error": ("type", "message"),
    b"partial": ("message", "done", "corrective_action"),
    b"unavailable": ("why",),
}


class Stored(Struct, frozen=True):
    """Stored bytes: `ok`, `error`, `partial`, `unavailable` or `redacted`, and the content."""

    status: str
    content: Any


def decode_plain(data: bytes) -> Any:
    """A stored result of plain data; `NOT_PLAIN` if it is anything else, which `decode` reads."""
    try:
        return orjson.loads(data[len(OK) :]) if data.startswith(OK) else NOT_PLAIN
    except orjson.JSONDecodeError:
        return NOT_PLAIN


def decode(data: bytes, hint: Any = Any) -> Stored:
    """Read stored bytes back."""
    if data.startswith(OK):
        try:
            return Stored("ok", orjson.loads(data[len(OK) :]))
        except orjson.JSONDecodeError as error:
            raise NotReadable(f"the stored outcome cannot be read: {error}") from error
    version, _, rest = data.partition(b" ")
    status, _, body = rest.partition(b" ")
    try:
        match version, status:
            case b"v1", b"tagged":
                return Stored("ok", read_tagged(orjson.loads(body), hint))
            case b"v1", (b"error" | b"partial" | b"unavailable"):
                return Stored(status.decode(), _report(status, orjson.loads(body)))
            case b"v1", b"redacted":
                kept = decode(body, hint)
                return Stored("redacted", kept.content) if kept.status == "ok" else kept
            case _:
                pass
    except Exception as error:  # a model of the tool's is made here, and it may have changed since
        raise NotReadable(f"the stored outcome cannot be read: {printable(error)}") from error
    if data.startswith(SEALED):
        raise NotReadable("it is sealed, and this guard has no keyring to open it with")
    raise NotReadable("the stored outcome was not written by a release this one understands")


def _report(status: bytes, body: Any) -> dict[str, Any]:
    """What is known beside a result, with all that its readers ask it for."""
    report = rebuilt(body, Any)
    if not isinstance(report, dict) or not all(name in report for name in _REPORTED[status]):
        raise NotReadable(f"it does not say {', '.join(_REPORTED[status])}")
    return report


def as_declared(value: Any, hint: Any) -> Any:
    """Plain data as the declared type, if it fits: people write JSON, callers expect a model."""
    for arm in arms(hint):
        with contextlib.suppress(Exception):  # a model of the tool's is made here
            return msgspec.convert(value, arm, dec_hook=_validated)
    return value


def _validated(cls: Any, value: Any) -> Any:
    return cls.model_validate(value)


def printable(thing: Any) -> str:
    try:
        return str(thing)[:10_000].encode("utf-8", "replace").decode()
    except Exception:  # noqa: BLE001  # a foreign __str__
        return f"a {type(thing).__name__} that cannot be printed"


def describe_error(kind: str, message: str) -> str:
    """An error in one phrase: its type, and its message, if it has one."""
    return f"{kind}: {message}" if message else kind


# ---------------------------------------------------------------- tags
