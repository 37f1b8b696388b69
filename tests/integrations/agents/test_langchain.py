"""Agents of LangChain, with a scripted model: effects are counted by a process that knows
nothing of them.

What is killed and resumed is in tests/integrations/engines/langgraph_rows.py.
"""

import asyncio
import json
import threading
from datetime import date
from typing import Annotated, TypedDict

import httpx
import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ToolRetryMiddleware
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import ToolException, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolRuntime
from langgraph.types import Command, interrupt

from effectonce import ContractViolation, Found, InDoubt, Rejected, Retry, StoreUnavailable
from effectonce.http.client import protect
from effectonce.integrations.langchain import (
    EffectOnce,
    check_durability,
    durable,
    once_node,
    retry_policy,
    tool_node,
)
from tests.integrations.agents.langchain_models import Scripted, asks

THREAD = {"configurable": {"thread_id": "chat-42"}}
DONE = AIMessage("done")
CONTRACTS = {"refund": {"kind": "irreversible", "volatile": ["reason"]}}


@pytest.fixture(params=["sync", "async"])
def invoke(request):
    """One agent in both colours."""
    if request.param == "sync":
        return lambda agent, given, config=THREAD: agent.invoke(given, config)
    return lambda agent, given, config=THREAD: asyncio.run(agent.ainvoke(given, config))


def refund_of(bank, *faults):
    faults = list(faults)

    @tool
    def refund(payment_id: str, amount_minor: int = 100, reason: str = "") -> str:
        """Refund a payment."""
        return bank.pay(payment_id, amount_minor, fault=faults.pop(0) if faults else None)[
            "receipt"
        ]

    return refund


def agent_of(guard, refund, *lines, contracts=CONTRACTS, saver=None):
    model = Scripted(lines=list(lines))
    saver = saver or InMemorySaver()
    return create_agent(
        model, [refund], middleware=[EffectOnce(guard, contracts=contracts)], checkpointer=saver
    ), model


def says(text="refund pay_7"):
    return {"messages": [HumanMessage(text)]}


def tool_messages(result):
    return [message for message in result["messages"] if isinstance(message, ToolMessage)]


def test_a_doubt_is_an_error_that_names_no_key_and_a_replay_says_that_it_is_one(
    guard, bank, invoke
):
    refund = refund_of(bank, None, "lose-answer")
    first, _ = agent_of(guard, refund, asks("a", payment_id="pay_7"), DONE)
    again, _ = agent_of(guard, refund, asks("b", payment_id="pay_7"), DONE)
    lost, _ = agent_of(guard, refund, asks("c", payment_id="pay_8"), DONE)

    invoke(first, says())
    (replayed,) = tool_messages(invoke(again, says()))
    (doubt,) = tool_messages(invoke(lost, says()))

    assert (replayed.status, replayed.content) == ("success", "rcpt_1")
    assert replayed.additional_kwargs["effectonce"]["replayed"] is True
    assert doubt.status == "error"
    assert json.loads(doubt.content)["retriable"] is False
    assert "try again" not in doubt.content.lower()
    assert guard.in_doubt()[0].request.key not in doubt.content


def test_what_failed_before_anything_left_needs_no_person(guard, bank, invoke):
    """Its contract says through which client the tool sends."""
    client = protect(httpx.Client(base_url=f"http://127.0.0.1:{bank.port}"))
    faults = ["a bug"]

    @tool
    def refund(payment_id: str) -> str:
        """Refund a payment."""
        if faults:
            raise ValueError(faults.pop())
        payment = {"payment_id": payment_id, "amount_minor": 100}
        return client.post("/refunds", json=payment).raise_for_status().json()["receipt"]

    contracts = {"refund": {"kind": "irreversible", "through": client}}
    before, _ = agent_of(guard, refund, asks("a", payment_id="pay_7"), contracts=contracts)
    after, _ = agent_of(guard, refund, asks("b", payment_id="pay_7"), DONE, contracts=contracts)

    with client:
        with pytest.raises(ValueError, match="a bug"):
            invoke(before, says())
        (message,) = tool_messages(invoke(after, says()))

    assert (message.content, len(bank.ledger())) == ("rcpt_1", 1)


def test_an_interrupt_passes_through_and_leaves_nothing_in_doubt(guard, bank, invoke):
    @tool
    def refund(payment_id: str, reason: str = "") -> str:
        """Refund a payment."""
        if interrupt("really?") != "yes":
            return "not refunded"
        return bank.pay(payment_id, 1)["receipt"]

    agent, _ = agent_of(guard, refund, asks("a", payment_id="pay_7"), DONE)

    asked = invoke(agent, says())
    assert asked["__interrupt__"][0].value == "really?"
    result = invoke(agent, Command(resume="yes"))

    assert tool_messages(result)[0].content == "rcpt_1"
    assert guard.in_doubt() == ()


