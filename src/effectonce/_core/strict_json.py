"""JSON that every parser reads alike, read without losing a digit. Pure."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any


def read_exactly(text: str) -> Any:
    """The document; `ValueError`, `ArithmeticError` (exponents beyond any Decimal) or
    `RecursionError` if readers could disagree about it.
    """
    return _decode(text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a member comes twice, and readers disagree about which one counts")
    return made


def exact_number(text: str) -> float | Decimal:
    """A float, unless digits would be lost: a reader of decimals distinguishes those."""
    value = float(text)
    return value if Decimal(repr(value)) == Decimal(text) else Decimal(text)


def _constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


_decode = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=exact_number, parse_constant=_constant
).decode
