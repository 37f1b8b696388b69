"""`effectonce store`: is it fit, is its schema current, what is in it, and what is due to be
swept.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

import click
import msgspec

from effectonce.cli._app import guard_here, health_of, the_guard
from effectonce.cli._console import busy, console, echo, say
from effectonce.cli._options import dry_run_option, store_options
from effectonce.cli._output import print_one

BATCH = 100


@click.group()
def store() -> None:
    r"""Look after a store: fitness, schema, tidying, counts.

    \b
    Examples:
      effectonce store check --store sqlite:///effects.db
      effectonce store gc --store postgresql://app@db/effects
    """


@store.command()
@store_options
def check() -> None:
    r"""Is this store fit to hold effects? As `effectonce doctor`, for the store that is set.

    The exit code is 0 if all is well, 1 if something must be changed, 7 if it cannot be reached.

    \b
    Examples:
      effectonce store check
      effectonce store check --store redis://cache:6379/0 --json | jq .findings
    """
    from effectonce.cli.doctor import report

    with closing(the_guard()) as guard:
        health = health_of(guard)
    report(health)


@store.command()
@store_options
def migrate() -> None:
    r"""Bring the schema up to date; make it if there is none.

    A guard does so by itself when it opens a store. Do it here, before a deploy, where the role
    of the application may not change schemas or a big table takes its time. An older release
    goes on working until it connects anew.

    \b
    Examples:
      effectonce store migrate --store postgresql://owner@db/effects
      effectonce store migrate --store sqlite:////var/lib/shop/effects.db
    """
    with guard_here(create=True) as guard:
        with busy("Bringing the schema up to date"):
            guard.counts()
        schema = next(
            (f.found for f in health_of(guard).findings if f.subject == "schema"),
            "none: this store needs no schema",
        )
    data = {"schema_version": schema}
    print_one(data, lambda: say(f"The schema is current: {schema}."), schema="migration")


@store.command()
@click.option(
    "--limit",
    type=click.IntRange(1),
    metavar="N",
    help="Stop after about this many records.  [default: none]",
)
@dry_run_option
@store_options
def gc(*, limit: int | None, dry_run: bool) -> None:
    r"""Sweep now: what `guard.sweeper()` does in the background.

    Effects whose owner vanished after they were sent go in doubt. Outcomes past their window are
    dropped, and their keys refused. Keys past their remembered time are forgotten. A record
    without an outcome is never removed.

    \b
    Examples:
      effectonce store gc
      effectonce store gc --dry-run
      effectonce store gc --limit 10000 --json | jq .buried
    """
    from effectonce import Swept

    with guard_here() as guard:
        if dry_run:
            found = (f.found for f in health_of(guard).findings if f.subject == "due")
            due = next(found, "unknown")
            said = f"{due} due. Nothing was changed."
            print_one({"due": due}, lambda: echo(said), schema="sweep")
            return
        swept = Swept(0, 0, 0)
        with busy("Sweeping") as how_far:
            while limit is None or swept.total < limit:
                batch = BATCH if limit is None else min(BATCH, limit - swept.total)
                done = guard.sweep(limit=batch)
                swept += done
                how_far(f"{swept.total:,}")
                if done.total < batch:
                    break

    def tell() -> None:
        echo(
            f"{swept.doubted:,} put in doubt, {swept.buried:,} outcomes dropped,"
            f" {swept.forgotten:,} keys forgotten, {swept.cells:,} shared values forgotten."
        )
        if swept.unreadable:
            echo(
                f"{len(swept.unreadable):,} due records cannot be read by this release, such as"
                f" {swept.unreadable[0]}. They were left as they are: upgrade effectonce here."
            )

    print_one(msgspec.structs.asdict(swept), tell, schema="sweep")


@store.command()
@store_options
def stats() -> None:
    r"""How many effects there are in each state, what is due, and how large the store is.

    \b
    Examples:
      effectonce store stats
      effectonce store stats --json | jq .counts
    """
    from effectonce.views.effects import STATES

    with guard_here() as guard:
        health = health_of(guard)
        counts = guard.counts()  # also of a file that may only be read
    found = {finding.subject: finding.found for finding in health.findings}
    data = {
        "counts": {str(state): counts.get(state, 0) for state in STATES},
        "total": sum(counts.values()),
        "due": found.get("due"),
        "size": found.get("size"),
        "latency_ms": None if health.latency_s is None else round(health.latency_s * 1e3, 3),
    }
    print_one(data, lambda: _tell(data), schema="stats")


def _tell(data: dict[str, Any]) -> None:
    from rich.table import Table

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(justify="right")
    for state, count in data["counts"].items():
        grid.add_row(state.replace("_", " "), f"{count:,}")
    grid.add_row("[bold]all[/]", f"[bold]{data['total']:,}[/]")
    screen = console()
    screen.print(grid)
    for name in ("size", "due"):
        if data[name] is not None:
            screen.print(f"[dim]{name}[/]  {data[name]}")
