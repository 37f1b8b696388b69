"""The lists: what fits the filter in the address, part by part."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from effectonce._core.pages import Recent, Refer
from effectonce._core.record import Record
from effectonce.approvals._links import link_of
from effectonce.dashboard._filters import filter_of, form_of
from effectonce.dashboard._request import DashboardRequest, RefusedVisit
from effectonce.dead_letters._letters import Group, groups_of
from effectonce.recovery.in_doubt import place
from effectonce.views.doubts import grouped, where_of
from effectonce.views.effects import may_resend, place_of, reference, shown_state
from effectonce.views.filter_fields import EFFECTS, IN_DOUBT, LETTERS, RUNS, ListFilter
from effectonce.views.filters import RUN_STATES, effect_facts, fits
from effectonce.views.history import is_run, partial_of
from effectonce.views.lists import (
    LOOKED_AT,
    FilteredPage,
    doubts_page,
    effects_page,
    runs_page,
)
from effectonce.views.runs import as_data as run_data
from effectonce.views.runs import why_of
from effectonce.views.tools import prober_of

if TYPE_CHECKING:
    from effectonce.dead_letters import Letter, Wanted

PAGE = 50  # rows of a list


def row_of(record: Record, now: float) -> dict[str, Any]:
    """An effect as a row."""
    return {
        "reference": reference(record),
        "tool": record.request.terms.tool,
        "state": "part" if partial_of(record) is not None else shown_state(record, now),
        "place": place_of(record),
        "sends": record.sends,
        "at": record.created_at,
        "decided_at": record.decided_at,
        "reason": record.reason,
        "is_run": is_run(record),
    }


def _after(visit: DashboardRequest) -> Record | None:
    return visit.find(visit.asked("after")) if visit.asked("after") else None


def _further(visit: DashboardRequest, page: FilteredPage) -> str | None:
    """Where a list goes on."""
    visit.shows(record.request.key for record in page.records)
    if page.further is None:
        return None
    return visit.with_params(after=link_of(page.further.request.key))


def _of_how_many(visit: DashboardRequest, page: FilteredPage, what: str) -> str:
    """What nothing was found among, where there are no more."""
    if page.records or page.further is not None:
        return ""
    there = visit.guard.store.apply(Recent(tenant=visit.tenant, limit=LOOKED_AT))
    more = " or more" if there.further is not None else ""
    return f"0 of {len(there.records):,}{more} {what} match."


# ---------------------------------------------------------------- effects


def effects(visit: DashboardRequest) -> Response:
    """Those that fit what the URL asks for, the newest first."""
    asked, now = filter_of(visit, EFFECTS, "effect", "find"), visit.now()
    page = _looked_at(visit, asked, now)
    form = form_of(visit, EFFECTS, asked, "effect", "find")
    return visit.page(
        "effects.html",
        section="effects",
        rows=[row_of(record, now) for record in page.records],
        more=_further(visit, page),
        form=form,
        nothing=_of_how_many(visit, page, "effects") if form.filtered else "",
        now=now,
    )


def _looked_at(visit: DashboardRequest, asked: ListFilter, now: float) -> FilteredPage:
    known, named = visit.asked("find"), visit.asked("effect")
    if known.startswith("eff_"):
        known, named = "", known
    digits = named.lower().removeprefix("eff_").rstrip("…")
    if re.fullmatch(r"[0-9a-f]{0,12}", digits) is None:
        text = f"{named!r} is no reference: it is eff_ and 12 digits, or the first of them."
        raise RefusedVisit(400, "This is no reference", text)
    if known:
        found = visit.guard.search(known, tenant=visit.tenant, limit=PAGE)
    elif digits:
        found = visit.guard.store.apply(Refer(digits, visit.tenant, PAGE))
    else:
        return effects_page(visit.guard.store, asked, now, _after(visit), PAGE)
    return FilteredPage(tuple(r for r in found if fits(asked, effect_facts(r), now)))


# ---------------------------------------------------------------- what needs a person


def in_doubt(visit: DashboardRequest) -> Response:
    """What is in doubt: by cause, and each, the oldest first."""
    asked, now = filter_of(visit, IN_DOUBT), visit.now()
    after = _after(visit)
    found = doubts_page(visit.guard.store, asked, now, after, LOOKED_AT)
    shown = FilteredPage(found.records[:PAGE], found.further)
    if len(found.records) > PAGE:
        shown = FilteredPage(shown.records, shown.records[-1])
    rows = [
        {
            **row_of(record, now),
            "probe": prober_of(visit.guard, record) is not None,
            "again": may_resend(record, now),
        }
        for record in shown.records
    ]
    groups = grouped(visit.guard, found.records, now)
    more = _further(visit, shown)
    visit.shows(record.request.key for record in found.records)
    return visit.page(
        "in_doubt.html",
        groups=groups,
        partly=found.further is not None or after is not None,
        where=where_of(visit.guard),
        section="in_doubt",
        rows=rows,
        more=more,
        form=form_of(visit, IN_DOUBT, asked),
        looked_at=found.looked_at,
        first=after is None,
        now=now,
    )


def wanted_of(visit: DashboardRequest) -> Wanted:
    """Which letters the URL asks for."""
    return filter_of(visit, LETTERS).wanted(visit.now())


def group_of(visit: DashboardRequest) -> dict[str, str]:
    """The same in words, and as a query."""
    form = form_of(visit, LETTERS, filter_of(visit, LETTERS))
    name = ", ".join(words for words, _ in form.chips) or "all of them"
    return {"name": name, "query": visit.with_params(after=None, live=None)}


def letters(visit: DashboardRequest) -> Response:
    """What gave up: by what they have in common, and one by one."""
    asked, now = filter_of(visit, LETTERS), visit.now()
    form, wanted = form_of(visit, LETTERS, asked), asked.wanted(now)
    dead, chosen = visit.guard.dead_letters, form.filtered
    last = _after(visit)
    after = (0.0, "") if last is None else place(last)
    found: tuple[Letter, ...] = ()
    further: tuple[float, str] | None = None
    groups: tuple[Group, ...]
    if chosen:
        # groups of what this page looked at: counting all that fit could take a look at all
        page = dead.page(limit=LOOKED_AT, after=after, looked_at=LOOKED_AT, **wanted)
        found, further = page.letters, page.after
        groups = groups_of(found) if asked.group is None else ()
    else:
        groups = dead.groups(limit=LOOKED_AT, **wanted)
    shown = found[:PAGE]
    if len(found) > PAGE:
        further = shown[-1].cursor
    visit.shows(letter.key for letter in shown)
    more = None if further is None else visit.with_params(after=link_of(further[1]))
    return visit.page(
        "letters.html",
        section="letters",
        groups=groups,
        first=LOOKED_AT if sum(group.count for group in groups) == LOOKED_AT else 0,
        letters=shown,
        chosen=chosen,
        form=form,
        group=group_of(visit),
        nothing=_among_letters(visit) if chosen and not shown and more is None else "",
        place_of=place_of,
        is_run=is_run,
        more=more,
        now=now,
    )


def _among_letters(visit: DashboardRequest) -> str:
    """What nothing was found among."""
    groups = visit.guard.dead_letters.groups(limit=LOOKED_AT, tenant=visit.tenant)
    there = sum(group.count for group in groups)
    return f"0 of {there:,}{' or more' if there == LOOKED_AT else ''} dead letters match."


# ---------------------------------------------------------------- workflows


def workflows(visit: DashboardRequest) -> Response:
    """The runs in one state, the newest first."""
    asked, now = filter_of(visit, RUNS), visit.now()
    state = asked.state or "open"
    after = _after(visit)
    page = runs_page(visit.guard.store, asked._replace(state=state), now, after, PAGE)
    form = form_of(visit, RUNS, asked)
    return visit.page(
        "workflows.html",
        section="workflows",
        rows=[run_data(record, now) for record in page.records],
        more=_further(visit, page),
        first=after is None,
        state=state,
        states=(*RUN_STATES, "all"),
        form=form,
        nothing=_among_runs(visit, page, now) if form.filtered else "",
        why_of=why_of,
        now=now,
    )


def _among_runs(visit: DashboardRequest, page: FilteredPage, now: float) -> str:
    """What nothing was found among, where there are no more."""
    if page.records or page.further is not None:
        return ""
    every = ListFilter(tenant=visit.tenant, state="all")
    there = runs_page(visit.guard.store, every, now, None, LOOKED_AT)
    more = " or more" if there.further is not None else ""
    return f"0 of {len(there.records):,}{more} runs match."
