"""What effectonce prevented, in words and figures that a person can pass on."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any, NamedTuple

from msgspec.structs import asdict

from effectonce._core.counters import OTHER
from effectonce.observe.report import PreventedCounts, PreventionReport
from effectonce.views.times import since_when, span

AT_LEAST = (
    "At least so many: a process that is killed loses what it counted in its last seconds."
    " Days are those of UTC."
)
# what each figure counts, exactly
MEANS: dict[str, str] = {
    "prevented": "Calls that did not become a second effect: the next four rows.",
    "replayed": "Repeated calls that got the result of an effect that had happened.",
    "joined": "Calls that came while the same effect ran, waited for it, and got its result.",
    "refused_running": "Calls that came while the same effect ran, and did not wait.",
    "refused_in_doubt": "Calls for an effect that may have happened: not sent again.",
    "landed": "Effects that happened. Reads do not count; steps of workflows do.",
    "conflicts": "Calls that used the key of another request, and were refused.",
    "replayed_failures": "Repeated calls that got the failure of the first one.",
    "resent": "Effects whose answer was lost: sent again under their key, happened once.",
    "retries_withheld": "Attempts that were not made after one that failed.",
    "doubts": "Effects that may have happened, and no program could know.",
    "settled": "Doubts that are over, by a probe or a person.",
}
TITLES: dict[str, str] = {
    "prevented": "Duplicates prevented",
    "replayed": "got the first result",
    "joined": "joined a call that ran",
    "refused_running": "refused: it was running",
    "refused_in_doubt": "refused: it was in doubt",
    "landed": "Effects landed",
    "conflicts": "Conflicts",
    "replayed_failures": "Failures repeated",
    "resent": "Sent again under the key",
    "retries_withheld": "Retries not made",
    "doubts": "Went in doubt",
    "settled": "Doubts settled",
}
_SETTLED = {
    "probe_happened": "found by a probe",
    "probe_not_happened": "not found by a probe, and run again",
    "person_happened": "confirmed by a person",
    "person_not_happened": "refuted by a person",
    "person_retried": "sent again for a person",
}
_PARTS = {
    "replayed": ("repeated call", "got the first result"),
    "joined": ("", "joined a call that ran"),
    "refused_running": ("", "were refused while it ran"),
    "refused_in_doubt": ("", "were refused because it was in doubt"),
}


def since_s(text: str, now: float) -> float:
    """How long ago something is that a person typed, such as 7d or a date."""
    since = since_when(text)
    return -since if since < 0 else now - since


def headline(report: PreventionReport) -> str:
    """The sentence to pass on."""
    total, days = report.total, len(report.days)
    when = "today" if days == 1 else f"in {days} days"
    if total.prevented == 0:
        return f"No duplicate had to be prevented {when}: {_several(total.landed, 'effect')} landed"
    parts = [
        f"{n:,} {_plural(noun, n) + ' ' if noun else ''}{words}"
        for name, (noun, words) in _PARTS.items()
        if (n := getattr(total, name))
    ]
    return f"{_several(total.prevented, 'duplicate')} prevented {when}: {', '.join(parts)}"


def nothing_yet(report: PreventionReport) -> str:
    """Why there is nothing to show; "" if there is."""
    if any(asdict(report.total)[name] for name in ("landed", "replayed_failures", "conflicts")):
        return ""
    if report.total.prevented or report.total.doubts:
        return ""
    return (
        f"Nothing was counted from {report.first} to {report.last}. Counting begins with the first"
        " call of a guarded tool, and reaches the store within seconds. Is this the right store,"
        " and is counting on (EFFECTONCE_COUNTERS, Guard(counters=))?"
    )


def figures(counts: PreventedCounts) -> Iterator[tuple[str, str, int]]:
    """Name, title and number, of all that is shown."""
    for name, title in TITLES.items():
        yield name, title, getattr(counts, name)


def settled_how(counts: PreventedCounts) -> str:
    """How doubts were settled, and how soon; "" if none was."""
    parts = [f"{n:,} {words}" for name, words in _SETTLED.items() if (n := getattr(counts, name))]
    half, most = counts.settled_within_s(0.5), counts.settled_within_s(0.95)
    soon = (
        ""
        if half is None or most is None
        else f"; half of them within {_span(half)}, 95 % within {_span(most)}"
    )
    return ", ".join(parts) + soon


def _span(seconds: float) -> str:
    return "more than a week" if seconds == inf else span(seconds)


def _several(count: int, noun: str) -> str:
    return f"{count:,} {_plural(noun, count)}"


def _plural(noun: str, count: int) -> str:
    return noun if count == 1 else f"{noun}s"


def shown_name(name: str) -> str:
    return "all others" if name == OTHER else name


def report_data(report: PreventionReport) -> dict[str, Any]:
    """As `effectonce.report/1`."""
    return {
        "first": report.first,
        "last": report.last,
        "total": _data(report.total),
        "days": [{"day": day, **_data(counts)} for day, counts in report.days.items()],
        "tools": [{"tool": name, **_data(counts)} for name, counts in report.tools.items()],
        "tenants": [{"tenant": name, **_data(counts)} for name, counts in report.tenants.items()],
    }


def _data(counts: PreventedCounts) -> dict[str, Any]:
    half, most = counts.settled_within_s(0.5), counts.settled_within_s(0.95)
    return {
        "prevented": counts.prevented,
        **asdict(counts),
        "settled": counts.settled,
        "settle_median_s": None if half in (None, inf) else half,
        "settle_p95_s": None if most in (None, inf) else most,
    }


def markdown(report: PreventionReport) -> str:
    """To paste into a message or a ticket."""
    lines = [f"**{headline(report)}.** ({report.first} to {report.last}, UTC)", ""]
    lines += ["| | |", "|---|---:|"]
    lines += [f"| {title} | {n:,} |" for _, title, n in figures(report.total) if n]
    if how := settled_how(report.total):
        lines += ["", f"Doubts: {how}."]
    for title, groups in (("Tool", report.tools), ("Tenant", report.tenants)):
        if len(groups) > (title == "Tenant"):
            lines += ["", f"| {title} | landed | prevented | in doubt |", "|---|---:|---:|---:|"]
            lines += [
                f"| {_cell(shown_name(name))} | {c.landed:,} | {c.prevented:,} | {c.doubts:,} |"
                for name, c in groups.items()
            ]
    return "\n".join([*lines, "", AT_LEAST])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|")


# ---------------------------------------------------------------- a chart

WIDTH, HEIGHT, LEFT, RIGHT, BOTTOM, TOP = 720, 220, 56, 14, 24, 10
GAP = 0.25  # of a day's room, between bars


class ChartBar(NamedTuple):
    """One day: where its bar stands, and of what it is made, from the ground up."""

    day: str
    label: str  # under it; "": there is no room for one
    middle: float
    x: float
    width: float
    parts: tuple[tuple[str, float, float, int], ...]  # the figure, its y, its height, its number
    words: str


class PreventedChart(NamedTuple):
    """Duplicates prevented on each day, as figures of a drawing."""

    bars: tuple[ChartBar, ...]
    grid: tuple[tuple[float, int], ...]  # y of a line, and the number that it stands for
    words: str


PARTS = ("replayed", "joined", "refused_running", "refused_in_doubt")


def chart_of(report: PreventionReport) -> PreventedChart:
    """Stacked bars; what is not nothing can be seen."""
    most = max(counts.prevented for counts in report.days.values())
    top = _round_up(max(most, 4))
    room, scale = (WIDTH - LEFT - RIGHT) / len(report.days), (HEIGHT - TOP - BOTTOM) / top
    ground, every = HEIGHT - BOTTOM, -(-len(report.days) // 8)
    bars = []
    for number, (day, counts) in enumerate(report.days.items()):
        x, y, parts = LEFT + room * (number + GAP / 2), float(ground), []
        for name in PARTS:
            count = getattr(counts, name)
            if count:
                height = max(2.0, count * scale)
                y -= height
                parts.append((name, round(y, 1), round(height, 1), count))
        last = len(report.days) - 1 - number
        words = f"{day}: {counts.prevented:,} prevented, {counts.landed:,} landed"
        bars.append(
            ChartBar(
                day,
                day[5:] if last % every == 0 else "",
                round(x + room * (1 - GAP) / 2, 1),
                round(x, 1),
                round(room * (1 - GAP), 1),
                tuple(parts),
                words,
            )
        )
    lines = tuple((round(ground - top * scale * n / 4, 1), top * n // 4) for n in range(5))
    said = f"{headline(report)}. The most on one day: {most:,}."
    return PreventedChart(tuple(bars), lines, said)


def _round_up(number: int) -> int:
    """The next of 4, 8, 12, 20, 40, 80, 120, 200, …: a quarter of it is a whole number."""
    size = 4
    while True:
        for times in (1, 2, 3, 5):
            if size * times >= number:
                return size * times
        size *= 10
