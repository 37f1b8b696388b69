"""The command `effectonce`. Commands are imported when they are first named, so that `--help` is quick.

Exit codes: 0 done, 1 failed, 2 wrong usage, 7 store unreachable, 130 interrupted. Data goes to stdout, talk to stderr.
"""

from __future__ import annotations

import importlib
from typing import Any

import click

from effectonce import EffectOnceError, StoreUnavailable, __version__
from effectonce.cli._console import color_option

FAILED, STORE_UNREACHABLE, INTERRUPTED = 1, 7, 130

# The name, where its command lives, and its line in --help: the module is not imported to list it.
COMMANDS = {
    "classify": ("effectonce.cli.classify:classify", "What does this error mean, and may it be tried again?"),
    "demo": ("effectonce.cli.demo:demo", "See it hold: lost answers, killed agents, one refund."),
    "doctor": ("effectonce.cli.doctor:doctor", "Is this store fit to hold effects? If not, what to change."),
    "gateway": ("effectonce.cli.gateway:gateway", "Put these guarantees in front of an API, for callers in any language."),
    "simulate": ("effectonce.cli.simulate:simulate", "What retries do to a crowd, a storm, a day: in virtual time."),
}


class CommandLine(click.Group):
    """A group whose commands are imported late and whose errors say what to do."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS) + super().list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, line) for name, (_, line) in COMMANDS.items()]
        rows += [(name, command.get_short_help_str()) for name, command in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except EffectOnceError as error:
            click.echo(f"Error: {error}\n{error.corrective_action}", err=True)
            ctx.exit(STORE_UNREACHABLE if isinstance(error, StoreUnavailable) else FAILED)
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            ctx.exit(INTERRUPTED)


@click.group(cls=CommandLine, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "--version", prog_name="effectonce")
@color_option
def main() -> None:
    """Your agent retried. Your customer was charged once.

    Start with `effectonce demo`: ten seconds, offline, and every count is read from the bank's ledger.
    """
