"""`effectonce simulate`: what retries do, seen in virtual time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from effectonce.cli._console import color_option, console, echo, in_markup
from effectonce.cli._options import Number, value_option, with_options
from effectonce.cli._output import for_machines

F = TypeVar("F", bound=Callable[..., Any])
FULL_DAY = 180_000


@click.group()
def simulate() -> None:
    r"""See what retries do to a crowd, to a service that stumbled, to a day of turns.

    Everything happens in virtual time and takes about a second. Delays, verdicts, budgets and
    breakers are the ones that guarded calls use; what is assumed about the world is in the
    documentation, page "Simulations". One seed always gives the same figures.

    \b
    Examples:
      effectonce simulate storm
      effectonce simulate jitter --json | jq .policies
      effectonce simulate turns --set headroom=1.1 --svg turns.svg
    """


_common = with_options(
    click.option("--seed", default=7, show_default=True, help="Decides every throw of the dice."),
    click.option(
        "--json", "as_json", is_flag=True, help="Print the figures as JSON and nothing else."
    ),
    click.option(
        "--svg",
        type=click.Path(dir_okay=False, writable=True, path_type=Path),
        help="Also draw it into this file.",
    ),
    color_option,
)


@simulate.command()
@value_option("--clients", 100, click.IntRange(2, 1000), "How many want to write the row.")
@value_option("--runs", 30, click.IntRange(1, 1000), "How often to repeat it.")
@value_option("--base-ms", 5.0, Number(0.1, 1000), "The base of the delays.")
@value_option("--cap-ms", 2000.0, Number(1, 100_000), "Their highest ceiling.")
@value_option("--message-ms", 10.0, Number(0.1, 1000), "How long a message takes.")
@_common
def jitter(
    *, clients: int, runs: int, seed: int, as_json: bool, svg: Path | None, **waits: float
) -> None:
    r"""What delays do to a crowd: Brooker's experiment.

    Clients write one row, and who finds it changed waits and tries again. Printed are, for each
    way to wait, the writes that were tried and the time until all were through.

    \b
    Examples:
      effectonce simulate jitter
      effectonce simulate jitter --clients 20 --base-ms 50 --json
    """
    from effectonce.cli import _charts
    from effectonce.simulate import _svg
    from effectonce.simulate import jitter as experiment

    try:
        took = experiment.Waits(**waits)
    except ValueError as error:
        raise click.UsageError(f"{error}.") from None
    result = experiment.simulate(seed=seed, clients=clients, runs=runs, waits=took)
    _show(result, _charts.jitter, _svg.jitter_figure, as_json=as_json, svg=svg)


@simulate.command()
@value_option("--rate", 20.0, Number(5, 1000), "What the last service can do in a second.")
@value_option("--load", 0.7, Number(0.05, 1.5), "What is asked of it, as a share of that.")
@value_option("--outage-s", 10.0, Number(1, 60), "How many seconds the outage lasts.")
@value_option("--left", 0.1, Number(0, 1), "What it can do in the outage, as a share.")
@value_option("--lost", 0.01, Number(0, 0.5), "Share of answers that get lost at any time.")
@value_option("--queue-s", 10.0, Number(1, 60), "Seconds of work that fit into a queue.")
@_common
def storm(*, rate: float, seed: int, as_json: bool, svg: Path | None, **outage: float) -> None:
    r"""The outage is over; who comes back?

    Three services in a row, callers that retry, and ten seconds in which the last service can do
    a tenth of its work. Printed are, for each policy, what was answered over time and long
    afterwards, how many requests the last service got for each one that a client made, and how
    many effects happened twice.

    \b
    Examples:
      effectonce simulate storm
      effectonce simulate storm --load 0.5 --outage-s 30
      effectonce simulate storm --json | jq '.policies[] | select(.recovered) | .policy'
    """
    from effectonce.cli import _charts
    from effectonce.simulate import _svg
    from effectonce.simulate import storm as experiment

    result = experiment.simulate(seed=seed, rate=rate, outage=experiment.Outage(**outage))
    _show(result, _charts.storm, _svg.storm_figure, as_json=as_json, svg=svg)


@simulate.command()
@value_option("--calls", 20_000, click.IntRange(100, 1_000_000), "How many calls to make.")
@value_option("--attempts", 3, click.IntRange(1, 20), "How often a call may be tried.")
@_common
def budget(*, calls: int, attempts: int, seed: int, as_json: bool, svg: Path | None) -> None:
    r"""What a retry budget allows: none, ours and gRPC's.

    A share of the attempts fails, each by itself. Printed are, for each budget, the retries that
    it allows, the requests for each call, and the calls that end in an error. In the last column
    everything fails: that is what a budget is for.

    \b
    Examples:
      effectonce simulate budget
      effectonce simulate budget --attempts 5 --json | jq .policies
    """
    from effectonce.cli import _charts
    from effectonce.simulate import _svg
    from effectonce.simulate import budget as experiment

    result = experiment.simulate(seed=seed, calls=calls, attempts=attempts)
    _show(result, _charts.budget, _svg.budget_figure, as_json=as_json, svg=svg)


def _changes(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, float]:
    from effectonce.simulate._mix import changed

    pairs = [text.partition("=") for text in given]
    try:
        changes = {name.strip(): float(value) for name, _, value in pairs}
        changed(changes)
    except ValueError as error:
        raise click.BadParameter(f"{error}; write NAME=NUMBER") from None
    return changes


@simulate.command()
@value_option(
    "--turns", 18_000, click.IntRange(1000, 1_000_000), "Turns: fewer make a shorter day."
)
@click.option("--full", is_flag=True, help=f"The whole day, {FULL_DAY:,} turns: some seconds.")
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="NAME=NUMBER",
    callback=_changes,
    help="Move an assumption. May be repeated.",
)
@click.option(
    "--assumptions", is_flag=True, help="Print what is assumed, as Markdown, and nothing else."
)
@_common
def turns(
    *, turns: int, full: bool, assumptions: bool, changes: dict[str, float], seed: int, **shown: Any
) -> None:
    r"""A day of agent turns over four vendors, with four policies.

    180,000 turns a day, published rates of faults, and rate limits that 429s come from. Printed
    are, for each policy, how many turns end in an error, how many of them by a 429, and how much
    longer turns take. Every assumption has a name, a source and a range in the documentation,
    page "Simulations".

    \b
    Examples:
      effectonce simulate turns
      effectonce simulate turns --set incident_share=1 --set openai.share=0.7 --set google.share=0.05
      effectonce simulate turns --full --json
    """
    from effectonce.cli import _charts
    from effectonce.simulate import _mix, _svg
    from effectonce.simulate import turns as experiment

    if assumptions:
        echo(_mix.markdown())
        return
    count = FULL_DAY if full else turns
    if count > 50_000 and sys.stderr.isatty():
        echo(f"{count:,} turns, four times; about {count // 15_000} seconds.", err=True)
    try:
        result = experiment.simulate(seed=seed, turns=count, changes=changes)
    except ValueError as error:
        raise click.UsageError(f"{error}.") from None
    _show(result, _charts.turns, _svg.turns_figure, **shown)


def _show(
    result: Any,
    chart: Callable[..., None],
    figure: Callable[..., str],
    *,
    as_json: bool,
    svg: Path | None,
) -> None:
    if svg is not None:
        try:
            svg.write_text(figure(result), encoding="utf-8")
        except OSError as error:
            raise click.BadParameter(
                f"{svg} cannot be written: {error.strerror}", param_hint="--svg"
            ) from None
    if as_json or for_machines():
        echo(msgspec.json.encode(result).decode())
        return
    screen = console()
    chart(screen, result)
    if svg is not None:
        screen.print(f"\n[dim]Drawn into {in_markup(str(svg))}.[/]")
