"""The steps of workflows.py as supersteps of LangGraph, with a checkpoint after each."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, TypedDict

from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph


class _State(TypedDict):
    n: int


def runs(url: str, steps: int) -> tuple[Callable[[], list[float]], Callable[[], None]]:
    """How to do one run, and how to end."""
    stack = ExitStack()
    path = url.removeprefix("sqlite:///")
    saver: Any = stack.enter_context(
        PostgresSaver.from_conn_string(url) if path == url else SqliteSaver.from_conn_string(path)
    )
    saver.setup()
    graph = StateGraph(_State)
    graph.add_node("add", lambda state: {"n": state["n"] + 1})
    graph.add_edge(START, "add")
    graph.add_conditional_edges("add", lambda state: END if state["n"] >= steps else "add")
    compiled, numbers = graph.compile(checkpointer=saver), itertools.count()

    def once() -> list[float]:
        start = time.perf_counter()
        config = {"configurable": {"thread_id": str(next(numbers))}, "recursion_limit": steps + 5}
        compiled.invoke({"n": 0}, config, durability="sync")
        return [(time.perf_counter() - start) / steps]

    return once, stack.close
