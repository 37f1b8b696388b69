"""LangGraph: a graph with one node that calls the tool, and a thread for each order. A thread that
stopped in the middle is resumed, as its docs say. Best configured: the tool runs in a task,
whose result is kept at once; checkpoints are written before the node runs; the task is retried
where it may be, and asks the service first where it can; and where a task may not be repeated, a
thread that stopped is not resumed, and a person looks.

Where a person has to say yes, a node before the tool's has an interrupt. The answer is what the
thread is resumed with: whoever has it, and finds the thread at its interrupt, resumes it. That two
do it at once is for the application to prevent, or for LangSmith (docs, Double texting).
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from oncebench.adapters._retries import looking_first, worth_a_retry
from oncebench.kit import Says, Setup, Told, Wish

NAME = "LangGraph"
KIND = "engine"
REQUIRES = ("langgraph==1.2.22", "langgraph-checkpoint-sqlite==3.1.2")
README = (
    "docs: Persistence; Interrupts, Approve or reject; Durable execution (tasks, durability modes)"
    " for the best configuration"
)
OFFERS = ("approval",)
LACKS = {"conflict": "a thread goes on with the input that it began with (docs, Persistence)"}


def open(setup: Setup) -> Callable[..., Any]:
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.types import Command

    connection = sqlite3.connect(setup.folder / "checkpoints.sqlite", check_same_thread=False)
    saver = SqliteSaver(connection)
    thread: list[str | None] = [None]
    setup.key = lambda: thread[0]
    begun: Counter[str | None] = Counter()  # how often its task was begun
    durability: dict[str, Any] = {"durability": "sync"} if setup.best else {}

    def protect(tool: Callable[..., Any]) -> Callable[..., Any]:
        def send(order: str, amount: int, note: str) -> Any:
            begun[thread[0]] += 1
            again = begun[thread[0]] > 1
            return looking_first(setup, tool, again=again)(order, amount, note)

        graph = _graph(setup, send).compile(checkpointer=saver)

        def configured(order: str) -> dict[str, Any]:
            thread[0] = f"{tool.__module__}:{order}"
            return {"configurable": {"thread_id": thread[0]}}

        def approve(wish: Wish) -> None:
            if not graph.get_state(configured(wish.order)).interrupts:
                raise LookupError(f"nothing waits for {wish.order}")
            answer(wish.order, wish.amount).touch()

        def call(order: str, amount: int, note: str = "") -> Any:
            config = configured(order)
            state = graph.get_state(config)
            asked = {"order": order, "amount": amount, "note": note}
            if state.interrupts and not _same(state.values, asked):
                return told(graph.invoke(asked, config, **durability))  # it begins anew
            if state.interrupts:
                if not answer(order, amount).exists():
                    return Told("waiting")
                return told(graph.invoke(Command(resume=True), config, **durability))
            if state.next and setup.best and not setup.repeatable:
                return Told("unknown")
            if state.next:
                begun[thread[0]] += 1
                return told(graph.invoke(None, config, **durability))
            if "result" in state.values:
                return state.values["result"]
            return told(graph.invoke(asked, config, **durability))

        setup.approve = approve
        return call

    def answer(order: str, amount: Any) -> Path:
        """The answer to what was shown, as the application keeps it: LangGraph has it when it is
        resumed.
        """
        return setup.folder / f"yes-{order}-{amount}"

    def told(state: dict[str, Any]) -> Any:
        return Told("waiting") if "__interrupt__" in state else state["result"]

    return protect


def _same(values: dict[str, Any], asked: dict[str, Any]) -> bool:
    return all(values.get(name) == asked[name] for name in ("order", "amount"))


def _graph(setup: Setup, send: Callable[..., Any]) -> Any:
    from langgraph.func import task
    from langgraph.graph import END, START, StateGraph
    from langgraph.types import Command, RetryPolicy, interrupt

    retried = RetryPolicy(retry_on=partial(worth_a_retry, setup))
    in_a_task: Any = task(send, retry_policy=retried)

    def pay(state: dict[str, Any]) -> dict[str, Any]:
        wanted = (state["order"], state["amount"], state["note"])
        return {"result": in_a_task(*wanted).result() if setup.best else send(*wanted)}

    def approval(state: dict[str, Any]) -> Any:
        yes = interrupt(
            {"question": "Pay this?", "order": state["order"], "amount": state["amount"]}
        )
        return Command(goto="pay" if yes else END)

    graph = StateGraph(_state())
    graph.add_node("pay", pay)
    if setup.approval:
        graph.add_node("approval", approval, destinations=("pay", END))
        graph.add_edge(START, "approval")
    else:
        graph.add_edge(START, "pay")
    graph.add_edge("pay", END)
    return graph


def _state() -> Any:
    from typing_extensions import TypedDict

    fields = {"order": str, "amount": Any, "note": str, "result": Any}
    return TypedDict("State", fields, total=False)


def said(error: Exception) -> Says:
    return "raised"
