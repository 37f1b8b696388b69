"""Pydantic AI. Best configured, the messages of a conversation are kept, as its docs say."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from oncebench.adapters import _agents
from oncebench.kit import Setup

NAME = "Pydantic AI"
KIND = "framework"
REQUIRES = ("pydantic-ai-slim==2.66.0",)
README = "docs: Function Tools; Messages and chat history, Storing and loading messages, for best"
LACKS = _agents.BARE
said = _agents.bare_said


def open(setup: Setup) -> Callable[..., Any]:
    import pydantic_ai.models.function  # noqa: F401

    return _agents.opened(setup, talk, ids=True)  # RunContext.tool_call_id


def talk(run: _agents.Run, **options: Any) -> _agents.Shown:
    from pydantic_ai import Agent, ModelMessagesTypeAdapter
    from pydantic_ai.models.function import FunctionModel

    agent: Any = Agent(FunctionModel(partial(_model, run)), tools=[run.tool], **options)
    file = None if run.kept is None else run.kept / f"{run.conversation}.json"
    history = None
    if file is not None and file.exists():
        history = ModelMessagesTypeAdapter.validate_json(file.read_bytes())
    result = agent.run_sync(run.prompt, message_history=history, conversation_id=run.conversation)
    if file is not None:
        file.write_bytes(result.all_messages_json())
    return _shown(result.all_messages())


def _model(run: _agents.Run, messages: Any, _info: Any) -> Any:
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart

    call = run.asks(_shown(messages))
    if call is None:
        return ModelResponse(parts=[TextPart("done")])
    return ModelResponse(parts=[ToolCallPart("pay", run.arguments, tool_call_id=call)])


def _shown(messages: Any) -> _agents.Shown:
    from pydantic_ai.messages import ToolReturnPart

    parts = [part for message in messages for part in message.parts]
    return [(part.tool_call_id, part.content) for part in parts if isinstance(part, ToolReturnPart)]
