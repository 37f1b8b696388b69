"""Agents of Pydantic AI, with a scripted model."""

import asyncio
import contextlib
import json

import fastmcp
import pytest
from fastmcp.exceptions import ToolError
from pydantic_ai import (
    Agent,
    BinaryContent,
    DeferredToolRequests,
    DeferredToolResults,
    ModelRetry,
    ToolReturn,
)
from pydantic_ai.exceptions import ApprovalRequired, ToolFailed
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

from effectonce import Guard, InDoubt, Rejected
from effectonce.integrations.pydantic_ai import EffectOnce

CONTRACTS = {"refund": {"kind": "irreversible", "volatile": ["reason"]}}
DONE = [TextPart("done")]


def one(call_id, pay="pay_7", **arguments):
    return [ToolCallPart("refund", {"payment_id": pay} | arguments, tool_call_id=call_id)]


def refund_of(bank, *faults):
    faults = list(faults)

    async def refund(payment_id: str, amount_minor: int = 100, reason: str = "") -> str:
        """Refund a payment."""
        return bank.pay(payment_id, amount_minor, fault=faults.pop(0) if faults else None)[
            "receipt"
        ]

    return refund


def agent_of(guard, tool, *lines, once=None, **options):
    lines = list(lines)

    def model(messages, info):
        line = lines.pop(0)
        if isinstance(line, Exception):
            raise line
        return ModelResponse(parts=line)

    capabilities = [once or EffectOnce(guard, contracts=CONTRACTS)]
    return Agent(FunctionModel(model), tools=[tool], capabilities=capabilities, **options)


def run(guard, tool, *lines, once=None, conversation="chat-42", **given):
    agent = agent_of(guard, tool, *lines, once=once)
    return asyncio.run(agent.run("refund pay_7", conversation_id=conversation, **given))


def returns(result):
    parts = [part for message in result.all_messages() for part in message.parts]
    return [
        (part.tool_call_id, part.outcome, part.content)
        for part in parts
        if isinstance(part, ToolReturnPart)
    ]


def codes(result):
    return [
        json.loads(content)["code"]
        for _, outcome, content in returns(result)
        if outcome == "failed"
    ]


@pytest.mark.parametrize(
    "conversation", ["9f3a0c525f0e4c1a9a510b6a1f6f2c11", "01ARZ3NDEKTSV4RRFFQ69G5FAV", "ada"]
)
def test_a_conversation_id_of_your_own_may_look_random(guard, bank, conversation):
    run(guard, refund_of(bank), one("a"), DONE, conversation=conversation)

    assert len(bank.ledger()) == 1


def test_a_time_out_of_the_framework_is_a_doubt_and_not_a_wish_for_another_try(bank):
    # its claim waits for nothing: the tool has begun before its time can be over
    guard = Guard("memory://")

    async def refund(payment_id: str, reason: str = "") -> str:
        """Refund a payment."""
        bank.pay(payment_id, 100)
        await asyncio.Event().wait()

    lines = [one("a"), one("b"), DONE]
    agent = agent_of(guard, refund, *lines, once=EffectOnce(guard), tool_timeout=0.05)
    result = asyncio.run(agent.run("refund pay_7", conversation_id="chat-42"))

    assert codes(result) == [InDoubt.code, InDoubt.code]
    assert len(bank.ledger()) == 1


def test_a_tools_own_wish_for_another_try_is_handed_on(guard, bank):
    wishes = [ModelRetry("which payment?")]

    async def refund(payment_id: str, reason: str = "") -> str:
        """Refund a payment."""
        if wishes:
            raise wishes.pop()
        return bank.pay(payment_id, 100)["receipt"]

    result = run(guard, refund, one("a"), one("b"), DONE)

    assert [outcome for _, outcome, _ in returns(result)] == ["retried", "success"]
    assert guard.in_doubt() == ()


@pytest.mark.parametrize("hiding", [ModelRetry, ToolFailed])
def test_an_error_of_the_framework_that_hides_a_lost_answer_is_a_doubt(guard, bank, hiding):
    async def refund(payment_id: str, reason: str = "") -> str:
        """Refund a payment."""
        try:
            return bank.pay(payment_id, 100, fault="lose-answer")["receipt"]
        except ConnectionError as error:
            raise hiding("please try again") from error

    result = run(guard, refund, one("a"), one("b"), DONE)

    assert codes(result) == [InDoubt.code, InDoubt.code]
    assert len(bank.ledger()) == 1


