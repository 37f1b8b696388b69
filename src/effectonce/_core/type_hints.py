"""The types that a user's code declares, as far as they can be resolved.

One annotation that cannot be resolved (imported for type checkers only, a word about what is
meant) says nothing about the others.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

C = TypeVar("C", bound=type)
UNRESOLVED = (NameError, TypeError, AttributeError, SyntaxError)


def hints_of(thing: type | Callable[..., Any]) -> dict[str, Any]:
    """The declared types of a function, or of a class and those that it inherits from."""
    try:
        return get_type_hints(thing, include_extras=True)
    except UNRESOLVED:
        return _each(thing)


def _each(thing: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for declaring in (
        reversed(thing.__mro__) if isinstance(thing, type) else (inspect.unwrap(thing),)
    ):
        with contextlib.suppress(*UNRESOLVED):
            for name, annotation in inspect.get_annotations(declaring).items():
                alone = type(
                    "Alone",
                    (),
                    {"__module__": declaring.__module__, "__annotations__": {name: annotation}},
                )
                with contextlib.suppress(*UNRESOLVED):
                    found |= get_type_hints(alone, include_extras=True)
    return found


# ---------------------------------------------------------------- which of them is meant


def arms(hint: Any) -> tuple[Any, ...]:
    """The types that a hint, or a tuple of hints, allows: `Annotated[A, ...] | B | None` → A, B."""
    if isinstance(hint, tuple):
        return tuple(arm for each in hint for arm in arms(each))
    if get_origin(hint) is Annotated:
        return arms(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return arms(tuple(each for each in get_args(hint) if each is not NoneType))
    # type Answer = A | B
    return (hint,) if getattr(hint, "__value__", None) is None else arms(hint.__value__)


def inner(hint: Any, index: int) -> Any:
    """An item's type: `list[X]` → X, `dict[K, V]` → V for -1, K for 0, `tuple` → by position."""
    found = []
    for arm in arms(hint):
        args = [arg for arg in get_args(arm) if arg is not Ellipsis]
        if args:
            found.append(args[index] if -1 <= index < len(args) else args[-1])
    return tuple(found) or Any


def classes(hint: Any) -> dict[type, Any]:
    """The classes in a declared type, each with its arm: `Page[X] | None` → {Page: Page[X]}."""
    named = ((get_origin(arm) or arm, arm) for arm in arms(hint))
    return {cls: arm for cls, arm in named if isinstance(cls, type)}


def chosen(candidates: Sequence[C], name: str | None, fits: Callable[[C], bool]) -> C | None:
    """The class of that name; else the first that fits, as it may be renamed; else the first."""
    return min(candidates, key=lambda cls: (cls.__name__ != name, not fits(cls)), default=None)


def field_hints(cls: type, hint: Any = None) -> dict[str, Any]:
    """The declared types of a class's fields; with *hint* `Page[X]`, the T of generic Page is X."""
    hints = hints_of(cls)
    hints |= {
        name: field.annotation for name, field in getattr(cls, "__pydantic_fields__", {}).items()
    }
    filled = dict(zip(getattr(cls, "__parameters__", ()), get_args(hint), strict=False))
    return {name: _filled(each, filled) for name, each in hints.items()} if filled else hints


def default_factories(cls: type) -> dict[str, Any]:
    """The fields of a model, each with its default's factory, if any. Empty: it is no model."""
    if hasattr(cls, "__struct_fields__"):
        return {field.name: field.default_factory for field in msgspec.structs.fields(cls)}
    fields: dict[str, Any] = getattr(cls, "__pydantic_fields__", None) or getattr(
        cls, "__dataclass_fields__", {}
    )
    return {name: field.default_factory for name, field in fields.items()}


def _filled(hint: Any, filled: dict[Any, Any]) -> Any:
    if isinstance(hint, TypeVar):
        return filled.get(hint, Any)
    open_ = () if isinstance(hint, type) else getattr(hint, "__parameters__", ())
    return hint[tuple(filled.get(each, Any) for each in open_)] if open_ else hint
