"""Agents of the Microsoft Agent Framework with a scripted model."""

import asyncio
import copy

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FileHistoryProvider,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
    tool,
)

from effectonce.integrations.agent_framework import EffectOnce
from tests.frameworks.facts import CONTRACTS, DONE, Ran, readable


class Script(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    """A model that says its lines."""

    def __init__(self, *lines, **options):
        super().__init__(**options)
        self.lines, self.seen = list(lines), []

    def _inner_get_response(self, *, messages, stream, options, **kwargs):
        self.seen.append([each.to_json_schema_spec() for each in options.get("tools") or ()])
        if not stream:
            return self._whole()
        return ResponseStream(self._pieces(), finalizer=ChatResponse.from_updates)

    async def _whole(self):
        return ChatResponse(messages=[Message("assistant", contents(self._line()))])

    async def _pieces(self):
        yield ChatResponseUpdate(role="assistant", contents=contents(self._line()))

    def _line(self):
        line = self.lines.pop(0)
        if isinstance(line, Exception):
            raise line
        return line


def contents(line):
    if line == DONE:
        return [Content.from_text("done")]
    return [
        Content.from_function_call(ask.call_id, "refund", arguments=copy.deepcopy(ask.arguments))
        for ask in line
    ]


class Desk:
    def __init__(self, guard, folder):
        self.guard, self.folder, self.forgotten = guard, folder, 0

    def tool(self, function, **options):
        return tool(function, **options)

    def run(
        self,
        tool,
        *lines,
        scope="chat-42",
        contracts=CONTRACTS,
        forget=False,
        middleware=None,
        given="refund pay_7",
        stream=False,
        stateless=False,
        session=None,
    ):
        self.forgotten += forget
        self.client = Script(*lines)
        mine = EffectOnce(self.guard, contracts=contracts) if middleware is None else middleware
        history = (
            [] if stateless else [FileHistoryProvider(f"{self.folder}/history-{self.forgotten}")]
        )
        agent = Agent(self.client, tools=[tool], middleware=mine, context_providers=history)
        self.session = session or (
            None if scope is None else agent.create_session(session_id=scope)
        )
        self.response = asyncio.run(self._answer(agent, given, self.session, stream=stream))
        parts = [
            part
            for message in self.response.messages
            for part in message.contents
            if part.type == "function_result"
        ]
        return Ran([(part.call_id, readable(part.result)) for part in parts])

    async def _answer(self, agent, given, session, *, stream):
        async with agent:  # it ends the servers that its tools have started
            if not stream:
                return await agent.run(given, session=session)
            return await agent.run(given, session=session, stream=True).get_final_response()

    def schemas(self, tool, *, protected):
        self.run(tool, DONE, middleware=None if protected else [], forget=True)
        return self.client.seen
