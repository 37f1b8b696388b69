"""A page of Markdown on a terminal, readable on a narrow one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import ClassVar, cast

from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Markdown, MarkdownElement, TableElement
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

COLUMN_MIN = 24  # a table whose columns would be narrower is shown row by row
MANY = 100_000  # columns that no terminal has: nothing has to be cut there


class _NarrowTable(TableElement):
    """A table; where its columns have no room, or a word would be cut, a block to a row."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        assert self.header is not None
        assert self.header.row is not None
        titles = [cell.content for cell in self.header.row.cells]
        (table,) = super().__rich_console__(console, options)
        whole = Measurement.get(console, options.update(max_width=MANY), cast("Table", table))
        if max(len(titles) * COLUMN_MIN, whole.minimum) <= options.max_width:
            yield table
            return
        for row in self.body.rows if self.body is not None else ():
            yield Text()
            for number, (title, cell) in enumerate(zip(titles, row.cells, strict=False)):
                named = Text.assemble(title, ": ", style="dim") if title else Text()
                yield Padding(Text.assemble(named, cell.content), (0, 0, 0, 2 if number else 0))


class PageOnTerminal(Markdown):
    """Markdown whose links name what they lead to: *target_of* says what that is, "" if a link
    is not worth naming.
    """

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "table_open": _NarrowTable,
    }

    def __init__(self, text: str, target_of: Callable[[str], str]) -> None:
        super().__init__(text, code_theme="ansi_dark", hyperlinks=False)
        for block in self.parsed:
            block.children = list(_with_targets(block.children or (), target_of))


def _with_targets(tokens: Iterable[Token], target_of: Callable[[str], str]) -> Iterator[Token]:
    target = ""
    for token in tokens:
        if token.type == "link_open":
            target = target_of(str(token.attrs["href"]))
            token.attrSet("href", target)
        if target or token.type not in ("link_open", "link_close"):
            yield token
