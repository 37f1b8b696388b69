"""Tools by their names. A name is part of every key, so two functions of one name would replay each other's results."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Hashable
from functools import partial
from types import CellType
from typing import Any
from weakref import WeakValueDictionary

from effectonce._tool import GuardedTool
from effectonce.errors import ContractViolation

LOG = logging.getLogger("effectonce")


_elsewhere: WeakValueDictionary[tuple[Hashable, str], GuardedTool] = WeakValueDictionary()


def register(tools: dict[str, GuardedTool], tool: GuardedTool, keys: Hashable) -> None:
    """Add a tool, or put it in the place of an older one that is the same function. *keys* are equal for guards that share keys."""
    name = tool.contract.name
    if name == "<lambda>":
        raise ContractViolation("a lambda has no name that could be part of a key: give it name='...'")
    known = tools.get(name)
    if known is not None and _home(known.function) != _home(tool.function):
        raise ContractViolation(
            f"two tools are called {name!r}: {_home(known.function)} and {_home(tool.function)}. "
            f"Give one of them name='...': the name is part of every key."
        )
    if known is not None and _captured(known.function) != _captured(tool.function):
        raise ContractViolation(
            f"{name!r} was made before with other captured values: both would share keys and replay each other's results. "
            f"Give each its own name='...', or pass what differs as an argument."
        )
    _warn_of_suspects(tool)
    _warn_of_another(tool, _elsewhere.get((keys, name), tool))
    tools[name] = _elsewhere[keys, name] = tool


def _warn_of_another(tool: GuardedTool, other: GuardedTool) -> None:
    """Two guards on one store are one, as far as names go."""
    mine, its = _home(tool.function), _home(other.function)
    # What runs the tools of a framework is ours, whatever those are called, and has one home for each colour.
    ours = any(home.startswith("effectonce.") for home in (mine, its))
    if other.house is not tool.house and mine != its and not ours:
        LOG.warning(
            "two guards on one store have a tool called %r: %s and %s. In one step, with the same arguments, the second is not run and gets "
            "the result of the first. Give one of them name='...': the name is part of every key.",
            tool.contract.name,
            its,
            mine,
        )


def tool_of(function: Any) -> GuardedTool | None:
    """The tool that *function* is, None if it is none. What somebody put around one would be skipped, so that is refused."""
    tool = getattr(function, "__effectonce_tool__", None)
    if not isinstance(tool, GuardedTool):
        return None
    name = tool.contract.name
    if inspect.ismethod(function):
        wrong = f"{name} is a method here, and its object would be left out"
    elif getattr(function, "__wrapped__", None) is not tool.function:
        wrong = f"{name} is decorated once more above the guard, and that decorator would be skipped"
    else:
        return tool
    raise ContractViolation(
        f"{wrong}. Nothing was sent. Put the guard's decorator on top, around a function, or call {name} in a function of your own."
    )


def _warn_of_suspects(tool: GuardedTool) -> None:
    """Tell of fields that may make a retry another effect, when the tool is made."""
    for field, what in tool.signature.suspects().items():
        LOG.warning(
            "%s: %s looks like %s and is in the key: a retry that makes it anew is another effect. Pass it as an argument of its own "
            "that is volatile, or vouch for it with identity=[Stable(%r), ...].",
            tool.contract.name,
            field,
            what,
            field.partition(".")[0],
        )


def _captured(function: Callable[..., Any]) -> list[_Same]:
    """The values that a function carries along: tools from a factory, or methods of several objects, differ only in these."""
    if isinstance(function, staticmethod):
        function = function.__func__
    if isinstance(function, partial):
        named = sorted(function.keywords.items())
        return [*_captured(function.func), *map(_Same, function.args), *(_Same(value) for _, value in named)]
    if not inspect.isroutine(function):
        return [] if isinstance(function, type) else [_Same(function)]  # an object that can be called
    cells = getattr(function, "__closure__", None) or ()
    return [_Same(getattr(function, "__self__", None)), *(_Same(_content(cell)) for cell in cells)]


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet: the function itself, for one
        return None


class _Same:
    """Two values are the same if they are one object, or equal and plain. Nothing else is compared: it might not want to be."""

    def __init__(self, content: Any) -> None:
        self.content = content

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Same):
            return NotImplemented
        plain = type(self.content) is type(other.content) and isinstance(self.content, str | int | float | bytes | tuple)
        return self.content is other.content or (plain and self.content == other.content)

    __hash__ = None  # type: ignore[assignment]


def _home(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', function)}"
