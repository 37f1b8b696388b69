"""Simulations on a terminal: bars and strips that fit 80 columns, with and without colour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from rich.console import Console, JustifyMethod

    from effectonce.simulate.budget import BudgetResult
    from effectonce.simulate.jitter import JitterResult
    from effectonce.simulate.storm import StormResult
    from effectonce.simulate.turns import TurnsResult

EIGHTHS = " ▏▎▍▌▋▊▉█"
HEIGHTS = "▁▂▃▄▅▆▇█"


def bar(share: float, width: int) -> str:
    """A bar of that share of *width* cells; what is not nothing is seen."""
    eighths = round(min(1.0, share) * width * 8)
    full, rest = divmod(max(1, eighths) if share > 0 else 0, 8)
    return "█" * full + (EIGHTHS[rest] if rest else "")


def strip(shares: tuple[float, ...]) -> str:
    """One cell for each share, as high as it is."""
    return "".join(HEIGHTS[min(7, int(share * 8))] for share in shares)


def _table(*columns: str) -> Table:
    """Columns by their name; a `>` before it: they hold numbers."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 1, 0, 0))
    for name in columns:
        side: JustifyMethod = "right" if name.startswith(">") else "left"
        table.add_column(name.removeprefix(">"), justify=side, no_wrap=True)
    return table


def jitter(screen: Console, result: JitterResult) -> None:
    """Two bars for each way to wait."""
    screen.print(
        f"[bold]{result.clients} clients write one row:[/] [dim]mean of {result.runs} runs, seed"
        f" {result.seed}[/]\n"
    )
    width = max(10, (screen.width - 44) // 2)
    most_calls = max(p.calls for p in result.policies)
    most_ms = max(p.completion_ms for p in result.policies)
    table = _table("", "writes tried", ">", "until all are done", ">")
    for p in result.policies:
        style = "bold cyan" if p.policy == "full" else ""
        calls = (bar(p.calls / most_calls, width), f"{p.calls:,.0f}")
        done = (bar(p.completion_ms / most_ms, width), f"{p.completion_ms:,.0f} ms")
        table.add_row(p.policy, *calls, *done, style=style)
    screen.print(table)


def storm(screen: Console, result: StormResult) -> None:
    """A strip over time for each policy, and what was left of it."""
    from effectonce.simulate.storm import STRIP_S, TRIGGER_S

    screen.print(
        f"[bold]The outage is over; who comes back?[/] [dim]({result.rate:g} requests a second,"
        f" seed {result.seed})[/]\n"
    )
    before, during = (round(second / STRIP_S) for second in (TRIGGER_S, result.outage.outage_s))
    outage = " " * before + ("└" + "─" * (during - 2) + "┘" if during > 1 else "╵") + " outage"
    table = _table("", outage, ">after", ">sent", ">twice")
    for p in result.policies:
        color = "green" if p.recovered else "red"
        name = f"[bold]{p.policy}[/]" if p.policy == "whole" else p.policy
        answered = (f"[{color}]{strip(p.answered)}[/]", f"[{color}]{p.goodput:.1%}[/]")
        table.add_row(name, *answered, f"{p.amplification:.2f}x", f"{p.duplicates:,}")
    screen.print(table)
    screen.print(
        f"\n[dim]A cell is {STRIP_S:g} s, as high as the share of its requests that was answered.\n"
        "after: that share long after the outage; sent: requests that the last service\n"
        "gets for each one of a client; twice: effects beyond the first of a request.[/]"
    )


def turns(screen: Console, result: TurnsResult) -> None:
    """Errors as bars, the rest as numbers."""
    moved = ", ".join(f"{name}={value:g}" for name, value in result.changes.items())
    screen.print(
        f"[bold]{result.turns:,} turns over four vendors:[/] [dim]seed"
        f" {result.seed}{'; ' if moved else ''}{moved}[/]\n"
    )
    width = max(10, screen.width - 64)
    most = max(p.unretryable for p in result.policies) or 1.0
    table = _table("", "end in an error", ">", ">by a 429", ">429s", ">time", ">p99")
    for p in result.policies:
        errors = (bar(p.unretryable / most, width), f"{p.unretryable:.2%}")
        refused = (f"{p.lost_to_429:.2%}", f"{p.answered_429:.1%}")
        took = (f"{p.latency_factor:.3f}x", f"{p.p99_factor:.2f}x")
        style = "bold cyan" if p.policy == "whole" else ""
        table.add_row(p.policy, *errors, *refused, *took, style=style)
    screen.print(table)
    ended_by = sorted(result.policies[-1].ended_by.items(), key=lambda pair: -pair[1])
    left = ", ".join(f"{kind} {share:.3%}" for kind, share in ended_by)
    screen.print(
        "\n[dim]429s: share of calls that get one; time, p99: of the turns that succeed,\n"
        "over the same turns without any fault.\n"
        f"What is left with the whole policy: {left or 'nothing'}.[/]"
    )


def budget(screen: Console, result: BudgetResult) -> None:
    """The retries that each budget allows, and what comes of it, by the share that fails."""
    screen.print(
        f"[bold]What a retry budget allows:[/] [dim]{result.calls:,} calls, {result.attempts}"
        f" attempts at most, seed {result.seed}[/]"
    )
    tables = (
        ("retries allowed", "allowed", "{:.1%}"),
        ("requests for a call", "sent", "{:.2f}x"),
        ("calls that end in an error", "failed", "{:.1%}"),
    )
    for title, name, form in tables:
        screen.print(f"\n[dim]{title}[/]")
        table = _table("", *(f">{share:.0%} fail" for share in result.shares))
        for p in result.policies:
            style = "bold cyan" if p.policy == "effectonce" else ""
            table.add_row(p.policy, *(form.format(one) for one in getattr(p, name)), style=style)
        screen.print(table)
