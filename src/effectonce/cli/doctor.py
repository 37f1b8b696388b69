"""`effectonce doctor`: is this store fit to hold effects, and what to change if it is not."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import click
from msgspec.structs import replace

from effectonce import Capability, Guard, Health, Kind
from effectonce.cli._app import health_of, made_here, offered, opening, the_guard
from effectonce.cli._clients import bare_clients
from effectonce.cli._console import console, in_markup
from effectonce.cli._engines import engines
from effectonce.cli._exits import FAILED, STORE_UNREACHABLE
from effectonce.cli._options import store_options
from effectonce.cli._output import print_one
from effectonce.cli._providers import provider_findings
from effectonce.cli._settings import refuse_password, setting, settings

GOOD, BAD = "[green]✓[/]", "[bold red]✗[/]"
RECORDED = tuple(kind for kind in Kind if kind is not Kind.READ)


@click.command()
@click.argument("store_url", metavar="[STORE_URL]", required=False)
@store_options
def doctor(*, store_url: str | None) -> None:
    r"""Is this store fit to hold effects? If not, what to change.

    Looks at reachability, latency, durability, schema and clock, counts what is in doubt or due,
    and says which kinds of tools the store may hold. With --app, also at what LangGraph, Celery
    and DBOS do with the effects of the app, as far as its modules show it, and at the HTTP, AWS,
    mail and gRPC clients that its tools send through: which are not protected, and the line that
    does it; and at the providers that its tools name: what they do not publish, and what was read
    long ago. Nothing is changed. The exit code is 0 if all is well, 1 if something must be
    changed, 7 if it cannot be reached.

    \b
    Examples:
      effectonce doctor sqlite:///effects.db
      effectonce doctor postgresql://app@db/effects --json | jq .findings
      effectonce doctor --app shop.agents:guard
    """
    given = settings()
    named = [name for name in ("store", "app") if given[name].rank == 0]
    if store_url is not None and named:
        raise click.UsageError(f"Give the URL of a store or --{named[0]}, not both.")
    if store_url is None and not (
        given["store"].value or given["store_file"].value or given["app"].value
    ):
        raise click.UsageError(f"Give the URL of a store, or --app MODULE:GUARD.{offered()}")
    if store_url is not None:
        refuse_password(store_url, "STORE_URL")
    with opening():
        opened = Guard(store_url) if store_url is not None else the_guard()
    with closing(opened) as guard:
        health = health_of(guard)
        if store_url is None and not made_here(guard):
            seen = (
                *engines(guard, setting("app").partition(":")[0]),
                *bare_clients(guard),
                *provider_findings(guard, datetime.now(UTC).date()),
            )
            health = replace(health, findings=(*health.findings, *seen))
    report(health)


def report(health: Health) -> None:
    """Print what was found, and end the command if something is wrong."""
    print_one(_as_data(health), lambda: _tell(health), schema="health")
    if not health.ok:
        raise SystemExit(FAILED if health.reachable else STORE_UNREACHABLE)


def _as_data(health: Health) -> dict[str, Any]:
    return {
        "ok": health.ok,
        "reachable": health.reachable,
        "latency_ms": None if health.latency_s is None else round(health.latency_s * 1e3, 3),
        "counts": health.counts,
        "findings": [
            {"subject": f.subject, "found": f.found, "advice": f.advice, "bad": f.bad}
            for f in health.findings
        ],
        "may_hold": [
            {"kind": kind, "downstream": downstream, "may": not why, "why": why}
            for kind in RECORDED
            for downstream in Capability
            for why in (health.unfit_for(kind, downstream),)
        ],
    }


def _tell(health: Health) -> None:
    from rich.table import Table

    from effectonce.views.effects import STATES

    screen, lines = console(), Table.grid(padding=(0, 1))
    for finding in health.findings:
        mark = BAD if finding.bad else "[yellow]![/]" if finding.advice else GOOD
        lines.add_row(mark, in_markup(finding.subject), in_markup(finding.found))
        if finding.advice:
            lines.add_row("", "", f"[dim]{in_markup(finding.advice)}[/]")
    if health.latency_s is not None:
        there = [state for state in STATES if health.counts.get(state)]
        counted = [f"{health.counts[state]:,} {state}".replace("_", " ") for state in there]
        lines.add_row(GOOD, "latency", f"{health.latency_s * 1e3:.2f} ms for one read")
        lines.add_row(GOOD, "effects", ", ".join(counted) or "none yet")
    screen.print(lines)
    if health.reachable:
        _tell_what_it_may_hold(health)


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
    found = {health.unfit_for(kind, d) for kind in RECORDED for d in Capability}
    for reason in sorted(found - {""}):
        reasons.add_row(BAD, f"[dim]{reason}.[/]")
    if reasons.row_count:
        screen.print(reasons)
