"""What goes into a tool and what comes out of it is data: arguments of its own, and a result
that has happened.

A tool that changes an argument in place must not change what its caller asks for next, nor what
its own next attempt sends. And a result that has yet to happen (a generator, a future, a
coroutine) says nothing about the effect, whatever the tool did before it returned it.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import itertools
from collections import abc
from concurrent.futures import Future
from functools import lru_cache
from types import AsyncGeneratorType, CoroutineType, GeneratorType, MappingProxyType, NoneType
from typing import Any, get_origin

from effectonce._core.type_hints import arms

UNCHANGING = frozenset({str, int, float, bool, NoneType, bytes})
_HOLDS = (dict, list, tuple, set)
_LOOKED_INTO = 4  # levels of lists and dicts in a result
_LAZY: tuple[type, ...] = (
    CoroutineType,
    GeneratorType,
    AsyncGeneratorType,
    Future,
    asyncio.Future,
    map,
    filter,
    zip,
    enumerate,
    reversed,
    type(iter([])),
    *(kind for kind in vars(itertools).values() if isinstance(kind, type)),
)
_DECLARED_LAZY = frozenset(
    {
        *_LAZY,
        asyncio.Task,
        abc.Awaitable,
        abc.Coroutine,
        abc.Iterator,
        abc.Generator,
        abc.AsyncIterator,
        abc.AsyncGenerator,
    }
)


# ---------------------------------------------------------------- arguments


def own(value: Any, *, models: bool = True) -> Any:
    """A copy of plain data, and of *models* if asked. Clients, sessions, ORM rows stay as is."""
    try:
        return _own(value, models)
    except RecursionError:  # it holds itself: it is no data, and cannot be part of a key
        return value


def _own(value: Any, models: bool) -> Any:  # noqa: FBT001  # called for each item
    kind = type(value)
    if kind in UNCHANGING:
        return value
    if kind is dict:
        return {key: _own(item, models) for key, item in value.items()}
    if kind is list:
        return [_own(item, models) for item in value]
    if kind is tuple:
        return tuple([_own(item, models) for item in value])
    if kind is set or kind is bytearray:
        return kind(value)
    if isinstance(value, tuple) and hasattr(kind, "_make"):  # a named tuple
        return kind._make([_own(item, models) for item in value])
    if kind is MappingProxyType:
        return MappingProxyType(_own(dict(value), models))
    if models and (isinstance(value, abc.Mapping | list | set) or _only_fields(value)):
        # code of its own makes the copy; what cannot be copied is handed on
        with contextlib.suppress(Exception):
            return copy.deepcopy(value)
    return value


def _only_fields(value: Any) -> bool:
    """Is it a model with only its declared fields? More is alive: it has a session or listeners."""
    kind = type(value)
    if hasattr(kind, "__struct_fields__"):
        return True
    if hasattr(kind, "__pydantic_fields__"):
        return not value.__pydantic_private__
    fields = getattr(kind, "__dataclass_fields__", None)
    return fields is not None and getattr(value, "__dict__", {}).keys() <= fields.keys()


# ---------------------------------------------------------------- results


def done(value: Any) -> Any:
    """The result itself. `TypeError` if some of it has yet to happen."""
    if type(value) not in UNCHANGING:
        lazy = _lazy(value, _LOOKED_INTO)
        if lazy is not None:
            if type(lazy) is CoroutineType:
                lazy.close()
            raise TypeError(
                f"the tool returned a {type(lazy).__name__}, which has yet to happen, so its result"
                " says nothing about the effect. Finish it inside the tool: await it, or make a"
                " list of it; a tool that awaits is an async def"
            )
    return value


def _lazy(value: Any, levels: int) -> Any:
    """What in here has yet to happen; None: nothing."""
    if isinstance(value, _HOLDS):
        for item in value.values() if isinstance(value, dict) else value:
            if (
                type(item) not in UNCHANGING
                and levels > 0
                and (found := _lazy(item, levels - 1)) is not None
            ):
                return found
        return None
    kind: Any = type(value)
    return value if _is_lazy(kind) else None


@lru_cache(maxsize=1024)
def _is_lazy(kind: type) -> bool:
    """Does a value of this type happen later? Cursors, files and SDK pages are only read later."""
    return issubclass(kind, _LAZY) or hasattr(kind, "__await__")


def declared_lazy(hint: Any) -> bool:
    """Does a return type say that the result happens later?"""
    return any((get_origin(arm) or arm) is each for arm in arms(hint) for each in _DECLARED_LAZY)
