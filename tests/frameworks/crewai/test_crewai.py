"""Agents and crews of CrewAI, with a scripted model."""

import asyncio
import json

import pytest
from crewai import Crew, Task
from crewai.hooks import ToolCallHookContext, clear_all_global_hooks
from crewai.mcp.client import MCPClient
from crewai.mcp.transports.stdio import StdioTransport
from crewai.tools import BaseTool, ToolFailure
from crewai.tools.mcp_native_tool import MCPNativeTool
from crewai.tools.mcp_tool_wrapper import MCPToolWrapper
from crewai.tools.tool_failure import ToolExecutionFailedError
from pydantic import BaseModel, create_model

from effectonce import ContractViolation, InDoubt
from effectonce.integrations import crewai as integration
from effectonce.integrations.crewai import delivered, protect
from tests.frameworks import pages
from tests.frameworks.crewai.desk import Desk, Scripted, asked
from tests.frameworks.facts import (
    CONTRACTS,
    DONE,
    Ask,
    facts,
    killed_after_the_effect_and_resumed_there_is_one,
    one,
)


@pytest.fixture
def desk(guard, tmp_path):
    return Desk(guard, tmp_path)


# there is no tool without one, see below
@facts(without=["without_a_conversation_nothing_is_sent"])
def test_it_holds_that(fact, desk, guard, bank):
    fact(desk, guard, bank)


def test_killed_after_the_effect_and_resumed_there_is_one(tmp_path):
    killed_after_the_effect_and_resumed_there_is_one("crewai", tmp_path)


def test_the_page_and_its_example(bank, tmp_path):
    pages.check("crewai", bank, tmp_path, model=Scripted(model="script"))


def refund_of(bank, *faults):
    faults = list(faults)

    def refund(payment_id: str, reason: str = "") -> str:
        """Refund a payment."""
        return bank.pay(payment_id, 100, fault=faults.pop(0) if faults else None)["receipt"]

    return refund


class Wire(StdioTransport):
    """It is there, and nobody is at its other end."""

    connected = True


class LosingClient(MCPClient):
    """A server that does what it is asked, and whose answers are lost."""

    def __init__(self, bank):
        super().__init__(Wire("a-server"))
        self.bank, self._initialized = bank, True

    async def connect(self):
        return self

    async def disconnect(self):
        pass

    async def _call_tool_impl(self, tool_name, arguments):
        self.bank.pay(arguments["payment_id"], 100)
        raise TimeoutError


class LosingTool(MCPToolWrapper):
    """The same for a server that is known by its URL."""

    async def _execute_tool(self, **arguments):
        BANKS[self.server_name].pay(arguments["payment_id"], 100)
        raise TimeoutError


BANKS = {}
SCHEMA = {"args_schema": create_model("refund", payment_id=str)}


def mcp_tools(bank):
    BANKS["bank"] = bank
    return {
        "native": MCPNativeTool(lambda: LosingClient(bank), "refund", SCHEMA, "bank"),
        "by its URL": LosingTool({"url": "http://bank"}, "refund", SCHEMA, "bank"),
    }


@pytest.mark.parametrize("kind", ["native", "by its URL"])
def test_a_tool_of_an_mcp_server_is_sent_once_and_a_lost_answer_is_a_doubt(kind, guard, bank):
    (tool,) = protect([mcp_tools(bank)[kind]], guard, scope="ticket-17")

    failure = tool.run(payment_id="pay_7")

    assert failure.details["code"] == InDoubt.code
    assert len(bank.ledger()) == 1


# ---------------------------------------------------------------- what a crew does by itself


def test_a_model_without_tool_calls_is_told_a_doubt_and_nothing_is_sent_again(desk, bank):
    tool = desk.tool(refund_of(bank, *["lose-answer"] * 9))

    desk.crew(tool, one("a"), one("b", reason="in other words"), DONE, native=False)

    observed = [
        m["content"].partition("Observation:")[2]
        for m in desk.model.seen[-1]
        if "Observation:" in str(m["content"])
    ]
    assert [json.loads(text)["code"] for text in observed[-2:]] == [InDoubt.code, InDoubt.code]
    assert len(bank.ledger()) == 1


