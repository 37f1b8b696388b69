"""Absurd, on PostgreSQL: one step in one task, whose idempotency key is the order. A worker runs in
each process from its first call on; all have one queue, as keys are a queue's, so a task carries
the wish that it serves. Best configured: heartbeats, and a task is not tried again where that may
do it twice.
"""

from __future__ import annotations

import fcntl
import importlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from oncebench.adapters._heartbeats import heartbeats
from oncebench.adapters._retries import looking_first, trying_again
from oncebench.kit import Says, Setup, Wish, now_serving

NAME = "Absurd"
KIND = "engine"
REQUIRES = ("absurd-sdk==0.5.1", "absurdctl==0.5.1")
SERVERS = ("postgres",)
README = "README of the SDK, Synchronous API; docs: Concepts, Retries and Idempotency Keys"
LACKS = {"conflict": "the task that has the key is returned (docs, Spawn-time deduplication)"}
WAIT_S = 5.0


class Failed(Exception):
    """The task has failed."""


class Vanished(Exception):
    """Its worker did not finish it in time: it may have happened."""


def open(setup: Setup) -> Callable[..., Any]:
    from absurd_sdk import Absurd

    url = setup.servers["postgres"]
    _make(setup, url)
    app = Absurd(url, queue_name="payments")
    worker = Absurd(url, queue_name="payments")
    _register(setup, worker)
    tried: dict[str, Any] = {}
    if setup.best and not setup.repeatable:
        tried = {"max_attempts": 1}
    if setup.best and setup.temperament == "asks":  # not before a request can land no more
        tried = {"retry_strategy": {"kind": "fixed", "base_seconds": setup.lands_within_s}}
    serving: list[Wish] = []

    @contextmanager
    def around(wish: Wish) -> Iterator[None]:
        serving[:] = [wish]
        yield

    @cache
    def start() -> None:
        options = {"claim_timeout": max(1, int(setup.lease_s)), "poll_interval": 0.05}
        threading.Thread(target=worker.start_worker, kwargs=options, daemon=True).start()

    setup.around = around

    def protect(tool: Callable[..., Any]) -> Callable[..., Any]:
        def call(order: str, amount: int, note: str = "") -> Any:
            start()
            asked = {
                "wish": asdict(serving[0]),
                "module": tool.__module__,
                "arguments": [order, amount, note],
            }
            key = f"{tool.__module__}:{order}"
            task = app.spawn("pay", asked, queue="payments", idempotency_key=key, **tried)
            ended = app.await_task_result(task["task_id"], timeout=WAIT_S)
            if ended.state != "completed":
                if "$ClaimTimeout" in str(ended.failure):
                    raise Vanished(f"{ended.failure}")
                raise Failed(f"{ended.state}: {ended.failure}")
            return ended.result

        return call

    return protect


def _make(setup: Setup, url: str) -> None:
    with (setup.folder / "making-the-schema").open("w") as lock:  # others begin as well
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = setup.folder / "schema-made"
        if made.exists():
            return
        control = str(Path(sys.executable).parent / "absurdctl")
        for command in (["init"], ["create-queue", "payments"]):
            subprocess.run([control, *command, "-d", url], check=True)  # noqa: S603
        made.touch()


def _register(setup: Setup, worker: Any) -> None:
    @worker.register_task(name="pay")
    def pay(asked: dict[str, Any], context: Any) -> Any:
        now_serving(Wish(**asked["wish"]))
        setup.key = lambda: str(context.task_id)
        tool = looking_first(setup, importlib.import_module(asked["module"]).pay)
        if not setup.best:
            return context.step("pay", lambda: tool(*asked["arguments"]))
        with heartbeats(context.heartbeat, setup.lease_s / 4):
            tried = trying_again(setup, tool)
            return context.step("pay", lambda: tried(*asked["arguments"]))


def said(error: Exception) -> Says:
    from absurd_sdk import TimeoutError as WaitedLongEnough

    match error:
        case WaitedLongEnough():
            return "busy"
        case Vanished():
            return "unknown"
        case _:
            return "raised"
