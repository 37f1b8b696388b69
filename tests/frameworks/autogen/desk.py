"""An AutoGen agent with a scripted model. What it saves of its state after a run is kept, as an
application would.
"""

import asyncio
import json

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import ToolCallExecutionEvent
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, RequestUsage
from autogen_core.tools import FunctionTool
from autogen_ext.models.replay import ReplayChatCompletionClient

from effectonce.integrations.autogen import protect
from tests.frameworks.facts import CONTRACTS, DONE, Ran, readable

CAPABLE = {
    "vision": False,
    "function_calling": True,
    "json_output": False,
    "family": "unknown",
    "structured_output": False,
}
CRASHED = "the model is gone"


class Scripted(ReplayChatCompletionClient):
    """It remembers the tools that it was shown."""

    def __init__(self, *lines):
        super().__init__([said(line) for line in lines], model_info=CAPABLE)
        self.schemas = []

    async def create(self, messages, *, tools=(), **options):
        self.schemas = [tool if isinstance(tool, dict) else tool.schema for tool in tools]
        line = await super().create(messages, tools=tools, **options)
        if line.content == CRASHED:
            raise RuntimeError(CRASHED)
        return line


def said(line):
    if isinstance(line, Exception):
        return CRASHED
    return (
        line
        if isinstance(line, str | CreateResult)
        else asks(*((call_id, "refund", arguments) for call_id, arguments in line))
    )


def asks(*calls):
    content = [
        FunctionCall(id=call_id, name=name, arguments=json.dumps(arguments))
        for call_id, name, arguments in calls
    ]
    usage = RequestUsage(prompt_tokens=0, completion_tokens=0)
    return CreateResult(finish_reason="function_calls", content=content, usage=usage, cached=False)


class Desk:
    def __init__(self, guard, folder):
        self.guard, self.folder = guard, folder

    def tool(self, function):
        return FunctionTool(function, function.__doc__)

    def agent(self, *lines, **options):
        return AssistantAgent("desk", Scripted(*lines), max_tool_iterations=9, **options)

    def run(self, tool, *lines, scope="chat-42", contracts=CONTRACTS, forget=False):
        agent = protect(
            self.agent(*lines, tools=[tool]), self.guard, scope=scope, contracts=contracts
        )
        return asyncio.run(self.talk(agent, self.folder / f"{scope}.json", forget=forget))

    async def talk(self, agent, saved=None, *, forget=False):
        if saved is not None and saved.exists() and not forget:
            await agent.load_state(json.loads(saved.read_text()))
        result = await agent.run(task="refund pay_7")
        if saved is not None:
            saved.write_text(json.dumps(await agent.save_state()))
        events = [event for event in result.messages if isinstance(event, ToolCallExecutionEvent)]
        return Ran(
            [(each.call_id, readable(each.content)) for event in events for each in event.content]
        )

    def schemas(self, tool, *, protected):
        agent = self.agent(DONE, tools=[tool])
        asyncio.run(self.talk(protect(agent, self.guard, scope="chat-42") if protected else agent))
        return agent._model_client.schemas
