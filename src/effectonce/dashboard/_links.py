"""A signed link: the page on which its approver decides. It needs no login, and no other page does
without one.
"""

from __future__ import annotations

import re

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from effectonce._core.pages import Refer
from effectonce._core.record import Record
from effectonce.approvals._links import PATH, ApprovalLink, link_in
from effectonce.approvals._standing import waits
from effectonce.dashboard._access import Access
from effectonce.dashboard._approvals import asked_for
from effectonce.dashboard._request import DashboardRequest, RefusedVisit
from effectonce.errors import ContractViolation
from effectonce.views.effects import is_sealed, place_of, reference, shown_state, verdict

_NAMED = re.compile(r"eff_([0-9a-f]{12})_([0-9a-f]{12})")
_UNCHANGED = "Nothing was changed. Ask for a new link."


async def opened(visit: DashboardRequest) -> Response:
    """What the call asks for, and the two buttons. Nothing is decided by this."""
    return await run_in_threadpool(lambda: _page(visit, _checked(visit)[0]))


async def answered(visit: DashboardRequest) -> Response:
    """The approver's answer."""
    form = await visit.form()
    return await run_in_threadpool(_answered, visit, form)


def _checked(visit: DashboardRequest) -> tuple[Record, ApprovalLink]:
    """Nothing about the call is shown before the link has proved itself."""
    guard, link = visit.guard, link_in(visit.request.query_params)
    named = _NAMED.fullmatch(visit.request.path_params["reference"])
    found: tuple[Record, ...] = ()
    if link is not None and named is not None:
        found = guard.store.apply(Refer(named[1], beginning=named[2]))
    if link is None or len(found) != 1 or not guard.approvals.is_valid(link, found[0].request.key):
        text = "It was changed on its way, or another guard has made it, or the call is forgotten."
        raise RefusedVisit(403, "This link is not valid", text, _UNCHANGED)
    record, now = found[0], visit.now()
    # the signature says who this is, and for which call
    access = Access(link.approver, acts=True, tenant=record.request.tenant)
    visit.let_in(access, acting=True)
    if now >= link.until:
        text = "A link is good for a while only, and that is over."
        raise RefusedVisit(410, "This link has ended", text, _UNCHANGED)
    if record.request.fingerprint != link.fingerprint:
        text = "The link was made for other arguments than those that the call has by now."
        raise RefusedVisit(409, "The call has other arguments now", text, _UNCHANGED)
    if is_sealed(record):
        text = "There is no key here, and what you say has to be sealed, too."
        raise RefusedVisit(409, "This store is sealed", text, "Nothing was changed.")
    if not waits(record, now):
        text = verdict(record, now)
        raise RefusedVisit(409, "It does not wait for approval any more", text)
    return record, link


def _page(
    visit: DashboardRequest,
    record: Record,
    status: int = 200,
    problem: str = "",
    reason: str = "",
) -> Response:
    return visit.page(
        "link.html",
        status,
        section="",
        tool=record.request.terms.tool,
        reference=reference(record),
        place=place_of(record),
        wish=asked_for(visit, record),
        problem=problem,
        reason=reason,
        now=visit.now(),
    )


def _answered(visit: DashboardRequest, form: dict[str, str]) -> Response:
    record, link = _checked(visit)
    act, reason = form.get("act"), form.get("reason", "").strip()
    if act not in ("approve", "reject") or not reason:
        why = "Say why: it stays on the record. Nothing was changed."
        return _page(visit, record, 422, why, reason)
    approvals, key, by = visit.guard.approvals, record.request.key, link.approver
    try:
        if act == "approve":
            approvals.approve(key, by=by, reason=reason, fingerprint=link.fingerprint)
        else:
            approvals.reject(key, by=by, reason=reason)
    except ContractViolation as error:
        refused = f"That was refused: {error}. Nothing was changed."
        return _page(visit, record, 409, refused, reason)
    after = visit.guard.find(key) or record
    now = visit.now()
    return visit.page(
        "linked.html",
        section="",
        tool=record.request.terms.tool,
        reference=reference(record),
        state=shown_state(after, now),
        verdict=verdict(after, now),
        now=now,
    )


LINKS = (
    (f"/{PATH}/{{reference}}", "link", opened, ("GET",)),
    (f"/{PATH}/{{reference}}", "answer", answered, ("POST",)),
)
