"""What goes into a tool and what comes out of it is data: arguments of its own, and a result that has happened.

A tool that changes an argument in place must not change what its caller asks for next, nor what its own next attempt sends. And a result
that has yet to happen (a generator, a future, a coroutine) says nothing about the effect, whatever the tool did before it returned it.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Awaitable
from concurrent.futures import Future
from io import IOBase
from types import CoroutineType, NoneType
from typing import Any, get_origin

UNCHANGING = frozenset({str, int, float, bool, NoneType, bytes})
_MODELS = ("__dataclass_fields__", "__pydantic_fields__", "__struct_fields__")
_LOOKED_INTO = 4  # levels of lists and dicts in a result


def own(value: Any, *, models: bool = True) -> Any:
    """A copy of plain data, and of *models* if asked for. Everything else stays what it is: a client, a session."""
    kind = type(value)
    if kind in UNCHANGING:
        return value
    if kind is dict:
        return {key: own(item, models=models) for key, item in value.items()}
    if kind is list:
        return [own(item, models=models) for item in value]
    if kind is tuple:
        return tuple([own(item, models=models) for item in value])
    if kind is set or kind is bytearray:
        return kind(value)
    if models and (isinstance(value, dict | list | set) or any(hasattr(kind, mark) for mark in _MODELS)):
        with contextlib.suppress(Exception):  # code of its own makes the copy; what cannot be copied is handed on
            return copy.deepcopy(value)
    return value


def done(value: Any) -> Any:
    """The result itself. `TypeError` if some of it has yet to happen."""
    if type(value) not in UNCHANGING:
        lazy = _lazy(value, _LOOKED_INTO)
        if lazy is not None:
            if type(lazy) is CoroutineType:
                lazy.close()
            raise TypeError(
                f"the tool returned a {type(lazy).__name__}, which has yet to happen, so its result says nothing about the effect. "
                f"Finish it inside the tool: await it, or make a list of it; a tool that awaits is an async def"
            )
    return value


def _lazy(value: Any, levels: int) -> Any:
    """What in here has yet to happen; None: nothing."""
    kind = type(value)
    if kind is dict or kind is list or kind is tuple:
        items = value.values() if kind is dict else value
        if levels == 0 or UNCHANGING.issuperset(map(type, items)):
            return None
        return next((found for item in items if (found := _lazy(item, levels - 1)) is not None), None)
    return value if is_lazy(kind) else None


def is_lazy(kind: Any) -> bool:
    """Is a value of this type something that happens later? An open file is read later, but what it is has happened."""
    origin = get_origin(kind) or kind
    if not isinstance(origin, type) or issubclass(origin, IOBase):
        return False
    return issubclass(origin, Awaitable | Future) or hasattr(origin, "__next__") or hasattr(origin, "__anext__")
