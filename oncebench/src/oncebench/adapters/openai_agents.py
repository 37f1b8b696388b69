"""The OpenAI Agents SDK. Best configured, a SQLiteSession keeps the conversation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncebench.adapters import _agents
from oncebench.kit import Setup

NAME = "OpenAI Agents SDK"
KIND = "framework"
REQUIRES = ("openai-agents==0.24.0",)
README = "docs: Tools, Function tools; Sessions, SQLite sessions, for the best configuration"
LACKS = _agents.BARE
said = _agents.bare_said


def open(setup: Setup) -> Callable[..., Any]:
    import agents  # noqa: F401

    return _agents.opened(setup, talk, ids=True)  # ToolContext.tool_call_id


def talk(run: _agents.Run, protect: Callable[[Any], Any] = lambda agent: agent) -> _agents.Shown:
    from agents import Agent, RunConfig, Runner, SQLiteSession, function_tool

    agent = protect(Agent(name="desk", model=_model(run), tools=[function_tool(run.tool)]))
    config = RunConfig(group_id=run.conversation, tracing_disabled=True)
    session = None
    if run.kept is not None:
        session = SQLiteSession(run.conversation, run.kept / "sessions.db")
    result = Runner.run_sync(agent, run.prompt, run_config=config, session=session)
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
