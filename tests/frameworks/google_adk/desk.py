"""Agents of Google's kit with a scripted model."""

import asyncio
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps.app import App
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools import FunctionTool
from google.genai import types
from pydantic import Field

from effectonce.integrations.google_adk import EffectOnce
from tests.frameworks.facts import CONTRACTS, DONE, Ran


class Script(BaseLlm):
    """A model that says its lines."""

    model: str = "script"
    lines: list[Any] = Field(default_factory=list)
    seen: list[Any] = Field(default_factory=list)

    async def generate_content_async(self, llm_request, stream=False):
        self.seen.append(
            [tool.model_dump(exclude_none=True) for tool in llm_request.config.tools or ()]
        )
        line = self.lines.pop(0)
        if isinstance(line, Exception):
            raise line
        yield LlmResponse(content=types.Content(role="model", parts=parts(line)))


def parts(line, tool="refund"):
    if line == DONE:
        return [types.Part(text="done")]
    return [
        types.Part(function_call=types.FunctionCall(id=ask.call_id, name=tool, args=ask.arguments))
        for ask in line
    ]


def readable(response):
    return response["result"] if set(response) == {"result"} else response


class Desk:
    def __init__(self, guard, folder):
        self.guard, self.folder = guard, folder
        self.forget()

    def forget(self):
        self.sessions = (
            InMemorySessionService()
            if self.folder is None
            else SqliteSessionService(f"{self.folder}/sessions.db")
        )

    def tool(self, function):
        return FunctionTool(function)

    def run(
        self,
        tool,
        *lines,
        scope="chat-42",
        contracts=CONTRACTS,
        forget=False,
        plugins=None,
        given="refund pay_7",
        **options,
    ):
        if forget:
            self.forget()
        once = [EffectOnce(self.guard, contracts=contracts)] if plugins is None else plugins
        self.model = Script(lines=list(lines))
        tools = tool if isinstance(tool, list) else [tool]
        agent = LlmAgent(name="desk", model=self.model, tools=tools, **options)
        return asyncio.run(
            self.talk(App(name="shop", root_agent=agent, plugins=once), scope, given)
        )

    async def talk(self, app, scope, given):
        place = {"app_name": "shop", "user_id": "ann", "session_id": scope}
        if await self.sessions.get_session(**place) is None:
            await self.sessions.create_session(**place)
        runner = Runner(app=app, session_service=self.sessions)
        told, self.events = [], []
        content = (
            given
            if isinstance(given, types.Content)
            else types.Content(role="user", parts=[types.Part(text=given)])
        )
        async for event in runner.run_async(user_id="ann", session_id=scope, new_message=content):
            self.events.append(event)
            told += [
                (result.id, readable(result.response)) for result in event.get_function_responses()
            ]
        await runner.close()
        return Ran(told)

    def schemas(self, tool, *, protected):
        self.run(tool, DONE, plugins=None if protected else [])
        return self.model.seen
