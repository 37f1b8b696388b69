"""Options that many commands share. Each is remembered as a setting, so that the strongest one
wins wherever it was given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from effectonce.cli._settings import BY_NAME, remember

F = TypeVar("F", bound=Callable[..., Any])

_WORDS: dict[str, dict[str, Any]] = {
    "store": {"metavar": "URL", "help": "The store to look at, such as sqlite:///effects.db."},
    "app": {
        "metavar": "MODULE:GUARD",
        "help": "A guard of yours: its store, its tools, its probes.",
    },
    "tenant": {"metavar": "NAME", "help": "Only this tenant's effects."},
    "config": {"metavar": "FILE", "help": "Settings, instead of those found from here upward."},
    "color": {"help": "Colour the output.  [default: auto]"},
    "by": {
        "metavar": "NAME",
        "help": "Who says so.  [default: the user of this machine, unless that is root]",
    },
    "no_input": {"is_flag": True, "default": None, "help": "Never ask."},
}


def with_options(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """Give a command these options, in this order."""

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def takes(*names: str) -> Callable[[F], F]:
    """Give a command the options of these names, in this order."""
    return with_options(*(_output if name == "output" else _option(name) for name in names))


def _output(command: F) -> F:
    """`-o FORMAT`, and `--json` for the one that scripts want."""

    # click's
    def as_json(ctx: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001
        if value:
            remember(ctx, "output", "json")

    choices = click.Choice(BY_NAME["output"].choices)
    text = "How to print the data: auto is a table on a terminal and tab-separated lines elsewhere."
    callback = remembering("output")
    return with_options(
        click.option(
            "-o", "--output", type=choices, expose_value=False, callback=callback, help=text
        ),
        click.option(
            "--json",
            is_flag=True,
            expose_value=False,
            callback=as_json,
            help="The same as -o json.",
        ),
    )(command)


def _option(name: str) -> Callable[[F], F]:
    choices = BY_NAME[name].choices if name in BY_NAME else ()
    how = {"expose_value": False, "callback": remembering(name), **_WORDS[name]}
    if choices:
        how["type"] = click.Choice(choices)
    return click.option(f"--{name.replace('_', '-')}", name, **how)


def remembering(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    """As the callback of an option: what was given is a setting."""

    def callback(ctx: click.Context, _: click.Parameter, value: Any) -> None:
        if value is not None:
            remember(ctx, name, value)

    return callback


class Number(click.FloatRange):
    """A number in a range. Not "nan", which is in every range and in none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        return self.fail(f"{value} is not a number.", param, ctx) if number != number else number  # noqa: PLR0124


def value_option(
    flag: str, default: object, kind: click.ParamType[Any], text: str, metavar: str | None = None
) -> Callable[[F], F]:
    return click.option(
        flag, default=default, show_default=True, type=kind, metavar=metavar, help=text
    )


# of a command that looks into a store, at its effects, or needs to know your tools
store_options = takes("store", "app", "config", "output", "color")
effect_options = takes("tenant", "store", "app", "config", "output", "color")
app_options = takes("app", "config", "output", "color")
yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Say what would be done, and do nothing."
)
reason_option = click.option(
    "--reason", metavar="TEXT", help="Why: it stays on the record.  [asked for on a terminal]"
)
# of a command that writes down what a person decides
decision_options = with_options(
    reason_option, yes_option, dry_run_option, takes("by", "no_input"), effect_options
)
