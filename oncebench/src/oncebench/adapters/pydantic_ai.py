"""Pydantic AI. Best configured, the messages of a conversation are kept, as its docs say.

Where a person is asked, the tool has `requires_approval=True`. The messages of the run that ended
with `DeferredToolRequests` are kept, and a new run begins with them and the approval of the call.
The framework keeps no record of which approvals were used: it says nothing of a second resume.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from oncebench.adapters import _agents
from oncebench.kit import Setup

NAME = "Pydantic AI"
KIND = "framework"
REQUIRES = ("pydantic-ai-slim==2.66.0",)
README = (
    "docs: Function Tools; Deferred Tools, Human-in-the-Loop Tool Approval, for approvals; Messages"
    " and chat history, Storing and loading messages, for best"
)
OFFERS = ("approval",)
LACKS = _agents.BARE
said = _agents.bare_said


def open(setup: Setup) -> Callable[..., Any]:
    import pydantic_ai.models.function  # noqa: F401

    return _agents.opened(setup, talk, ids=True)  # RunContext.tool_call_id


def talk(run: _agents.Run, **options: Any) -> _agents.Shown:
    from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, Tool
    from pydantic_ai import ModelMessagesTypeAdapter as Messages
    from pydantic_ai.models.function import FunctionModel

    if run.approval:
        options["output_type"] = [str, DeferredToolRequests]
    tool = Tool(run.tool, requires_approval=run.pauses)
    agent: Any = Agent(FunctionModel(partial(_model, run)), tools=[tool], **options)
    file = None if run.kept is None else run.kept / f"{run.conversation}.json"
    begins: dict[str, Any] = {"user_prompt": run.prompt, "message_history": None}
    if run.paused.exists():
        history = Messages.validate_json(run.paused.read_bytes())
        (call,) = history[-1].tool_calls
        run.go_on(call.tool_call_id)
        approved = DeferredToolResults(approvals={call.tool_call_id: True})
        begins = {"message_history": history, "deferred_tool_results": approved}
    elif file is not None and file.exists():
        begins["message_history"] = Messages.validate_json(file.read_bytes())
    result = agent.run_sync(**begins, conversation_id=run.conversation)
    if isinstance(result.output, DeferredToolRequests):
        raise run.pause(result.all_messages_json())
    if file is not None:
        _agents.keep(file, result.all_messages_json())
    run.end()
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
