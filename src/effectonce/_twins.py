"""Are two functions the same one? Two tools of one name would share keys and replay each other's results."""

from __future__ import annotations

from collections.abc import Callable
from types import CellType
from typing import Any


def captured(function: Callable[..., Any]) -> list[Any]:
    """The values that a closure carries: tools from a factory differ only in these."""
    cells = getattr(function, "__closure__", None) or ()
    return [_Same(cell) for cell in cells]


class _Same:
    """Two cells are the same if they hold the same object, or equal plain values. Nothing else is compared: it might not want to be."""

    def __init__(self, cell: CellType) -> None:
        try:
            self.content: Any = cell.cell_contents
        except ValueError:  # not filled yet: the function itself, for one
            self.content = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Same):
            return NotImplemented
        plain = type(self.content) is type(other.content) and isinstance(self.content, str | int | float | bytes | tuple)
        return self.content is other.content or (plain and self.content == other.content)

    __hash__ = None  # type: ignore[assignment]


def home(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', function)}"
