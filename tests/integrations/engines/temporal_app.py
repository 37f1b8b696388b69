"""A Temporal worker: python -m tests.integrations.engines.temporal_app HOST:PORT"""

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from effectonce.integrations.temporal import EffectOnce
    from tests.integrations.engines import shop

QUEUE = "shop"
SOON = RetryPolicy(initial_interval=timedelta(milliseconds=50))
QUICK = {"start_to_close_timeout": timedelta(seconds=20), "retry_policy": SOON}
A_DEAD_WORKER = {"start_to_close_timeout": timedelta(seconds=2)}  # is noticed after this time


@activity.defn(name="refund")
def refund_activity(payment_id: str, reason: str) -> str:
    return shop.refunded(payment_id, reason)


def pay_back(payment_id, reason="late", **options):
    return workflow.execute_activity(
        refund_activity, args=[payment_id, reason], **(QUICK | options)
    )


@workflow.defn
class Once:
    @workflow.run
    async def run(self, payment_id: str) -> str:
        return await pay_back(payment_id, **A_DEAD_WORKER)


@workflow.defn
class Locally:
    @workflow.run
    async def run(self, payment_id: str) -> str:
        return await workflow.execute_local_activity(
            refund_activity, args=[payment_id, "late"], **QUICK
        )


@workflow.defn
class FailsOnce:
    """Its first run fails after the refund, and the second finds other words for it."""

    @workflow.run
    async def run(self, payment_id: str) -> str:
        first = workflow.info().attempt == 1
        if not first:  # other activities come before it now
            await pay_back(f"{payment_id}/fee", "fee")
        receipt = await pay_back(payment_id, "late" if first else "the parcel was late")
        if first:
            raise ApplicationError("the rest of it fails")
        return receipt


@workflow.defn
class CallsAgain:
    """The activity fails for the engine's own reasons, and the workflow's code calls it again."""

    @workflow.run
    async def run(self, payment_id: str) -> str:
        once = RetryPolicy(maximum_attempts=1)
        try:
            return await pay_back(payment_id, retry_policy=once)
        except ActivityError:
            return await pay_back(payment_id, retry_policy=once)


@workflow.defn
class Twice:
    """On purpose: after a success, and side by side."""

    @workflow.run
    async def run(self, payment_id: str) -> str:
        await pay_back(payment_id)
        return ",".join(await asyncio.gather(pay_back(payment_id), pay_back(payment_id)))


@workflow.defn
class Continues:
    """Each generation refunds once."""

    @workflow.run
    async def run(self, payment_id: str, left: int) -> str:
        receipt = await pay_back(payment_id)
        if left:
            workflow.continue_as_new(args=[payment_id, left - 1])
        return receipt


@workflow.defn
class Parent:
    """Its child refunds; then it fails once, and has another child."""

    @workflow.run
    async def run(self, payment_id: str) -> str:
        receipt = await workflow.execute_child_workflow(Once.run, payment_id)
        if workflow.info().attempt == 1:
            raise ApplicationError("the rest of it fails")
        return receipt


WORKFLOWS = [Once, Locally, FailsOnce, CallsAgain, Twice, Continues, Parent]


async def main(target):
    client = await Client.connect(target, plugins=[EffectOnce(shop.guard)])
    with ThreadPoolExecutor(8) as threads:
        async with Worker(
            client,
            task_queue=QUEUE,
            workflows=WORKFLOWS,
            activities=[refund_activity],
            activity_executor=threads,
            # how long a killed worker is waited for
            sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
        ):
            print("ready", flush=True)
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
