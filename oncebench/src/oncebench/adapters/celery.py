"""Celery, on Redis: a worker runs in each process, in threads, on a queue of its own. The id of the
task is the order; a caller looks for its result before it sends it. As shipped, a message is
acknowledged before the task runs. Best configured: after it, where the task may be repeated, and it
is retried there; what runs is waited for, not sent again. Redis delivers an unacknowledged message
again after the visibility timeout, which is longer than a task runs, and is looked at each second.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from typing import Any

from oncebench.adapters._places import Places
from oncebench.adapters._retries import looking_first, worth_a_retry
from oncebench.kit import Says, Setup

NAME = "Celery"
KIND = "engine"
REQUIRES = ("celery[redis]==5.7.0",)
SERVERS = ("redis",)
README = "docs: First Steps; Tasks (acks_late), Retrying; Using Redis, Visibility Timeout"
LACKS = {"conflict": "the id of a task says nothing of its arguments (docs, Calling Tasks)"}
WAIT_S = 5.0


def open(setup: Setup) -> Callable[..., Any]:
    from celery import Celery

    url = setup.servers["redis"]
    app = Celery("payments", broker=url, backend=url)
    app.conf.broker_transport_options = {
        "visibility_timeout": _longest_s(setup),
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
    }
    app.conf.worker_prefetch_multiplier = 1
    app.conf.worker_hijack_root_logger = app.conf.worker_redirect_stdouts = False
    app.conf.task_track_started = setup.best
    if setup.best and setup.repeatable:
        app.conf.task_acks_late = app.conf.task_reject_on_worker_lost = True
    task = _task(setup, app)
    places = Places(setup.folder)
    worker = _worker(app, places.own)

    def serve_orphans() -> None:
        for place in places.orphans():
            worker.consumer.call_soon(worker.consumer.add_task_queue, place)

    setup.maintain = serve_orphans

    def protect(tool: Callable[..., Any]) -> Callable[..., Any]:
        def call(order: str, amount: int, note: str = "") -> Any:
            result = app.AsyncResult(f"{tool.__module__}:{order}")
            asked = (tool.__module__, order, amount, note)
            if result.state not in _known(setup):
                result = task.apply_async(asked, task_id=result.id, queue=places.own)
            return result.get(timeout=WAIT_S, disable_sync_subtasks=False)

        return call

    return protect


def _known(setup: Setup) -> frozenset[str]:
    """What a caller does not send again."""
    if not setup.best:
        return frozenset({"SUCCESS"})
    once = set() if setup.repeatable else {"FAILURE"}
    return frozenset({"SUCCESS", "STARTED", "RETRY"} | once)


def _task(setup: Setup, app: Any) -> Any:
    @app.task(bind=True, name="pay", max_retries=2)
    def task(self: Any, module: str, order: str, amount: int, note: str) -> Any:
        setup.key = lambda: self.request.id
        earlier = self.AsyncResult(self.request.id)
        if setup.best and earlier.state == "SUCCESS":
            return earlier.result
        try:
            tool = importlib.import_module(module).pay
            return looking_first(setup, tool, again=_again(self.request))(order, amount, note)
        except Exception as error:
            if setup.best and worth_a_retry(setup, error):
                raise self.retry(exc=error, countdown=1) from error
            raise

    return task


def _longest_s(setup: Setup) -> int:
    """No task runs longer: it waits for its answer, or until no request can land any more."""
    asks = setup.lands_within_s if setup.temperament == "asks" else 0
    return max(3, int(setup.lease_s), int(2 * asks))


def _again(request: Any) -> bool:
    return bool(request.retries or (request.delivery_info or {}).get("redelivered"))


def _worker(app: Any, queue: str) -> Any:
    ready = threading.Event()
    worker = app.Worker(
        pool="threads",
        concurrency=4,
        queues=[queue],
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        loglevel="WARNING",
        ready_callback=lambda *_: ready.set(),
    )
    threading.Thread(target=worker.start, daemon=True).start()
    ready.wait(60)
    return worker


def said(error: Exception) -> Says:
    from celery.exceptions import TimeoutError as WaitedLongEnough

    return "busy" if isinstance(error, WaitedLongEnough) else "raised"
