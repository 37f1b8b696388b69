"""Agents of Google's kit. What holds in every framework is in `facts.py`."""

import asyncio
import copy

import pytest
from google.adk.agents import LlmAgent, ParallelAgent
from google.adk.apps.app import App
from google.adk.plugins.reflect_retry_tool_plugin import ReflectAndRetryToolPlugin
from google.adk.runners import Runner
from google.adk.tools import FunctionTool, LongRunningFunctionTool, ToolContext
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.mcp_tool import McpToolset
from google.adk.tools.mcp_tool.mcp_session_manager import StdioConnectionParams
from google.adk.workflow import START, RetryConfig, Workflow, node
from google.genai import types
from mcp import StdioServerParameters

from effectonce import InDoubt, Rejected
from effectonce.integrations.google_adk import EffectOnce
from tests.frameworks import pages
from tests.frameworks.facts import (
    CONTRACTS,
    DONE,
    LOSES,
    Ask,
    a_lost_answer_of_a_server_is_a_doubt,
    a_tool_of_a_server_lands_once,
    facts,
    killed_after_the_effect_and_resumed_there_is_one,
    one,
    refund_of,
)
from tests.frameworks.google_adk.desk import Desk, Script

LINES = [one("a"), DONE]


@pytest.fixture
def desk(guard):
    return Desk(guard, None)


@facts(without=["without_a_conversation_nothing_is_sent"])  # there is no run without a session
def test_in_the_kit(fact, desk, guard, bank):
    fact(desk, guard, bank)


def test_killed_after_the_effect_and_resumed_from_its_session_there_is_one(tmp_path):
    killed_after_the_effect_and_resumed_there_is_one("google_adk", tmp_path)


def test_the_page_shows_what_happens(bank, tmp_path):
    pages.check("google_adk", bank, tmp_path)


def test_a_plugin_that_asks_the_model_to_reflect_and_retry_finds_nothing_to_retry(
    desk, guard, bank
):
    plugins = [ReflectAndRetryToolPlugin(max_retries=3), EffectOnce(guard, contracts=CONTRACTS)]

    ran = desk.run(
        desk.tool(refund_of(bank, "lose-answer")), one("a"), one("b"), DONE, plugins=plugins
    )

    assert ran.codes == [InDoubt.code, InDoubt.code]
    assert len(bank.ledger()) == 1


def test_a_refusal_is_the_tools_own_error_and_then_known(desk, guard, bank):
    with pytest.raises(Rejected):
        desk.run(desk.tool(refund_of(bank, "refuse")), *LINES)

    assert desk.run(desk.tool(refund_of(bank)), *LINES, forget=True).codes == ["REPLAYED_FAILURE"]
    assert bank.ledger() == []


def test_an_error_that_is_told_as_a_result_says_nothing_about_what_was_done(desk, guard, bank):
    async def refund(payment_id: str, reason: str) -> dict:
        """Refund a payment."""
        bank.pay(payment_id, 100)
        return {"error": "the bank did not answer, please try again"}

    ran = desk.run(desk.tool(refund), one("a"), one("b"), DONE)

    assert ran.codes == [InDoubt.code, InDoubt.code]
    assert len(bank.ledger()) == 1


def test_what_a_tool_did_to_the_session_is_done_again_with_its_result(desk, guard, bank):
    def refund(payment_id: str, reason: str, tool_context: ToolContext) -> dict:
        """Refund a payment."""
        tool_context.state["refunded"] = payment_id
        tool_context.actions.skip_summarization = True
        return {"receipt": bank.pay(payment_id, 100)["receipt"]}

    for name in ("a", "b"):
        ran = desk.run(desk.tool(refund), one(name), forget=True)

        assert ran.told == [(name, {"receipt": "rcpt_1"})]
        assert desk.events[-1].actions.state_delta == {"refunded": "pay_7"}
        assert desk.events[-1].actions.skip_summarization
    assert len(bank.ledger()) == 1


