"""One place decides about colour: --color, then NO_COLOR, then FORCE_COLOR, then whether it is a terminal that can."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console

F = TypeVar("F", bound=Callable[..., Any])
WIDTH_MAX = 100  # longer lines are hard to read
_CHOICE = "effectonce.color"


def color_option(command: F) -> F:
    """Give a command `--color`. The innermost one that was given counts."""

    def remember(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
        if value is not None:
            ctx.meta[_CHOICE] = value

    choice = click.Choice(["auto", "always", "never"])
    text = "Colour the output.  [default: auto]"
    return click.option("--color", type=choice, callback=remember, expose_value=False, help=text)(command)


def wants_color(choice: str, environ: Mapping[str, str], *, is_tty: bool) -> bool:
    """Is the output coloured?"""
    if choice != "auto":
        return choice == "always"
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR") or environ.get("CLICOLOR_FORCE"):
        return True
    return is_tty and environ.get("TERM") != "dumb"


def console() -> Console:
    """Where commands print for people."""
    from rich.console import Console

    stream = sys.stdout
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="replace")  # a terminal without the rupee sign is no reason to fail
    choice = click.get_current_context().meta.get(_CHOICE, "auto")
    colored = wants_color(choice, os.environ, is_tty=stream.isatty())
    # Without a colour system rich writes no escape codes at all, not even for bold.
    made = Console(file=stream, color_system="standard" if colored else None, no_color=not colored, highlight=False)
    made.width = min(made.width, WIDTH_MAX)
    return made