def test_an_approval_passes_through_and_leaves_nothing_in_doubt(guard, bank):
    from pydantic_ai import RunContext

    async def refund(ctx: RunContext, payment_id: str, reason: str = "") -> str:
        """Refund a payment."""
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        return bank.pay(payment_id, 100)["receipt"]

    agent = agent_of(guard, refund, one("a"), DONE, output_type=[str, DeferredToolRequests])
    asked = asyncio.run(agent.run("refund pay_7", conversation_id="chat-42"))
    assert bank.ledger() == []

    answers = DeferredToolResults(approvals={"a": True})
    given = {"message_history": asked.all_messages(), "deferred_tool_results": answers}
    result = asyncio.run(agent.run(conversation_id="chat-42", **given))

    assert returns(result) == [("a", "success", "rcpt_1")]
    assert guard.in_doubt() == ()


def test_a_refusal_is_the_tools_own_error_and_then_known(guard, bank):
    with pytest.raises(Rejected):
        run(guard, refund_of(bank, "refuse"), one("a"), DONE)

    assert codes(run(guard, refund_of(bank), one("b"), DONE)) == ["REPLAYED_FAILURE"]
    assert bank.ledger() == []


def test_a_tool_return_is_replayed_whole(guard, bank):
    async def refund(payment_id: str, reason: str = "") -> ToolReturn:
        """Refund a payment."""
        return ToolReturn(
            bank.pay(payment_id, 100)["receipt"], content="a note", metadata={"seen": 1}
        )

    for name in ("a", "b"):
        result = run(guard, refund, one(name), DONE)
        assert returns(result) == [(name, "success", "rcpt_1")]
        assert "a note" in str(result.all_messages())

    assert len(bank.ledger()) == 1


def test_a_conversation_that_the_framework_made_up_is_none(guard, bank):
    result = run(guard, refund_of(bank), one("a"), DONE, conversation=None)
    assert codes(result) == ["CONTRACT_VIOLATION"]
    assert bank.ledger() == []

    again = run(
        guard,
        refund_of(bank),
        one("b"),
        DONE,
        conversation=None,
        message_history=result.all_messages(),
    )
    assert returns(again)[-1] == ("b", "success", "rcpt_1")


def test_a_picture_is_replayed_as_a_picture(guard, bank):
    async def refund(payment_id: str, reason: str = "") -> BinaryContent:
        """Refund a payment, and give the receipt as a picture."""
        bank.pay(payment_id, 100)
        return BinaryContent(b"\x89PNG\xff", media_type="image/png")

    with pytest.raises(RuntimeError):
        run(guard, refund, one("a"), RuntimeError("crashed before the next turn"))
    result = run(guard, refund, one("b"), DONE)

    ((_, outcome, picture),) = returns(result)
    assert (outcome, picture.data, picture.media_type) == ("success", b"\x89PNG\xff", "image/png")
    assert len(bank.ledger()) == 1


def test_a_result_that_cannot_be_written_down_was_given_all_the_same(guard, bank):
    class Receipt:
        def __init__(self):
            bank.pay("pay_7", 100)

        def __getattr__(self, name):
            raise RuntimeError("nobody may look at this")

    async def refund(payment_id: str, reason: str = ""):
        """Refund a payment."""
        return Receipt()

    for _ in range(2):
        with contextlib.suppress(Exception):  # the framework's own trouble with it
            run(guard, refund, one("a"), DONE)

    assert len(bank.ledger()) == 1
    assert guard.in_doubt() == ()


@pytest.mark.parametrize("behaviour", ["retry", "failed"])
def test_an_error_that_an_mcp_server_reports_is_a_doubt(behaviour, guard, bank):
    server = fastmcp.FastMCP("bank")

    @server.tool
    def refund(payment_id: str) -> str:
        """Refund a payment."""
        bank.pay(payment_id, 100)
        raise ToolError("the ledger did not answer")

    lines = [one("a"), one("b"), DONE]
    model = FunctionModel(lambda messages, info: ModelResponse(parts=lines.pop(0)))
    tools = MCPToolset(server, tool_error_behavior=behaviour)
    agent = Agent(
        model,
        toolsets=[tools],
        capabilities=[EffectOnce(guard, contracts={"refund": {"kind": "irreversible"}})],
    )

    result = asyncio.run(agent.run("refund pay_7", conversation_id="chat-42"))

    assert codes(result) == [InDoubt.code] * 2
    assert len(bank.ledger()) == 1
