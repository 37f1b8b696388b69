"""LangGraph: a graph with one node that calls the tool, and a thread for each order. A thread that
stopped in the middle is resumed, as its docs say. Best configured: checkpoints are written before
the node runs, the node is retried where it may be, and it asks the service first where it can.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial
from typing import Any

from oncebench.adapters._retries import looking_first, worth_a_retry
from oncebench.kit import NO_TRANSACTION, Says, Setup

NAME = "LangGraph"
KIND = "engine"
REQUIRES = ("langgraph==1.2.22", "langgraph-checkpoint-sqlite==3.1.2")
README = "docs: Persistence, SqliteSaver; Durable execution for the best configuration"
LACKS = {
    "transaction": NO_TRANSACTION,
    "conflict": "a thread goes on with the input that it began with (docs, Persistence)",
}


def open(setup: Setup) -> Callable[..., Any]:
    from langgraph.checkpoint.sqlite import SqliteSaver

    connection = sqlite3.connect(setup.folder / "checkpoints.sqlite", check_same_thread=False)
    saver = SqliteSaver(connection)
    thread: list[str | None] = [None]
    setup.key = lambda: thread[0]
    durability: dict[str, Any] = {"durability": "sync"} if setup.best else {}

    def protect(tool: Callable[..., Any]) -> Callable[..., Any]:
        graph = _graph(setup, tool).compile(checkpointer=saver)

        def call(order: str, amount: int, note: str = "") -> Any:
            thread[0] = f"{tool.__module__}:{order}"
            config = {"configurable": {"thread_id": thread[0]}}
            state = graph.get_state(config)
            if state.next:
                return graph.invoke(None, config, **durability)["result"]
            if "result" in state.values:
                return state.values["result"]
            asked = {"order": order, "amount": amount, "note": note}
            return graph.invoke(asked, config, **durability)["result"]

        return call

    return protect


def _graph(setup: Setup, tool: Callable[..., Any]) -> Any:
    from langgraph.graph import END, START, StateGraph
    from langgraph.types import RetryPolicy

    def pay(state: dict[str, Any]) -> dict[str, Any]:
        wanted = {name: state[name] for name in ("order", "amount", "note")}
        return {"result": looking_first(setup, tool)(**wanted)}

    policy = RetryPolicy(retry_on=partial(worth_a_retry, setup)) if setup.best else None
    graph = StateGraph(_state())
    graph.add_node("pay", pay, retry_policy=policy)
    graph.add_edge(START, "pay")
    graph.add_edge("pay", END)
    return graph


def _state() -> Any:
    from typing_extensions import TypedDict

    fields = {"order": str, "amount": Any, "note": str, "result": Any}
    return TypedDict("State", fields, total=False)


def said(error: Exception) -> Says:
    return "raised"
