"""What a command prints: data on stdout, as a table for people, as tab-separated lines for
pipes, as JSON for programs.

Every JSON document names its schema and version. Integers are exact; a decimal number is a text,
a moment ISO 8601 in UTC.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from effectonce._text import harmless, on_one_line
from effectonce.cli._console import console, echo, say
from effectonce.cli._settings import setting
from effectonce.views import text as texts
from effectonce.views.text import dumps
from effectonce.views.times import span

if TYPE_CHECKING:
    from rich.console import Console

Shape = Literal["table", "plain", "json", "jsonl"]
Item = Mapping[str, Any]
GAP, NARROWEST, LAST = 2, 8, 20
REVEAL = "--reveal shows"  # what is hidden
_COMMAND, _NO_BREAK = re.compile("`effectonce [^`]*`"), "\ue000"
MORE = ": --json"  # where all of a long text is


class Column(NamedTuple):
    """One column of a table, and what a pipe gets of it."""

    title: str
    cell: Callable[[Any], str]  # for people
    plain: Callable[[Any], object] | None = None  # for pipes; None: the same
    style: Callable[[Any], str] | None = None
    right: bool = False
    whole: bool = False  # never cut: people copy it, or it is short


def field(title: str, name: str, *, right: bool = False, whole: bool = False) -> Column:
    """A field as it is; nothing where it has no value."""

    def cell(item: Item) -> str:
        return "" if item[name] is None else str(item[name])

    return Column(title, cell, right=right, whole=whole)


def words(title: str, name: str, style: Callable[[Any], str] | None = None) -> Column:
    """A word of ours, such as a state: with spaces for people."""
    return Column(
        title,
        lambda item: (item[name] or "").replace("_", " "),
        lambda item: item[name],
        style,
        whole=True,
    )


def number(title: str, name: str) -> Column:
    return Column(
        title, lambda item: f"{item[name]:,}", lambda item: item[name], right=True, whole=True
    )


def since(title: str, seconds: str, at: str) -> Column:
    """How long ago, for people; when that was, for pipes."""
    return Column(
        title, lambda item: span(item[seconds]), lambda item: item[at], right=True, whole=True
    )


EFFECT, TOOL = field("EFFECT", "reference", whole=True), field("TOOL", "tool")
WHERE = Column("WHERE", lambda item: "/".join(filter(None, (item["scope"], item["step"]))))
WHY = field("WHY", "why")


def shape() -> Shape:
    """How data is to be printed here."""
    chosen: Shape | Literal["auto"] = setting("output")
    if chosen == "auto":
        return "table" if sys.stdout.isatty() else "plain"
    return chosen


def for_machines() -> bool:
    """JSON was asked for: then there is nothing else on stdout."""
    return shape() in ("json", "jsonl")


def print_rows(
    items: Sequence[Item],
    columns: Sequence[Column],
    *,
    schema: str,
    empty: str,
    plural: str = "",
    **beside: Any,
) -> None:
    """A list of things. *schema* is the singular; *beside* stands beside the list in JSON."""
    plural = plural or f"{schema}s"
    match shape():
        case "json":
            shown = [_public(item) for item in items]
            print_json({"schema": f"effectonce.{plural}/1", plural: shown, **beside})
        case "jsonl":
            for item in items:
                print_line(item, schema)
        case "plain":
            for item in items:
                print_flat((column.plain or column.cell)(item) for column in columns)
        case "table" if items:
            _table(items, columns)
        case _:
            pass
    if not items and not for_machines():
        say(empty)


def print_one(data: Item, tell: Callable[[], None], *, schema: str) -> None:
    """One thing: as JSON, or as text for people."""
    match shape():
        case "json":
            print_json({"schema": f"effectonce.{schema}/1", **_public(data)})
        case "jsonl":
            print_line(data, schema)
        case _:
            tell()


def print_line(data: Item, schema: str) -> None:
    """One JSON document on one line, written at once: a reader may be following."""
    echo(dumps({"schema": f"effectonce.{schema}/1", **_public(data)}))
    sys.stdout.flush()


def _public(item: Item) -> dict[str, Any]:
    """Without what only a table needs."""
    return {name: value for name, value in item.items() if not name.startswith("_")}


def print_json(document: Item) -> None:
    echo(dumps(document, indent=2))


def print_flat(values: Iterable[object]) -> None:
    """One row for a pipe: whatever is in its values, it stays one row with as many columns."""
    echo("\t".join("" if value is None else on_one_line(str(value)) for value in values))


def _table(items: Sequence[Item], columns: Sequence[Column]) -> None:
    """One line to an item: only columns that people do not copy are cut. Where that is not
    enough, a block to an item.
    """
    from rich.cells import cell_len
    from rich.text import Text

    screen = console(width_max=sys.maxsize)
    cells = [[on_a_line(column.cell(item)) for column in columns] for item in items]
    lines = [[column.title for column in columns], *cells]
    widths = [max(cell_len(line[n]) for line in lines) for n in range(len(columns))]
    room = screen.width - GAP * (len(columns) - 1)
    _squeeze(widths, columns, room)
    if sum(widths) > room:
        _blocks(lines[0], cells)
        return
    for line, item in zip(lines, (None, *items), strict=True):
        parts = []
        for text, width, column in zip(line, widths, columns, strict=True):
            style = "" if column.style is None or item is None else column.style(item)
            fitted = to_width(text, width, right=column.right)
            parts.append(Text(fitted, "bold" if item is None else style))
        row = Text(" " * GAP).join(parts)
        row.rstrip()
        screen.print(row, no_wrap=True, overflow="ignore", crop=False)


def _blocks(titles: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    """A line for each cell that has something, and an empty one between items."""
    for number, line in enumerate(cells):
        if number:
            console().print()
        print_pairs([pair for pair in zip(titles, line, strict=True) if pair[1]])


def print_pairs(rows: Sequence[Sequence[str]], *, style: str = "", last: str = "") -> None:
    """Lines of a screen: short words in columns, and a last column that wraps below itself."""
    from rich.cells import cell_len
    from rich.text import Text

    screen = console()
    rows = [[on_a_line(part) for part in row] for row in rows]
    columns = range(len(rows[0]) - 1) if rows else ()
    widths = [max(cell_len(row[n]) for row in rows) for n in columns]
    fixed = screen.width - GAP * len(widths)
    # a long name must not leave a column of single syllables
    while fixed - sum(widths) < LAST < max(widths, default=0):
        widths[widths.index(max(widths))] -= 1
    room = max(NARROWEST, fixed - sum(widths))
    for row in rows:
        fitted = (to_width(*pair) + " " * GAP for pair in zip(row, widths, strict=False))
        first = "".join(fitted)
        for number, line in enumerate(_wrapped(row[-1], screen, room)):
            text = Text(first if number == 0 else " " * cell_len(first), style)
            text.append_text(Text(line, last))
            text.rstrip()
            screen.print(text, no_wrap=True, overflow="ignore", crop=False)


def print_next(steps: Sequence[tuple[str, str]], otherwise: str) -> None:
    """What to do, and the command that does it; *otherwise* if there is nothing."""
    if steps:
        print_pairs(steps, style="dim", last="bold")
    else:
        console().print(otherwise, style="dim")


def _wrapped(text: str, screen: Console, room: int) -> list[str]:
    """Its lines. A command stays in one: in two it could not be copied."""
    from rich.text import Text

    if text.startswith("effectonce "):
        return [text]
    kept = _COMMAND.sub(lambda command: command[0].replace(" ", _NO_BREAK), text)
    if kept == text:
        return [line.plain for line in Text(text).wrap(screen, room)] or [""]
    lines = textwrap.wrap(kept, room, break_long_words=False, break_on_hyphens=False)
    return [line.replace(_NO_BREAK, " ") for line in lines]


def _squeeze(widths: list[int], columns: Sequence[Column], room: int) -> None:
    """Take from the widest column that may be cut, until all of them fit or none can give more."""
    while sum(widths) > room:
        cut = (n for n, column in enumerate(columns) if not column.whole)
        flexible = [n for n in cut if widths[n] > NARROWEST]
        if not flexible:
            return
        widths[max(flexible, key=widths.__getitem__)] -= 1


def on_a_line(text: str) -> str:
    """What others wrote, as wide as it will be: what is replaced later has no width yet."""
    return " ".join(harmless(text).split())


def shortened(text: str, longest: int) -> str:
    """Enough of a long text: a screen holds one story, and JSON holds it whole."""
    return texts.shortened(text, longest, MORE)


def to_width(text: str, width: int, *, right: bool = False) -> str:
    """As wide as its column."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) > width:
        text = set_cell_size(text, width - 1) + "…"
    return " " * (width - cell_len(text)) + text if right else set_cell_size(text, width)