def test_a_refusal_is_the_tools_own_error_and_then_known(guard, bank, invoke):
    refund = refund_of(bank, "refuse")
    agent, _ = agent_of(guard, refund, asks("a", payment_id="pay_7"))
    with pytest.raises(Rejected):
        invoke(agent, says())
    again, _ = agent_of(guard, refund, asks("b", payment_id="pay_7"), DONE)

    (message,) = tool_messages(invoke(again, says()))

    assert json.loads(message.content)["code"] == "REPLAYED_FAILURE"
    assert bank.ledger() == []


def test_a_command_is_replayed_under_the_new_id(guard, bank, invoke):
    @tool
    def refund(payment_id: str, reason: str = "") -> Command:
        """Refund a payment."""
        receipt = bank.pay(payment_id, 1)["receipt"]
        return Command(update={"messages": [ToolMessage(receipt, tool_call_id="a")]})

    for name in ("a", "b"):
        agent, _ = agent_of(guard, refund, asks(name, payment_id="pay_7"), DONE)
        (message,) = tool_messages(invoke(agent, says()))
        assert (message.tool_call_id, message.content) == (name, "rcpt_1")

    assert len(bank.ledger()) == 1


def test_a_tool_node_of_a_graph_lands_its_calls_once(guard, bank, invoke):
    def graph():
        builder = StateGraph(MessagesState)
        builder.add_node("tools", tool_node([refund_of(bank)], guard, contracts=CONTRACTS))
        builder.add_edge(START, "tools")
        return builder.compile(checkpointer=InMemorySaver())

    for name in ("a", "b"):
        (message,) = tool_messages(invoke(graph(), {"messages": [asks(name, payment_id="pay_7")]}))
        assert (message.tool_call_id, message.content) == (name, "rcpt_1")

    assert len(bank.ledger()) == 1


def paying_node(guard, bank):
    """A node that pays with a guarded tool."""

    @guard.tool(kind="write")
    def pay(payment_id: str) -> str:
        return bank.pay(payment_id, 1)["receipt"]

    def work(state):
        return {"messages": [AIMessage(pay("pay_7"))]}

    return work


def test_a_node_that_is_retried_is_the_same_step_and_its_next_visit_another(guard, bank):
    failures = [ConnectionRefusedError("the store of the graph is away")]

    @guard.tool(kind="write")
    def pay(payment_id: str) -> str:
        return bank.pay(payment_id, 1)["receipt"]

    def work(state):
        receipt = pay("pay_7")
        if failures:
            raise failures.pop()
        return {"messages": [AIMessage(receipt)]}

    builder = StateGraph(MessagesState)
    policy = retry_policy(kind="idempotent_write")._replace(initial_interval=0.0, jitter=False)
    builder.add_node("work", once_node(guard, work), retry_policy=policy)
    builder.add_edge(START, "work")
    graph = builder.compile(checkpointer=InMemorySaver())

    assert graph.invoke(says(), THREAD)["messages"][-1].content == "rcpt_1"
    assert len(bank.ledger()) == 1
    assert graph.invoke(says("once more"), THREAD)["messages"][-1].content == "rcpt_2"


@pytest.mark.cover(1)
@pytest.mark.parametrize(
    "thread", ["2f1b6b3e-6f0e-4c1a-9a51-0b6a1f6f2c11", "ada@example.test", "2025-03-01T10:00:00Z"]
)
@pytest.mark.parametrize(
    "name", ["call_external_api", "req_approval", "retry_payment_3", "attempt_2"]
)
def test_a_node_and_a_thread_are_taken_whatever_they_are_called(guard, bank, name, thread):
    work = paying_node(guard, bank)
    builder = StateGraph(MessagesState)
    builder.add_node(name, once_node(guard, work))
    builder.add_edge(START, name)
    graph = builder.compile(checkpointer=InMemorySaver())

    said = graph.invoke(says(), {"configurable": {"thread_id": thread}})["messages"]

    assert said[-1].content == "rcpt_1"


def test_two_nodes_of_one_function_are_two_steps(guard, bank):
    work = paying_node(guard, bank)
    builder = StateGraph(MessagesState)
    for name in ("mine", "yours"):
        builder.add_node(name, once_node(guard, work))
        builder.add_edge(START, name)
    said = builder.compile(checkpointer=InMemorySaver()).invoke(says(), THREAD)["messages"][1:]

    assert {message.content for message in said} == {"rcpt_1", "rcpt_2"}


