"""Values that JSON has no form for, as tagged JSON, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, is_typeddict
from uuid import UUID

import orjson

from effectonce._core.canonical import NotCanonical, fields_of
from effectonce._core.type_hints import chosen, classes, field_hints, hints_of, inner

# In place of a declared type: models as their fields, Enums as their values, for who has no
# class of the tool's.
AS_DATA = object()
TAG = "$"


class NotStorable(ValueError):
    """This value cannot be stored so that it reads back equal."""


class NotReadable(ValueError):
    """These stored bytes are not an outcome that this release can read."""


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


def as_tagged(value: Any) -> Any:
    match value:
        case None | bool():
            return value
        case Enum():
            return {TAG: "enum", "v": as_tagged(value.value), "n": type(value).__name__}
        case str():
            return str(value)
        case int():
            return int(value) if -(2**63) <= value < 2**63 else {TAG: "int", "v": str(int(value))}
        case float():
            return float(value) if value - value == 0 else {TAG: "float", "v": repr(value)}
        case list():
            return [as_tagged(item) for item in value]
        case tuple() if hasattr(value, "_fields"):
            return {
                TAG: "tuple",
                "v": [as_tagged(item) for item in value],
                "n": type(value).__name__,
            }
        case tuple() | set() | frozenset():
            bag = next(name for name, kind in _BAGS.items() if isinstance(value, kind))
            return {TAG: bag, "v": [as_tagged(item) for item in value]}
        case Mapping():
            if TAG not in value and all(type(key) is str for key in value):
                return {key: as_tagged(item) for key, item in value.items()}
            return {
                TAG: "dict",
                "v": [[as_tagged(key), as_tagged(item)] for key, item in value.items()],
            }
        case _ if type(value) in _SCALARS:
            name, write = _SCALARS[type(value)]
            return {TAG: name, "v": write(value)}
        case _:
            return _tag_model(value)


def _tag_model(value: Any) -> dict[str, Any]:
    name = type(value).__name__
    try:
        return {
            TAG: "model",
            "v": {field: as_tagged(item) for field, item in model_fields(value).items()},
            "n": name,
        }
    except NotStorable:
        if not hasattr(type(value), "model_dump_json"):
            raise
    # Pydantic knows more types than we do: URLs, paths, addresses.
    return {TAG: "json", "v": value.model_dump_json(round_trip=True, warnings=False), "n": name}


def model_fields(value: Any) -> dict[str, Any]:
    try:
        return fields_of(value)
    except NotCanonical:
        raise NotStorable(f"a {type(value).__qualname__} is not data that can be stored") from None


def read_tagged(tree: Any, hint: Any) -> Any:
    return rebuilt(_as_data(tree), Any) if hint is AS_DATA else rebuilt(tree, hint)


def _as_data(tree: Any) -> Any:
    """What `as_tagged` made, with the fields of models and the values of Enums in their places."""
    if isinstance(tree, list):
        return [_as_data(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    match tree.get(TAG):
        case "model":
            return {TAG: "dict", "v": [[name, _as_data(item)] for name, item in tree["v"].items()]}
        case "enum":
            return _as_data(tree["v"])
        case "json":
            return as_tagged(orjson.loads(tree["v"]))
        case _:
            return {name: _as_data(item) for name, item in tree.items()}


def rebuilt(tree: Any, hint: Any) -> Any:
    """Undo `as_tagged`; where a model or an Enum was stored, *hint* says which."""
    if isinstance(tree, list):
        each = inner(hint, -1)
        return [rebuilt(item, each) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if TAG not in tree:
        # arguments: one declared type per name
        named = hint if isinstance(hint, dict) else _typed_dict(hint)
        return {key: rebuilt(item, named.get(key) or inner(hint, -1)) for key, item in tree.items()}
    tag, stored, name = tree[TAG], tree["v"], tree.get("n")
    if tag in _READERS:
        return _READERS[tag](stored)
    if tag == "tuple":
        return _rebuild_tuple(stored, hint, name)
    if tag in _BAGS:
        return _BAGS[tag](rebuilt(item, inner(hint, index)) for index, item in enumerate(stored))
    if tag == "dict":
        return {
            rebuilt(key, inner(hint, 0)): rebuilt(item, inner(hint, -1)) for key, item in stored
        }
    return (
        _rebuild_enum(rebuilt(stored, Any), hint, name)
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
        return tuple(rebuilt(item, inner(hint, index)) for index, item in enumerate(items))
    hints = field_hints(cls, declared[cls])
    return cls(
        *(
            rebuilt(item, hints.get(field, Any))
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
    fields = {name: rebuilt(item, hints.get(name, Any)) for name, item in stored.items()}
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
