"""One place decides about colour: --color, then NO_COLOR, then FORCE_COLOR, then whether it is a
terminal that can.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

from effectonce._text import harmless, on_one_line
from effectonce.cli._options import takes
from effectonce.cli._settings import setting

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.segment import Segment

F = TypeVar("F", bound=Callable[..., Any])
WIDTH_MAX = 100  # longer lines are hard to read; a table takes what there is
SLOW_S = 1.0  # what takes longer says so


def color_option(command: F) -> F:
    """Give a command `--color`. The innermost one that was given counts."""
    return takes("color")(command)


def wants_color(choice: str, environ: Mapping[str, str], *, is_tty: bool) -> bool:
    """Is the output coloured?"""
    if choice != "auto":
        return choice == "always"
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR") or environ.get("CLICOLOR_FORCE"):
        return True
    return is_tty and environ.get("TERM") != "dumb"


def console(stream: TextIO | None = None, *, width_max: int = WIDTH_MAX) -> Console:
    """Where commands print for people."""
    from rich.console import Console

    stream = sys.stdout if stream is None else stream
    if hasattr(stream, "reconfigure"):
        # a terminal without the rupee sign is no reason to fail
        stream.reconfigure(errors="replace")
    colored = wants_color(setting("color"), os.environ, is_tty=stream.isatty())
    # Without a colour system rich writes no escape codes at all, not even for bold.
    made = Console(
        file=stream,
        color_system="standard" if colored else None,
        no_color=not colored,
        highlight=False,
    )
    made.width = min(made.width, width_max)
    # by its shape: rich is imported late
    made.push_render_hook(_Harmless())  # type: ignore[arg-type]
    return made


class _Harmless:
    """Everything that is printed for people passes here, before it gets its colours."""

    def process_renderables(self, renderables: list[Any]) -> list[Any]:
        return [_ShownLine(each) for each in renderables]


class _ShownLine:
    def __init__(self, renderable: Any) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self._renderable, options):
            yield segment if segment.control else segment._replace(text=harmless(segment.text))


@contextlib.contextmanager
def busy(doing: str) -> Iterator[Callable[[str], None]]:
    """Say on a terminal what takes longer than a second. Call what it gives with how far it is."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.status import Status

    status = Status(doing, console=console(sys.stderr))
    timer = threading.Timer(SLOW_S, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda how_far: status.update(f"{doing} {how_far}")
    finally:
        timer.cancel()
        timer.join()  # it must not begin after it was ended
        status.stop()


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """The only way to stdout beside `console()`: what others wrote commands no terminal."""
    click.echo(harmless(text), err=err, nl=nl)


def in_markup(text: str) -> str:
    """What others wrote as a part of a line of markup: it styles nothing, and begins no line."""
    from rich.markup import escape

    return escape(on_one_line(text))


def say(text: str) -> None:
    """Talk: to people, not to pipes."""
    text = harmless(text)
    if sys.stderr.isatty():
        text = broken_at_words(text, min(shutil.get_terminal_size().columns, WIDTH_MAX))
    echo(text, err=True)


def broken_at_words(text: str, width: int) -> str:
    """Lines that fit a terminal: some characters take two of its cells."""
    from rich.text import Text

    screen = console(sys.stderr)
    return "\n".join(
        part.plain.rstrip()
        for line in text.split("\n")
        for part in Text(line).wrap(screen, width) or [Text()]
    )
