"""The Temporal plugin on a real server: places, tenants, what our errors become, and what is in
doubt.
"""

import asyncio
import functools
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from temporalio import activity
from temporalio.client import (
    Client,
    WithStartWorkflowOperation,
    WorkflowContinuedAsNewError,
    WorkflowFailureError,
)
from temporalio.common import RetryPolicy, WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner, Worker

from effectonce import CircuitOpen, EffectRef, GaveUp, Guard, InDoubt, NotSent, Rejected
from effectonce._core.ops import Search
from effectonce.integrations.temporal import (
    EffectOnce,
    EffectOnceInterceptor,
    application_error,
    in_doubt,
)
from tests.integrations.engines.temporal_parts import ALL, FailingParent, Pays, PaysElsewhere, Waits
from tests.servers._process import until

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs


@pytest.fixture
def server(temporal_server):
    return temporal_server


def awaited(test):
    @functools.wraps(test)
    def run(*args, **kwargs):
        asyncio.run(test(*args, **kwargs))

    return run


class Shop:
    """A guard, an activity of it, and how often its tool ran."""

    def __init__(self, *failures, downstream="none", by_key=False, approval=False):
        self.guard, self.failures, self.ran, self.activities = (
            Guard("memory://"),
            list(failures),
            [],
            0,
        )

        @self.guard.tool(kind="write", downstream=downstream, approval=approval)
        def charge(payment_id: str) -> str:
            self.ran.append(payment_id)
            if self.failures:
                raise self.failures.pop(0)
            return f"rcpt_{len(self.ran)}"

        @activity.defn(name="pay")
        def pay(payment_id: str) -> str:
            self.activities += 1
            return (
                self.guard.call(charge, {"payment_id": payment_id}, key=payment_id).unwrap()
                if by_key
                else charge(payment_id)
            )

        self.activity = pay

    @property
    def records(self):
        return self.guard.store.apply(Search(limit=100))

    @asynccontextmanager
    async def open(self, server, queue, plugin=None):
        """A client of a worker without the sandbox, which takes a second for each worker.
        temporal_app.py has it.
        """
        client = await Client.connect(server.target, plugins=[plugin or EffectOnce(self.guard)])
        with ThreadPoolExecutor(4) as threads:
            async with Worker(
                client,
                task_queue=queue,
                workflows=ALL,
                activities=[self.activity],
                activity_executor=threads,
                workflow_runner=UnsandboxedWorkflowRunner(),
            ):
                yield client


# ---------------------------------------------------------------- places


@awaited
async def test_an_activity_id_that_was_given_is_a_place_by_itself(server):
    shop = Shop()
    async with shop.open(server, "given") as client:
        receipts = await client.execute_workflow(
            Pays.run, args=["p", 2, "the-refund"], id="given", task_queue="given"
        )

    assert receipts == "rcpt_1,rcpt_1"
    assert [(r.request.scope, r.request.step) for r in shop.records] == [("given", "the-refund")]


@awaited
async def test_an_activity_id_that_changes_is_refused(server):
    shop = Shop()
    changing = "0b5f9ba4-7c1c-4d6e-8ad5-0f6c3f1c8d11"
    async with shop.open(server, "changing") as client:
        with pytest.raises(WorkflowFailureError) as failed:
            await client.execute_workflow(
                Pays.run, args=["p", 1, changing], id="changing", task_queue="changing"
            )

    assert failed.value.cause.cause.type == "CONTRACT_VIOLATION"
    assert shop.ran == []


@awaited
async def test_each_start_may_be_another_workflow(server):
    shop = Shop()
    async with shop.open(server, "anew", EffectOnce(shop.guard, each_start_anew=True)) as client:
        for _ in range(2):
            await client.execute_workflow(Pays.run, args=["p"], id="daily", task_queue="anew")
        plain = await Client.connect(server.target)
        for _ in range(2):
            await plain.execute_workflow(Pays.run, args=["q"], id="unnamed", task_queue="anew")

    assert shop.ran == ["p", "p", "q", "q"]


@awaited
async def test_a_workflow_that_a_plain_client_started_has_its_id_for_a_scope(server):
    shop = Shop()
    async with shop.open(server, "plain") as client:
        plain = await Client.connect(server.target)
        await plain.execute_workflow(Pays.run, args=["p"], id="plain", task_queue="plain")
        await client.execute_workflow(Pays.run, args=["p"], id="plain", task_queue="plain")

    assert [(r.request.scope, r.request.step) for r in shop.records] == [("plain", "pay#0")]


@awaited
async def test_the_tenant_of_whoever_starts_it_is_carried(server):
    shop = Shop()
    async with shop.open(server, "tenants") as client:
        with shop.guard.step("chat-42", "refund", tenant="acme"):
            await client.execute_workflow(Pays.run, args=["p"], id="tenants", task_queue="tenants")
            start = WithStartWorkflowOperation(
                Pays.run,
                args=["q"],
                id="updated",
                task_queue="tenants",
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            )
            await client.execute_update_with_start_workflow(
                Pays.hurry, start_workflow_operation=start
            )
            await (await start.workflow_handle()).result()

    assert {(r.request.tenant, r.request.scope) for r in shop.records} == {
        ("acme", "tenants"),
        ("acme", "updated"),
    }


