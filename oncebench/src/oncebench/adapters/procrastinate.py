"""Procrastinate: a worker runs in each process, on a queue of its own. The lock and the queueing
lock of a job are the order; a caller looks for its job before it defers one. It keeps no results:
a caller learns that the job succeeded. Best configured: jobs are retried where they may be, those
of dead workers too, as its docs advise.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import importlib
import time
from collections.abc import Callable
from typing import Any

from oncebench.adapters._loop import running_loop
from oncebench.adapters._places import Places
from oncebench.adapters._retries import looking_first, worth_a_retry
from oncebench.kit import Says, Setup, Told

NAME = "Procrastinate"
KIND = "engine"
REQUIRES = ("procrastinate==3.10.0", "psycopg[binary,pool]")
SERVERS = ("postgres",)
README = "docs: Quickstart; How-to, Locks, Queueing locks, Retry; Retry stalled jobs for the best"
LACKS = {
    "results": "a return value serves for logging alone (docs, Quickstart)",
    "conflict": "a lock says nothing of a job's arguments (docs, Queueing locks)",
}
WAIT_S = 5.0


class Failed(Exception):
    """The job has failed."""


def open(setup: Setup) -> Callable[..., Any]:
    import procrastinate

    wait = running_loop()
    places = Places(setup.folder)
    connector = procrastinate.PsycopgConnector(conninfo=setup.servers["postgres"])
    app = procrastinate.App(connector=connector)
    task = _task(setup, app)
    wait(_opened(setup, app))
    options: dict[str, Any] = {
        "concurrency": 4,
        "fetch_job_polling_interval": 0.3,
        "update_heartbeat_interval": setup.lease_s / 4,
        "stalled_worker_timeout": 3600,
        "install_signal_handlers": False,
    }

    async def work(queue: str) -> None:
        _kept.append(asyncio.create_task(app.run_worker_async(queues=[queue], **options)))

    async def maintain() -> None:
        for place in places.orphans():
            await work(place)
        if setup.best and setup.repeatable:
            gone = setup.lease_s
            for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=gone):
                await app.job_manager.retry_job(job)

    wait(work(places.own))
    setup.maintain = lambda: wait(maintain())

    def protect(tool: Callable[..., Any]) -> Callable[..., Any]:
        def call(order: str, amount: int, note: str = "") -> Any:
            name = f"{tool.__module__}:{order}"
            asked = {"module": tool.__module__, "order": order, "amount": amount, "note": note}
            return wait(_done(setup, app, task, name, places.own, asked))

        return call

    return protect


_kept: list[Any] = []


async def _opened(setup: Setup, app: Any) -> None:
    with (setup.folder / "making-the-schema").open("w") as lock:  # others begin as well
        fcntl.flock(lock, fcntl.LOCK_EX)
        await app.open_async()
        if not await app.check_connection_async():
            await app.schema_manager.apply_schema_async()


def _task(setup: Setup, app: Any) -> Any:
    from procrastinate import BaseRetryStrategy, RetryDecision

    class WhereItMayBe(BaseRetryStrategy):
        def get_retry_decision(self, *, exception: Any, job: Any) -> Any:
            if job.attempts >= 2 or not worth_a_retry(setup, exception):
                return None
            return RetryDecision(retry_in={"seconds": 1})

    @app.task(name="pay", pass_context=True, retry=WhereItMayBe() if setup.best else False)
    def task(context: Any, module: str, order: str, amount: int, note: str) -> Any:
        setup.key = lambda: context.job.lock
        tool, again = importlib.import_module(module).pay, context.job.attempts > 0
        return looking_first(setup, tool, again=again)(order, amount, note)

    return task


async def _done(
    setup: Setup, app: Any, task: Any, name: str, queue: str, asked: dict[str, Any]
) -> Told:
    from procrastinate.exceptions import AlreadyEnqueued

    again = {"failed"} if not setup.best or setup.repeatable else set()
    jobs = list(await app.job_manager.list_jobs_async(lock=name))
    if all(job.status in again for job in jobs):
        with contextlib.suppress(AlreadyEnqueued):
            await task.configure(lock=name, queueing_lock=name, queue=queue).defer_async(**asked)
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        statuses = {job.status for job in await app.job_manager.list_jobs_async(lock=name)}
        if "succeeded" in statuses:
            return Told("happened")
        if statuses <= {"failed"}:
            raise Failed(name)
        await asyncio.sleep(0.05)
    return Told("busy")


def said(error: Exception) -> Says:
    return "raised"
