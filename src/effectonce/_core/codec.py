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
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from types import NoneType
from typing import Any, is_typeddict
from uuid import UUID

import msgspec
import orjson
from msgspec import Struct

from effectonce._core.canonical import NotCanonical, fields_of
from effectonce._core.type_hints import arms, chosen, classes, field_hints, hints_of, inner

OPTIONS = (
    orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)
OK, PARTIAL, SEALED, _REDACTED = b"v1 ok ", b"v1 partial ", b"v1 sealed ", b"v1 redacted "
_CLOSED = b'v1 unavailable {"closed":true,'
REDACTED, NOT_STORED = "[redacted]", "[not stored: a "
NOT_PLAIN = object()
# In place of a declared type: models as their fields, Enums as their values, for who has no
# class of the tool's.
AS_DATA = object()
_TAG = "$"
SCALARS = frozenset({str, int, bool, NoneType})
# Far below what a store can take (Redis 512 MB, SQLite and PostgreSQL 1 GB) and still written
# within the time that a store is given.
STORED_BYTES_MAX = 16 << 20


class NotStorable(ValueError):
    """This value cannot be stored so that it reads back equal."""


class NotReadable(ValueError):
    """These stored bytes are not an outcome that this release can read."""


def encode(value: Any, hint: Any = Any) -> bytes:
    """Store *value* so that `decode` gives an equal one back; raise `NotStorable` if that cannot
    be, or if it is too large.
    """
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
        tagged = orjson.dumps(_tag(value))
        if _same(_rebuild(orjson.loads(tagged), hint), value):
            return b"v1 tagged " + tagged
    except Exception as error:
        # the value's own methods run here, and the effect has happened whatever they raise
        raise NotStorable(f"{type(value).__name__}: {printable(error)}") from error
    raise NotStorable(
        f"a {type(value).__name__} does not read back equal; declare it as the tool's return type"
    )


def _same(read: Any, value: Any) -> bool:
    """Equal; or what nothing is equal to, although it was read back: NaN, and a time of the hour
    that a zone's clock goes through twice.
    """
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
            return _same(_fields(read), _fields(value))


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
    """Is it made of the types that JSON has, and of no other that is written as one of them?
    Then it reads back equal.
    """
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
    """What stands for what is there and does not open here: to be shown, never to be stored in
    its place.
    """
    return _CLOSED + orjson.dumps({"why": why})[1:]


def is_closed(data: bytes) -> bool:
    """Is it sealed, or does it stand for something that is?"""
    return data.startswith((SEALED, _CLOSED))


def encode_arguments(
    arguments: Mapping[str, Any], redacted: Sequence[str], hints: Mapping[str, Any]
) -> bytes:
    """Store arguments without those that must stay secret or that are no data, and mark it: a
    probe cannot be asked with these.
    """
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
        readable = orjson.loads(orjson.dumps(_tag(done)))
        _rebuild(readable, Any)  # it will have to be read without a declared type
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
    """What stored bytes say: one of `ok`, `error`, `partial`, `unavailable`, `redacted`, and its
    content.
    """

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
                return Stored("ok", _read(orjson.loads(body), hint))
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
    report = _rebuild(body, Any)
    if not isinstance(report, dict) or not all(name in report for name in _REPORTED[status]):
        raise NotReadable(f"it does not say {', '.join(_REPORTED[status])}")
    return report


def as_declared(value: Any, hint: Any) -> Any:
    """Plain data as the declared type, if it fits one: a person at a terminal writes JSON, and
    the tool's callers expect a model.
    """
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

