"""Agents of the OpenAI Agents SDK, with a scripted model."""

import asyncio
import json
from contextlib import closing

import pytest
from agents import (
    Agent,
    AgentHooks,
    CustomTool,
    RunConfig,
    Runner,
    function_tool,
)

from effectonce import ContractViolation, Guard, InDoubt, Rejected
from effectonce.integrations.openai_agents import protect
from tests.integrations.agents.desks import OPENAI_DONE as DONE
from tests.integrations.agents.desks import OpenAIScript as Scripted
from tests.integrations.agents.desks import openai_call

CONTRACTS = {"refund": {"kind": "irreversible", "volatile": ["reason"]}}


def asks(*calls):
    return [openai_call(call_id, arguments) for call_id, arguments in calls]


def one(call_id, **arguments):
    return asks((call_id, {"payment_id": "pay_7", "reason": "late"} | arguments))


def refund_of(bank, *faults, **options):
    faults = list(faults)

    @function_tool(**options)
    async def refund(payment_id: str, reason: str) -> str:
        """Refund a payment."""
        return bank.pay(payment_id, 100, fault=faults.pop(0) if faults else None)["receipt"]

    return refund


def run(guard, tool, *lines, given="refund pay_7", group="chat-42", contracts=CONTRACTS, **options):
    model = Scripted(*lines)
    agent = protect(
        Agent(name="desk", model=model, tools=[tool], **options), guard, contracts=contracts
    )
    config = RunConfig(group_id=group, tracing_disabled=True)
    return asyncio.run(Runner.run(agent, given, run_config=config)), model


def outputs(result):
    return [
        (item["call_id"], item["output"])
        for item in result.to_input_list()
        if item.get("type") == "function_call_output"
    ]


@pytest.mark.parametrize("guarded", [False, True])
def test_a_time_out_of_the_sdk_is_a_doubt_too(guarded, bank):
    # its claim waits for nothing: the tool has begun before its time can be over
    guard = Guard("memory://")

    async def refund(payment_id: str, reason: str) -> str:
        """Refund a payment."""
        bank.pay(payment_id, 100)
        await asyncio.Event().wait()

    tool = function_tool(guard.tool(kind="write")(refund) if guarded else refund, timeout=0.05)
    result, _ = run(guard, tool, one("a"), one("b"), DONE, contracts=None)

    assert [json.loads(output)["code"] for _, output in outputs(result)] == [
        InDoubt.code,
        InDoubt.code,
    ]
    assert len(bank.ledger()) == 1


def test_a_refusal_is_told_in_the_words_of_the_tool_if_it_has_any(guard, bank):
    def formatted(context, error):
        assert isinstance(error, Rejected)
        return "the bank says no"

    result, _ = run(
        guard, refund_of(bank, "refuse", failure_error_function=formatted), one("a"), DONE
    )
    plain, _ = run(guard, refund_of(bank, "refuse"), one("a"), DONE, group="chat-43")

    assert outputs(result) == [("a", "the bank says no")]
    assert json.loads(outputs(plain)[0][1])["code"] == "TOOL_FAILED"


def test_the_hooks_of_the_agent_are_told_as_before(guard, bank):
    heard = []

    class Own(AgentHooks):
        async def on_llm_start(self, *args):
            heard.append("llm")

        async def on_tool_end(self, context, agent, tool, result):
            heard.append(result)

    run(guard, refund_of(bank), one("a"), DONE, hooks=Own())

    assert heard == ["llm", "rcpt_1", "llm"]


def test_a_model_that_misbehaves_inside_the_tool_says_nothing_about_what_the_tool_did(guard, bank):
    @function_tool
    async def refund(payment_id: str, reason: str) -> str:
        """Refund a payment, and let another agent write the letter."""
        bank.pay(payment_id, 100)
        lost = Scripted([openai_call("x", {}, name="no_such_tool")])
        writer = Agent(name="writer", model=lost, tools=[refund_of(bank)])
        return (
            await Runner.run(writer, "write", run_config=RunConfig(tracing_disabled=True))
        ).final_output

    result, _ = run(guard, refund, one("a"), one("b"), DONE)

    assert [json.loads(output)["code"] for _, output in outputs(result)] == [
        InDoubt.code,
        InDoubt.code,
    ]
    assert len(bank.ledger()) == 1


def test_a_call_that_was_no_json_does_not_stop_the_calls_after_it(guard, bank):
    @function_tool
    async def balance(payment_id: str) -> str:
        """A read."""
        return "100"

    broken = [openai_call("x", '{"payment_id": "pa', name="balance")]
    model = Scripted(broken, one("a"), DONE)
    agent = Agent(name="desk", model=model, tools=[refund_of(bank), balance])
    protected = protect(agent, guard, contracts=CONTRACTS | {"balance": {"kind": "read"}})
    result = asyncio.run(
        Runner.run(protected, "go", run_config=RunConfig(group_id="chat-42", tracing_disabled=True))
    )

    assert outputs(result)[-1] == ("a", "rcpt_1")


def protected_twice(first, second, bank, *faults):
    model = Scripted(one("a"), DONE)
    agent = protect(
        Agent(name="desk", model=model, tools=[refund_of(bank, *faults)]),
        first,
        contracts=CONTRACTS,
    )
    agent = protect(agent, second, contracts=CONTRACTS)
    config = RunConfig(group_id="chat-42", tracing_disabled=True)
    return [
        output
        for _, output in outputs(asyncio.run(Runner.run(agent, "refund pay_7", run_config=config)))
    ]


def test_an_agent_that_is_protected_twice_is_protected_once(guard, bank):
    assert protected_twice(guard, guard, bank) == ["rcpt_1"]
    assert list(guard.counts().values()) == [1]


def test_an_error_that_another_guard_tells_is_no_result(guard, bank, tmp_path):
    with closing(
        Guard(f"sqlite:///{tmp_path}/others.db", spool=tmp_path / "spool", secret=b"s" * 32)
    ) as other:
        (told,) = protected_twice(other, guard, bank, "lose-answer")

        assert json.loads(told)["code"] == InDoubt.code
        assert len(guard.in_doubt()) == len(other.in_doubt()) == len(bank.ledger()) == 1


def test_a_contract_for_what_is_no_function_tool_is_refused(guard):
    agent = Agent(
        name="desk",
        tools=[
            CustomTool(name="shell", description="", on_invoke_tool=lambda context, given: given)
        ],
    )

    with pytest.raises(
        ContractViolation, match="shell is a CustomTool, and only function tools can be protected"
    ):
        protect(agent, guard, contracts={"shell": {"kind": "write"}})
    assert protect(agent, guard).tools == agent.tools
