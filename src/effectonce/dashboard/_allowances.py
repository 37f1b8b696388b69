"""Spending limits: what is left of each, and which effects hold the rest."""

from __future__ import annotations

from starlette.responses import Response

from effectonce.dashboard._request import DashboardRequest
from effectonce.views.allowances import BAR, account_data, bar_of

ROWS, LOOKED_AT = 50, 1000  # of a page; accounts, and records, that are read for one
HOLDERS = 5  # effects that are shown of each account


def allowances(visit: DashboardRequest) -> Response:
    """The accounts, by the name of the allowance."""
    page = visit.guard.allowances.page(
        visit.asked("allowance") or None,
        tenant=visit.tenant,
        after=visit.asked("after"),
        limit=ROWS,
        looked_at=LOOKED_AT,
    )
    now = visit.now()
    visit.shows(held.effect.key for each in page.accounts for held in each.held_by)
    return visit.page(
        "allowances.html",
        section="allowances",
        rows=[{**account_data(each, now), "bar": bar_of(each)} for each in page.accounts],
        more=None if page.after is None else visit.with_params(after=page.after),
        first=not visit.asked("after"),
        chosen=visit.asked("allowance"),
        width=BAR,
        holders=HOLDERS,
        now=now,
    )
