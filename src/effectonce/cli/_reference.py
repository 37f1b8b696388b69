"""The command line as a page of the reference: `python -m effectonce.cli._reference`, between
the marks of docs/reference/cli.md.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from effectonce.cli import main
from effectonce.cli._exits import EXITS


def markdown() -> str:
    """The exit codes, and every command with its options."""
    return "\n".join(
        [*_exits(), *(line for ctx, command in walk() for line in _page(ctx, command))]
    ).rstrip()


def _exits() -> Iterator[str]:
    yield "## Exit codes"
    yield ""
    yield "| code | meaning |"
    yield "|---|---|"
    for code, meaning in EXITS.items():
        yield f"| {code} | {meaning} |"
    yield ""


def walk() -> Iterator[tuple[click.Context, click.Command]]:
    """Every command, groups before what is in them."""
    root = click.Context(main, info_name="effectonce", **main.context_settings)
    yield root, main
    yield from _below(root, main)


def _below(ctx: click.Context, group: click.Group) -> Iterator[tuple[click.Context, click.Command]]:
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=ctx)
        yield inner, command
        if isinstance(command, click.Group):
            yield from _below(inner, command)


def _page(ctx: click.Context, command: click.Command) -> Iterator[str]:
    name = " ".join(
        [
            ctx.command_path,
            *(piece for piece in command.collect_usage_pieces(ctx) if piece != "[OPTIONS]"),
        ]
    )
    depth = ctx.command_path.count(" ")
    yield f"{'#' * min(2 + depth // 2, 3)} `{name}`"
    yield ""
    text, _, examples = inspect.cleandoc(command.help or "").partition("\b\n")
    yield from text.strip().splitlines()
    yield ""
    if examples:
        yield "```text"
        yield from (line[2:] for line in examples.rstrip().splitlines()[1:])
        yield "```"
        yield ""
    yield "| option | |"
    yield "|---|---|"
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
        if record is not None:
            yield f"| `{record[0].replace('|', ' or ')}` | {record[1].replace('|', ' or ')} |"
    yield ""


if __name__ == "__main__":
    print(markdown())