def test_left_alone_such_a_tool_is_run_six_times(desk, bank):
    agent = desk.agent(
        [desk.tool(refund_of(bank, *["lose-answer"] * 9))], one("a"), DONE, native=False
    )

    agent.kickoff("refund pay_7")

    assert len(bank.ledger()) == 6


def test_a_model_without_tool_calls_that_saw_the_result_and_asks_again_means_it(desk, bank):
    desk.crew(desk.tool(refund_of(bank)), one("a"), one("b", "pay_8"), one("c"), DONE, native=False)

    assert [paid["payment_id"] for paid in bank.ledger()] == ["pay_7", "pay_8", "pay_7"]


@pytest.mark.parametrize("native", [True, False])
def test_a_guardrail_that_asks_for_the_task_again_has_no_second_effect(native, desk, bank):
    lines = [one("a"), "no receipt", one("b", reason="in other words"), DONE]

    def receipt(output):
        return (output.raw.strip() == DONE, "there is no receipt")

    desk.crew(desk.tool(refund_of(bank)), *lines, native=native, guardrail=receipt)

    assert desk.model.lines == []
    assert len(bank.ledger()) == 1


def test_an_agent_that_executes_its_task_again_has_no_second_effect(desk, bank):
    ran = desk.crew(
        desk.tool(refund_of(bank)), one("a"), RuntimeError("the model is gone"), one("b"), DONE
    )

    assert ran.told == [("b", "rcpt_1")]
    assert len(bank.ledger()) == 1


def test_a_cache_swallows_no_wish(desk, bank):
    ran = desk.crew(
        desk.tool(refund_of(bank)), one("a"), one("b"), DONE, crew_options={"cache": True}
    )

    assert ran.said == ["rcpt_1", "rcpt_2"]


def test_a_doubt_ends_a_run_that_is_to_end_with_any_failure(desk, guard, bank):
    tools = protect(
        [desk.tool(refund_of(bank, "lose-answer"))], guard, scope="ticket-17", contracts=CONTRACTS
    )

    with pytest.raises(ToolExecutionFailedError) as raised:
        desk.agent(tools, one("a"), DONE, tool_failure_policy="raise").kickoff("refund pay_7")

    assert raised.value.record.failure.details["code"] == InDoubt.code
    assert not raised.value.record.failure.retryable


# ---------------------------------------------------------------- whose call it is


def test_the_scope_may_be_a_function_of_the_call(desk, guard, bank):
    tool = desk.tool(refund_of(bank))

    for name, tenant in (("refund", "a"), ("refund", "a"), ("another", "a"), ("refund", "b")):
        about = {
            "scope": lambda call: call.task.name,
            "tenant": lambda call, of=tenant: f"{of}/{call.agent.role}",
        }
        agent = desk.agent(protect([tool], guard, **about), one("a"), DONE)
        task = Task(name=name, description="refund pay_7", expected_output="a receipt", agent=agent)
        Crew(agents=[agent], tasks=[task]).kickoff()

    assert len(bank.ledger()) == 3


def test_without_an_agent_only_a_scope_that_is_a_text_says_what_for(desk, guard, bank):
    tool = desk.tool(refund_of(bank))
    (named,) = protect([tool], guard, scope="ticket-17", contracts=CONTRACTS)
    (asking,) = protect([tool], guard, scope=lambda call: call.task.name, contracts=CONTRACTS)

    assert [
        named.run(payment_id="pay_7", reason=reason) for reason in ("late", "in other words")
    ] == ["rcpt_1", "rcpt_1"]
    assert named.run("pay_7", "by position") == "rcpt_1"
    assert asking.run(payment_id="pay_7", reason="").details["code"] == ContractViolation.code
    assert len(bank.ledger()) == 1


