"""The OpenAI Agents SDK. Best configured, a SQLiteSession keeps the conversation.

Where a person is asked, the tool has `needs_approval=True`. The `RunState` of the run that has
paused is kept in a file, as in the first example of the docs, which does not delete it; to resume
it is `state.approve(...)`. A state may be resumed again: nothing is written down of the first time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from oncebench.adapters import _agents
from oncebench.kit import Setup

NAME = "OpenAI Agents SDK"
KIND = "framework"
REQUIRES = ("openai-agents==0.24.0",)
README = (
    "docs: Tools, Function tools; Human-in-the-loop, for approvals; Sessions, SQLite sessions, for"
    " the best configuration"
)
OFFERS = ("approval",)
LACKS = _agents.BARE
said = _agents.bare_said


def open(setup: Setup) -> Callable[..., Any]:
    import agents  # noqa: F401

    return _agents.opened(setup, talk, ids=True)  # ToolContext.tool_call_id


async def no_sync(state: Any, **_: Any) -> None:
    """The answer is in the state alone."""


def talk(
    run: _agents.Run,
    protect: Callable[[Any], Any] = lambda agent: agent,
    sync: Callable[..., Any] = no_sync,
) -> _agents.Shown:
    return asyncio.run(_talk(run, protect, sync))


async def _talk(
    run: _agents.Run, protect: Callable[[Any], Any], sync: Callable[..., Any]
) -> _agents.Shown:
    from agents import Agent, RunConfig, Runner, RunState, SQLiteSession, function_tool

    tool = function_tool(run.tool, needs_approval=run.pauses)
    agent = protect(Agent(name="desk", model=_model(run), tools=[tool]))
    config = RunConfig(group_id=run.conversation, tracing_disabled=True)
    session = None
    if run.kept is not None:
        session = SQLiteSession(run.conversation, run.kept / "sessions.db")
    begins: Any = run.prompt
    if run.paused.exists():
        begins = await RunState.from_string(agent, run.paused.read_text())
        (waits,) = begins.get_interruptions()
        run.go_on(waits.call_id)
        if run.pauses:
            begins.approve(waits)
        await sync(begins, run_config=config)
    result = await Runner.run(agent, begins, run_config=config, session=session)
    if result.interruptions:
        state = result.to_state()
        await sync(state, run_config=config)
        raise run.pause(state.to_string())
    run.end()
    return _shown(result.to_input_list())


def _model(run: _agents.Run) -> Any:
    from agents import ModelResponse, Usage
    from agents.models.interface import Model
    from openai.types.responses import (
        ResponseFunctionToolCall,
        ResponseOutputMessage,
        ResponseOutputText,
    )

    class Script(Model):
        async def get_response(self, *_: Any, **asked: Any) -> ModelResponse:
            call, said = run.asks(_shown(asked["input"])), []
            if call is not None:
                said.append(
                    ResponseFunctionToolCall(
                        type="function_call",
                        call_id=call,
                        name=_agents.NAME,
                        arguments=run.arguments_json,
                    )
                )
            else:
                text = ResponseOutputText(type="output_text", text="done", annotations=[])
                said.append(
                    ResponseOutputMessage(
                        id="m", type="message", role="assistant", status="completed", content=[text]
                    )
                )
            return ModelResponse(output=said, usage=Usage(), response_id=None)

        def stream_response(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    return Script()


def _shown(items: Any) -> _agents.Shown:
    outputs = [item for item in items if item.get("type") == "function_call_output"]
    return [(item["call_id"], item["output"]) for item in outputs]
