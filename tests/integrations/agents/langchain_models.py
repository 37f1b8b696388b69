"""A model that says what it is told to, and remembers the tools that it was shown."""

from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field


class Scripted(BaseChatModel):
    lines: list[Any]
    bound: list[Any] = Field(default_factory=list)

    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **kwargs):
        self.bound[:] = [convert_to_openai_tool(tool) for tool in tools]
        return self

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        line = self.lines.pop(0)
        if isinstance(line, Exception):
            raise line
        return ChatResult(generations=[ChatGeneration(message=line)])


def asks(call_id, tool="refund", **arguments):
    return AIMessage("", tool_calls=[{"id": call_id, "name": tool, "args": arguments}])