def test_a_scope_that_says_nothing_is_told(desk, bank):
    assert desk.run(desk.tool(refund_of(bank)), one("a"), DONE, scope="").codes == [
        ContractViolation.code
    ]
    assert bank.ledger() == []


def test_hooks_that_were_cleared_are_there_again(desk, bank):
    clear_all_global_hooks()

    assert desk.run(desk.tool(refund_of(bank)), one("a"), one("b"), DONE).said == [
        "rcpt_1",
        "rcpt_2",
    ]


def test_with_a_plan_nothing_counts_as_shown(desk, guard, bank):
    """A step of a plan has a history of its own, and begins anew when the plan does."""
    tool = desk.tool(refund_of(bank)).to_structured_tool()
    integration._shown.note(tool, [{"role": "user", "content": "hello"}])

    def messages(**options):
        agent = desk.agent([], DONE, **options)
        return integration._messages(ToolCallHookContext("refund", {}, tool, agent=agent))

    assert len(messages()) == 1
    assert messages(planning=True) == ()


# ---------------------------------------------------------------- errors and results


def test_a_refusal_is_told_as_such_and_known_from_then_on(desk, bank):
    ran = desk.run(desk.tool(refund_of(bank, "refuse")), one("a"), one("b"), DONE)

    assert ran.codes == ["TOOL_FAILED", "REPLAYED_FAILURE"]
    assert ran.said[0]["message"] == "the bank refuses pay_7"
    assert bank.ledger() == []


def test_a_failure_that_the_tool_reports_says_nothing_about_what_was_done(desk, bank):
    def refund(payment_id: str, reason: str) -> str:
        """Refund a payment."""
        bank.pay(payment_id, 100)
        return ToolFailure(message="the bank did not answer, please try again", retryable=True)

    assert desk.run(desk.tool(refund), one("a"), one("b"), DONE).codes == [
        InDoubt.code,
        InDoubt.code,
    ]
    assert len(bank.ledger()) == 1


class Receipt(BaseModel):
    number: str
    amount_minor: int


class Refund(BaseTool):
    name: str = "Refund"
    description: str = "Refund a payment."
    bank: object = None

    def _run(self, payment_id: str, amount_minor: int = 100) -> Receipt:
        return Receipt(
            number=self.bank.pay(payment_id, amount_minor)["receipt"], amount_minor=amount_minor
        )

    async def _arun(self, payment_id: str, amount_minor: int = 100) -> Receipt:
        return self._run(payment_id, amount_minor)


def test_a_class_of_tools_with_a_schema_for_its_results(desk, bank):
    """What the model writes as a text, and as a number, is one to the schema."""
    tool = Refund(bank=bank)
    asks = [{"payment_id": "pay_7"}, {"payment_id": "pay_7", "amount_minor": "100"}]

    ran = [
        desk.run(tool, [Ask("a", arguments)], DONE, contracts=None, forget=True).said
        for arguments in asks
    ]
    twice = desk.run(
        tool, *([Ask("a", arguments)] for arguments in asks), DONE, contracts=None, forget=True
    )

    receipts = [{"number": f"rcpt_{number}", "amount_minor": 100} for number in (1, 2)]
    assert ran == [receipts[:1], receipts[:1]]
    assert twice.said == receipts


def test_in_async_code_it_lands_once_as_well(desk, guard, bank):
    (tool,) = protect([Refund(bank=bank)], guard, scope="ticket-17")

    async def twice():
        return [tool.format_output_for_agent(await tool.arun(payment_id="pay_7")) for _ in range(2)]

    assert asyncio.run(twice()) == ['{"number":"rcpt_1","amount_minor":100}'] * 2
    assert len(bank.ledger()) == 1