def test_media_are_replayed_as_media(desk, guard, bank):
    def refund(payment_id: str, reason: str) -> list:
        """Refund a payment."""
        bank.pay(payment_id, 100)
        return [types.Part.from_bytes(data=b"\x89PNG", mime_type="image/png"), "a receipt"]

    for name in ("a", "b"):
        desk.run(desk.tool(refund), one(name), DONE, forget=True)

        answer = next(result for event in desk.events for result in event.get_function_responses())
        assert [part.inline_data.data for part in answer.parts] == [b"\x89PNG"]
        assert answer.response == {"result": ["a receipt"]}
    assert len(bank.ledger()) == 1


def test_a_confirmation_is_asked_for_first_and_leaves_nothing_in_doubt(desk, guard, bank):
    tool = FunctionTool(refund_of(bank), require_confirmation=True)
    desk.run(tool, one("a"), DONE)
    assert bank.ledger() == []
    [asked] = [
        call
        for event in desk.events
        for call in event.get_function_calls()
        if call.name == "adk_request_confirmation"
    ]

    approved = types.FunctionResponse(id=asked.id, name=asked.name, response={"confirmed": True})
    given = types.Content(role="user", parts=[types.Part(function_response=approved)])
    ran = desk.run(tool, DONE, given=given)

    assert ran.told == [("a", "rcpt_1")]
    assert guard.in_doubt() == ()


def test_a_tool_that_asks_a_person_by_itself_is_run_again_later(desk, guard, bank):
    def refund(payment_id: str, reason: str, tool_context: ToolContext) -> dict:
        """Refund a payment."""
        if tool_context.tool_confirmation is None:
            tool_context.request_confirmation(hint="really?")
            return {"status": "waits for a person"}
        return {"receipt": bank.pay(payment_id, 100)["receipt"]}

    desk.run(desk.tool(refund), one("a"), DONE)
    [asked] = [
        call
        for event in desk.events
        for call in event.get_function_calls()
        if call.name == "adk_request_confirmation"
    ]
    approved = types.FunctionResponse(id=asked.id, name=asked.name, response={"confirmed": True})
    given = types.Content(role="user", parts=[types.Part(function_response=approved)])
    ran = desk.run(desk.tool(refund), DONE, given=given)

    assert ran.told == [("a", {"receipt": "rcpt_1"})]
    assert desk.run(desk.tool(refund), one("b"), DONE, forget=True).told == [
        ("b", {"receipt": "rcpt_1"})
    ]
    assert len(bank.ledger()) == 1


def test_callbacks_of_the_agent_are_called_as_before(desk, guard, bank):
    def refuses(tool, args, tool_context):
        return {"status": "not allowed"} if args["payment_id"] == "pay_8" else None

    def notes(tool, args, tool_context, tool_response):
        return {"noted": tool_response}

    lines = [[*one("a"), *one("b", "pay_8")], DONE]
    ran = desk.run(
        desk.tool(refund_of(bank)), *lines, before_tool_callback=refuses, after_tool_callback=notes
    )

    assert dict(ran.told) == {"a": {"noted": "rcpt_1"}, "b": {"noted": {"status": "not allowed"}}}
    assert [paid["payment_id"] for paid in bank.ledger()] == ["pay_7"]


def test_a_tool_that_ran_under_the_plugin_is_what_it_was_in_a_runner_without(desk, guard, bank):
    tool = desk.tool(refund_of(bank))

    desk.run(tool, *LINES)
    ran = [desk.run(tool, *LINES, plugins=[], forget=True).said for _ in range(2)]

    assert ran == [["rcpt_2"], ["rcpt_3"]]


def test_a_copy_of_a_tool_that_ran_is_a_tool_of_its_own(desk, guard, bank):
    tool = desk.tool(refund_of(bank))
    desk.run(tool, *LINES)

    other = copy.copy(tool)
    other.func = refund_of(bank, "refuse")

    with pytest.raises(Rejected):
        desk.run(other, *LINES, scope="chat-43")


def test_a_long_running_tool_is_begun_once(desk, guard, bank):
    def refund(payment_id: str, reason: str) -> dict:
        """Refund a payment."""
        return {"status": "pending", "ticket": bank.pay(payment_id, 100)["receipt"]}

    for name in ("a", "b"):
        ran = desk.run(LongRunningFunctionTool(refund), one(name), DONE, forget=True)
        assert ran.told[0] == (name, {"status": "pending", "ticket": "rcpt_1"})

    assert len(bank.ledger()) == 1


