"""Tools by their names. A name is part of every key, so two functions of one name would replay
each other's results.

A function takes the place of an older one of the same module and name, unless the source, as it
is now, has them both: then the file was not edited and read again, and two tools share a name.
"""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from types import CellType, CodeType, FunctionType
from typing import Any
from weakref import WeakValueDictionary

from effectonce._log import LOG
from effectonce._tools.tool import GuardedTool
from effectonce.errors import ContractViolation

_UNFILLED = object()
_elsewhere: WeakValueDictionary[tuple[Hashable, str], GuardedTool] = WeakValueDictionary()


def register(tools: dict[str, GuardedTool], tool: GuardedTool, keys: Hashable) -> None:
    """Add a tool, or put it in the place of an older one that is the same function. *keys* are
    equal for guards that share keys.
    """
    name = tool.contract.name
    if name == "<lambda>":
        raise ContractViolation(
            "a lambda has no name that could be part of a key: give it name='...'"
        )
    known = tools.get(name)
    if known is not None and _home(known.function) != _home(tool.function):
        raise ContractViolation(
            f"two tools are called {name!r}: {_home(known.function)} and {_home(tool.function)}. "
            "Give one of them name='...': the name is part of every key."
        )
    lines = () if known is None else _both_written(known.function, tool.function)
    if lines:
        raise ContractViolation(
            f"two tools are called {name!r}: {_home(tool.function)} is written twice, on lines"
            f" {' and '.join(map(str, lines))}. In one step, with the same arguments, the second"
            " would not be run and get the result of the first. Give one of them name='...': the"
            " name is part of every key."
        )
    if known is not None and not _carry_the_same(known.function, tool.function):
        raise ContractViolation(
            f"{name!r} was made before with other captured values: both would share keys and replay"
            " each other's results. Give each its own name='...', or pass what differs as an"
            " argument."
        )
    _warn_of_suspects(tool)
    _warn_of_another(tool, _elsewhere.get((keys, name), tool))
    tools[name] = _elsewhere[keys, name] = tool


def _warn_of_another(tool: GuardedTool, other: GuardedTool) -> None:
    """Two guards on one store are one, as far as names go."""
    mine, its = _home(tool.function), _home(other.function)
    # What runs the tools of a framework is ours, whatever those are called, and has one home for
    # sync and one for async.
    ours = any(home.startswith("effectonce.") for home in (mine, its))
    if (
        other.house is not tool.house
        and (mine != its or _both_written(other.function, tool.function))
        and not ours
    ):
        LOG.warning(
            "two guards on one store have a tool called %r: %s and %s. In one step, with the same"
            " arguments, the second is not run and gets the result of the first. Give one of them"
            " name='...': the name is part of every key.",
            tool.contract.name,
            its,
            mine,
        )


def tool_of(function: Any) -> GuardedTool | None:
    """The tool that *function* is, or None. A wrapper around one would be skipped: refused."""
    tool = getattr(function, "__effectonce_tool__", None)
    if not isinstance(tool, GuardedTool):
        return None
    name = tool.contract.name
    if inspect.ismethod(function):
        wrong = f"{name} is a method here, and its object would be left out"
    elif getattr(function, "__wrapped__", None) is not tool.function:
        wrong = (
            f"{name} is decorated once more above the guard, and that decorator would be skipped"
        )
    else:
        return tool
    raise ContractViolation(
        f"{wrong}. Nothing was sent. Put the guard's decorator on top, around a function, or call"
        f" {name} in a function of your own."
    )


def _warn_of_suspects(tool: GuardedTool) -> None:
    """Tell of fields that may make a retry another effect, when the tool is made."""
    for field, what in tool.signature.suspects().items():
        LOG.warning(
            "%s: %s looks like %s and is in the key: a retry that makes it anew is another effect."
            " Pass it as an argument of its own that is volatile, or vouch for it with"
            " identity=[Stable(%r), ...].",
            tool.contract.name,
            field,
            what,
            field.partition(".")[0],
        )


# ---------------------------------------------------------------- is it the same function?


def _both_written(one: Callable[..., Any], other: Callable[..., Any]) -> tuple[int, ...]:
    """The lines of both, if the source now has both. After an edit it has the newer one only."""
    mine, its = _code(one), _code(other)
    if (
        mine is None
        or its is None
        or mine.co_filename != its.co_filename
        or mine.co_firstlineno == its.co_firstlineno
    ):
        return ()
    linecache.checkcache(mine.co_filename)
    try:
        source = compile(
            "".join(linecache.getlines(mine.co_filename)),
            mine.co_filename,
            "exec",
            dont_inherit=True,
        )
    except (SyntaxError, ValueError):
        return ()
    both = {_written(mine), _written(its)} <= {_written(code) for code in _codes(source)}
    return (mine.co_firstlineno, its.co_firstlineno) if both else ()


def _written(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


def _codes(code: CodeType) -> Iterator[CodeType]:
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner
            yield from _codes(inner)


def _code(function: Callable[..., Any]) -> CodeType | None:
    """That of what was written, below its decorators."""
    while isinstance(function, partial) and not hasattr(function, "__wrapped__"):
        function = function.func
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code if isinstance(code, CodeType) else None


def _carry_the_same(
    one: Callable[..., Any],
    other: Callable[..., Any],
    seen: frozenset[tuple[int, int]] = frozenset(),
) -> bool:
    """Do two functions carry the same values? Factory tools, or methods, differ only in these."""
    mine, its = _captured(one), _captured(other)
    return len(mine) == len(its) and all(
        _is_same(was, now, seen) or (now is _UNFILLED and getattr(was, "__wrapped__", None) is one)
        for was, now in zip(mine, its, strict=True)
    )


def _captured(function: Callable[..., Any]) -> list[Any]:
    if isinstance(function, staticmethod):
        function = function.__func__
    if isinstance(function, partial):
        if hasattr(function, "__wrapped__"):  # a workflow: what runs it is made anew each time
            return _captured(function.__wrapped__)
        named = sorted(function.keywords.items())
        return [*_captured(function.func), *function.args, *(value for _, value in named)]
    if not inspect.isroutine(function):
        return [] if isinstance(function, type) else [function]  # an object that can be called
    cells = getattr(function, "__closure__", None) or ()
    return [getattr(function, "__self__", None), *(_content(cell) for cell in cells)]


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet: the tool itself, for one
        return _UNFILLED


def _is_same(mine: Any, its: Any, seen: frozenset[tuple[int, int]]) -> bool:
    """One object; equal and plain; or a function written once. Nothing else is safe to compare."""
    if mine is its or (id(mine), id(its)) in seen:
        return True
    if type(mine) is not type(its):
        return False
    if isinstance(mine, FunctionType):
        one = _home(mine) == _home(its) and not _both_written(mine, its)
        return one and _carry_the_same(mine, its, seen | {(id(mine), id(its))})
    return isinstance(mine, str | int | float | bytes | tuple) and bool(mine == its)


def _home(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', function)}"
