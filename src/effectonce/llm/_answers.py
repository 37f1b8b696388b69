"""Answers of an SDK as plain data, and back; and which of them came from the store."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from typing import Any

from effectonce._core.effect_ref import EffectRef
from effectonce.errors import ResultUnavailable


def is_model(value: Any) -> bool:
    return hasattr(type(value), "model_dump") and hasattr(type(value), "model_validate")


def is_given(value: Any) -> bool:
    """The SDKs have values of their own for "not given"."""
    return type(value).__name__ not in ("NotGiven", "Omit")


def betas(headers: Any) -> dict[str, Any]:
    """The headers that ask for another kind of answer."""
    given = dict(headers or {}).items()
    return {
        name.lower(): value
        for name, value in given
        if name.lower().endswith("-beta") and is_given(value)
    }


def plain(value: Any) -> Any:
    """As an SDK puts it on the wire: models as their fields, whatever is iterated as a list."""
    if is_model(value):
        return value.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items() if is_given(item)}
    if isinstance(value, list | tuple | Iterator):
        return [plain(item) for item in value]
    return value


def rebuilt(cls: Any, fields: dict[str, Any], effect: EffectRef) -> Any:
    if cls is None:
        raise ResultUnavailable(
            f"{effect} was answered, but the answer's type is not known: declare what the function"
            " returns, or once_llm(..., returns=...).",
            effect=effect,
        )
    base = next(each for each in cls.__mro__ if each.__module__ == "pydantic.main")
    # The SDKs build their models in a way of their own, which takes what a newer server says;
    # any other model checks its fields.
    theirs = cls.model_construct.__func__ is not base.model_construct.__func__
    return cls.model_construct(**fields) if theirs else cls.model_validate(fields)


# answers that were known, for as long as a caller has them
CACHED: dict[int, weakref.ref[Any]] = {}
INSTEAD: dict[int, weakref.ref[Any]] = {}  # answers of another model


def mark(among: dict[int, weakref.ref[Any]], answer: Any) -> None:
    mine = id(answer)
    among[mine] = weakref.ref(answer, lambda _: among.pop(mine, None))


def is_marked(among: dict[int, weakref.ref[Any]], answer: Any) -> bool:
    known = among.get(id(answer))
    return known is not None and known() is answer
