"""DBOS: one step in one workflow, whose id is the order. A process has the executor id of its
place: what a dead process left is recovered when the next one launches there, or as Conductor does
it for an executor that is gone. Best configured: PostgreSQL; the step is retried where it may be;
and where it may not, a workflow is not recovered, and a person looks.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from oncebench.adapters._places import Places
from oncebench.adapters._retries import looking_first, worth_a_retry
from oncebench.kit import Says, Setup

NAME = "DBOS"
KIND = "engine"
REQUIRES = ("dbos==3.3.0",)
SERVERS = ("postgres",)
README = "docs: Workflow IDs and Idempotency; Steps, Configurable Retries; Workflow Recovery"
LACKS = {"conflict": "an id that is used again runs once (docs, Workflow IDs and Idempotency)"}
WAIT_S = 5.0


def open(setup: Setup) -> Callable[..., Any]:
    from dbos import DBOS, SetWorkflowID

    places = Places(setup.folder)
    url = setup.servers["postgres"] if setup.best else f"sqlite:///{setup.folder}/dbos.sqlite"
    DBOS(
        config={
            "name": "payments",
            "system_database_url": url,
            "executor_id": places.own,
            "run_admin_server": False,
        }
    )
    retried: dict[str, Any] = {}
    recovered: dict[str, Any] = {}
    if setup.best:
        retried = {"retries_allowed": True, "should_retry": partial(worth_a_retry, setup)}
        recovered = {"max_recovery_attempts": 0} if setup.temperament == "deaf" else {}

    @DBOS.step(**retried)
    def step(module: str, order: str, amount: int, note: str) -> Any:
        return looking_first(setup, importlib.import_module(module).pay)(order, amount, note)

    @DBOS.workflow(**recovered)
    def workflow(module: str, order: str, amount: int, note: str) -> Any:
        return step(module, order, amount, note)

    setup.key = lambda: DBOS.workflow_id
    setup.maintain = lambda: DBOS._recover_pending_workflows(places.orphans() or ["none"])  # noqa: SLF001
    DBOS.launch()
    waiting = ThreadPoolExecutor()

    def protect(tool: Callable[..., Any]) -> Callable[..., Any]:
        def call(order: str, amount: int, note: str = "") -> Any:
            with SetWorkflowID(f"{tool.__module__}:{order}"):
                handle = DBOS.start_workflow(workflow, tool.__module__, order, amount, note)
            return waiting.submit(handle.get_result).result(WAIT_S)

        return call

    return protect


def said(error: Exception) -> Says:
    from dbos import error as errors

    match error:
        case errors.DBOSAwaitedWorkflowMaxRecoveryAttemptsExceeded():
            return "unknown"
        case errors.MaxRecoveryAttemptsExceededError():
            return "unknown"
        case TimeoutError():
            return "busy"  # it still runs: the caller has waited long enough
        case _:
            return "raised"
