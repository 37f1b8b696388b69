"""A call that needs an approval is a question of the workflow, on a real Temporal server."""

import asyncio

import pytest
from temporalio import activity
from temporalio.client import Client, WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from effectonce import Approval
from effectonce.integrations.temporal import EffectOnce, approval_needed
from effectonce.testing.bank import Bank
from tests.integrations.engines.temporal_parts import Asks, Pays
from tests.integrations.engines.test_temporal import Shop, awaited, server  # noqa: F401
from tests.processes import started
from tests.servers._process import until

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs
SIGNED = {"approved": True, "by": "ada", "reason": "it came back"}


class Desk(Shop):
    """The same shop, whose tool needs an approval."""

    def __init__(self, **approval):
        super().__init__(approval=Approval(**approval))

    async def questions(self, handle, count=1):
        await asyncio.to_thread(until, lambda: self.activities >= count, "the activities")
        while len(asked := await handle.query("effectonce_waiting")) != count:
            pass  # a query is how to look, and takes its time
        return asked

    async def asked(self, client, queue):
        """A workflow that waits for one answer, and its question."""
        handle = await start(client, queue, "p")
        (asked,) = await self.questions(handle)
        return handle, asked


def start(client, queue, *payments, ask_every_s=3600.0):
    return client.start_workflow(
        Asks.run, args=[list(payments), ask_every_s], id=queue, task_queue=queue
    )


@awaited
async def test_an_activity_that_needs_an_approval_is_not_tried_again(server):  # noqa: F811
    desk = Desk()
    async with desk.open(server, "typed") as client:
        with pytest.raises(WorkflowFailureError) as failed:
            await client.execute_workflow(Pays.run, "p", id="typed", task_queue="typed")

    cause = failed.value.cause.cause
    assert isinstance(cause, ApplicationError)
    assert (cause.type, cause.non_retryable, desk.activities) == ("APPROVAL_NEEDED", True, 1)
    asked, (wish,) = approval_needed(cause), desk.guard.approvals.waiting()
    assert (asked["reference"], asked["arguments"]) == (
        wish.effect.reference,
        {"payment_id": "p"},
    )
    assert wish.key not in repr(cause.details)
    assert desk.ran == []


@awaited
async def test_an_update_answers_and_the_workflow_goes_on(server):  # noqa: F811
    desk = Desk()
    async with desk.open(server, "answers") as client:
        handle = await start(client, "answers", "p", "q")
        asked = await desk.questions(handle, 2)
        for each in asked:
            approved = each["arguments"]["payment_id"] == "p"
            answer = {**each, **SIGNED, "approved": approved}
            await handle.execute_update("effectonce_answer", answer)
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()

    assert failed.value.cause.cause.type == "NOT_APPROVED"
    assert desk.ran == ["p"]
    decided = {record.request.step: record.state for record in desk.records}
    assert decided == {"p": "completed", "q": "failed"}


@awaited
async def test_answered_twice_and_asked_for_twice_it_is_sent_once(server):  # noqa: F811
    """The answer comes twice, and so does the call."""
    desk = Desk()
    async with desk.open(server, "twice") as client:
        handle, asked = await desk.asked(client, "twice")
        results = await asyncio.gather(
            *(handle.execute_update("effectonce_answer", {**asked, **SIGNED}) for _ in range(2)),
            return_exceptions=True,
        )
        assert await handle.result() == "rcpt_1"

    assert any(not isinstance(each, Exception) for each in results)
    assert desk.ran == ["p"]


@awaited
async def test_an_answer_to_no_question_is_refused(server):  # noqa: F811
    desk = Desk()
    async with desk.open(server, "unknown") as client:
        handle, asked = await desk.asked(client, "unknown")
        with pytest.raises(WorkflowUpdateFailedError):
            await handle.execute_update("effectonce_answer", {**asked, **SIGNED, "question": "x"})
        assert len(await handle.query("effectonce_waiting")) == 1
        await handle.terminate()

    assert desk.ran == []


@awaited
async def test_an_answer_without_a_name_is_asked_for_again(server):  # noqa: F811
    desk = Desk()
    async with desk.open(server, "unsigned") as client:
        handle, asked = await desk.asked(client, "unsigned")
        await handle.execute_update("effectonce_answer", {**asked, "approved": True})
        await asyncio.to_thread(until, lambda: desk.activities == 2, "it is asked for again")
        while not (again := await handle.query("effectonce_waiting")):
            pass  # as above
        assert "who decides" in again[0]["refused"]
        await handle.execute_update("effectonce_answer", {**asked, **SIGNED})
        assert await handle.result() == "rcpt_1"


