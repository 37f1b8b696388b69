"""`effectonce doctor`: is this store fit to hold effects, and what to change if it is not."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import click

from effectonce import Capability, Finding, Guard, Health, Kind
from effectonce.cli._console import color_option, console

UNFIT, STORE_UNREACHABLE = 1, 7
GOOD, BAD = "[green]✓[/]", "[bold red]✗[/]"
RECORDED = tuple(kind for kind in Kind if kind is not Kind.READ)


@click.command()
@click.argument("store_url", metavar="STORE_URL", required=False)
@click.option("--app", metavar="MODULE:GUARD", help="Look at a guard of yours: its store, and what its contracts should know.")
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON and nothing else.")
@color_option
def doctor(*, store_url: str | None, app: str | None, as_json: bool) -> None:
    r"""Is this store fit to hold effects? If not, what to change.

    Looks at reachability, latency, durability, schema and clock, counts what is in doubt or due, and says which kinds of tools the
    store may hold. Nothing is changed. The exit code is 0 if all is well, 1 if something must be changed, 7 if it cannot be reached.

    \b
    Examples:
      effectonce doctor sqlite:///effects.db
      effectonce doctor postgresql://app@db/effects --json | jq .findings
      effectonce doctor --app shop.agents:guard
    """
    if (store_url is None) is (app is None):
        raise click.UsageError("Give the URL of a store, or --app MODULE:GUARD.")
    guard = Guard(store_url) if store_url is not None else _guard_of(app or "")
    try:
        health = guard.health()
    finally:
        guard.close()
    if as_json:
        click.echo(json.dumps(_as_data(health)))
    else:
        _tell(health)
    if not health.ok:
        raise SystemExit(UNFIT if health.reachable else STORE_UNREACHABLE)


def _guard_of(app: str) -> Guard:
    """The guard that a module of the user's has, from the folder where the command was given."""
    module, _, name = app.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        guard = getattr(importlib.import_module(module), name or "guard")
    except (ImportError, AttributeError, ValueError) as error:
        raise click.UsageError(f"--app {app}: {error}.") from None
    if not isinstance(guard, Guard):
        raise click.UsageError(f"--app {app} is a {type(guard).__name__}, not a Guard.")
    return guard


def _as_data(health: Health) -> dict[str, Any]:
    return {
        "ok": health.ok,
        "reachable": health.reachable,
        "latency_ms": None if health.latency_s is None else round(health.latency_s * 1e3, 3),
        "counts": health.counts,
        "findings": [{"subject": f.subject, "found": f.found, "advice": f.advice, "bad": f.bad} for f in health.findings],
        "may_hold": [
            {"kind": kind, "downstream": downstream, "may": not why, "why": why}
            for kind in RECORDED
            for downstream in Capability
            for why in (health.unfit_for(kind, downstream),)
        ],
    }


def _tell(health: Health) -> None:
    from rich.table import Table

    screen, lines = console(), Table.grid(padding=(0, 1))
    for finding in health.findings:
        lines.add_row(_mark(finding), finding.subject, finding.found)
        if finding.advice:
            lines.add_row("", "", f"[dim]{finding.advice}[/]")
    if health.latency_s is not None:
        counts = ", ".join(f"{count:,} {state}".replace("_", " ") for state, count in health.counts.items()) or "none yet"
        lines.add_row(GOOD, "latency", f"{health.latency_s * 1e3:.2f} ms for one read")
        lines.add_row(GOOD, "effects", counts)
    screen.print(lines)
    if health.reachable:
        _tell_what_it_may_hold(health)


def _mark(finding: Finding) -> str:
    return BAD if finding.bad else "[yellow]![/]" if finding.advice else GOOD


def _tell_what_it_may_hold(health: Health) -> None:
    from rich.table import Table

    screen, table = console(), Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("may hold")
    for downstream in Capability:
        table.add_column(str(downstream), justify="center")
    for kind in RECORDED:
        table.add_row(str(kind), *(BAD if health.unfit_for(kind, d) else GOOD for d in Capability))
    screen.print()
    screen.print(table)
    reasons = Table.grid(padding=(0, 1))
    for reason in sorted({health.unfit_for(kind, d) for kind in RECORDED for d in Capability} - {""}):
        reasons.add_row(BAD, f"[dim]{reason}.[/]")
    screen.print(reasons)
