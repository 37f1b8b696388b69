"""Agents of Strands. What holds in every framework is in `facts.py`."""

import asyncio

import pytest
from mcp import StdioServerParameters, stdio_client
from pydantic import BaseModel
from strands import Agent, ToolContext, tool
from strands.hooks import AfterToolCallEvent
from strands.middleware import ExecuteToolStage, ToolResultEvent
from strands.plugins import Plugin
from strands.tools.mcp import MCPClient

from effectonce import InDoubt
from effectonce.integrations.strands import EffectOnce
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
from tests.frameworks.strands.desk import Desk, Script

LINES = [one("a"), DONE]


@pytest.fixture
def desk(guard, tmp_path):
    return Desk(guard, tmp_path)


@facts()
def test_in_strands(fact, desk, guard, bank):
    fact(desk, guard, bank)


def test_killed_after_the_effect_and_resumed_from_its_session_there_is_one(tmp_path):
    killed_after_the_effect_and_resumed_there_is_one("strands", tmp_path)


def test_the_page_shows_what_happens(bank, tmp_path):
    pages.check("strands", bank, tmp_path)


@pytest.mark.parametrize("fault", [None, "lose-answer"])
def test_a_hook_that_asks_for_another_try_gets_the_answer_that_is_known(fault, desk, guard, bank):
    asked = []

    def twice_more(event: AfterToolCallEvent):
        asked.append(event.result["status"])
        event.retry = len(asked) < 3

    ran = desk.run(desk.tool(refund_of(bank, fault)), *LINES, hooks=[twice_more])

    assert len(asked) == 3
    assert len(bank.ledger()) == 1
    assert ran.codes == [InDoubt.code] if fault else ran.said == ["rcpt_1"]


def standing(handler):
    """A plugin of somebody else's, with one handler around every tool."""

    class Other(Plugin):
        name = handler.__name__

        def init_agent(self, agent):
            agent.add_middleware(ExecuteToolStage, handler)

    return Other()


async def friendly(context, proceed):
    """Makes a result of every error."""
    async for event in proceed(context):
        failed = isinstance(event, ToolResultEvent) and event.tool_result["status"] == "error"
        told = (
            {**event.tool_result, "status": "success", "content": [{"text": "that did not work"}]}
            if failed
            else None
        )
        yield ToolResultEvent(told) if failed else event


async def tries(context, proceed):
    for _ in range(3):
        async for event in proceed(context):
            if not isinstance(event, ToolResultEvent):
                yield event
    yield event


async def twice(context, proceed):
    """Asks twice at once."""

    async def ask():
        return [event async for event in proceed(context)]

    for event in (await asyncio.gather(ask(), ask()))[1]:
        yield event


def may_be_guarded(guarded, guard, function):
    return guard.tool(kind="write", volatile=["reason"])(function) if guarded else function


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("ours_first", [False, True])
@pytest.mark.parametrize(("other", "fault"), [(tries, "lose-answer"), (tries, None), (twice, None)])
def test_a_middleware_that_asks_again_is_told_what_is_known(
    other, fault, ours_first, guarded, desk, guard, bank
):
    function = may_be_guarded(guarded, guard, refund_of(bank, fault, fault, fault))
    plugins = [EffectOnce(guard, contracts=CONTRACTS), standing(other)]

    ran = desk.run(desk.tool(function), *LINES, plugins=plugins if ours_first else plugins[::-1])

    assert len(bank.ledger()) == 1
    assert ran.codes == [InDoubt.code] if fault else ran.said == ["rcpt_1"]


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("ours_first", [False, True])
def test_a_doubt_that_somebody_made_a_result_of_is_still_the_same_effect(
    ours_first, guarded, desk, guard, bank
):
    function = may_be_guarded(guarded, guard, refund_of(bank, "lose-answer"))
    plugins = [EffectOnce(guard, contracts=CONTRACTS), standing(friendly)]

    ran = desk.run(
        desk.tool(function),
        one("a"),
        one("b"),
        one("c"),
        DONE,
        plugins=plugins if ours_first else plugins[::-1],
    )

    assert len(bank.ledger()) == 1
    assert ran.codes == [InDoubt.code] * 3 if ours_first else ran.said == ["that did not work"] * 3


def test_a_refusal_is_told_in_the_words_of_whoever_stands_behind_us(desk, guard, bank):
    plugins = [EffectOnce(guard, contracts=CONTRACTS), standing(friendly)]

    assert desk.run(desk.tool(refund_of(bank, "refuse")), *LINES, plugins=plugins).said == [
        "that did not work"
    ]
    assert desk.run(desk.tool(refund_of(bank)), *LINES, forget=True).codes == ["REPLAYED_FAILURE"]


def test_a_refusal_is_told_in_the_words_of_the_framework_and_then_known(desk, guard, bank):
    ran = desk.run(desk.tool(refund_of(bank, "refuse")), *LINES)
    assert ran.said == ["Error: Rejected - the bank refuses pay_7"]

    assert desk.run(desk.tool(refund_of(bank)), *LINES, forget=True).codes == ["REPLAYED_FAILURE"]
    assert bank.ledger() == []


