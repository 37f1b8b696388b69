"""Going on with a run of a workflow, in the process of the dashboard, where its code is."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from effectonce._core.record import TERMINAL, Record
from effectonce.approvals._links import link_of
from effectonce.dashboard._pages import run_page, version_of
from effectonce.dashboard._request import DashboardRequest, RefusedVisit
from effectonce.views.effects import reference
from effectonce.views.history import is_run
from effectonce.views.tools import tools_of

WAIT_S = 5.0  # a run that takes longer goes on without the request that began it
_RUNNING: set[asyncio.Task[str]] = set()  # a task without a name would be collected


async def resume_run(visit: DashboardRequest) -> Response:
    """Go on with a run. If that takes long, the answer says so, and the run goes on."""
    form = await visit.form()
    record = await run_in_threadpool(_waiting, visit, form)
    task = asyncio.create_task(_go_on(visit, record))
    _RUNNING.add(task)
    task.add_done_callback(_RUNNING.discard)
    done, _ = await asyncio.wait({task}, timeout=WAIT_S)
    problem = task.result() if done else "It goes on in the process of this dashboard: look again."
    after = await run_in_threadpool(visit.find, link_of(record.request.key))
    if after.state in TERMINAL:
        return visit.go("workflow", {"done": "resume"}, reference=reference(record))
    return await run_in_threadpool(run_page, visit, after, problem)


def _waiting(visit: DashboardRequest, form: dict[str, str]) -> Record:
    """The run, as it was seen, if this process has its code."""
    record = visit.find(visit.request.path_params["reference"])
    ref, named = reference(record), record.request.terms.tool
    link = (visit.href("workflow", reference=ref), f"See {ref} as it is now")
    if not is_run(record) or form.get("seen") != version_of(record, visit.now()):
        text = "It is not as it was when you opened the page."
        raise RefusedVisit(409, "It changed meanwhile", text, "Nothing was changed.", link)
    if named not in tools_of(visit.guard):
        command = f"effectonce workflow resume {ref} --app MODULE:GUARD"
        text = f"This dashboard has no workflow {named}, so it cannot run it."
        raise RefusedVisit(409, "Its code is not here", text, f"Where your code is: {command}")
    return record


async def _go_on(visit: DashboardRequest, record: Record) -> str:
    """What stopped it; "": it has ended. The error stays on the record of the run as well."""
    key = record.request.key
    try:
        if tools_of(visit.guard)[record.request.terms.tool].is_async:
            await _awaited(visit.guard.workflows.resume(key))
        else:
            await run_in_threadpool(visit.guard.workflows.resume, key)
    except Exception as error:  # noqa: BLE001  # a user's function
        return f"It stopped: {type(error).__name__}: {error}"
    return ""


async def _awaited(value: Any) -> Any:
    return await value
