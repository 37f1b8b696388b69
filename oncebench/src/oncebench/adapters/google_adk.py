"""Google's Agent Development Kit. Best configured, its SQLite service keeps the session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from oncebench.adapters import _agents
from oncebench.kit import Setup

NAME = "Google ADK"
KIND = "framework"
REQUIRES = ("google-adk==2.13.0",)
README = "docs: Function tools; Session: SessionService implementations for the best configuration"
LACKS = _agents.BARE
said = _agents.bare_said


def open(setup: Setup) -> Callable[..., Any]:
    import google.adk.runners  # noqa: F401

    return _agents.opened(setup, talk, ids=True)  # ToolContext.function_call_id


def talk(run: _agents.Run, **options: Any) -> _agents.Shown:
    return asyncio.run(_talk(run, options))


async def _talk(run: _agents.Run, options: dict[str, Any]) -> _agents.Shown:
    from google.adk.agents import LlmAgent
    from google.adk.apps.app import App
    from google.adk.runners import Runner
    from google.adk.sessions import InMemorySessionService
    from google.adk.sessions.sqlite_session_service import SqliteSessionService
    from google.genai import types

    agent = LlmAgent(name="clerk", model=_model(run), tools=[run.tool])
    sessions: Any = InMemorySessionService()
    if run.kept is not None:
        sessions = SqliteSessionService(str(run.kept / "sessions.db"))
    place = {"app_name": "shop", "user_id": "ann", "session_id": run.conversation}
    if await sessions.get_session(**place) is None:
        await sessions.create_session(**place)
    app = App(name="shop", root_agent=agent, **options)
    runner = Runner(app=app, session_service=sessions)
    said = types.Content(role="user", parts=[types.Part(text=run.prompt)])
    async for _ in runner.run_async(user_id="ann", session_id=run.conversation, new_message=said):
        pass
    session = await sessions.get_session(**place)
    await runner.close()
    return _shown(event.content for event in session.events)


def _model(run: _agents.Run) -> Any:
    from google.adk.models.base_llm import BaseLlm
    from google.adk.models.llm_response import LlmResponse
    from google.genai import types

    class Script(BaseLlm):
        model: str = "script"

        async def generate_content_async(self, request: Any, *_: Any, **__: Any) -> Any:
            call, part = run.asks(_shown(request.contents)), types.Part(text="done")
            if call is not None:
                asked = types.FunctionCall(id=call, name=_agents.NAME, args=run.arguments)
                part = types.Part(function_call=asked)
            yield LlmResponse(content=types.Content(role="model", parts=[part]))

    return Script()


def _shown(contents: Any) -> _agents.Shown:
    parts = [part for content in contents if content for part in content.parts or ()]
    responses = [part.function_response for part in parts if part.function_response]
    return [(each.id, each.response.get("result", each.response)) for each in responses]
