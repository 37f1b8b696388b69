"""A group of doubts: what is in it, and one decision about all of them, in bounded batches.

A request settles some effects and answers with how far it is; the next request goes on. So no
request waits for hundreds of settlements, and a person who stops leaves the rest in doubt. Only
what a person saw is settled: what went in doubt after the page was made is not.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import anyio
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from effectonce._core.codec import encode
from effectonce._core.record import Record
from effectonce._core.strict_json import read_exactly
from effectonce._core.tagged_json import NotStorable
from effectonce.approvals._links import link_of
from effectonce.dashboard._lists import PAGE, row_of
from effectonce.dashboard._request import UNCHANGED, DashboardRequest, RefusedVisit
from effectonce.errors import ContractViolation
from effectonce.recovery.bulk import ACTS, BulkDecision, SettledEffect, settle_one
from effectonce.recovery.pace import Pace
from effectonce.views.doubts import SETTLED, grouped
from effectonce.views.effects import is_sealed, may_resend
from effectonce.views.filter_fields import IN_DOUBT, BadFilter, ListFilter, read_filter
from effectonce.views.lists import LOOKED_AT, doubts_page
from effectonce.views.times import moment

LOOKS = 5  # pages of doubts that are looked at for one page of a group
AT_ONCE, REQUEST_S = 50, 5.0  # what one request settles at most, and how long that may take
PACES = (20, 5, 50)  # a second; the first is chosen


class DoubtGroupPage(NamedTuple):
    """What was found of a group, and where to go on looking."""

    records: tuple[Record, ...]
    further: Record | None
    looked_at: int


def _asked(visit: DashboardRequest) -> ListFilter:
    try:
        given = {"group": visit.request.path_params["group"]}
        return read_filter(IN_DOUBT, given)._replace(tenant=visit.tenant)
    except BadFilter as error:
        raise RefusedVisit(404, "There is no such group", f"{error}.") from None


def _members(
    visit: DashboardRequest, asked: ListFilter, until: float, after: Record | None, limit: int
) -> DoubtGroupPage:
    """Those that were in doubt at *until*, the oldest first, in a bounded look."""
    found: list[Record] = []
    looked_at = 0
    for _ in range(LOOKS):
        page = doubts_page(visit.guard.store, asked, until, after, LOOKED_AT)
        found += [record for record in page.records if record.decided_at <= until]
        looked_at, after = looked_at + page.looked_at, page.further
        if after is None or len(found) >= limit:
            break
    return DoubtGroupPage(tuple(found), after, looked_at)


# ---------------------------------------------------------------- looking


def doubt_group(visit: DashboardRequest) -> Response:
    """What would be settled: how many, since when, which. Nothing is changed."""
    return _group_page(visit)


def _group_page(
    visit: DashboardRequest,
    status: int = 200,
    problem: str = "",
    typed: dict[str, str] | None = None,
) -> Response:
    asked, now = _asked(visit), visit.now()
    members = _members(visit, asked, now, None, LOOKED_AT * LOOKS)
    if not members.records:
        link = (visit.href("in_doubt"), "See what is in doubt")
        more = " among the oldest" if members.further is not None else ""
        raise RefusedVisit(
            404,
            "Nothing of this group is in doubt",
            f"0 of {members.looked_at:,} effects in doubt belong to it{more}.",
            "It may have been settled meanwhile.",
            link,
        )
    [group] = grouped(visit.guard, members.records, now)
    visit.shows(record.request.key for record in members.records)
    return visit.page(
        "doubt_group.html",
        status,
        section="in_doubt",
        group=group,
        rows=[row_of(record, now) for record in members.records[:PAGE]],
        partly=members.further is not None,
        again=sum(may_resend(record, now) for record in members.records),
        sealed=is_sealed(members.records[0]),
        until=repr(now),
        paces=PACES,
        problem=problem,
        typed=typed or {},
        now=now,
    )


# ---------------------------------------------------------------- settling


async def settle_group(visit: DashboardRequest) -> Response:
    """Settle the next ones of a group, one after the other, and say how far that is."""
    form = await visit.form()
    try:
        decision, until, per_s = _decision(visit, form)
    except (ContractViolation, ValueError, ArithmeticError, RecursionError) as error:
        said = f"{error}. {UNCHANGED}"
        return await run_in_threadpool(_group_page, visit, 422, said, form)
    limit = max(1, min(AT_ONCE, int(per_s * REQUEST_S)))
    batch = await run_in_threadpool(_batch, visit, form, until, limit)
    pace, done = Pace(per_s), list[SettledEffect]()
    for record in batch.records[:limit]:
        if done:
            await anyio.sleep(pace.next_s())
        key = record.request.key
        done.append(await run_in_threadpool(settle_one, visit.guard, key, decision))
    return await run_in_threadpool(_progress, visit, form, batch, done, limit)


def _decision(visit: DashboardRequest, form: dict[str, str]) -> tuple[BulkDecision, float, float]:
    """What is said about all of them, what of was seen, and how fast."""
    act, reason = form.get("act", ""), form.get("reason", "").strip()
    if act not in ACTS:
        raise ValueError("Say what you found: it happened, it did not, or it may be sent again")
    if not reason:
        raise ValueError("Say why: it stays on the record")
    result: Any = None
    if act == "confirm":
        given = form.get("result", "").strip()
        if not given:
            raise ValueError("Give the result that every later call gets, as JSON (null is one)")
        try:
            result = read_exactly(given)
            encode(result)
        except NotStorable as error:
            raise ValueError(f"This result cannot be what later calls get: {error}") from None
        except (ValueError, ArithmeticError, RecursionError) as error:
            raise ValueError(f'{error}. A text needs quotes: "done"') from None
    until, per_s = float(form.get("until", "nan")), float(form.get("pace", "nan"))
    if not (0 < until <= visit.now() and 0 < per_s <= max(PACES)):
        raise ValueError("The form does not say what you saw, or how fast. Open the page again")
    decision = BulkDecision(act=act, by=visit.access.who, reason=reason, result=result)
    return decision, until, per_s


def _batch(
    visit: DashboardRequest, form: dict[str, str], until: float, limit: int
) -> DoubtGroupPage:
    after = visit.find(form["after"]) if form.get("after") else None
    members = _members(visit, _asked(visit), until, after, limit + 1)
    for record in members.records[:1]:
        if is_sealed(record):
            text = "There is no key here, and what you say has to be sealed, too."
            raise RefusedVisit(409, "This store is sealed", text, UNCHANGED)
    return members


def _progress(
    visit: DashboardRequest,
    form: dict[str, str],
    batch: DoubtGroupPage,
    done: list[SettledEffect],
    limit: int,
) -> Response:
    """How far it is, and the form that goes on."""
    counts = Counter({name: _number(form.get(f"n_{name}", "")) for name in SETTLED})
    counts.update(each.what for each in done)
    left = len(batch.records) - len(done)
    last = batch.records[limit - 1] if left > 0 else batch.further
    if last is not None:
        visit.shows([last.request.key])
    visit.shows(each.effect.key for each in done)
    kept = {name: form.get(name, "") for name in ("act", "result", "reason", "pace", "until")}
    return visit.page(
        "group_progress.html",
        section="in_doubt",
        group=visit.request.path_params["group"],
        done=done,
        counts={SETTLED[name]: count for name, count in counts.items() if count},
        total=sum(counts.values()),
        words=SETTLED,
        after=None if last is None else link_of(last.request.key),
        kept={**kept, **{f"n_{name}": str(count) for name, count in counts.items() if count}},
        seen=moment(float(kept["until"])),
        act=kept["act"],
        now=visit.now(),
    )


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 10 else 0


GROUP_LOOKS = (("/in-doubt/groups/{group}", "doubt_group", doubt_group),)
GROUP_ACTS = (("/in-doubt/groups/{group}", "settle_group", settle_group),)
