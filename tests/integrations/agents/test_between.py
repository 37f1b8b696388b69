"""What stands between us and a tool, or around us: it may ask again, and it may make a result of
an error.
"""

import asyncio

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import interrupt
from pydantic_ai import ModelRetry
from pydantic_ai.capabilities import AbstractCapability

from effectonce import InDoubt, Rejected, State
from effectonce.integrations.langchain import EffectOnce
from effectonce.integrations.pydantic_ai import EffectOnce as PydanticAiOnce
from tests.frameworks.facts import DONE, Ask
from tests.integrations.agents.desks import LangchainDesk, PydanticDesk
from tests.integrations.agents.langchain_models import Scripted, asks

CONTRACTS = {"refund": {"kind": "irreversible"}}
THREAD = {"configurable": {"thread_id": "chat-42"}}
SORRY = "that did not work, try again"


class Langchain:
    """An agent of LangChain, and middleware of somebody else's."""

    class Sorry(AgentMiddleware):
        def wrap_tool_call(self, request, handler):
            try:
                return handler(request)
            except Exception:
                return ToolMessage(SORRY, tool_call_id=request.tool_call["id"])

        async def awrap_tool_call(self, request, handler):
            try:
                told = await handler(request)
            except Exception:
                return ToolMessage(SORRY, tool_call_id=request.tool_call["id"])
            return told

    class Friendly(AgentMiddleware):
        async def awrap_tool_call(self, request, handler):
            told = await handler(request)
            return (
                ToolMessage(SORRY, tool_call_id=told.tool_call_id)
                if told.status == "error"
                else told
            )

    class Twice(AgentMiddleware):
        async def awrap_tool_call(self, request, handler):
            return (await asyncio.gather(handler(request), handler(request)))[0]

    class Again(AgentMiddleware):
        async def awrap_tool_call(self, request, handler):
            try:
                return await handler(request)
            except Exception:
                return await handler(request)

    class Impatient(AgentMiddleware):
        async def awrap_tool_call(self, request, handler):
            for _ in range(2):
                running = asyncio.ensure_future(handler(request))
                await asyncio.wait([running], timeout=0)
                running.cancel()
                await asyncio.wait([running])
            return running.result()

    class Leaving(AgentMiddleware):
        async def awrap_tool_call(self, request, handler):
            self.running = asyncio.ensure_future(handler(request))
            await asyncio.sleep(0)
            return ToolMessage(SORRY, tool_call_id=request.tool_call["id"])

    class Another(EffectOnce):
        """LangChain refuses two of the same name."""

    @staticmethod
    def once(guard):
        return EffectOnce(guard, contracts=CONTRACTS)

    @classmethod
    def twice(cls, guard):
        return [cls.once(guard), cls.Another(guard, contracts=CONTRACTS)]

    @staticmethod
    def run(function, *around, asked=2, sync=False):
        desk = LangchainDesk(None, "sync" if sync else "async")
        return desk.run(desk.tool(function), *lines(asked), middleware=around).said


class PydanticAI:
    """The same with Pydantic AI."""

    class Sorry(AbstractCapability):
        async def on_tool_execute_error(self, ctx, *, call, tool_def, args, error):
            return SORRY

    class Friendly(AbstractCapability):
        async def wrap_tool_execute(self, ctx, *, call, tool_def, args, handler):
            try:
                return await handler(args)
            except Exception:
                return SORRY

    class Twice(AbstractCapability):
        async def wrap_tool_execute(self, ctx, *, call, tool_def, args, handler):
            return (await asyncio.gather(handler(args), handler(args)))[0]

    class Again(AbstractCapability):
        async def wrap_tool_execute(self, ctx, *, call, tool_def, args, handler):
            try:
                return await handler(args)
            except Exception:
                return await handler(args)

    @staticmethod
    def once(guard, guarded=()):
        return PydanticAiOnce(guard, contracts=CONTRACTS, guarded=guarded)

    @classmethod
    def twice(cls, guard):
        return [cls.once(guard), cls.once(guard)]

    @staticmethod
    def run(function, *around, asked=2):
        return PydanticDesk(None).run(function, *lines(asked), once=around).said


@pytest.fixture(params=[Langchain, PydanticAI])
def framework(request):
    return request.param


def refund_of(bank, *faults):
    faults = list(faults)

    async def refund(payment_id: str) -> str:
        """Refund a payment."""
        fault = faults.pop(0) if faults else None
        if fault == "declined":
            raise Rejected("it is refunded already")
        await asyncio.sleep(0)
        return bank.pay(payment_id, 100, fault=fault)["receipt"]

    return refund


def codes(told):
    return [each["code"] for each in told]


def lines(asked):
    """The model asks so often for the same payment."""
    return [*([Ask(f"call-{n}", {"payment_id": "pay_7"})] for n in range(asked)), DONE]


# ---------------------------------------------------------------- further in


def test_an_error_that_was_made_a_result_of_further_in_is_judged_all_the_same(
    framework, guard, bank
):
    told = framework.run(refund_of(bank, "lose-answer"), framework.once(guard), framework.Sorry())

    assert codes(told) == [InDoubt.code] * 2
    assert len(bank.ledger()) == 1


def test_the_same_in_sync_code(guard, bank):
    def refund(payment_id: str) -> str:
        """Refund a payment."""
        return bank.pay(payment_id, 100, fault="lose-answer")["receipt"]

    told = Langchain.run(refund, Langchain.once(guard), Langchain.Sorry(), sync=True)

    assert codes(told) == [InDoubt.code] * 2
    assert len(bank.ledger()) == 1


def test_an_error_that_is_definite_is_told_in_the_words_of_whoever_stands_further_in(
    framework, guard, bank
):
    told = framework.run(
        refund_of(bank, "declined"), framework.once(guard), framework.Sorry(), asked=1
    )

    assert told == [SORRY]
    assert bank.ledger() == []


