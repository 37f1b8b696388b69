"""Does a value certainly not fit a JSON Schema? What is not understood here counts as fitting.

The answer True is a fact on which a refusal may rest, so it errs in one direction only: keywords
that are not looked at below, references that leave the document and patterns that Python cannot
read never make a misfit.
"""

from __future__ import annotations

import operator
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
    return any(_breaks(word, value, given, schema, within) for word, given in schema.items())


def _breaks(
    word: str, value: Any, given: Any, schema: Mapping[str, Any], within: Callable[[Any, Any], bool]
) -> bool:
    """Does *value* break this keyword of *schema*, for which *given* is given?"""
    match word, value, given:
        case "type", _, _:
            names = given if isinstance(given, list) else [given]
            return all(name in _TYPES and not _TYPES[name](value) for name in names)
        case "required", dict(), list():
            return any(name not in value for name in given)
        case "properties", dict(), Mapping():
            known = [(part, given[name]) for name, part in value.items() if name in given]
            return any(within(part, of) for part, of in known)
        case "additionalProperties", dict(), _ if "patternProperties" not in schema:
            named = schema.get("properties") or {}
            return any(within(part, given) for name, part in value.items() if name not in named)
        case "items", list(), _ if "prefixItems" not in schema:
            return any(within(part, given) for part in value)
        case "enum", _, list():
            return value not in given
        case "const", _, _:
            return bool(value != given)
        case "anyOf" | "oneOf", _, [_, *_]:
            return all(within(value, each) for each in given)
        case "allOf", _, list():
            return any(within(value, each) for each in given)
        case "pattern", str(), str():
            try:
                return re.search(given, value) is None
            except re.error:
                return False
        case _:
            return _is_beyond(word, value, given)


def _is_beyond(word: str, value: Any, limit: Any) -> bool:
    """Is a number, or the size of a text or a list, beyond a limit?"""
    if word not in _LIMITS or not _is_number(limit):
        return False
    of, beyond = _LIMITS[word]
    if of is None:
        return _is_number(value) and bool(beyond(value, limit))
    return isinstance(value, of) and bool(beyond(len(value), limit))


_LIMITS: dict[str, tuple[type[str | list[Any]] | None, Callable[[Any, Any], Any]]] = {
    "minimum": (None, operator.lt),
    "maximum": (None, operator.gt),
    "exclusiveMinimum": (None, operator.le),
    "exclusiveMaximum": (None, operator.ge),
    "minLength": (str, operator.lt),
    "maxLength": (str, operator.gt),
    "minItems": (list, operator.lt),
    "maxItems": (list, operator.gt),
}


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