def test_in_async_code_what_is_known_is_told_as_well(desk, guard, bank):
    async def refund(payment_id: str) -> str:
        """Refund a payment."""
        return bank.pay(
            payment_id, 100, fault="lose-answer" if payment_id == "pay_7" else "refuse"
        )["receipt"]

    (plain,) = protect(
        [desk.tool(refund)], guard, scope="ticket-17", contracts={"refund": {"kind": "write"}}
    )
    (guarded,) = protect(
        [desk.tool(guard.tool(kind="write", name="pay_back")(refund))], guard, scope="ticket-18"
    )

    for tool in (plain, guarded):
        codes = [
            asyncio.run(tool.arun(payment_id=pay)).details["code"]
            for pay in ("pay_7", "pay_7", "pay_8")
        ]
        assert codes == [InDoubt.code, InDoubt.code, "TOOL_FAILED"]
    assert len(bank.ledger()) == 2


def test_a_tool_without_arguments_lands_once(desk, bank):
    def refund() -> str:
        """Refund what is due."""
        return bank.pay("pay_7", 100)["receipt"]

    ran = [
        desk.run(desk.tool(refund), [Ask("a", {})], DONE, contracts=None, forget=True).said
        for _ in range(2)
    ]

    assert ran == [["rcpt_1"], ["rcpt_1"]]


def test_by_position_nothing_is_checked_and_it_lands_once_all_the_same(desk, guard, bank):
    (tool,) = protect([desk.tool(refund_of(bank))], guard, scope="ticket-17")

    assert [tool.run("pay_7", 7) for _ in range(2)] == ["rcpt_1", "rcpt_1"]  # a reason is a text


def test_a_limit_of_uses_is_the_frameworks(desk, bank):
    tool = desk.tool(refund_of(bank)).model_copy(update={"max_usage_count": 1})

    ran = desk.run(tool, one("a"), one("b"), DONE)

    assert ran.said[0] == "rcpt_1"
    assert "usage limit" in ran.said[1]
    assert len(bank.ledger()) == 1


TOLD = json.dumps(
    {"code": "OUTCOME_UNKNOWN", "retriable": False, "message": "", "corrective_action": ""}
)
NOT_DONE = [
    TOLD,
    f"{TOLD}\n\nYou may use these tools: ...",
    "Error executing tool: no route to host",
    "Error: Failed to parse tool arguments as JSON",
    "Tool execution blocked by hook. Tool: refund",
    "Tool 'refund' has reached its usage limit of 1 times and cannot be used anymore.",
    "I encountered an error while trying to use the tool. This was the error: no route to host.",
    (
        "I tried reusing the same input, I must stop using this action input. I'll try something"
        " else instead."
    ),
]


@pytest.mark.parametrize("text", NOT_DONE, ids=lambda text: text[:20])
def test_what_is_no_result_does_not_count_as_one(text):
    wish = {"payment_id": "pay_7"}

    def shown(result):
        native = [
            {"role": "assistant", "content": None, "tool_calls": [asked("a", wish)]},
            {"role": "tool", "tool_call_id": "a", "content": result},
        ]
        written = (
            f"Thought: to the bank\nAction: Refund\nAction Input: {json.dumps(wish)}\nObservation:"
            f" {result}"
        )
        return [*delivered(native), *delivered([{"role": "assistant", "content": written}])]

    assert shown(text) == []
    assert [(each.tool, each.arguments) for each in shown("rcpt_1")] == [("refund", wish)] * 2


def test_what_is_no_call_does_not_count_as_one():
    garbled = {"id": "b", "function": {"name": "refund", "arguments": "{"}}
    messages = [
        {"role": "tool", "tool_call_id": "a", "content": "rcpt_1"},
        {"role": "assistant", "content": "\nObservation: rcpt_1"},
        {"role": "assistant", "content": "Thought: done\nFinal Answer: yes\nObservation: rcpt_1"},
        {"role": "assistant", "content": None, "tool_calls": [garbled]},
        {"role": "tool", "tool_call_id": "b", "content": "rcpt_1"},
    ]

    assert list(delivered(messages)) == []
