"""DBOS: one step in one workflow, whose id is the order. A process has the executor id of its
place: what a dead process left is recovered when the next one launches there, or as Conductor does
it for an executor that is gone. Where the effect is a row, the step is a transaction of a
datasource. Best configured: PostgreSQL; the step is retried where it may be; and where it may not,
a workflow is not recovered, and a person looks.

Where a person has to say yes, the workflow publishes that it waits and receives the answer, as in
the docs' agent inbox. Then it goes on by itself, in the process that began it.
"""

from __future__ import annotations

import fcntl
import importlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

from oncebench.adapters._places import Places
from oncebench.adapters._retries import looking_first, worth_a_retry
from oncebench.kit import Says, Setup, Told, ToolFault, Wish

NAME = "DBOS"
KIND = "engine"
REQUIRES = ("dbos==3.3.0",)
SERVERS = ("postgres",)
README = (
    "docs: Workflow IDs and Idempotency; Steps, Configurable Retries; Workflow Recovery;"
    " Human-in-the-Loop (agent inbox)"
)
OFFERS = ("transaction", "approval")
ONE_ID = "an id that is used again runs once (docs, Workflow IDs and Idempotency)"
LACKS = {"conflict": ONE_ID, "changed_arguments": ONE_ID}
WAIT_S = 5.0
DAY_S = 86400.0
WAITING = "pending approval"


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
    is_a_row = setup.temperament == "transaction"
    as_step = _transaction(setup) if is_a_row else _step(setup)
    recovered: dict[str, Any] = {}
    if setup.best and not setup.repeatable:
        recovered = {"max_recovery_attempts": 0}

    @as_step
    def step(module: str, order: str, amount: int, note: str) -> Any:
        tool = importlib.import_module(module).pay
        return looking_first(setup, tool, again=_again())(order, amount, note)

    @DBOS.workflow(**recovered)
    def workflow(module: str, order: str, amount: int, note: str) -> Any:
        if setup.approval:
            DBOS.set_event("status", WAITING)
            if not DBOS.recv("approval", timeout_seconds=DAY_S):
                raise PermissionError(order)
            DBOS.set_event("status", "approved")
        if setup.best and is_a_row:  # a transaction has no retries of its own, and is rolled back
            with suppress(ToolFault):
                return step(module, order, amount, note)
        return step(module, order, amount, note)

    setup.key = lambda: DBOS.workflow_id
    setup.maintain = lambda: DBOS._recover_pending_workflows(places.orphans() or ["none"])  # noqa: SLF001
    DBOS.launch()
    waiting = ThreadPoolExecutor()

    def waits(workflow_id: str) -> bool:
        return bool(DBOS.get_event(workflow_id, "status", timeout_seconds=0) == WAITING)

    def approve(wish: Wish) -> None:
        workflow_id = f"oncebench.tools.{wish.tool}:{wish.order}"
        if not waits(workflow_id):
            raise LookupError(f"nothing waits for {wish.order}")
        DBOS.send(workflow_id, True, "approval")

    setup.approve = approve

    def protect(tool: Callable[..., Any]) -> Callable[..., Any]:
        def call(order: str, amount: int, note: str = "") -> Any:
            workflow_id = f"{tool.__module__}:{order}"
            with SetWorkflowID(workflow_id):
                handle = DBOS.start_workflow(workflow, tool.__module__, order, amount, note)
            try:
                return waiting.submit(handle.get_result).result(WAIT_S)
            except TimeoutError:
                if setup.approval and waits(workflow_id):
                    return Told("waiting")
                raise

        return call

    return protect


def _again() -> bool:
    from dbos import DBOS

    tried = DBOS.step_status.current_attempt if DBOS.step_status else 0
    workflow = DBOS.retrieve_workflow(str(DBOS.workflow_id)).get_status()
    return bool(tried) or (workflow.recovery_attempts or 0) > 1


def _step(setup: Setup) -> Any:
    from dbos import DBOS

    if not setup.best:
        return DBOS.step()
    return DBOS.step(retries_allowed=True, should_retry=partial(worth_a_retry, setup))


def _transaction(setup: Setup) -> Any:
    from dbos import SQLAlchemyDatasource

    url = setup.database.replace("postgresql://", "postgresql+psycopg://")
    with (setup.folder / "making-the-schema").open("w") as lock:  # others begin as well
        fcntl.flock(lock, fcntl.LOCK_EX)
        source = SQLAlchemyDatasource.create(url)
    setup.connection = lambda: source.sql_session().connection().connection.driver_connection
    return source.transaction


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
