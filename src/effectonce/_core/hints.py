"""The types that somebody's code declares, as far as they can be told.

One annotation that cannot be resolved (imported for type checkers only, a word about what is meant) says nothing about the others.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

UNRESOLVED = (NameError, TypeError, AttributeError, SyntaxError)


def hints_of(thing: type | Callable[..., Any]) -> dict[str, Any]:
    """The declared types of a function, or of a class and those that it inherits from."""
    try:
        return get_type_hints(thing, include_extras=True)
    except UNRESOLVED:
        return _each(thing)


def _each(thing: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for declaring in reversed(thing.__mro__) if isinstance(thing, type) else (inspect.unwrap(thing),):
        with contextlib.suppress(*UNRESOLVED):
            for name, annotation in inspect.get_annotations(declaring).items():
                alone = type("Alone", (), {"__module__": declaring.__module__, "__annotations__": {name: annotation}})
                with contextlib.suppress(*UNRESOLVED):
                    found |= get_type_hints(alone, include_extras=True)
    return found
