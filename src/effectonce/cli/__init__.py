"""The command `effectonce`. Commands are imported when they are first named: `--help` is quick.

Data goes to stdout, talk to stderr.
"""

from __future__ import annotations

import difflib
import importlib
from typing import Any

import click

from effectonce import __version__
from effectonce.cli._console import echo
from effectonce.cli._exits import FAILED, INTERRUPTED, STORE_UNREACHABLE, Stop, fitted
from effectonce.cli._options import takes

# What each module of this name has under this name. Listing them in --help imports none.
COMMANDS = {
    "demo": "See it hold: lost answers, killed agents, one refund.",
    "doctor": "Is this store fit to hold effects? If not, what to change.",
    "status": "One screen: what is in doubt, what needs you.",
    "report": "What was prevented: duplicates, doubts, by day, tool and tenant.",
    "find": "Find effects by what people know: a payment id, a customer.",
    "effect": "Look at effects: lists, and the whole story of one.",
    "indoubt": "Settle effects whose outcome is unknown.",
    "approve": "Let calls that wait for a person be sent, or not.",
    "allowance": "See what is left of spending limits, and what holds the rest.",
    "dlq": "Work off dead letters: what gave up, or cannot go on.",
    "workflow": "See the runs of workflows, go on with them, or end them.",
    "tail": "Follow effects as they are claimed, sent and decided.",
    "key": "Why a call has its key, why two differ, which would not survive a retry.",
    "tool": "See the contracts of your tools.",
    "provider": "See what the APIs of others do with a repeated request.",
    "breaker": "See the circuit breakers that processes share.",
    "audit": "Read and verify the audit; find calls that should have been one.",
    "metrics": "What the store holds as Prometheus text; dashboard and alerts.",
    "store": "Look after a store: fitness, schema, tidying, counts.",
    "lint": "The checklist before a merge: what would a retry do twice?",
    "classify": "What does this error mean, and may it be tried again?",
    "simulate": "What retries do to a crowd, a storm, a day: in virtual time.",
    "serve": "Look at effects in a browser, and settle what is in doubt.",
    "gateway": "Put these guarantees in front of an API, for callers in any language.",
    "mcp": "Put these guarantees in front of an MCP server.",
    "docs": "Read the documentation here, offline.",
    "examples": "See programs that show one thing each; save one and run it.",
    "config": "See which settings are in force, and where they come from.",
    "completion": "Print the completion script of a shell.",
}
EPILOG = (
    "Exit codes: 0 done, 1 failed or declined, 2 wrong usage, 3 a person is needed, 4 not allowed,"
    " 5 not found, 6 changed meanwhile, 7 store unreachable, 130 interrupted."
)
EXTRA = "pip install 'effectonce["  # in what we say where an optional package is missing
UNREACHABLE = "Is the URL right, is the store running, and may you use it?"


class CommandLine(click.Group):
    """A group whose commands are imported late and whose errors say what to do."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS) + super().list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        command = getattr(importlib.import_module(f"effectonce.cli.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)
        return _readable(command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        names = self.list_commands(ctx)
        if args[0] not in names and not ctx.resilient_parsing:
            near = difflib.get_close_matches(args[0], names, 1)
            if near:
                ctx.fail(f"No such command {args[0]!r}. Did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Names and their lines, without importing what they name."""
        from click.shell_completion import CompletionItem

        names = [
            CompletionItem(name, help=line)
            for name, line in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, click.Abort) as ended:
            # in the line of a question
            echo("\nInterrupted." if isinstance(ended, click.Abort) else "Interrupted.", err=True)
            ctx.exit(INTERRUPTED)
        except click.exceptions.Exit:
            raise
        except click.ClickException as error:
            raise fitted(error) from None
        except Exception as error:
            # only our errors are reported; asking which they are imports the engine, and only now
            from effectonce import EffectOnceError, StoreUnavailable

            if isinstance(error, StoreUnavailable):
                advice = UNREACHABLE if error.retriable else error.corrective_action
                raise fitted(Stop(str(error), STORE_UNREACHABLE, advice)) from None
            if isinstance(error, EffectOnceError):
                raise fitted(Stop(str(error), FAILED, error.corrective_action)) from None
            if isinstance(error, ImportError) and EXTRA in str(error):
                raise fitted(Stop(str(error), FAILED)) from None
            raise


def _readable(command: click.Command) -> click.Command:
    """Docstrings are raw; click wants the character itself before lines that it must not wrap."""
    command.help = (command.help or "").replace("\\b\n", "\b\n")
    for inner in getattr(command, "commands", {}).values():
        _readable(inner)
        # the whole sentence, where click would cut it
        inner.short_help = inner.help.partition("\n")[0]
    return command


@click.group(
    cls=CommandLine,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, "--version", prog_name="effectonce")
@takes("store", "app", "tenant", "config", "output", "color", "no_input")
def main() -> None:
    r"""Your agent retried. Your customer was charged once.

    Start with `effectonce demo`: ten seconds, offline, and every count is read from the bank's
    ledger. `effectonce status` shows what is in your own store; name it with --store,
    EFFECTONCE_STORE or effectonce.toml.

    \b
    Examples:
      effectonce demo
      effectonce status --store sqlite:///effects.db
      effectonce effect show eff_3fa94c1f22d0
    """


_readable(main)
