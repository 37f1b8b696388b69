"""The tools: what each promises, and a way to stop one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from effectonce.dashboard._request import UNCHANGED, DashboardRequest, RefusedVisit, reason_of
from effectonce.views.pauses import pausable_tools, why_not_paused

Change: TypeAlias = Callable[..., object]  # a tool, by= and reason=


def tools(visit: DashboardRequest) -> Response:
    """Each tool that is known here, the paused ones first."""
    now = visit.now()
    rows = pausable_tools(visit.guard, now, visit.tenant)
    return visit.page(
        "tools.html",
        section="tools",
        rows=sorted(rows, key=lambda row: row["pause"] is None),
        acts=visit.access.acts and visit.tenant is None,
        now=now,
    )


async def pause(visit: DashboardRequest) -> Response:
    return await _change(visit, visit.guard.pause_tool)


async def resume(visit: DashboardRequest) -> Response:
    return await _change(visit, visit.guard.resume_tool)


async def _change(visit: DashboardRequest, change: Change) -> Response:
    form = await visit.form()
    tool = form.get("tool", "")
    if visit.tenant is not None:
        text = "A pause holds for all tenants, and you see one."
        raise RefusedVisit(403, "That is not yours to decide", text, UNCHANGED)
    reason = reason_of(form)
    unknown = await run_in_threadpool(why_not_paused, visit.guard, tool)
    if unknown:
        raise RefusedVisit(404, "There is no such tool", unknown, UNCHANGED)
    await run_in_threadpool(change, tool, by=visit.access.who, reason=reason)
    return visit.go("tools", {})


TOOL_ACTS = (("/tools/pause", "pause_tool", pause), ("/tools/resume", "resume_tool", resume))