def test_a_node_of_a_subgraph_is_refused_unless_its_step_has_a_name(guard, bank):
    work = paying_node(guard, bank)

    def graph(**options):
        inner, outer = StateGraph(MessagesState), StateGraph(MessagesState)
        inner.add_node("work", once_node(guard, work, **options))
        inner.add_edge(START, "work")
        outer.add_node("inner", inner.compile())
        outer.add_edge(START, "inner")
        outer.add_conditional_edges(
            "inner", lambda state: "inner" if len(state["messages"]) < 3 else END
        )
        return outer.compile(checkpointer=InMemorySaver())

    with pytest.raises(ContractViolation, match="Name the step"):
        graph().invoke(says(), THREAD)
    assert bank.ledger() == []
    said = graph(step=lambda state: f"pay {len(state['messages'])}").invoke(says(), THREAD)[
        "messages"
    ][1:]
    assert [message.content for message in said] == ["rcpt_1", "rcpt_2"]


def test_the_policy_of_a_node_tries_again_only_what_is_safe():
    on = retry_policy().retry_on

    assert on(StoreUnavailable("away"))
    assert not on(InDoubt("nobody knows"))
    assert not on(TimeoutError("it may have happened"))
    assert retry_policy(kind="read").retry_on(TimeoutError("it may have happened"))
    assert not retry_policy(kind="read").retry_on(ValueError("a mistake in the code"))


@pytest.mark.parametrize("mode", ["async", "exit", None])
def test_a_durability_that_forgets_is_told(mode):
    with pytest.warns(UserWarning, match="durability='sync'"):
        check_durability(mode)


def test_a_durability_that_keeps_every_step_is_fine():
    assert check_durability("sync") == "sync"


def test_a_durable_graph_saves_each_step_before_the_next_one_begins():
    second_ran, when_saved = threading.Event(), []

    class Slow(InMemorySaver):
        def put(self, config, checkpoint, metadata, new_versions):
            if metadata["step"] == 1:  # what the first node did
                second_ran.wait(0.5)
                when_saved.append(second_ran.is_set())
            return super().put(config, checkpoint, metadata, new_versions)

    def second(state):
        second_ran.set()
        return {}

    builder = StateGraph(MessagesState)
    builder.add_node("first", lambda state: {})
    builder.add_node("second", second)
    builder.add_edge(START, "first")
    builder.add_edge("first", "second")
    graph = builder.compile(checkpointer=Slow())

    durable(graph).invoke(says(), THREAD)
    assert when_saved == [False]


def test_an_error_that_the_probe_refutes_is_told_as_the_result(guard, bank, invoke):
    @tool
    def refund(payment_id: str) -> str:
        """Refund a payment."""
        bank.pay(payment_id, 100)
        raise ToolException("the bank's answer was lost")

    refund.handle_tool_error = True
    contract = {
        "kind": "write",
        "downstream": "probe",
        "probe": lambda payment_id: Found(bank.find(payment_id)["receipt"]),
    }
    agent, _ = agent_of(
        guard, refund, asks("a", payment_id="pay_7"), DONE, contracts={"refund": contract}
    )

    (message,) = tool_messages(invoke(agent, says()))

    assert (message.content, message.status) == ("rcpt_1", "success")


def test_arguments_that_another_middleware_corrected_do_not_hide_that_the_tool_ran(guard, bank):
    class Correcting(AgentMiddleware):
        def wrap_tool_call(self, request, handler):
            call = {**request.tool_call, "args": {"payment_id": "pay_7"}}
            return handler(request.override(tool_call=call))

    @tool
    def refund(payment_id: str, reason: str = "") -> str:
        """Refund a payment."""
        bank.pay(payment_id, 100)
        raise ToolException("the bank's answer was lost")

    refund.handle_tool_error = True
    lines = [asks("a", payment="pay_7"), asks("b", payment="pay_7"), DONE]
    middleware = [EffectOnce(guard, contracts=CONTRACTS), Correcting()]
    agent = create_agent(
        Scripted(lines=lines), [refund], middleware=middleware, checkpointer=InMemorySaver()
    )
    result = agent.invoke(says(), THREAD)

    assert [json.loads(message.content)["code"] for message in tool_messages(result)] == [
        InDoubt.code,
        InDoubt.code,
    ]
    assert len(bank.ledger()) == 1


def test_a_tool_node_looks_for_the_messages_where_its_graph_has_them(guard, bank, invoke):
    class State(TypedDict):
        chat: Annotated[list, add_messages]

    lines = [asks("a", payment_id="pay_7"), asks("b", payment_id="pay_7"), DONE]
    graph = StateGraph(State)
    graph.add_node("model", lambda state: {"chat": [lines.pop(0)]})
    graph.add_node(
        "tools", tool_node([refund_of(bank)], guard, contracts=CONTRACTS, messages_key="chat")
    )
    graph.add_edge(START, "model")
    graph.add_conditional_edges(
        "model", lambda state: "tools" if state["chat"][-1].tool_calls else END
    )
    graph.add_edge("tools", "model")

    result = invoke(graph.compile(checkpointer=InMemorySaver()), {"chat": [HumanMessage("twice")]})

    assert [message.content for message in result["chat"] if isinstance(message, ToolMessage)] == [
        "rcpt_1",
        "rcpt_2",
    ]


