"""Workflows that know activities by name only: each test brings its own."""

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

with workflow.unsafe.imports_passed_through():
    from effectonce.integrations.temporal import until_approved, until_settled

OPTIONS = {
    "start_to_close_timeout": timedelta(seconds=20),
    "retry_policy": RetryPolicy(initial_interval=timedelta(milliseconds=10), maximum_attempts=5),
    "result_type": str,
}


@workflow.defn
class Pays:
    """Its activity, by the id that was given to it, as often as it is told."""

    @workflow.run
    async def run(self, payment_id: str, times: int = 1, activity_id: str | None = None) -> str:
        receipts = [
            await workflow.execute_activity("pay", payment_id, activity_id=activity_id, **OPTIONS)
            for _ in range(times)
        ]
        return ",".join(receipts)

    @workflow.update
    async def hurry(self) -> str:
        return "yes"


@workflow.defn
class PaysElsewhere:
    @workflow.run
    async def run(self, payment_id: str, queue: str) -> str:
        return await workflow.execute_activity("pay", payment_id, task_queue=queue, **OPTIONS)


@workflow.defn
class Waits:
    """Two doubts at once, each waited for."""

    @workflow.run
    async def run(self, first: str, second: str, ask_every_s: float) -> str:
        def settled(payment_id):
            return until_settled(
                lambda: workflow.execute_activity("pay", payment_id, **OPTIONS),
                ask_every=timedelta(seconds=ask_every_s),
            )

        return ",".join(await asyncio.gather(settled(first), settled(second)))


@workflow.defn
class Asks:
    """Its activities may need an approval, and are waited for."""

    @workflow.run
    async def run(self, payments: list[str], ask_every_s: float) -> str:
        def approved(payment_id):
            return until_approved(
                lambda: workflow.execute_activity(
                    "pay", payment_id, activity_id=payment_id, **OPTIONS
                ),
                ask_every=timedelta(seconds=ask_every_s),
            )

        return ",".join(await asyncio.gather(*(approved(each) for each in payments)))


@workflow.defn
class FailingParent:
    """Its child cannot be started, then can: it is the same child."""

    @workflow.run
    async def run(self, payment_id: str, taken: str) -> str:
        try:
            return await workflow.execute_child_workflow(Pays.run, payment_id, id=taken)
        except WorkflowAlreadyStartedError:
            return await workflow.execute_child_workflow(Pays.run, payment_id)


ALL = [Pays, PaysElsewhere, Waits, Asks, FailingParent]
