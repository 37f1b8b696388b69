"""`effectonce demo`: three acts in ten seconds, against a bank that counts."""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from effectonce.cli._console import color_option, console, echo
from effectonce.cli._output import for_machines

if TYPE_CHECKING:
    from effectonce.cli._demo_acts import DemoDoubt, ProtectedAgent, Unprotected

    Acts: TypeAlias = tuple[Unprotected, ProtectedAgent, DemoDoubt]


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
    with tempfile.TemporaryDirectory(prefix="effectonce-demo-") as folder:
        acts = (
            _silently(Path(folder), seed)
            if as_json or for_machines()
            else _on_screen(Path(folder), seed)
        )
    broken = [promise for act in acts for promise in act.broken_promises()]
    for promise in broken:
        echo(f"Error: {promise}", err=True)
    if broken:
        raise SystemExit(1)


def _silently(folder: Path, seed: int) -> Acts:
    from effectonce.cli._demo_acts import Theatre

    if sys.stderr.isatty():
        echo("Three acts; about ten seconds.", err=True)
    theatre = Theatre(folder, seed, show=lambda _: None)
    acts = theatre.without(), theatre.protected(), theatre.doubt()
    echo(json.dumps(_counts(*acts)))
    return acts


def _counts(without: Unprotected, protected: ProtectedAgent, doubt: DemoDoubt) -> dict[str, Any]:
    return {
        name: {"effects": len(act.ledger)}
        | {key: value for key, value in asdict(act).items() if key != "ledger"}
        for name, act in (("unprotected", without), ("protected", protected), ("in_doubt", doubt))
    }


def _on_screen(folder: Path, seed: int) -> Acts:
    from effectonce.cli._demo_acts import Theatre
    from effectonce.cli._demo_story import Story

    story = Story(console())
    theatre = Theatre(folder, seed, story.show)
    story.opening(seed)
    acts = story.without(theatre), story.protected(theatre), story.doubt(theatre)
    story.closing(*acts)
    return acts