@awaited
async def test_what_was_decided_elsewhere_is_honoured(server):  # noqa: F811
    desk = Desk()
    async with desk.open(server, "elsewhere") as client:
        handle, asked = await desk.asked(client, "elsewhere")
        (wish,) = desk.guard.approvals.waiting()
        desk.guard.approvals.approve(wish.key, by="grace", reason="at the desk")
        await handle.signal("effectonce_decided", asked["reference"])
        assert await handle.result() == "rcpt_1"


@awaited
async def test_after_a_restart_of_the_worker_it_goes_on(server):  # noqa: F811
    desk = Desk()
    async with desk.open(server, "restart") as client:
        handle, asked = await desk.asked(client, "restart")
    plugin = EffectOnce(desk.guard, approver=lambda answer: "grace")
    async with desk.open(server, "restart", plugin) as client:
        handle = client.get_workflow_handle("restart")
        await handle.execute_update("effectonce_answer", {**asked, **SIGNED})
        assert await handle.result() == "rcpt_1"

    (record,) = desk.records
    assert record.evidence[-1].outcome == b"grace: it came back"
    assert desk.ran == ["p"]


@awaited
async def test_an_answer_is_of_no_use_for_arguments_that_changed(server):  # noqa: F811
    desk, paid = Desk(), {"p": "p"}
    before = desk.activity

    @activity.defn(name="pay")
    def pay(payment_id: str) -> str:
        return before(paid[payment_id])

    desk.activity = pay
    async with desk.open(server, "changed") as client:
        handle, asked = await desk.asked(client, "changed")
        paid["p"] = "q"
        await handle.execute_update("effectonce_answer", {**asked, **SIGNED})
        again = await new_question(handle, asked)
        assert again["arguments"] == {"payment_id": "q"}
        assert desk.ran == []
        await handle.execute_update("effectonce_answer", {**again, **SIGNED})
        await handle.result()

    assert desk.ran == ["q"]


async def new_question(handle, before):
    """The one that is asked after *before*."""
    while True:  # a query is how to look, and takes its time
        for asked in await handle.query("effectonce_waiting"):
            if asked["question"] != before["question"]:
                return asked


@awaited
async def test_what_has_expired_is_asked_for_again(server):  # noqa: F811
    desk = Desk()
    async with desk.open(server, "expired") as client:
        handle, asked = await desk.asked(client, "expired")
        (wish,) = desk.guard.approvals.waiting()
        desk.guard.approvals.approve(wish.key, by="grace", reason="quick", valid_s=0.001)
        await asyncio.to_thread(until, lambda: desk.guard.approvals.find(wish.key), "it expires")
        await handle.execute_update("effectonce_answer", {**asked, **SIGNED})
        again = await new_question(handle, asked)
        assert (again["expired"], desk.ran) == (True, [])
        await handle.execute_update("effectonce_answer", {**again, **SIGNED})
        assert await handle.result() == "rcpt_1"


WORKER = """
import asyncio, sys
from concurrent.futures import ThreadPoolExecutor
from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker
from effectonce import Guard
from effectonce.integrations.temporal import EffectOnce
from effectonce.testing.bank import Teller
from tests.integrations.engines.temporal_parts import ALL

target, folder, port = sys.argv[1:]
guard = Guard(f"sqlite:///{folder}/effects.db", spool=f"{folder}/spool")

@guard.tool(kind="write", approval=True)
def charge(payment_id: str) -> str:
    return Teller(int(port)).pay(payment_id, 100)["receipt"]

@activity.defn(name="pay")
def pay(payment_id: str) -> str:
    return charge(payment_id)

async def work():
    client = await Client.connect(target, plugins=[EffectOnce(guard)])
    with ThreadPoolExecutor(4) as threads:
        options = {"activity_executor": threads, "max_cached_workflows": 0}
        worker = Worker(client, task_queue="two", workflows=ALL, activities=[pay], **options)
        await worker.run()

asyncio.run(work())
"""


@awaited
async def test_the_worker_that_asked_is_killed_and_another_process_sends_it_once(
    server,  # noqa: F811
    tmp_path,
):
    client = await Client.connect(server.target)
    with Bank(tmp_path / "ledger") as bank:
        command = (WORKER, server.target, tmp_path, bank.port)
        first = started(*command)
        try:
            handle = await start(client, "two", "p")
            asked = await new_question(handle, {"question": ""})
        finally:
            first.kill()
            first.communicate()
        others = [started(*command) for _ in range(2)]
        try:
            answers = (
                handle.execute_update("effectonce_answer", {**asked, **SIGNED}) for _ in range(2)
            )
            await asyncio.gather(*answers, return_exceptions=True)
            assert await handle.result() == "rcpt_1"
        finally:
            for other in others:
                other.kill()
                other.communicate()
        assert len(bank.ledger()) == 1
