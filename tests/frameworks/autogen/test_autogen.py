"""Agents of AutoGen, with a scripted model."""

import asyncio

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.tools import AgentTool
from autogen_core import CancellationToken
from autogen_core.tools import (
    BaseStreamTool,
    FunctionTool,
    StaticWorkbench,
    TextResultContent,
    ToolOverride,
    ToolResult,
    Workbench,
)
from pydantic import BaseModel

from effectonce import ContractViolation, InDoubt, current_effect
from effectonce.integrations.autogen import protect
from tests.frameworks import pages
from tests.frameworks.autogen.desk import Desk, Scripted, asks
from tests.frameworks.facts import (
    CONTRACTS,
    DONE,
    facts,
    killed_after_the_effect_and_resumed_there_is_one,
    one,
)


@pytest.fixture
def desk(guard, tmp_path):
    return Desk(guard, tmp_path)


# there is no agent without one, see below
@facts(without=["without_a_conversation_nothing_is_sent"])
def test_it_holds_that(fact, desk, guard, bank):
    fact(desk, guard, bank)


def test_killed_after_the_effect_and_resumed_there_is_one(tmp_path):
    killed_after_the_effect_and_resumed_there_is_one("autogen", tmp_path)


def refund_of(bank, *faults):
    """A function that AutoGen runs in a thread."""
    faults = list(faults)

    def refund(payment_id: str, reason: str = "") -> str:
        """Refund a payment."""
        return bank.pay(payment_id, 100, fault=faults.pop(0) if faults else None)["receipt"]

    return refund


def test_a_function_that_is_no_coroutine_lands_once_too(desk, bank):
    for call_id in "ab":
        assert desk.run(desk.tool(refund_of(bank)), one(call_id), DONE, forget=True).told == [
            (call_id, "rcpt_1")
        ]

    assert desk.run(desk.tool(refund_of(bank, "lose-answer")), one("c", "pay_8"), DONE).codes == [
        InDoubt.code
    ]
    assert len(bank.ledger()) == 2


def test_in_its_thread_a_function_knows_its_effect(desk):
    def refund(payment_id: str, reason: str) -> str:
        """Refund a payment."""
        return current_effect().downstream_key

    assert desk.run(desk.tool(refund), one("a"), DONE).said[0].startswith("eo_")


def test_a_refusal_is_told_as_the_tool_tells_it_and_known_from_then_on(desk, bank):
    ran = desk.run(desk.tool(refund_of(bank, "refuse")), one("a"), one("b"), DONE)

    assert ran.said[0] == "the bank refuses pay_7"
    assert ran.said[1]["code"] == "REPLAYED_FAILURE"
    assert bank.ledger() == []


def test_a_conversation_without_a_name_is_refused(desk, guard, bank):
    with pytest.raises(ContractViolation, match="scope must be a text"):
        protect(desk.agent(DONE), guard, scope="")


def test_a_run_that_is_cancelled_after_the_effect_leaves_a_doubt(desk, guard, bank):
    async def cancelled():
        paid, token = asyncio.Event(), CancellationToken()

        async def refund(payment_id: str, reason: str) -> str:
            """Refund a payment."""
            bank.pay(payment_id, 100)
            paid.set()
            await asyncio.Event().wait()

        agent = protect(
            desk.agent(one("a"), DONE, tools=[refund]), guard, scope="chat-42", contracts=CONTRACTS
        )
        run = asyncio.create_task(agent.run(task="refund pay_7", cancellation_token=token))
        await paid.wait()
        token.cancel()
        run.cancel()  # AutoGen waits for the results of tools that were cancelled, without end
        with pytest.raises(asyncio.CancelledError):
            await run

    asyncio.run(cancelled())

    assert desk.run(desk.tool(refund_of(bank)), one("b"), DONE).codes == [InDoubt.code]
    assert len(bank.ledger()) == 1


class Said(BaseModel):
    text: str


class Wish(BaseModel):
    payment_id: str


class Talkative(BaseStreamTool[Wish, Said, Said]):
    """A tool that tells how it goes on. AutoGen hands on what an agent would say."""

    def __init__(self, bank):
        super().__init__(Wish, Said, "refund", "Refund a payment.")
        self.bank = bank

    async def run(self, args, cancellation_token):
        raise NotImplementedError

    async def run_stream(self, args, cancellation_token):
        yield Said(text="I go to the bank")
        yield Said(text=self.bank.pay(args.payment_id, 1)["receipt"])


@pytest.mark.filterwarnings("ignore:Unexpected event type")
def test_a_tool_that_streams_lands_once_and_ends_with_the_same_result(desk, bank):
    asked = asks(("a", "refund", {"payment_id": "pay_7"}))

    said = [
        desk.run(Talkative(bank), asked, DONE, contracts=None, forget=True).said for _ in range(2)
    ]

    assert said == [[{"text": "rcpt_1"}]] * 2
    assert len(bank.ledger()) == 1


