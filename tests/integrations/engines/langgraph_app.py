"""A process with LangGraph agents and graphs: python -m
tests.integrations.engines.langgraph_app. It does what its folder asks for.
"""

import json
import operator
import os
import uuid
from typing import Annotated, TypedDict

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.graph import START, StateGraph
from langgraph.types import Command, RetryPolicy, Send, interrupt

from effectonce.integrations.langchain import EffectOnce, once_node
from tests.integrations.engines import shop

SAVER = os.environ["SHOP_SAVER"]
CONTRACT = {"kind": "irreversible", "downstream": "key", "volatile": ["reason"], "lease_s": 0.5}
once = EffectOnce(shop.guard, contracts={"give_back": CONTRACT, "give_back_if_approved": CONTRACT})
again = RetryPolicy(retry_on=RuntimeError, initial_interval=0.01, jitter=False)

give_back = tool("give_back", description="Refund a payment.")(shop.refund.__wrapped__)


@tool
def give_back_if_approved(payment_id: str, amount_minor: int, reason: str) -> str:
    """Refund a payment, if a person agrees."""
    if interrupt("really?") != "yes":
        return "not refunded"
    return shop.refund.__wrapped__(payment_id, amount_minor, reason)


class Model(BaseChatModel):
    """It goes on until it has seen as many results as were wished for. Asked again, it has other
    ids and other words.
    """

    @property
    def _llm_type(self):
        return "wishful"

    def bind_tools(self, tools, **kwargs):
        return self.bind(tool_name=tools[0].name)

    def _generate(self, messages, stop=None, run_manager=None, tool_name="", **kwargs):
        wish = json.loads(next(m for m in messages if isinstance(m, HumanMessage)).text)
        seen = sum(isinstance(m, ToolMessage) and m.status != "error" for m in messages)
        calls = [asked(tool_name, payment_id) for payment_id in wish["payments"]]
        said = AIMessage("", tool_calls=calls) if seen < wish["results"] else AIMessage("done")
        return ChatResult(generations=[ChatGeneration(message=said)])


def asked(tool_name, payment_id):
    words = {
        "payment_id": payment_id,
        "amount_minor": 1400,
        "reason": f"late, because {uuid.uuid4()}",
    }
    return {"type": "tool_call", "id": str(uuid.uuid4()), "name": tool_name, "args": words}


class State(TypedDict):
    payments: list[str]
    receipts: Annotated[list[str], operator.add]


def pays(state):
    receipts = [
        shop.refunded(payment_id, f"late, because {uuid.uuid4()}")
        for payment_id in state["payments"]
    ]
    return {"receipts": receipts}


def pays_then_asks(state):
    paid = pays(state)
    interrupt("was it right?")
    return paid


def each(state):
    return [Send("pays", {"payments": [payment_id]}) for payment_id in state["payments"]]


def graph(saver, node, *, edge=None, step=None):
    builder = StateGraph(State)
    builder.add_node("pays", once_node(shop.guard, node, step=step), retry_policy=again)
    builder.add_conditional_edges(START, edge, ["pays"]) if edge else builder.add_edge(
        START, "pays"
    )
    return builder.compile(checkpointer=saver)


def graphs(saver):
    return {
        "agent": create_agent(Model(), [give_back], middleware=[once], checkpointer=saver),
        "approved": create_agent(
            Model(), [give_back_if_approved], middleware=[once], checkpointer=saver
        ),
        "node": graph(saver, pays),
        "asks after": graph(saver, pays_then_asks),
        "side by side": graph(saver, pays, edge=each),
        "by payment": graph(saver, pays, step=lambda state: state["payments"][0]),
    }


def wish(payments, results):
    return {"messages": [HumanMessage(json.dumps({"payments": payments, "results": results}))]}


def resumed(app, thread, given, durability):
    """Go on where it stopped. If nothing was kept, from the beginning."""
    state = app.get_state(thread)
    going_on = Command(resume="yes") if state.interrupts else None
    return app.invoke(going_on if state.next else given, thread, durability=durability)


def forked(app, thread, before):
    """Run it again from all its checkpoints, and from the one before that node with other words
    in the state.
    """
    past = [state for state in app.get_state_history(thread) if state.next]
    for state in past:
        app.invoke(None, state.config)
    there = next(state for state in past if before in state.next)
    app.invoke(None, app.update_state(there.config, paraphrased(there.values)))


def paraphrased(values):
    if "messages" not in values:
        return {"payments": values["payments"]}
    said = values["messages"][-1]
    calls = [asked(call["name"], call["args"]["payment_id"]) for call in said.tool_calls]
    return {"messages": [said.model_copy(update={"tool_calls": calls})]}


def answered(known, command):
    what, name, thread_id, *rest = command
    app, thread = known[name], {"configurable": {"thread_id": thread_id}}
    match what, rest:
        case "say", [payments, results, durability]:
            app.invoke(wish(payments, results), thread, durability=durability)
        case "give", [payments]:
            app.invoke({"payments": payments}, thread, durability="sync")
        case "resume", [payments, results, durability]:
            resumed(app, thread, wish(payments, results), durability)
        case "fork", [before]:
            forked(app, thread, before)
    return list(app.get_state(thread).next)


def main():
    if SAVER.startswith("postgresql"):
        from langgraph.checkpoint.postgres import PostgresSaver as Saver
    else:
        from langgraph.checkpoint.sqlite import SqliteSaver as Saver
    with Saver.from_conn_string(SAVER) as saver:
        saver.setup()
        known = graphs(saver)
        shop.serve(lambda command: answered(known, command))


if __name__ == "__main__":
    main()
