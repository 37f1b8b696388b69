"""Options that many commands share. Each is remembered as a setting, so that the strongest one
wins wherever it was given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from effectonce.cli._settings import BY_NAME, remember

F = TypeVar("F", bound=Callable[..., Any])

_WORDS: dict[str, tuple[str, dict[str, Any]]] = {
    "store": (
        "--store",
        {"metavar": "URL", "help": "The store to look at, such as sqlite:///effects.db."},
    ),
    "app": (
        "--app",
        {"metavar": "MODULE:GUARD", "help": "A guard of yours: its store, its tools, its probes."},
    ),
    "tenant": ("--tenant", {"metavar": "NAME", "help": "Only this tenant's effects."}),
    "config": (
        "--config",
        {"metavar": "FILE", "help": "Settings, instead of those found from here upward."},
    ),
    "color": ("--color", {"help": "Colour the output.  [default: auto]"}),
    "by": (
        "--by",
        {
            "metavar": "NAME",
            "help": "Who says so.  [default: the user of this machine, unless that is root]",
        },
    ),
    "no_input": ("--no-input", {"is_flag": True, "default": None, "help": "Never ask."}),
}


def takes(*names: str) -> Callable[[F], F]:
    """Give a command these options, in this order."""

    def decorate(command: F) -> F:
        for name in reversed(names):
            command = output_option(command) if name == "output" else _option(name)(command)
        return command

    return decorate


def store_options(command: F) -> F:
    """What every command takes that looks into a store."""
    return takes("store", "app", "config", "output", "color")(command)


def app_options(command: F) -> F:
    """What every command takes that needs to know your tools."""
    return takes("app", "config", "output", "color")(command)


def output_option(command: F) -> F:
    """`-o FORMAT`, and `--json` for the one that scripts want."""

    # click's
    def as_json(ctx: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001
        if value:
            remember(ctx, "output", "json")

    choices = click.Choice(BY_NAME["output"].choices)
    help_text = (
        "How to print the data: auto is a table on a terminal and tab-separated lines elsewhere."
    )
    command = click.option(
        "--json", is_flag=True, expose_value=False, callback=as_json, help="The same as -o json."
    )(command)
    option = click.option(
        "-o",
        "--output",
        type=choices,
        expose_value=False,
        callback=_remembering("output"),
        help=help_text,
    )
    return option(command)


def _option(name: str) -> Callable[[F], F]:
    flag, words = _WORDS[name]
    choices = BY_NAME[name].choices if name in BY_NAME else ()
    kind: dict[str, Any] = {"type": click.Choice(choices)} if choices else {}
    return click.option(
        flag, name, expose_value=False, callback=_remembering(name), **kind, **words
    )


def _remembering(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def callback(ctx: click.Context, _: click.Parameter, value: Any) -> None:
        if value is not None:
            remember(ctx, name, value)

    return callback


class Number(click.FloatRange):
    """A number in a range. Not "nan", which is in every range and in none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        return self.fail(f"{value} is not a number.", param, ctx) if number != number else number  # noqa: PLR0124


yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Say what would be done, and do nothing."
)
reason_option = click.option(
    "--reason", metavar="TEXT", help="Why: it stays on the record.  [asked for on a terminal]"
)