def test_a_guarded_tool_counts_what_was_shown_as_the_model_wrote_it(guard, bank, invoke):
    @tool
    @guard.tool(kind="write")
    def refund(payment_id: str, due: date) -> str:
        """Refund a payment."""
        return bank.pay(payment_id, 100)["receipt"]

    lines = [asks(name, payment_id="pay_7", due="2026-01-31") for name in "ab"]
    agent, _ = agent_of(guard, refund, *lines, DONE)

    assert [message.content for message in tool_messages(invoke(agent, says()))] == [
        "rcpt_1",
        "rcpt_2",
    ]


def test_a_guarded_tool_may_take_what_the_framework_gives_it(guard, bank, invoke):
    @tool
    @guard.tool(kind="write", volatile=["runtime"])
    def refund(payment_id: str, runtime: ToolRuntime) -> str:
        """Refund a payment."""
        return bank.pay(payment_id, 100)["receipt"]

    lines = [asks(name, payment_id="pay_7") for name in "ab"]
    agent, _ = agent_of(guard, refund, *lines, DONE)

    assert [message.content for message in tool_messages(invoke(agent, says()))] == [
        "rcpt_1",
        "rcpt_2",
    ]


# ---------------------------------------------------------------- other middleware


@pytest.mark.parametrize("once_first", [True, False])
def test_a_middleware_that_retries_sends_nothing_again_wherever_it_stands(
    guard, bank, invoke, once_first
):
    retries = ToolRetryMiddleware(max_retries=2, initial_delay=0.0, jitter=False)
    once = EffectOnce(guard, contracts=CONTRACTS)
    agent = create_agent(
        Scripted(lines=[asks("a", payment_id="pay_7"), DONE]),
        [refund_of(bank, "lose-answer", "lose-answer", "lose-answer")],
        middleware=[once, retries] if once_first else [retries, once],
        checkpointer=InMemorySaver(),
    )

    (told,) = tool_messages(invoke(agent, says()))

    assert json.loads(told.content)["code"] == "OUTCOME_UNKNOWN"
    assert len(bank.ledger()) == 1


def test_a_middleware_that_asks_twice_is_given_the_one_result(guard, bank, invoke):
    class Twice(AgentMiddleware):
        def wrap_tool_call(self, request, handler):
            return [handler(request), handler(request)][1]

        async def awrap_tool_call(self, request, handler):
            return [await handler(request), await handler(request)][1]

    agent = create_agent(
        Scripted(lines=[asks("a", payment_id="pay_7"), DONE]),
        [refund_of(bank)],
        middleware=[EffectOnce(guard, contracts=CONTRACTS), Twice()],
        checkpointer=InMemorySaver(),
    )

    (told,) = tool_messages(invoke(agent, says()))

    assert told.content == "rcpt_1"
    assert len(bank.ledger()) == 1


def test_a_middleware_may_correct_what_the_tool_refused_before_it_ran(guard, bank, invoke):
    class Correcting(AgentMiddleware):
        @staticmethod
        def corrected(request):
            return request.override(
                tool_call={**request.tool_call, "args": {"payment_id": "pay_7"}}
            )

        def wrap_tool_call(self, request, handler):
            handler(request)
            return handler(self.corrected(request))

        async def awrap_tool_call(self, request, handler):
            await handler(request)
            return await handler(self.corrected(request))

    agent = create_agent(
        Scripted(lines=[asks("a"), DONE]),
        [refund_of(bank)],
        middleware=[EffectOnce(guard, contracts=CONTRACTS), Correcting()],
        checkpointer=InMemorySaver(),
    )

    (told,) = tool_messages(invoke(agent, says()))

    assert told.content == "rcpt_1"


def test_each_attempt_of_ours_is_a_run_of_its_own(guard, bank, invoke):
    contracts = {
        "refund": {
            "kind": "idempotent_write",
            "retry": Retry(attempts=3, base_s=0.001, cap_s=0.002),
        }
    }
    agent, _ = agent_of(
        guard,
        refund_of(bank, "lose-answer"),
        asks("a", payment_id="pay_7"),
        DONE,
        contracts=contracts,
    )

    (told,) = tool_messages(invoke(agent, says()))

    assert told.content == "rcpt_2"