@awaited
async def test_a_child_that_could_not_be_started_gives_its_place_back(server):
    shop = Shop()
    async with shop.open(server, "children") as client:
        taken = await client.start_workflow(
            Pays.run, args=["other"], id="taken", task_queue="nobody"
        )
        receipt = await client.execute_workflow(
            FailingParent.run, args=["p", "taken"], id="parent", task_queue="children"
        )
        await taken.terminate()

    assert receipt == "rcpt_1"
    assert [r.request.scope for r in shop.records] == ["parent/Pays#0"]


@awaited
async def test_without_the_plugin_in_the_workflow_nothing_is_sent(server):
    shop = Shop()
    plain = await Client.connect(server.target)
    bare = Worker(
        plain, task_queue="bare", workflows=ALL, workflow_runner=UnsandboxedWorkflowRunner()
    )
    async with shop.open(server, "guarded"), bare:
        with pytest.raises(WorkflowFailureError) as failed:
            await plain.execute_workflow(
                PaysElsewhere.run, args=["p", "guarded"], id="bare", task_queue="bare"
            )

    assert failed.value.cause.cause.type == "CONTRACT_VIOLATION"
    assert shop.activities == 1
    assert shop.ran == []


# ---------------------------------------------------------------- cron


@awaited
async def test_each_run_of_a_cron_workflow_is_another(server):
    shop = Shop()
    async with shop.open(server, "cron") as client:
        handle = await client.start_workflow(
            Pays.run, args=["p"], id="cron", task_queue="cron", cron_schedule="@every 1s"
        )
        await asyncio.to_thread(until, lambda: len(shop.ran) >= 2, "a second run")
        await handle.terminate()

    assert len({r.request.scope for r in shop.records}) == len(shop.records) >= 2


@awaited
async def test_a_cron_workflow_that_is_retried_has_no_place(server):
    shop = Shop()
    async with shop.open(server, "cron-retry") as client:
        handle = await client.start_workflow(
            Pays.run,
            args=["p"],
            id="cron-retry",
            task_queue="cron-retry",
            cron_schedule="@every 1s",
            retry_policy=RetryPolicy(maximum_attempts=3),
        )
        with pytest.raises(
            (WorkflowContinuedAsNewError, WorkflowFailureError)
        ):  # the server words it by what the client can follow
            await handle.result(follow_runs=False)
        run = client.get_workflow_handle("cron-retry", run_id=handle.result_run_id)
        *_, last = [event async for event in run.fetch_history_events()]
        await client.get_workflow_handle("cron-retry").terminate()

    ended = last.workflow_execution_failed_event_attributes.failure
    assert ended.application_failure_info.type == "CONTRACT_VIOLATION"
    assert shop.ran == []


# ---------------------------------------------------------------- what errors become


@awaited
async def test_what_may_go_better_is_retried_and_what_failed_for_good_is_not(server):
    shop = Shop(*[NotSent("closed", retry_after_s=0.01)] * 4, downstream="key")
    async with shop.open(server, "retried") as client:
        assert (
            await client.execute_workflow(Pays.run, args=["p"], id="retried", task_queue="retried")
            == "rcpt_5"
        )

        shop.failures, before = [Rejected("the card was declined")], shop.activities
        with pytest.raises(WorkflowFailureError) as failed:
            await client.execute_workflow(Pays.run, args=["q"], id="declined", task_queue="retried")

    assert shop.activities == before + 1
    assert failed.value.cause.cause.type == "Rejected"
    assert failed.value.cause.cause.non_retryable


def test_an_error_says_whether_and_when_to_retry():
    effect = EffectRef("pay", "f" * 40)
    later = application_error(CircuitOpen("open", effect=effect, retry_after_s=12.0))
    given_up = application_error(GaveUp("no time left", effect=effect))
    doubt = application_error(InDoubt("who knows", effect=effect, retry_after_s=3.0))

    assert (later.type, later.non_retryable, later.next_retry_delay) == (
        "CIRCUIT_OPEN",
        False,
        timedelta(seconds=12),
    )
    assert (given_up.type, given_up.non_retryable, given_up.next_retry_delay) == (
        "GAVE_UP",
        False,
        None,
    )
    assert (doubt.type, doubt.non_retryable, doubt.next_retry_delay) == (
        "OUTCOME_UNKNOWN",
        True,
        None,
    )
    assert in_doubt(doubt)["operation"] == effect.reference
    assert in_doubt(later) is None
    assert effect.key not in repr([later.details, given_up.details, doubt.details, str(doubt)])


def test_what_is_said_in_temporals_words_is_left_as_it_is():
    said = ApplicationError("no", non_retryable=True)
    said.effectonce_of = "f" * 40

    assert application_error(said) is said


