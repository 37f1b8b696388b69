"""What waits for a person: the list, and what one of them asks for."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from effectonce._core.record import Record
from effectonce.approvals import Wish, wish_of
from effectonce.approvals._links import link_of
from effectonce.dashboard._filters import filter_of, form_of
from effectonce.dashboard._request import DashboardRequest
from effectonce.views.effects import place_of, reference
from effectonce.views.filter_fields import APPROVALS
from effectonce.views.lists import wishes_page
from effectonce.views.wishes import arguments_shown, asks_for, compared

ROWS = 50  # of a list
_UNSEEN = "only who may decide, or reveal, sees them"


def approvals(visit: DashboardRequest) -> Response:
    """The calls that wait, the oldest first."""
    asked, now = filter_of(visit, APPROVALS), visit.now()
    after = visit.find(visit.asked("after")) if visit.asked("after") else None
    page = wishes_page(visit.guard.store, asked, now, after, ROWS)
    shown, last = page.records, page.further
    visit.shows(record.request.key for record in shown)
    return visit.page(
        "approvals.html",
        section="approvals",
        rows=[_row(visit, record) for record in shown],
        more=None if last is None else visit.with_params(after=link_of(last.request.key)),
        first=after is None,
        form=form_of(visit, APPROVALS, asked),
        looked_at=page.looked_at,
        now=now,
    )


def _row(visit: DashboardRequest, record: Record) -> dict[str, Any]:
    wish = wish_of(record)
    return {
        "reference": reference(record),
        "tool": record.request.terms.tool,
        "place": place_of(record),
        "asked_by": wish.asked_by or "not known",
        "asked_at": wish.asked_at,
        "expired": wish.expired,
        "asks_for": asks_for(wish) if sees(visit) else ", ".join(wish.arguments or ()),
    }


def sees(visit: DashboardRequest) -> bool:
    """Arguments of what waits are for those who decide about it, and for those who may reveal."""
    return visit.access.acts or visit.access.reveals


def asked_for(visit: DashboardRequest, record: Record) -> dict[str, Any]:
    """What a person reads before they decide: the arguments, and those of the last such call."""
    wish: Wish = wish_of(record)
    last = compared(visit.guard, wish)
    before = {} if last is None else {each.name: each for each in last.changed}
    if last is not None:
        visit.shows([last.last.request.key])
    rows = arguments_shown(wish)
    gone = [(name, "") for name in before if name not in dict(rows)]
    return {
        "asked_by": wish.asked_by or "not known",
        "asked_at": wish.asked_at,
        "expired": wish.expired,
        "fingerprint": wish.fingerprint,
        "arguments": [
            {
                "name": name,
                "value": value if sees(visit) else _UNSEEN,
                "changed": name in before,
                "before": before[name].before if name in before and sees(visit) else "",
            }
            for name, value in (*rows, *gone)
        ],
        "last": None if last is None else reference(last.last),
        "last_at": 0.0 if last is None else last.last.decided_at,
    }
