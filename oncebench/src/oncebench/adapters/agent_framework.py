"""Microsoft Agent Framework. Best configured, a FileHistoryProvider keeps the session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from oncebench.adapters import _agents
from oncebench.kit import Setup

NAME = "Microsoft Agent Framework"
KIND = "framework"
REQUIRES = ("agent-framework-core==1.23.0",)
README = "docs: Function tools; Sessions and storage, FileHistoryProvider, for the best"
LACKS = _agents.BARE
said = _agents.bare_said


def open(setup: Setup) -> Callable[..., Any]:
    import agent_framework  # noqa: F401

    return _agents.opened(setup, talk)


def talk(run: _agents.Run, **options: Any) -> _agents.Shown:
    from agent_framework import Agent, FileHistoryProvider, tool

    history = [] if run.kept is None else [FileHistoryProvider(str(run.kept / "history"))]
    seen: list[Any] = []
    agent: Any = Agent(
        _client(run, seen), tools=[tool(run.tool)], context_providers=history, **options
    )
    session = agent.create_session(session_id=run.conversation)
    asyncio.run(agent.run(run.prompt, session=session))
    return _shown(seen[-1])


def _client(run: _agents.Run, seen: list[Any]) -> Any:
    from agent_framework import (
        BaseChatClient,
        ChatMiddlewareLayer,
        ChatResponse,
        Content,
        FunctionInvocationLayer,
        Message,
    )

    class Script(FunctionInvocationLayer[Any], ChatMiddlewareLayer[Any], BaseChatClient[Any]):
        async def _inner_get_response(self, *, messages: Any, **_: Any) -> Any:
            seen.append([*messages])
            call, said = run.asks(_shown(messages)), Content.from_text("done")
            if call is not None:
                said = Content.from_function_call(call, _agents.NAME, arguments=run.arguments)
            return ChatResponse(messages=[Message("assistant", [said])])

    return Script()


def _shown(messages: Any) -> _agents.Shown:
    contents = [content for message in messages for content in message.contents]
    return [(each.call_id, each.result) for each in contents if each.type == "function_result"]
