"""The workflow of the Temporal adapter: one activity. It is a module of its own because Temporal
reads the types of its arguments, and the adapter is imported where Temporal is not.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

NOTHING_HAPPENED = "nothing happened"


@workflow.defn
class Payment:
    @workflow.run
    async def run(self, asked: dict[str, Any]) -> Any:
        options: dict[str, Any] = {"start_to_close_timeout": timedelta(seconds=10)}
        if asked["best"]:
            options["heartbeat_timeout"] = timedelta(seconds=asked["lease_s"])
            options["start_to_close_timeout"] = timedelta(seconds=60)
        if asked["best"] and asked["deaf"]:
            options["retry_policy"] = RetryPolicy(maximum_attempts=1)
        for _ in range(2):
            try:
                return await workflow.execute_activity("pay", asked["arguments"], **options)
            except ActivityError as error:
                cause = error.cause
                if not (isinstance(cause, ApplicationError) and cause.type == NOTHING_HAPPENED):
                    raise
                await workflow.sleep(1)
        return await workflow.execute_activity("pay", asked["arguments"], **options)
