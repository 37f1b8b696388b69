"""Does a value certainly not fit a JSON Schema? What is not understood here counts as fitting.

The answer True is a fact on which a refusal may rest, so it errs in one direction only: keywords
that are not in the table below, references that leave the document and patterns that Python
cannot read never make a misfit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

DEPTH_MAX = 50  # a schema may refer to itself


def misfits(value: Any, schema: Any) -> bool:
    """True: no validator of this schema accepts *value*."""
    return _misfits(value, schema, schema, 0)


def _misfits(value: Any, schema: Any, root: Any, depth: int) -> bool:
    if not isinstance(schema, Mapping) or depth > DEPTH_MAX:
        return schema is False

    def within(part: Any, of: Any) -> bool:
        return _misfits(part, of, root, depth + 1)

    if "$ref" in schema and within(value, _referred(root, schema["$ref"])):
        return True
    return any(
        _TESTS[word](value, constraint, schema, within)
        for word, constraint in schema.items()
        if word in _TESTS
    )


Within = Callable[[Any, Any], bool]
Test = Callable[[Any, Any, Mapping[str, Any], Within], bool]


def _type(value: Any, constraint: Any, _schema: Any, _within: Within) -> bool:
    names = constraint if isinstance(constraint, list) else [constraint]
    return all(name in _TYPES and not _TYPES[name](value) for name in names)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)


def _is_integer(value: Any) -> bool:
    if isinstance(value, Decimal):
        return value == value.to_integral_value()
    return _is_number(value) and (isinstance(value, int) or bool(value.is_integer()))


_TYPES: dict[Any, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "number": _is_number,
    "integer": _is_integer,
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


def _required(value: Any, constraint: Any, _schema: Any, _within: Within) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(constraint, list)
        and any(name not in value for name in constraint)
    )


def _properties(value: Any, constraint: Any, _schema: Any, within: Within) -> bool:
    if not isinstance(value, dict) or not isinstance(constraint, Mapping):
        return False
    return any(within(part, constraint[name]) for name, part in value.items() if name in constraint)


def _additional(value: Any, constraint: Any, schema: Mapping[str, Any], within: Within) -> bool:
    if not isinstance(value, dict) or "patternProperties" in schema:
        return False
    named = schema.get("properties") or {}
    return any(within(part, constraint) for name, part in value.items() if name not in named)


def _items(value: Any, constraint: Any, schema: Mapping[str, Any], within: Within) -> bool:
    return (
        isinstance(value, list)
        and "prefixItems" not in schema
        and any(within(part, constraint) for part in value)
    )


def _enum(value: Any, constraint: Any, _schema: Any, _within: Within) -> bool:
    return isinstance(constraint, list) and value not in constraint


def _const(value: Any, constraint: Any, _schema: Any, _within: Within) -> bool:
    return bool(value != constraint)


def _any_of(value: Any, constraint: Any, _schema: Any, within: Within) -> bool:
    return (
        isinstance(constraint, list)
        and bool(constraint)
        and all(within(value, each) for each in constraint)
    )


def _all_of(value: Any, constraint: Any, _schema: Any, within: Within) -> bool:
    return isinstance(constraint, list) and any(within(value, each) for each in constraint)


def _pattern(value: Any, constraint: Any, _schema: Any, _within: Within) -> bool:
    try:
        return (
            isinstance(value, str)
            and isinstance(constraint, str)
            and re.search(constraint, value) is None
        )
    except re.error:
        return False


def _number(beyond: Callable[[Any, Any], bool]) -> Test:
    return lambda value, constraint, _schema, _within: (
        _is_number(value) and _is_number(constraint) and beyond(value, constraint)
    )


def _size(of: type[str | list[Any]], beyond: Callable[[int, Any], bool]) -> Test:
    return lambda value, constraint, _schema, _within: (
        isinstance(value, of) and _is_number(constraint) and beyond(len(value), constraint)
    )


_TESTS: dict[str, Test] = {
    "type": _type,
    "required": _required,
    "properties": _properties,
    "additionalProperties": _additional,
    "items": _items,
    "enum": _enum,
    "const": _const,
    "anyOf": _any_of,
    "oneOf": _any_of,
    "allOf": _all_of,
    "pattern": _pattern,
    "minimum": _number(lambda value, least: value < least),
    "maximum": _number(lambda value, most: value > most),
    "exclusiveMinimum": _number(lambda value, least: value <= least),
    "exclusiveMaximum": _number(lambda value, most: value >= most),
    "minLength": _size(str, lambda size, least: size < least),
    "maxLength": _size(str, lambda size, most: size > most),
    "minItems": _size(list, lambda size, least: size < least),
    "maxItems": _size(list, lambda size, most: size > most),
}


def _referred(root: Any, reference: Any) -> Any:
    """What a reference within the document points to; True, which all fits, if it is not found."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return True
    found = root
    for part in reference.removeprefix("#").split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, Mapping) or name not in found:
            return True
        found = found[name]
    return found
