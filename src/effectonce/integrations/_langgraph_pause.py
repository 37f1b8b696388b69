"""A call that needs an approval, as an interrupt of LangGraph.

    answer = {"approved": True, "by": "ada", "reason": "the parcel came back"}
    graph.invoke(Command(resume={waiting.id: answer}), config)

Theory of operation. LangGraph gives answers to a task by their number: the first answer to the
first `interrupt` that is called, whatever it asks. So an answer may reach a call that was never
shown: with arguments that changed, beside others in one node, after an approval has expired. Here
an answer counts only for the question that it was given to, which is looked up:

 1. An answer that names its question (`"question"`, as in the interrupt's value) is for that one.
 2. Any other is for the interrupt that the checkpoint has for this task, if it is the answer with
    that interrupt's number. LangGraph keeps an answer that was given without the interrupt's id
    and hands it out once more after a crash: one that equals another answer does not count.
 3. An answer that counts for no question here is passed over, and the person is asked anew.

The decision is in the store, not in the graph. So a wish that was decided elsewhere needs no
answer: `graph.invoke(None, config)` goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.serde.types import INTERRUPT, RESUME
from langgraph.config import get_config
from langgraph.constants import CONFIG_KEY_CHECKPOINTER as SAVER
from langgraph.errors import GraphInterrupt
from langgraph.runtime import ExecutionInfo, get_runtime
from langgraph.types import interrupt

from effectonce._runtime.signature import is_async
from effectonce.approvals._questions import QUESTION, Approver, Approving, Question
from effectonce.errors import ApprovalNeeded
from effectonce.guard import Guard

T = TypeVar("T")
NUMBER = "number"  # of the interrupt among those of its task, from 1
OF_NO_TASK = "00000000-0000-0000-0000-000000000000"
# What LangGraph hands to a task, and nothing public has: all answers, those of this very run, and
# what saves them.
ANSWERS, BY_ID, SEND = "__pregel_scratchpad", "__pregel_resume_map", "__pregel_send"
_one_at_a_time = threading.Lock()  # the tools of one node run in threads, and share its answers


def can_pause() -> bool:
    """Is there a checkpointer, from which the graph could be resumed?"""
    return get_config()["configurable"].get(SAVER) is not None


class GraphPause:
    """Asks by an interrupt, and goes on when it is answered."""

    def __init__(self, guard: Guard, approver: Approver | None) -> None:
        self._approving = Approving(guard.approvals, guard.store, approver, "LangGraph")

    def around(self, act: Callable[[], T]) -> T:
        refused, used = "", set[int]()
        while True:
            try:
                return act()
            except ApprovalNeeded as error:
                if not can_pause():
                    raise
                question = self._approving.question(error, refused)
            if question is not None:
                config = get_config()
                saved = config["configurable"][SAVER].get_tuple(_saved_at(_here()))
                answer = _answer(question, saved, config, used)
                refused = self._approving.decide(question, answer, config)

    async def aaround(self, act: Callable[[], Awaitable[T]]) -> T:
        refused, used = "", set[int]()
        while True:
            try:
                return await act()
            except ApprovalNeeded as error:
                if not can_pause():
                    raise
                needed = error
            question = await asyncio.to_thread(self._approving.question, needed, refused)
            if question is not None:
                config = get_config()
                saved = await config["configurable"][SAVER].aget_tuple(_saved_at(_here()))
                answer = _answer(question, saved, config, used)
                refused = await asyncio.to_thread(self._approving.decide, question, answer, config)

    def node(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The node, which pauses."""

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            return self.around(lambda: function(*args, **kwargs))

        @functools.wraps(function)
        async def arun(*args: Any, **kwargs: Any) -> Any:
            return await self.aaround(lambda: function(*args, **kwargs))

        return arun if is_async(function) else run


def _here() -> ExecutionInfo:
    """This task, and the checkpoint that it goes on from."""
    info = get_runtime().execution_info
    assert info is not None  # a node runs
    return info


def _saved_at(info: ExecutionInfo) -> RunnableConfig:
    graph, _, _ = info.checkpoint_ns.rpartition("|")
    at = {"thread_id": info.thread_id, "checkpoint_ns": graph}
    return {"configurable": at | {"checkpoint_id": info.checkpoint_id}}


def _answer(
    question: Question, saved: Any, config: RunnableConfig, used: set[int]
) -> Mapping[str, Any]:
    """The answer to this very question; without one, the graph is interrupted. *used* are the
    numbers of those that did not count.
    """
    handed = config["configurable"]
    with _one_at_a_time:
        with contextlib.suppress(GraphInterrupt):
            while True:  # until it has all answers that there are
                interrupt(None)
        given = handed[ANSWERS].resume
        _name_question(given, saved, handed)
        for at, answer in enumerate(given):
            named = answer.get(QUESTION) if isinstance(answer, Mapping) else None
            if at not in used and named == question.id:
                used.add(at)
                return dict(answer)
        interrupt(question.shown() | {NUMBER: len(given) + 1})
        raise AssertionError("there are no more answers")


def _name_question(given: list[Any], saved: Any, handed: Mapping[str, Any]) -> None:
    """The answer to the last interrupt gets the name of its question, which the next one hides."""
    task = _here().task_id
    number, asked = _interrupted(saved, task)
    answer = given[number - 1] if 0 < number <= len(given) else None
    if not isinstance(answer, Mapping) or QUESTION in answer:
        return
    others = [*given[: number - 1], *given[number:], *_taken(saved, task)]
    fresh = answer not in map(_unnamed, others) or answer in handed.get(BY_ID, {}).values()
    if fresh:
        given[number - 1] = {**answer, QUESTION: asked}
        handed[SEND]([(RESUME, list(given))])


def _unnamed(answer: Any) -> Any:
    if not isinstance(answer, Mapping):
        return answer
    return {name: value for name, value in answer.items() if name != QUESTION}


def _interrupted(saved: Any, task: str) -> tuple[int, str]:
    """The number and the question of this task's interrupt, as its checkpoint has it."""
    for its, channel, value in _writes(saved):
        if its == task and channel == INTERRUPT:
            shown = value[0].value if value else None
            if isinstance(shown, Mapping) and QUESTION in shown:
                return shown[NUMBER], shown[QUESTION]
    return 0, ""


def _taken(saved: Any, task: str) -> Iterator[Any]:
    """The answers that other tasks of this checkpoint had."""
    for its, channel, value in _writes(saved):
        if its not in (task, OF_NO_TASK) and channel == RESUME:
            yield from value if isinstance(value, list) else [value]


def _writes(saved: Any) -> Sequence[tuple[str, str, Any]]:
    return () if saved is None else saved.pending_writes or ()