# ---------------------------------------------------------------- what is in doubt


async def _asked(handle, shop, count):
    """What the workflow waits for, as soon as it is so much. Its query is there when its first
    activity is.
    """
    await asyncio.to_thread(until, lambda: shop.activities >= count, "the activities")
    while len(doubts := await handle.query("effectonce_in_doubt")) != count:
        pass  # a query is how to look, and takes its time
    return doubts


@awaited
async def test_a_person_settles_a_doubt_and_the_workflow_goes_on(server):
    shop = Shop(TimeoutError("no answer"), TimeoutError("no answer"))
    async with shop.open(server, "doubts") as client:
        handle = await client.start_workflow(
            Waits.run, args=["p", "q", 3600.0], id="doubts", task_queue="doubts"
        )
        doubts = await _asked(handle, shop, 2)
        for record in shop.guard.in_doubt():
            assert record.request.key not in repr(doubts)
            shop.guard.confirm(
                record.request.key,
                result=f"found {record.request.step}",
                by="ada",
                reason="it is in the ledger",
            )
        for doubt in doubts:
            await handle.signal("effectonce_settled", doubt["operation"])
        receipts = await handle.result()

    assert receipts == "found pay#0,found pay#0"
    assert sorted(shop.ran) == ["p", "q"]
    assert shop.activities == 4


@awaited
async def test_two_may_wait_for_one_doubt(server):
    shop = Shop(TimeoutError("no answer"), by_key=True)
    async with shop.open(server, "both") as client:
        handle = await client.start_workflow(
            Waits.run, args=["p", "p", 0.2], id="both", task_queue="both"
        )
        await asyncio.to_thread(until, lambda: shop.activities >= 6, "both have looked again")
        (doubt,) = shop.guard.in_doubt()
        shop.guard.confirm(
            doubt.request.key, result="found", by="ada", reason="it is in the ledger"
        )

        assert await handle.result() == "found,found"
    assert shop.ran == ["p"]


@awaited
async def test_a_doubt_that_is_refuted_fails_the_activity(server):
    shop = Shop(TimeoutError("no answer"), TimeoutError("no answer"))
    async with shop.open(server, "refuted") as client:
        handle = await client.start_workflow(
            Waits.run, args=["p", "q", 0.2], id="refuted", task_queue="refuted"
        )
        await asyncio.to_thread(until, lambda: len(shop.guard.in_doubt()) == 2, "two doubts")
        for record in shop.guard.in_doubt():
            shop.guard.refute(record.request.key, by="ada", reason="it is not in the ledger")
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()

    assert failed.value.cause.cause.type == "REPLAYED_FAILURE"
    assert sorted(shop.ran) == ["p", "q"]


# ---------------------------------------------------------------- ways to plug in


@pytest.mark.parametrize("colour", ["def", "async def"])
@awaited
async def test_a_guarded_tool_may_be_the_activity_itself(server, colour):
    shop = Shop()
    if colour == "def":

        @shop.guard.tool(kind="write")
        def pay(payment_id: str) -> str:
            return f"paid {payment_id}"
    else:

        @shop.guard.tool(kind="write")
        async def pay(payment_id: str) -> str:
            return f"paid {payment_id}"

    shop.activity = activity.defn(pay)
    queue = f"itself {colour}"
    async with shop.open(server, queue) as client:
        assert (
            await client.execute_workflow(Pays.run, args=["p"], id=queue, task_queue=queue)
            == "paid p"
        )
    assert [r.request.step for r in shop.records] == ["pay#0"]


@awaited
async def test_the_interceptor_does_without_the_plugin(server):
    shop = Shop()
    client = await Client.connect(server.target, interceptors=[EffectOnceInterceptor(shop.guard)])
    with ThreadPoolExecutor(1) as threads:
        async with Worker(
            client,
            task_queue="i",
            workflows=ALL,
            activities=[shop.activity],
            activity_executor=threads,
            workflow_runner=UnsandboxedWorkflowRunner(),
        ):
            await client.execute_workflow(Pays.run, args=["p"], id="i", task_queue="i")

    assert [r.request.scope for r in shop.records] == ["i"]


@awaited
async def test_a_history_is_replayed_with_the_plugin(server):
    shop = Shop()
    async with shop.open(server, "replayed") as client:
        await client.execute_workflow(Pays.run, args=["p", 2], id="replayed", task_queue="replayed")
        history = await client.get_workflow_handle("replayed").fetch_history()

    await Replayer(workflows=ALL, plugins=[EffectOnce(shop.guard)]).replay_workflow(history)
    assert shop.ran == ["p", "p"]


@pytest.mark.parametrize("framework", ["temporalio", "dbos", "celery"])
def test_what_is_missing_is_named_with_how_to_install_it(framework):
    extra = framework.removesuffix("io")
    code = f"import sys; sys.modules[{framework!r}] = None; import effectonce.integrations.{extra}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert f"needs {framework}: pip install 'effectonce[{extra}]'" in done.stderr