def at(desk, guard, bench, *lines, contracts=CONTRACTS):
    agent = protect(
        desk.agent(*lines, workbench=bench), guard, scope="chat-42", contracts=contracts
    )
    return asyncio.run(desk.talk(agent))


def test_the_name_that_a_workbench_gives_a_tool_is_not_its_contracts(desk, guard, bank):
    bench = StaticWorkbench(
        [desk.tool(refund_of(bank))], tool_overrides={"refund": ToolOverride(name="pay_back")}
    )

    def asked(call_id, reason="late"):
        return asks((call_id, "pay_back", {"payment_id": "pay_7", "reason": reason}))

    assert at(desk, guard, bench, asked("a"), asked("b"), DONE).said == ["rcpt_1", "rcpt_2"]
    assert at(desk, guard, bench, asked("c", "in other words"), DONE).said == ["rcpt_1"]


class Elsewhere(Workbench):
    """Tools that run somewhere else, as those of an MCP server do: an error of theirs is a
    result.
    """

    component_config_schema = BaseModel

    def __init__(self, bank, *faults):
        self.bank, self.faults, self.calls = bank, list(faults), []

    async def list_tools(self):
        return [FunctionTool(refund_of(self.bank), "Refund a payment.").schema]

    async def call_tool(self, name, arguments=None, cancellation_token=None, call_id=None):
        self.calls.append(call_id)
        try:
            text = refund_of(self.bank, *self.faults)(**arguments)
        except OSError as error:
            return ToolResult(
                name=name,
                result=[TextResultContent(content=f"{error}, please try again")],
                is_error=True,
            )
        return ToolResult(name=name, result=[TextResultContent(content=text)])

    async def start(self):
        self.calls.append("start")

    async def stop(self):
        self.calls.append("stop")

    async def reset(self):
        self.calls.append("reset")

    async def save_state(self):
        return {"calls": self.calls}

    async def load_state(self, state):
        self.calls = state["calls"]


def test_an_error_from_elsewhere_is_a_doubt(desk, guard, bank):
    ran = at(desk, guard, Elsewhere(bank, "lose-answer"), one("a"), one("b"), DONE)

    assert ran.codes == [InDoubt.code, InDoubt.code]
    assert len(bank.ledger()) == 1


def test_a_result_from_elsewhere_is_known_from_then_on(desk, guard, bank):
    first = at(desk, guard, Elsewhere(bank), one("a"), DONE)
    again = at(desk, guard, Elsewhere(bank), one("b", reason="in other words"), DONE)

    assert (first.told, again.told) == ([("a", "rcpt_1")], [("b", "rcpt_1")])
    assert len(bank.ledger()) == 1


def test_a_read_and_a_tool_that_nobody_has_pass_through(desk, guard, bank):
    nothing = asks(("b", "nothing", {}))

    ran = at(
        desk,
        guard,
        Elsewhere(bank),
        one("a"),
        nothing,
        DONE,
        contracts={"refund": {"kind": "read"}},
    )

    assert ran.said[0] == "rcpt_1"
    assert "not found" in ran.said[1]


def test_a_workbench_is_started_stopped_and_saved_as_before(desk, guard, bank):
    bench = Elsewhere(bank)
    (around,) = protect(desk.agent(DONE, workbench=bench), guard, scope="chat-42")._workbench

    async def live():
        async with around:
            await around.reset()
        state = await around.save_state()
        await around.load_state({"calls": ["loaded"]})
        return state, await around.list_tools()

    assert asyncio.run(live()) == (
        {"calls": ["start", "reset", "stop"]},
        asyncio.run(bench.list_tools()),
    )
    assert bench.calls == ["loaded"]


def test_an_agent_that_is_used_as_a_tool_is_no_effect(desk, guard, bank):
    """It is asked as often as the model likes. Its own tools land once, if it is protected."""
    inner = AssistantAgent(
        "clerk",
        Scripted(one("x"), DONE, one("y"), DONE),
        tools=[refund_of(bank)],
        max_tool_iterations=9,
    )
    clerk = AgentTool(protect(inner, guard, scope="chat-42", contracts=CONTRACTS))
    asked = asks(("a", "clerk", {"task": "refund pay_7"}))

    ran = desk.run(clerk, asked, asked, DONE)

    assert [call_id for call_id, _ in ran.told] == ["x", "a", "y", "a"]
    assert len(bank.ledger()) == 2  # the clerk was shown the first one, and asked for it again


def test_the_page_and_its_example(bank, tmp_path):
    pages.check("autogen", bank, tmp_path, model=Scripted(DONE))
