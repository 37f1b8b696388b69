"""Simulations on a terminal: bars and strips that fit 80 columns, with and without colour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from rich.console import Console

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


def _table(*columns: tuple[str, bool]) -> Table:
    """Columns by their name, and whether they hold numbers."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 1, 0, 0))
    for name, numbers in columns:
        table.add_column(name, justify="right" if numbers else "left", no_wrap=True)
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
    table = _table(
        ("", False), ("writes tried", False), ("", True), ("until all are done", False), ("", True)
    )
    for p in result.policies:
        style = "bold cyan" if p.policy == "full" else ""
        drawn = (bar(p.calls / most_calls, width), bar(p.completion_ms / most_ms, width))
        table.add_row(
            p.policy,
            drawn[0],
            f"{p.calls:,.0f}",
            drawn[1],
            f"{p.completion_ms:,.0f} ms",
            style=style,
        )
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
    table = _table(("", False), (outage, False), ("after", True), ("sent", True), ("twice", True))
    for p in result.policies:
        color = "green" if p.recovered else "red"
        name = f"[bold]{p.policy}[/]" if p.policy == "whole" else p.policy
        after = f"[{color}]{p.goodput:.1%}[/]"
        table.add_row(
            name,
            f"[{color}]{strip(p.answered)}[/]",
            after,
            f"{p.amplification:.2f}x",
            f"{p.duplicates:,}",
        )
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
    table = _table(
        ("", False),
        ("end in an error", False),
        *((name, True) for name in ("", "by a 429", "429s", "time", "p99")),
    )
    for p in result.policies:
        numbers = (
            f"{p.lost_to_429:.2%}",
            f"{p.answered_429:.1%}",
            f"{p.latency_factor:.3f}x",
            f"{p.p99_factor:.2f}x",
        )
        style = "bold cyan" if p.policy == "whole" else ""
        table.add_row(
            p.policy,
            bar(p.unretryable / most, width),
            f"{p.unretryable:.2%}",
            *numbers,
            style=style,
        )
    screen.print(table)
    last = result.policies[-1]
    left = ", ".join(
        f"{kind} {share:.3%}"
        for kind, share in sorted(last.ended_by.items(), key=lambda pair: -pair[1])
    )
    screen.print(
        "\n[dim]429s: share of calls that get one; time, p99: of the turns that succeed,\n"
        "over the same turns without any fault.\n"
        f"What is left with the whole policy: {left or 'nothing'}.[/]"
    )


def budget(screen: Console, result: BudgetResult) -> None:
    """Two tables: the retries that each budget allows, and the calls that end in an error, by
    the share of attempts that fail.
    """
    screen.print(
        f"[bold]What a retry budget allows:[/] [dim]{result.calls:,} calls, {result.attempts}"
        f" attempts at most, seed {result.seed}[/]"
    )
    shares = [f"{share:.0%} fail" for share in result.shares]
    tables = (
        ("retries allowed", [p.allowed for p in result.policies]),
        ("requests for a call", [p.sent for p in result.policies]),
        ("calls that end in an error", [p.failed for p in result.policies]),
    )
    for title, figures in tables:
        screen.print(f"\n[dim]{title}[/]")
        form = "{:.2f}x" if title == "requests for a call" else "{:.1%}"
        table = _table(("", False), *((share, True) for share in shares))
        for p, of in zip(result.policies, figures, strict=True):
            table.add_row(
                p.policy,
                *(form.format(one) for one in of),
                style="bold cyan" if p.policy == "effectonce" else "",
            )
        screen.print(table)
