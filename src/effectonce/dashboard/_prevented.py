"""What was prevented: figures, a chart, tools and tenants."""

from __future__ import annotations

from starlette.responses import Response

from effectonce.dashboard._request import DashboardRequest
from effectonce.views.prevented import (
    AT_LEAST,
    HEIGHT,
    LEFT,
    MEANS,
    PARTS,
    TITLES,
    WIDTH,
    chart_of,
    figures,
    headline,
    nothing_yet,
    settled_how,
    shown_name,
    since_s,
)

SPANS = {"1d": "Today", "7d": "7 days", "30d": "30 days", "90d": "90 days"}
USUAL = "7d"
ROWS = 50  # tools, and tenants


def prevented(visit: DashboardRequest) -> Response:
    """What was counted since, of a tool or of all. A tenant's login sees its own."""
    since = visit.asked("since") or USUAL
    now, problem = visit.now(), ""
    try:
        ago_s = since_s(since, now)
    except ValueError as error:
        problem, since, ago_s = str(error), USUAL, since_s(USUAL, now)
    report = visit.guard.report(ago_s, tool=visit.asked("tool") or None, tenant=visit.tenant)
    return visit.page(
        "prevented.html",
        422 if problem else 200,
        section="prevented",
        problem=problem,
        since=since,
        spans=SPANS,
        tool=visit.asked("tool"),
        report=report,
        headline=headline(report),
        nothing=nothing_yet(report),
        figures=list(figures(report.total)),
        means=MEANS,
        titles=TITLES,
        parts_of=PARTS,
        how=settled_how(report.total),
        chart=chart_of(report),
        size=(WIDTH, HEIGHT, LEFT),
        tools=list(report.tools.items())[:ROWS],
        tenants=list(report.tenants.items())[:ROWS],
        shown_name=shown_name,
        at_least=AT_LEAST,
        now=now,
    )