_SCALARS: dict[type, tuple[str, Callable[[Any], Any]]] = {
    bytes: ("bytes", bytes.hex),
    Decimal: ("decimal", str),
    datetime: ("datetime", datetime.isoformat),
    date: ("date", date.isoformat),
    time: ("time", time.isoformat),
    timedelta: ("timedelta", lambda d: d // timedelta(microseconds=1)),
    UUID: ("uuid", str),
}
_READERS: dict[str, Callable[[Any], Any]] = {
    "bytes": bytes.fromhex,
    "decimal": Decimal,
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timedelta": lambda us: timedelta(microseconds=us),
    "uuid": UUID,
    "int": int,
    "float": float,
}
_BAGS: dict[str, type] = {"tuple": tuple, "set": set, "frozenset": frozenset}


def _tag(value: Any) -> Any:
    match value:
        case None | bool():
            return value
        case Enum():
            return {_TAG: "enum", "v": _tag(value.value), "n": type(value).__name__}
        case str():
            return str(value)
        case int():
            return int(value) if -(2**63) <= value < 2**63 else {_TAG: "int", "v": str(int(value))}
        case float():
            return float(value) if value - value == 0 else {_TAG: "float", "v": repr(value)}
        case list():
            return [_tag(item) for item in value]
        case tuple() if hasattr(value, "_fields"):
            return {_TAG: "tuple", "v": [_tag(item) for item in value], "n": type(value).__name__}
        case tuple() | set() | frozenset():
            bag = next(name for name, kind in _BAGS.items() if isinstance(value, kind))
            return {_TAG: bag, "v": [_tag(item) for item in value]}
        case Mapping():
            if _TAG not in value and all(type(key) is str for key in value):
                return {key: _tag(item) for key, item in value.items()}
            return {_TAG: "dict", "v": [[_tag(key), _tag(item)] for key, item in value.items()]}
        case _ if type(value) in _SCALARS:
            name, write = _SCALARS[type(value)]
            return {_TAG: name, "v": write(value)}
        case _:
            return _tag_model(value)


def _tag_model(value: Any) -> dict[str, Any]:
    name = type(value).__name__
    try:
        return {
            _TAG: "model",
            "v": {field: _tag(item) for field, item in _fields(value).items()},
            "n": name,
        }
    except NotStorable:
        if not hasattr(type(value), "model_dump_json"):
            raise
    # Pydantic knows more types than we do: URLs, paths, addresses.
    return {_TAG: "json", "v": value.model_dump_json(round_trip=True, warnings=False), "n": name}


def _fields(value: Any) -> dict[str, Any]:
    try:
        return fields_of(value)
    except NotCanonical:
        raise NotStorable(f"a {type(value).__qualname__} is not data that can be stored") from None


def _read(tree: Any, hint: Any) -> Any:
    return _rebuild(_as_data(tree), Any) if hint is AS_DATA else _rebuild(tree, hint)


def _as_data(tree: Any) -> Any:
    """What `_tag` made, with the fields of models and the values of Enums in their places."""
    if isinstance(tree, list):
        return [_as_data(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    match tree.get(_TAG):
        case "model":
            return {_TAG: "dict", "v": [[name, _as_data(item)] for name, item in tree["v"].items()]}
        case "enum":
            return _as_data(tree["v"])
        case "json":
            return _tag(orjson.loads(tree["v"]))
        case _:
            return {name: _as_data(item) for name, item in tree.items()}


def _rebuild(tree: Any, hint: Any) -> Any:
    """Undo `_tag`; where a model or an Enum was stored, *hint* says which."""
    if isinstance(tree, list):
        each = inner(hint, -1)
        return [_rebuild(item, each) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if _TAG not in tree:
        # arguments: one declared type per name
        named = hint if isinstance(hint, dict) else _typed_dict(hint)
        return {
            key: _rebuild(item, named.get(key) or inner(hint, -1)) for key, item in tree.items()
        }
    tag, stored, name = tree[_TAG], tree["v"], tree.get("n")
    if tag in _READERS:
        return _READERS[tag](stored)
    if tag == "tuple":
        return _rebuild_tuple(stored, hint, name)
    if tag in _BAGS:
        return _BAGS[tag](_rebuild(item, inner(hint, index)) for index, item in enumerate(stored))
    if tag == "dict":
        return {
            _rebuild(key, inner(hint, 0)): _rebuild(item, inner(hint, -1)) for key, item in stored
        }
    return (
        _rebuild_enum(_rebuild(stored, Any), hint, name)
        if tag == "enum"
        else _rebuild_model(tag, stored, hint, name)
    )


def _typed_dict(hint: Any) -> dict[str, Any]:
    return {
        name: each
        for cls in classes(hint)
        if is_typeddict(cls)
        for name, each in hints_of(cls).items()
    }


def _rebuild_tuple(items: list[Any], hint: Any, name: str | None) -> Any:
    """A tuple with names, if one is declared."""
    declared = classes(hint)
    named = [
        cls
        for cls in declared
        if issubclass(cls, tuple) and len(getattr(cls, "_fields", ())) == len(items) > 0
    ]
    cls: Any = None if name is None else chosen(named, name, lambda _: True)
    if cls is None:
        return tuple(_rebuild(item, inner(hint, index)) for index, item in enumerate(items))
    hints = field_hints(cls, declared[cls])
    return cls(
        *(
            _rebuild(item, hints.get(field, Any))
            for field, item in zip(cls._fields, items, strict=True)
        )
    )


def _rebuild_enum(member: Any, hint: Any, name: str | None) -> Any:
    enums = [cls for cls in classes(hint) if issubclass(cls, Enum)]
    cls = chosen(enums, name, lambda cls: any(member == each.value for each in cls))
    if cls is None:
        raise NotStorable("it holds an Enum, and the declared type does not say which")
    return cls(member)


def _rebuild_model(tag: str, stored: Any, hint: Any, name: str | None) -> Any:
    declared = classes(hint)
    models = [cls for cls in declared if _fields_of_class(cls) is not None]
    cls: Any = chosen(
        models, name, lambda cls: tag == "json" or _fields_of_class(cls) == stored.keys()
    )
    if cls is None:
        raise NotStorable("it holds a model, and the declared type does not say which")
    if tag == "json":
        return cls.model_validate_json(stored)
    hints = field_hints(cls, declared[cls])
    fields = {name: _rebuild(item, hints.get(name, Any)) for name, item in stored.items()}
    # pydantic: the fields were validated when the model was made
    if hasattr(cls, "model_construct"):
        return cls.model_construct(**fields)
    if hasattr(cls, "__struct_fields__"):
        return cls(**{name: fields[name] for name in cls.__struct_fields__ if name in fields})
    # Of an older release a dataclass may lack fields that have defaults now, or have more.
    return cls(
        **{f.name: fields[f.name] for f in dataclasses.fields(cls) if f.init and f.name in fields}
    )


def _fields_of_class(cls: type) -> set[str] | None:
    """The names of a model's fields; None if it is no model."""
    for names in ("__pydantic_fields__", "__struct_fields__", "__dataclass_fields__"):
        if hasattr(cls, names):
            return set(getattr(cls, names))
    return None
