"""Spending limits: what is left of each, and which effects hold the rest."""

from __future__ import annotations

from starlette.responses import Response

from effectonce.dashboard._filters import filter_of, form_of
from effectonce.dashboard._request import DashboardRequest
from effectonce.views.allowances import BAR, account_data, bar_of, spends
from effectonce.views.filter_fields import ALLOWANCES

ROWS, LOOKED_AT = 50, 1000  # of a page; accounts, and records, that are read for one
HOLDERS = 5  # effects that are shown of each account


def allowances(visit: DashboardRequest) -> Response:
    """The accounts, by the name of the allowance."""
    asked = filter_of(visit, ALLOWANCES, "allowance")
    page = visit.guard.allowances.page(
        visit.asked("allowance") or None,
        tenant=asked.tenant,
        after=visit.asked("after"),
        limit=ROWS,
        looked_at=LOOKED_AT,
    )
    now = visit.now()
    shown = [each for each in page.accounts if spends(visit.guard, asked.tool, each)]
    visit.shows(held.effect.key for each in shown for held in each.held_by)
    return visit.page(
        "allowances.html",
        section="allowances",
        rows=[{**account_data(each, now), "bar": bar_of(each)} for each in shown],
        more=None if page.after is None else visit.with_params(after=page.after),
        first=not visit.asked("after"),
        form=form_of(visit, ALLOWANCES, asked, "allowance"),
        looked_at=len(page.accounts),
        chosen=visit.asked("allowance"),
        width=BAR,
        holders=HOLDERS,
        now=now,
    )
