"""Agents of Strands with a scripted model."""

import asyncio
import json
from types import MappingProxyType

from strands import Agent, tool
from strands.models.model import Model
from strands.session import FileSessionManager
from strands.types.exceptions import EventLoopException

from effectonce.integrations.strands import EffectOnce
from tests.frameworks.facts import CONTRACTS, DONE, Ran, readable


class Script(Model):
    """A model that says its lines."""

    def __init__(self, *lines):
        self.lines, self.seen = list(lines), []

    def update_config(self, **_):
        pass

    def get_config(self):
        return {}

    def structured_output(self, *_, **__):
        raise NotImplementedError

    async def stream(self, messages, tool_specs=None, system_prompt=None, **_):
        self.seen.append(tool_specs)
        line = self.lines.pop(0)
        if isinstance(line, Exception):
            raise line
        yield {"messageStart": {"role": "assistant"}}
        for ask in () if line == DONE else line:
            yield {
                "contentBlockStart": {
                    "start": {"toolUse": {"name": "refund", "toolUseId": ask.call_id}}
                }
            }
            yield {
                "contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(ask.arguments)}}}
            }
            yield {"contentBlockStop": {}}
        if line == DONE:
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": "done"}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn" if line == DONE else "tool_use"}}


def said(result):
    content = result["content"][0]
    return content["json"] if "json" in content else readable(content.get("text"))


class Desk:
    def __init__(self, guard, folder):
        self.guard, self.folder, self.forgotten = guard, folder, 0

    def tool(self, function):
        return tool(function)

    def agent(self, tool, *lines, scope="chat-42", plugins=None, contracts=CONTRACTS, **options):
        once = [EffectOnce(self.guard, contracts=contracts)] if plugins is None else plugins
        self.model = Script(*lines)
        sessions = (
            FileSessionManager(scope, storage_dir=f"{self.folder}/sessions-{self.forgotten}")
            if scope
            else None
        )
        return Agent(
            model=self.model,
            tools=[tool],
            plugins=once,
            session_manager=sessions,
            callback_handler=None,
            **options,
        )

    def run(
        self,
        tool,
        *lines,
        forget=False,
        given="refund pay_7",
        asked=MappingProxyType({}),
        **options,
    ):
        self.forgotten += forget
        agent = self.agent(tool, *lines, **options)
        before = len(agent.messages)
        try:
            self.result = asyncio.run(agent.invoke_async(given, **asked))
        except EventLoopException as error:
            raise error.original_exception from error
        self.messages = agent.messages
        blocks = [block for message in agent.messages[before:] for block in message["content"]]
        results = [block["toolResult"] for block in blocks if "toolResult" in block]
        return Ran([(result["toolUseId"], said(result)) for result in results])

    def schemas(self, tool, *, protected):
        self.run(tool, DONE, plugins=None if protected else [], forget=True)
        return self.model.seen
