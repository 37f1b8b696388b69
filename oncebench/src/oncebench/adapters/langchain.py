"""LangChain's create_agent. Best configured, a checkpointer keeps the thread, each step is saved
before the next begins, the tool is retried where it may be (ToolRetryMiddleware), and a run that
did not end is resumed, unless what it did may not be repeated: then a person looks.

Where a person is asked, there has to be a checkpointer, so there is one as shipped as well. The
first example has one interrupt for each turn of the model; best configured it is one for each call
(`interrupt_mode="per_call"`), "for new agents". An answer belongs to a checkpoint: each process
that resumes the checkpoint runs the tool.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from oncebench.adapters import _agents
from oncebench.kit import Setup

NAME = "LangChain"
KIND = "framework"
REQUIRES = ("langchain==1.4.7", "langgraph-checkpoint-sqlite==3.1.2")
README = (
    "docs: Agents, Tools; Human-in-the-loop, for approvals; Tool retry, and LangGraph: Persistence,"
    " Durable execution, for the best configuration"
)
OFFERS = ("approval",)
LACKS = _agents.BARE
said = _agents.bare_said


def open(setup: Setup) -> Callable[..., Any]:
    import langchain.agents  # noqa: F401

    return _agents.opened(setup, talk, ids=True)  # ToolRuntime.tool_call_id


def talk(run: _agents.Run, middleware: tuple[Any, ...] = ()) -> _agents.Shown:
    from langchain.agents import create_agent
    from langchain.agents.middleware import HumanInTheLoopMiddleware, ToolRetryMiddleware
    from langchain_core.tools import tool
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.types import Command

    if run.pauses:
        mode: Any = {"interrupt_mode": "per_call"} if run.best else {}
        middleware = (HumanInTheLoopMiddleware({_agents.NAME: True}, **mode), *middleware)
    if run.best and not run.in_store:
        retried = ToolRetryMiddleware(retry_on=run.may_repeat, on_failure="error", jitter=False)
        middleware = (*middleware, retried)
    saver: Any = nullcontext()
    if run.kept is not None or run.approval:
        saver = SqliteSaver.from_conn_string(str(run.folder / "threads.db"))
    with saver as checkpointer:
        agent: Any = create_agent(
            _model(run), [tool(run.tool)], checkpointer=checkpointer, middleware=middleware
        )
        thread = {"configurable": {"thread_id": run.conversation}}
        asked: Any = {"messages": [{"role": "user", "content": run.prompt}]}
        if checkpointer is None:
            return _shown(agent.invoke(asked, thread)["messages"])
        state = agent.get_state(thread)
        if state.interrupts:
            run.go_on(_pending(state.values["messages"]))
            asked = Command(resume=_approved(run, *state.interrupts)) if run.pauses else None
        elif state.next:
            asked = None  # it did not end: it goes on where it was
            run.resume(_pending(state.values["messages"]))
        durability = {"durability": "sync"} if run.best else {}
        result = agent.invoke(asked, thread, **durability)
        if "__interrupt__" in result:
            raise run.pause(str(result["__interrupt__"]))
        run.end()
        return _shown(result["messages"])


def _approved(run: _agents.Run, interrupt: Any) -> dict[str, Any]:
    """The answer of a person to what waits, in the form of each mode."""
    approve = {"type": "approve"}
    return {interrupt.id: approve} if run.best else {"decisions": [approve]}


def _pending(messages: Any) -> str | None:
    """The id of the call that the tool is given when the run goes on."""
    calls = getattr(messages[-1], "tool_calls", [])
    return calls[0]["id"] if calls else None


def _model(run: _agents.Run) -> Any:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.outputs import ChatGeneration, ChatResult

    class Script(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "script"

        def bind_tools(self, tools: Any, **_: Any) -> Any:
            return self

        def _generate(self, messages: Any, *_: Any, **__: Any) -> ChatResult:
            call, said = run.asks(_shown(messages)), AIMessage("done")
            if call is not None:
                calls = [{"id": call, "name": _agents.NAME, "args": run.arguments}]
                said = AIMessage("", tool_calls=calls)
            return ChatResult(generations=[ChatGeneration(message=said)])

    return Script()


def _shown(messages: Any) -> _agents.Shown:
    from langchain_core.messages import ToolMessage

    return [(m.tool_call_id, m.content) for m in messages if isinstance(m, ToolMessage)]
