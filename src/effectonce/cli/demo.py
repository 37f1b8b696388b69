"""`effectonce demo`: three acts in ten seconds, against a bank that counts."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import click

from effectonce.cli._console import color_option, console, echo
from effectonce.cli._output import for_machines


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON and nothing else.")
@click.option(
    "--seed", default=7, show_default=True, help="Decides keys and how late the bank answers."
)
@color_option
def demo(*, as_json: bool, seed: int) -> None:
    r"""See it hold: lost answers, killed agents, one refund.

    Agents refund a payment at a bank; answers come too late, an agent is killed right after the
    bank said yes, two work in parallel. Once without effectonce, once with it, and once with a
    bank that ignores keys and loses its answer. It runs offline for about ten seconds and leaves
    nothing behind. Every count is read from the bank's ledger or from the store; if one is not
    as promised, the exit code is 1.

    \b
    Examples:
      effectonce demo
      effectonce demo --json | jq .protected.effects
    """
    from effectonce.cli._demo_acts import DemoActs
    from effectonce.cli._demo_story import Story

    silent, story = as_json or for_machines(), Story(console())
    if silent and sys.stderr.isatty():
        echo("Three acts; about ten seconds.", err=True)
    with tempfile.TemporaryDirectory(prefix="effectonce-demo-") as folder:
        acts = DemoActs(Path(folder), seed, (lambda _: None) if silent else story.show)
        if silent:
            played = [acts.without(), acts.protected(), acts.doubt()]
            names = ("unprotected", "protected", "in_doubt")
            counts = [{"effects": len(act.ledger), **act.counts} for act in played]
            echo(json.dumps(dict(zip(names, counts, strict=True))))
        else:
            played = story.tell(acts, seed)
    broken = [promise for act in played for promise in act.broken]
    for promise in broken:
        echo(f"Error: {promise}", err=True)
    if broken:
        raise SystemExit(1)
