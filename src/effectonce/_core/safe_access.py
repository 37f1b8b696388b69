"""Looking at objects that are not ours: a property or a method of theirs may raise anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def attempt(function: Callable[..., Any], *args: Any) -> Any:
    """What *function* answers, or None if it raises."""
    try:
        return function(*args)
    except Exception:  # noqa: BLE001  # foreign code: whatever it raises, it has nothing to say
        return None


def get(thing: Any, name: str) -> Any:
    """An item of a mapping, or an attribute; None if there is none."""
    return (
        attempt(thing.get, name)
        if isinstance(thing, Mapping)
        else attempt(getattr, thing, name, None)
    )