def test_a_tool_that_is_asked_for_twice_at_once_is_run_once(framework, guard, bank):
    assert framework.run(refund_of(bank), framework.once(guard), framework.Twice(), asked=1) == [
        "rcpt_1"
    ]
    assert len(bank.ledger()) == 1


def test_whoever_tries_again_further_in_sends_nothing(framework, guard, bank):
    told = framework.run(
        refund_of(bank, *["lose-answer"] * 4), framework.once(guard), framework.Again()
    )

    assert codes(told) == [InDoubt.code] * 2
    assert len(bank.ledger()) == 1


def test_a_doubt_of_a_guarded_tool_is_told_although_somebody_further_in_made_a_result_of_it(
    framework, guard, bank
):
    refund = guard.tool(kind="irreversible")(refund_of(bank, "lose-answer"))
    once = (
        framework.once(guard, guarded=[refund])
        if framework is PydanticAI
        else framework.once(guard)
    )

    told = framework.run(refund, once, framework.Sorry())

    assert codes(told) == [InDoubt.code] * 2
    assert len(bank.ledger()) == 1


def test_a_tool_that_is_protected_twice_is_one_effect(framework, guard, bank):
    assert framework.run(refund_of(bank), *framework.twice(guard), asked=1) == ["rcpt_1"]
    assert guard.counts() == {State.COMPLETED: 1}


def test_a_lost_answer_of_a_tool_that_is_protected_twice_is_one_doubt(framework, guard, bank):
    told = framework.run(refund_of(bank, "lose-answer"), *framework.twice(guard))

    assert codes(told) == [InDoubt.code] * 2
    assert guard.counts() == {State.IN_DOUBT: 1}
    assert len(bank.ledger()) == 1


def test_a_tool_that_is_protected_twice_is_one_effect_in_sync_code_too(guard, bank):
    def refund(payment_id: str) -> str:
        """Refund a payment."""
        return bank.pay(payment_id, 100)["receipt"]

    assert Langchain.run(refund, *Langchain.twice(guard), asked=1, sync=True) == ["rcpt_1"]
    assert guard.counts() == {State.COMPLETED: 1}


def test_a_run_that_is_cut_off_further_in_is_a_doubt_and_not_the_end_of_the_agent(guard, bank):
    async def refund(payment_id: str) -> str:
        """Refund a payment."""
        bank.pay(payment_id, 100)
        await asyncio.Event().wait()

    told = Langchain.run(refund, Langchain.once(guard), Langchain.Impatient(), asked=1)

    assert codes(told) == [InDoubt.code]
    assert len(bank.ledger()) == 1


def test_a_run_that_nobody_waits_for_is_a_doubt(guard, bank):
    async def refund(payment_id: str) -> str:
        """Refund a payment."""
        await asyncio.Event().wait()

    assert codes(Langchain.run(refund, Langchain.once(guard), Langchain.Leaving(), asked=1)) == [
        InDoubt.code
    ]


def test_an_interrupt_passes_whoever_makes_a_result_of_everything(guard, bank):
    async def refund(payment_id: str) -> str:
        """Refund a payment."""
        return bank.pay(payment_id, 100)["receipt"] if interrupt("sure?") else "no"

    assert Langchain.run(refund, Langchain.once(guard), Langchain.Sorry(), asked=1) == []
    assert guard.in_doubt() == ()


def test_a_wish_for_another_try_that_was_made_a_result_of_leaves_nothing_in_doubt(guard, bank):
    async def refund(payment_id: str) -> str:
        """Refund a payment."""
        raise ModelRetry("which account?")

    assert PydanticAI.run(refund, PydanticAI.once(guard), PydanticAI.Friendly(), asked=1) == [SORRY]
    assert guard.in_doubt() == ()


# ---------------------------------------------------------------- around us


@pytest.mark.parametrize("guarded", [False, True])
def test_a_doubt_that_somebody_around_us_made_a_result_of_is_still_the_same_effect(
    framework, guarded, guard, bank
):
    refund = refund_of(bank, "lose-answer")
    if guarded:
        refund = guard.tool(kind="irreversible")(refund)
    once = (
        framework.once(guard, guarded=[refund])
        if guarded and framework is PydanticAI
        else framework.once(guard)
    )

    told = framework.run(refund, framework.Friendly(), once, asked=3)

    assert told == [SORRY] * 3
    assert len(bank.ledger()) == 1


def test_a_doubt_that_was_quoted_as_a_result_and_then_settled_is_not_done_again(guard, bank):
    class Quoting(AgentMiddleware):
        async def awrap_tool_call(self, request, handler):
            told = await handler(request)
            return ToolMessage(f"That did not work: {told.text}", tool_call_id=told.tool_call_id)

    model = Scripted(
        lines=[
            asks("a", payment_id="pay_7"),
            AIMessage("done"),
            asks("b", payment_id="pay_7"),
            AIMessage("done"),
        ]
    )
    around = [Quoting(), Langchain.once(guard)]
    agent = create_agent(
        model,
        [tool(refund_of(bank, "lose-answer"))],
        middleware=around,
        checkpointer=InMemorySaver(),
    )

    async def story():
        await agent.ainvoke({"messages": [HumanMessage("refund pay_7")]}, THREAD)
        [doubt] = guard.in_doubt()
        await asyncio.to_thread(
            guard.confirm,
            doubt.request.key,
            result="rcpt_1",
            by="ann",
            reason="it is in the ledger",
        )
        return await agent.ainvoke({"messages": [HumanMessage("and?")]}, THREAD)

    assert asyncio.run(story())["messages"][-2].text == "That did not work: rcpt_1"
    assert len(bank.ledger()) == 1
