"""Figures as plain SVG: bars side by side, and strips over time. No library or fonts; printable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from msgspec import Struct

from effectonce.simulate.budget import BudgetResult
from effectonce.simulate.jitter import JitterResult
from effectonce.simulate.storm import LENGTH_S, STRIP_S, TRIGGER_S, StormResult
from effectonce.simulate.turns import TurnsResult

WIDTH, MARGIN, NAMES, ROW, HEAD = 880, 32, 150, 34, 112
INK, MUTED, GRID = "#1f2328", "#59636e", "#d8dee4"
PLAIN, OURS, BAD = "#afb8c1", "#0969da", "#fff1e5"
FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"


class Panel(Struct, frozen=True):
    """One measure of all policies."""

    title: str
    values: tuple[float, ...]
    labels: tuple[str, ...]


def _measured(title: str, values: Iterable[float], form: str) -> Panel:
    values = tuple(values)
    return Panel(title, values, tuple(form.format(value) for value in values))


def jitter_figure(result: JitterResult) -> str:
    """Calls and time of each way to wait."""
    of = result.policies
    panels = (
        _measured("writes tried", (p.calls for p in of), "{:,.0f}"),
        _measured("until the last one is done", (p.completion_ms for p in of), "{:,.0f} ms"),
    )
    note = f"{result.clients} clients write one row; mean of {result.runs} runs, seed {result.seed}"
    return _bars("What delays do to a crowd", note, tuple(p.policy for p in of), "full", panels)


def turns_figure(result: TurnsResult) -> str:
    """Errors, 429s and time of each policy."""
    of = result.policies
    added = tuple(max(0.0, p.latency_factor - 1) for p in of)
    panels = (
        _measured("turns that end in an error", (p.unretryable for p in of), "{:.2%}"),
        _measured("turns that a 429 ends", (p.lost_to_429 for p in of), "{:.2%}"),
        Panel("time added", added, tuple(f"{p.latency_factor:.3f}x" for p in of)),
    )
    note = f"{result.turns:,} turns over four vendors, seed {result.seed}"
    return _bars("A day of agent turns", note, tuple(p.policy for p in of), "whole", panels)


def budget_figure(result: BudgetResult) -> str:
    """The retries that each budget allows, at three shares of failures."""
    of, panels = result.policies, []
    for share in (0.1, 0.2, 0.5):
        at = result.shares.index(share)
        panels.append(_measured(f"{share:.0%} fail", (p.allowed[at] for p in of), "{:.1%}"))
    note = f"share of the retries that were asked for; {result.calls:,} calls, seed {result.seed}"
    names = tuple(p.policy for p in of)
    return _bars("What a retry budget allows", note, names, "effectonce", panels)


def storm_figure(result: StormResult) -> str:
    """What is answered over time, one strip for each policy."""
    where = f"{result.rate:g} requests a second at the end of three services"
    note = f"share of requests answered; {where}, seed {result.seed}"
    row, left, right = 46, MARGIN + NAMES, 290
    width = WIDTH - left - right - MARGIN
    foot = HEAD + row * len(result.policies)
    height = foot + 44
    body = [*_head("The outage is over; who comes back?", note, height)]
    columns = ("answered after", "amplification", "duplicates")
    at = [left + width + 96 + 96 * number for number in range(3)]
    body += [
        _text(x, HEAD - 14, name, size=11, fill=MUTED, anchor="end")
        for x, name in zip(at, columns, strict=True)
    ]
    start, wide = (width * each / LENGTH_S for each in (TRIGGER_S, result.outage.outage_s))
    start += left
    place = f'x="{start:.1f}" y="{HEAD - 6}" width="{wide:.1f}" height="{foot - HEAD + 6}"'
    body.append(f'<rect {place} fill="{BAD}"/>')
    body.append(_text(start, HEAD - 14, "outage", size=11, fill=MUTED))
    for number, storm in enumerate(result.policies):
        low, ours = HEAD + row * (number + 1) - 10, storm.policy == "whole"
        fill, step = OURS if ours else PLAIN, width / len(storm.answered)
        body.append(_text(left - 14, low - 8, storm.policy, anchor="end", bold=ours))
        line = f'<line x1="{left}" x2="{left + width}" y1="{low}" y2="{low}" stroke="{GRID}"/>'
        body += [line, _strip(storm.answered, left, low, step, row - 16, fill)]
        shown = (f"{storm.goodput:.1%}", f"{storm.amplification:.2f}x", f"{storm.duplicates:,}")
        for x, value in zip(at, shown, strict=True):
            body.append(_text(x, low - 8, value, anchor="end", bold=ours))
    for second in range(0, int(LENGTH_S) + 1, 30):
        at_s, text = left + width * second / LENGTH_S, f"{second} s"
        body.append(_text(at_s, foot + 18, text, size=11, fill=MUTED, anchor="middle"))
    return _page(height, body)


def _strip(
    shares: Sequence[float], left: float, low: float, step: float, high: float, fill: str
) -> str:
    points = [f"{left:.1f},{low}"]
    for number, share in enumerate(shares):
        edges = (left + number * step, left + (number + 1) * step)
        points += [f"{x:.1f},{low - share * high:.1f}" for x in edges]
    points.append(f"{left + len(shares) * step:.1f},{low}")
    return (
        f'<polygon points="{" ".join(points)}" fill="{fill}" fill-opacity="0.85"><title>{STRIP_S:g}'
        " s each</title></polygon>"
    )


def _bars(title: str, note: str, names: tuple[str, ...], ours: str, panels: Sequence[Panel]) -> str:
    height = HEAD + ROW * len(names) + 24
    body = [*_head(title, note, height)]
    for number, name in enumerate(names):
        x, bold = MARGIN + NAMES - 14, name == ours
        body.append(_text(x, _middle(number), name, anchor="end", bold=bold))
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
    rows = zip(names, panel.values, panel.labels, strict=True)
    for number, (name, value, label) in enumerate(rows):
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