def test_an_error_that_is_told_as_a_result_says_nothing_about_what_was_done(desk, guard, bank):
    @tool
    def refund(payment_id: str, reason: str) -> dict:
        """Refund a payment."""
        bank.pay(payment_id, 100)
        return {
            "status": "error",
            "content": [{"text": "the bank did not answer, please try again"}],
        }

    assert desk.run(refund, one("a"), one("b"), DONE).codes == [InDoubt.code, InDoubt.code]
    assert len(bank.ledger()) == 1


def test_an_interrupt_passes_through_and_leaves_nothing_in_doubt(desk, guard, bank):
    @tool(context=True)
    def refund(payment_id: str, reason: str, tool_context: ToolContext) -> str:
        """Refund a payment."""
        if tool_context.interrupt("approval", reason="really?") != "yes":
            return "not approved"
        return bank.pay(payment_id, 100)["receipt"]

    desk.run(refund, one("a"))
    assert desk.result.stop_reason == "interrupt"
    assert bank.ledger() == []

    answer = {"interruptId": desk.result.interrupts[0].id, "response": "yes"}
    ran = desk.run(refund, DONE, given=[{"interruptResponse": answer}])

    assert ran.told == [("a", "rcpt_1")]
    assert guard.in_doubt() == ()


def test_what_a_tool_streams_is_heard_while_it_runs(desk, guard, bank):
    heard, may_end = [], asyncio.Event()

    @tool
    async def refund(payment_id: str, reason: str):
        """Refund a payment."""
        yield "asking the bank"
        await may_end.wait()
        yield bank.pay(payment_id, 100)["receipt"]

    async def listen():
        async for event in desk.agent(refund, *LINES).stream_async("refund pay_7"):
            if "tool_stream_event" in event:
                heard.append(event["tool_stream_event"]["data"])
                may_end.set()

    asyncio.run(listen())

    assert heard == ["asking the bank", "rcpt_1"]
    assert desk.run(refund, one("b"), DONE, forget=True).told == [("b", "rcpt_1")]


def test_a_run_that_is_cancelled_leaves_a_doubt_and_no_task(desk, guard, bank):
    paid = asyncio.Event()

    @tool
    async def refund(payment_id: str, reason: str):
        """Refund a payment."""
        bank.pay(payment_id, 100)
        paid.set()
        await asyncio.Event().wait()

    async def give_up():
        run = asyncio.ensure_future(desk.agent(refund, *LINES).invoke_async("refund pay_7"))
        await paid.wait()
        run.cancel()
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others)

    asyncio.run(give_up())

    assert len(guard.in_doubt()) == len(bank.ledger()) == 1


def test_media_are_replayed_as_media(desk, guard, bank):
    image = {"image": {"format": "png", "source": {"bytes": b"\x89PNG"}}}

    @tool
    def refund(payment_id: str, reason: str) -> dict:
        """Refund a payment."""
        return {
            "status": "success",
            "content": [{"text": bank.pay(payment_id, 100)["receipt"]}, image],
        }

    for name in ("a", "b"):
        desk.run(refund, one(name), DONE, forget=True)
        [result] = [block["toolResult"] for block in desk.messages[-2]["content"]]
        assert result == {
            "toolUseId": name,
            "status": "success",
            "content": [{"text": "rcpt_1"}, image],
        }
    assert len(bank.ledger()) == 1


def test_a_call_by_hand_is_an_effect_too(desk, guard, bank):
    for reason in ("late", "the parcel was late"):
        agent = desk.agent(desk.tool(refund_of(bank)))
        # the last of which the tool does not know
        given = {"payment_id": "pay_7", "reason": reason, "agent": agent}
        assert agent.tool.refund(**given, record_direct_tool_call=False)["content"] == [
            {"text": "rcpt_1"}
        ]

    assert len(bank.ledger()) == 1


def test_structured_output_is_no_effect(desk, guard, bank):
    class refund(BaseModel):  # noqa: N801  # the script knows this name
        """A refund."""

        payment_id: str

    for _ in range(2):
        desk.run(
            desk.tool(len_of),
            [Ask("a", {"payment_id": "pay_7"})],
            forget=True,
            asked={"structured_output_model": refund},
        )
        assert desk.result.structured_output == refund(payment_id="pay_7")


def len_of(text: str) -> int:
    """How long it is."""
    return len(text)


def test_an_agent_that_is_a_tool_is_no_effect_and_its_tools_are(desk, guard, bank):
    once = EffectOnce(guard, contracts=CONTRACTS, scope=lambda context: "chat-42/clerk")

    for name in ("a", "b"):
        clerk = Agent(
            model=Script(one(name), DONE),
            tools=[tool(refund_of(bank))],
            plugins=[once],
            callback_handler=None,
        )
        ran = desk.run(
            clerk.as_tool(name="refund"),
            [Ask("outer", {"input": "refund pay_7"})],
            DONE,
            forget=True,
        )
        assert ran.told == [("outer", "done\n")]
        assert clerk.model.lines == []

    assert len(bank.ledger()) == 1


# ---------------------------------------------------------------- tools of an MCP server


def of_server(started):
    return MCPClient(lambda: stdio_client(StdioServerParameters(**started)))


def test_a_tool_of_a_server_lands_once(desk, bank):
    a_tool_of_a_server_lands_once(desk, of_server, bank)


@LOSES
def test_a_lost_answer_of_a_server_is_a_doubt(ends, desk, bank):
    a_lost_answer_of_a_server_is_a_doubt(desk, of_server, bank, ends)
