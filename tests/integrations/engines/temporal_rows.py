"""What happens to a Temporal workflow, and how often its effect lands."""

import asyncio
from contextlib import asynccontextmanager

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.common import RetryPolicy

from effectonce.integrations.temporal import EffectOnce
from tests.integrations.engines import shop
from tests.integrations.engines.crew import Crew
from tests.integrations.engines.temporal_app import (
    QUEUE,
    SOON,
    CallsAgain,
    Continues,
    FailsOnce,
    Locally,
    Once,
    Parent,
    Twice,
)


@asynccontextmanager
async def temporal(server, folder):
    """A client of the server, and a worker process."""
    client = await Client.connect(server.target, plugins=[EffectOnce(shop.guard)])
    with Crew(folder, "-m", "tests.integrations.engines.temporal_app", server.target) as crew:
        await asyncio.to_thread(crew.work)
        yield client, crew


def twice(**options):
    return RetryPolicy(initial_interval=SOON.initial_interval, maximum_attempts=2, **options)


async def reset(client, handle):
    """To the first decision of its last run, as an operator does. Returns when the new run has
    ended.
    """
    described = await handle.describe()
    await client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace="default",
            workflow_execution=WorkflowExecution(workflow_id=handle.id, run_id=described.run_id),
            reason="a test",
            request_id=f"{described.run_id}-reset",
            workflow_task_finish_event_id=4,
        )
    )
    again = client.get_workflow_handle(handle.id)
    assert (await again.describe()).run_id != described.run_id
    return await again.result()


async def rows(client, crew):
    async def ran(workflow, name, *args, **options):
        await client.execute_workflow(
            workflow, args=[name, *args], id=name, task_queue=QUEUE, **options
        )
        return crew.effects(name)

    crew.plan("after the tool", "raised")
    yield "the activity fails after the tool, and is retried", await ran(Once.run, "activity-retry")

    crew.plan("after the tool", "raised")
    yield (
        "a local activity fails after the tool, and is retried",
        await ran(Locally.run, "local-retry"),
    )

    crew.plan("after the effect", "kill")
    handle = await client.start_workflow(Once.run, "killed", id="killed", task_queue=QUEUE)
    await asyncio.to_thread(crew.killed)
    await asyncio.to_thread(crew.work)
    await handle.result()
    yield "the worker is killed after the effect, another resumes", crew.effects("killed")

    yield (
        (
            "the workflow is retried; other activities come first, and a volatile argument is"
            " paraphrased"
        ),
        await ran(FailsOnce.run, "workflow-retry", retry_policy=twice()),
    )

    await ran(Once.run, "reset")
    await reset(client, client.get_workflow_handle("reset"))
    yield "the workflow is reset", crew.effects("reset")

    crew.plan("after the tool", "raised")
    yield (
        "the workflow's code catches the failure, and calls again",
        await ran(CallsAgain.run, "calls-again"),
    )

    await ran(Once.run, "redrive")
    yield "the same workflow id is started again (redrive)", await ran(Once.run, "redrive")

    yield (
        "a child workflow, in a parent that is retried",
        await ran(Parent.run, "child", retry_policy=twice()),
    )

    await ran(Continues.run, "continues", 2)
    await reset(client, client.get_workflow_handle("continues"))
    yield "it continues as new twice, and is reset then", crew.effects("continues")

    yield "called three times on purpose, two of them side by side", await ran(Twice.run, "wishes")
