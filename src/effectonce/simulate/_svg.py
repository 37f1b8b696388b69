"""Figures as plain SVG: bars side by side, and strips over time. No library or fonts; printable."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from msgspec import Struct

from effectonce.simulate.budget import BudgetResult
from effectonce.simulate.jitter import JitterResult
from effectonce.simulate.storm import LENGTH_S, STRIP_S, TRIGGER_S, StormResult
from effectonce.simulate.turns import TurnsResult

WIDTH, MARGIN, NAMES, ROW, HEAD = 880, 32, 150, 34, 112
INK, MUTED, GRID, PLAIN, OURS, BAD = (
    "#1f2328",
    "#59636e",
    "#d8dee4",
    "#afb8c1",
    "#0969da",
    "#fff1e5",
)
FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"


class Panel(Struct, frozen=True):
    """One measure of all policies."""

    title: str
    values: tuple[float, ...]
    labels: tuple[str, ...]


def jitter_figure(result: JitterResult) -> str:
    """Calls and time of each way to wait."""
    of = result.policies
    panels = (
        Panel("writes tried", tuple(p.calls for p in of), tuple(f"{p.calls:,.0f}" for p in of)),
        Panel(
            "until the last one is done",
            tuple(p.completion_ms for p in of),
            tuple(f"{p.completion_ms:,.0f} ms" for p in of),
        ),
    )
    note = f"{result.clients} clients write one row; mean of {result.runs} runs, seed {result.seed}"
    return _bars("What delays do to a crowd", note, tuple(p.policy for p in of), "full", panels)


def turns_figure(result: TurnsResult) -> str:
    """Errors, 429s and time of each policy."""
    of = result.policies
    panels = (
        Panel(
            "turns that end in an error",
            tuple(p.unretryable for p in of),
            tuple(f"{p.unretryable:.2%}" for p in of),
        ),
        Panel(
            "turns that a 429 ends",
            tuple(p.lost_to_429 for p in of),
            tuple(f"{p.lost_to_429:.2%}" for p in of),
        ),
        Panel(
            "time added",
            tuple(max(0.0, p.latency_factor - 1) for p in of),
            tuple(f"{p.latency_factor:.3f}x" for p in of),
        ),
    )
    note = f"{result.turns:,} turns over four vendors, seed {result.seed}"
    return _bars("A day of agent turns", note, tuple(p.policy for p in of), "whole", panels)


def budget_figure(result: BudgetResult) -> str:
    """The retries that each budget allows, at three shares of failures."""
    of, shown = result.policies, [result.shares.index(share) for share in (0.1, 0.2, 0.5)]
    panels = tuple(
        Panel(
            f"{result.shares[at]:.0%} fail",
            tuple(p.allowed[at] for p in of),
            tuple(f"{p.allowed[at]:.1%}" for p in of),
        )
        for at in shown
    )
    note = f"share of the retries that were asked for; {result.calls:,} calls, seed {result.seed}"
    return _bars(
        "What a retry budget allows", note, tuple(p.policy for p in of), "effectonce", panels
    )


def storm_figure(result: StormResult) -> str:
    """What is answered over time, one strip for each policy."""
    note = (
        f"share of requests answered; {result.rate:g} requests a second at the end of three"
        f" services, seed {result.seed}"
    )
    row, left, right = 46, MARGIN + NAMES, 290
    width = WIDTH - left - right - MARGIN
    height = HEAD + row * len(result.policies) + 44
    body = [*_head("The outage is over; who comes back?", note, height)]
    columns = ("answered after", "amplification", "duplicates")
    at = [left + width + 96 + 96 * number for number in range(3)]
    body += [
        _text(x, HEAD - 14, name, size=11, fill=MUTED, anchor="end")
        for x, name in zip(at, columns, strict=True)
    ]
    start, end = (
        left + width * second / LENGTH_S
        for second in (TRIGGER_S, TRIGGER_S + result.outage.outage_s)
    )
    foot = HEAD + row * len(result.policies)
    body.append(
        f'<rect x="{start:.1f}" y="{HEAD - 6}" width="{end - start:.1f}" height="{foot - HEAD + 6}"'
        f' fill="{BAD}"/>'
    )
    body.append(_text(start, HEAD - 14, "outage", size=11, fill=MUTED))
    for number, storm in enumerate(result.policies):
        low, fill = HEAD + row * (number + 1) - 10, OURS if storm.policy == "whole" else PLAIN
        body.append(
            _text(left - 14, low - 8, storm.policy, anchor="end", bold=storm.policy == "whole")
        )
        body.append(
            f'<line x1="{left}" x2="{left + width}" y1="{low}" y2="{low}" stroke="{GRID}"/>'
        )
        body.append(_strip(storm.answered, left, low, width / len(storm.answered), row - 16, fill))
        shown = (f"{storm.goodput:.1%}", f"{storm.amplification:.2f}x", f"{storm.duplicates:,}")
        body += [
            _text(x, low - 8, value, anchor="end", bold=storm.policy == "whole")
            for x, value in zip(at, shown, strict=True)
        ]
    for second in range(0, int(LENGTH_S) + 1, 30):
        body.append(
            _text(
                left + width * second / LENGTH_S,
                foot + 18,
                f"{second} s",
                size=11,
                fill=MUTED,
                anchor="middle",
            )
        )
    return _page(height, body)


def _strip(
    shares: Sequence[float], left: float, low: float, step: float, high: float, fill: str
) -> str:
    points = [f"{left:.1f},{low}"]
    for number, share in enumerate(shares):
        points += [
            f"{left + number * step:.1f},{low - share * high:.1f}",
            f"{left + (number + 1) * step:.1f},{low - share * high:.1f}",
        ]
    points.append(f"{left + len(shares) * step:.1f},{low}")
    return (
        f'<polygon points="{" ".join(points)}" fill="{fill}" fill-opacity="0.85"><title>{STRIP_S:g}'
        " s each</title></polygon>"
    )


def _bars(title: str, note: str, names: tuple[str, ...], ours: str, panels: Sequence[Panel]) -> str:
    height = HEAD + ROW * len(names) + 24
    body = [*_head(title, note, height)]
    for number, name in enumerate(names):
        body.append(
            _text(MARGIN + NAMES - 14, _middle(number), name, anchor="end", bold=name == ours)
        )
    width = (WIDTH - 2 * MARGIN - NAMES) / len(panels)
    for place, panel in enumerate(panels):
        body += _panel(panel, names, ours, MARGIN + NAMES + place * width, width)
    return _page(height, body)


def _panel(
    panel: Panel, names: tuple[str, ...], ours: str, left: float, width: float
) -> Iterator[str]:
    most, room = max(panel.values) or 1.0, width - 92
    yield _text(left, HEAD - 14, panel.title, size=12, fill=MUTED)
    yield (
        f'<line x1="{left:.1f}" x2="{left:.1f}" y1="{HEAD - 4}" y2="{HEAD + ROW * len(names) - 4}"'
        f' stroke="{GRID}"/>'
    )
    for number, (name, value, label) in enumerate(
        zip(names, panel.values, panel.labels, strict=True)
    ):
        long, fill = max(1.0, room * value / most), OURS if name == ours else PLAIN
        yield (
            f'<rect x="{left:.1f}" y="{_middle(number) - 14}" width="{long:.1f}" height="19" rx="2"'
            f' fill="{fill}"/>'
        )
        yield _text(left + long + 7, _middle(number), label, bold=name == ours)


def _middle(number: int) -> int:
    return HEAD + ROW * number + 18


def _head(title: str, note: str, height: float) -> Iterator[str]:
    yield f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>'
    yield _text(MARGIN, 44, title, size=20, bold=True)
    yield _text(MARGIN, 68, note, size=13, fill=MUTED)


def _text(
    x: float,
    y: float,
    text: str,
    *,
    size: int = 14,
    fill: str = INK,
    anchor: str = "start",
    bold: bool = False,
) -> str:
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}"'
        f' text-anchor="{anchor}"{weight}>{escape(text)}</text>'
    )


def _page(height: float, body: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}"'
        f' height="{height}"'
    )
    return "\n".join([f'{head} font-family="{FONT}" role="img">', *body, "</svg>"]) + "\n"