def test_the_effects_of_an_agent_that_is_a_tool_belong_to_the_session_that_called_it(
    desk, guard, bank
):
    for name in ("a", "b"):
        clerk = LlmAgent(
            name="refund",
            model=Script(lines=[one(name), DONE]),
            tools=[FunctionTool(refund_of(bank))],
        )
        ran = desk.run(
            AgentTool(clerk),
            [Ask("outer", {"request": f"refund pay_7, {name}"})],
            DONE,
            forget=True,
        )
        assert ran.said == ["done"]

    assert len(bank.ledger()) == 1


def test_a_result_that_was_rewound_was_not_shown(desk, guard, bank):
    desk.run(desk.tool(refund_of(bank)), *LINES)
    app = App(name="shop", root_agent=LlmAgent(name="desk", model=Script()))
    rewinding = {
        "user_id": "ann",
        "session_id": "chat-42",
        "rewind_before_invocation_id": desk.events[0].invocation_id,
    }
    asyncio.run(Runner(app=app, session_service=desk.sessions).rewind_async(**rewinding))

    assert desk.run(desk.tool(refund_of(bank)), one("b"), DONE).said == ["rcpt_1"]


def test_a_result_that_only_another_branch_was_shown_does_not_count(desk, guard, bank):
    shown = asyncio.Event()

    class Tells(Script):
        async def generate_content_async(self, llm_request, stream=False):
            if len(self.lines) == 1:  # its last line: it has been shown the result
                shown.set()
            async for response in super().generate_content_async(llm_request, stream):
                yield response

    class Waits(Script):
        async def generate_content_async(self, llm_request, stream=False):
            await shown.wait()
            async for response in super().generate_content_async(llm_request, stream):
                yield response

    models = Tells(lines=[one("a"), DONE]), Waits(lines=[one("b"), DONE])
    desks = [
        LlmAgent(name=f"desk_{at}", model=model, tools=[refund_of(bank)])
        for at, model in enumerate(models)
    ]
    both = ParallelAgent(name="both", sub_agents=desks)
    once = EffectOnce(guard, contracts=CONTRACTS)

    ran = asyncio.run(
        desk.talk(App(name="shop", root_agent=both, plugins=[once]), "chat-42", "refund pay_7")
    )

    assert ran.said == ["rcpt_1", "rcpt_1"]


def test_a_node_of_a_workflow_that_is_tried_again_lands_once_and_raises_the_doubt(
    desk, guard, bank
):
    tool = node(
        desk.tool(refund_of(bank, "lose-answer")),
        retry_config=RetryConfig(max_attempts=3, initial_delay=0),
    )
    flow = Workflow(name="flow", edges=[(START, tool)])
    app = App(name="shop", root_agent=flow, plugins=[EffectOnce(guard, contracts=CONTRACTS)])

    with pytest.raises(InDoubt):
        asyncio.run(desk.talk(app, "chat-42", '{"payment_id": "pay_7", "reason": "late"}'))

    assert len(bank.ledger()) == 1


def test_the_conversation_may_be_named_by_the_application(desk, guard, bank):
    once = EffectOnce(
        guard,
        contracts=CONTRACTS,
        scope=lambda context: context.state["order"],
        tenant=lambda context: "shop-1",
    )

    def knows_the_order(callback_context):
        callback_context.state["order"] = "order-1"

    for scope in ("delivery-1", "delivery-2"):  # an event that is delivered twice has two sessions
        ran = desk.run(
            desk.tool(refund_of(bank)),
            *LINES,
            plugins=[once],
            scope=scope,
            before_agent_callback=knows_the_order,
        )
        assert ran.said == ["rcpt_1"]


# ---------------------------------------------------------------- tools of an MCP server


def of_server(started):
    return McpToolset(
        connection_params=StdioConnectionParams(
            server_params=StdioServerParameters(**started), timeout=60
        )
    )


def test_a_tool_of_a_server_lands_once(desk, bank):
    a_tool_of_a_server_lands_once(desk, of_server, bank)


@LOSES
def test_a_lost_answer_of_a_server_is_a_doubt(ends, desk, bank):
    a_lost_answer_of_a_server_is_a_doubt(desk, of_server, bank, ends)
