"""A refund over EUR 1,000 waits for a person: an interrupt of LangGraph. Start it, and resume it
under a name, however often: the bank has one refund. Between two runs nothing is kept but files.

    pip install 'effectonce[langchain]' langgraph-checkpoint-sqlite
    python examples/langgraph_approval.py
    python examples/langgraph_approval.py ada

Or decide elsewhere, with `effectonce approve yes EFFECT --reason TEXT --store
sqlite:///effects.db`, and run it without a name.
"""

import sys
from typing import Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command

from effectonce import Guard, current_effect
from effectonce.integrations.langchain import once_node
from effectonce.testing.bank import Bank

guard = Guard("sqlite:///effects.db")


def over_1000_euros(amount_minor: int) -> bool:
    """Which refunds need a person."""
    return amount_minor > 100_000


@guard.tool(kind="irreversible", downstream="key", approval=over_1000_euros)
def refund(payment_id: str, amount_minor: int) -> str:
    with Bank("graph.ledger", honours_keys=True) as bank:
        key = current_effect().downstream_key
        receipt: str = bank.pay(payment_id, amount_minor, key=key)["receipt"]
        return receipt


class Case(TypedDict):
    payment_id: str
    receipt: str


def pay(case: Case) -> dict[str, str]:
    return {"receipt": refund(case["payment_id"], 140_000)}


graph = StateGraph(Case)
graph.add_node("pay", once_node(guard, pay, asked_by="desk agent"))
graph.add_edge(START, "pay")
graph.add_edge("pay", END)
thread: Any = {"configurable": {"thread_id": "case-7"}}

if __name__ == "__main__":
    given: Any = None  # go on
    if sys.argv[1:]:
        answer = {"approved": True, "by": sys.argv[1], "reason": "the parcel came back"}
        given = Command(resume=answer)
    with SqliteSaver.from_conn_string("threads.db") as saver:
        app = graph.compile(checkpointer=saver)
        if app.get_state(thread).created_at is None:
            given = {"payment_id": "pay_7"}
        result = app.invoke(given, thread)
    for waiting in result.get("__interrupt__", ()):
        print("it waits for a person:", waiting.value["arguments"])
    if "receipt" in result:
        print("refunded:", result["receipt"])
    with Bank("graph.ledger", honours_keys=True) as bank:
        print("refunds at the bank:", len(bank.ledger()))
