"""A CrewAI agent with a scripted model. The messages of a run are kept, as an application would,
and handed to the next one.
"""

import json
import os

os.environ |= {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "OTEL_SDK_DISABLED": "true",
}

from crewai import Agent, BaseLLM, Crew, Task
from crewai.events.event_listener import event_listener
from crewai.tools import tool as as_tool
from pydantic import Field

from effectonce.integrations.crewai import protect
from tests.frameworks.facts import CONTRACTS, DONE, Ran, readable

event_listener.formatter.verbose = False


class Scripted(BaseLLM):
    """A model that says its lines, with tool calls or without."""

    lines: list = Field(default_factory=list)
    native: bool = True
    schemas: list = Field(default_factory=list)
    seen: list = Field(default_factory=list)

    def call(self, messages, tools=None, *args, **kwargs):
        self.schemas.append(tools)
        self.seen.append(json.loads(json.dumps(messages, default=str)))
        line = self.lines.pop(0)
        if isinstance(line, Exception):
            raise line
        if isinstance(line, str):
            return line if self.native else f"Thought: I am ready\nFinal Answer: {line}"
        if not self.native:
            ((_, arguments),) = line
            return f"Thought: to the bank\nAction: refund\nAction Input: {json.dumps(arguments)}"
        return [asked(*ask) for ask in line]

    async def acall(self, *args, **kwargs):
        return self.call(*args, **kwargs)

    def supports_function_calling(self):
        return self.native

    def supports_stop_words(self):
        return True

    def get_context_window_size(self):
        return 100_000


def asked(call_id, arguments):
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": "refund", "arguments": json.dumps(arguments)},
    }


def told(messages):
    """What the model was shown, in the last request and in what came after it."""
    return [(m["tool_call_id"], readable(m["content"])) for m in messages if m["role"] == "tool"]


class Desk:
    def __init__(self, guard, folder):
        self.guard, self.folder = guard, folder

    def tool(self, function):
        return as_tool(function)

    def agent(self, tools, *lines, native=True, **options):
        self.model = Scripted(model="script", lines=list(lines), native=native)
        return Agent(
            role="desk",
            goal="refund",
            backstory="a clerk",
            llm=self.model,
            tools=tools,
            verbose=False,
            **options,
        )

    def run(self, tool, *lines, scope="chat-42", contracts=CONTRACTS, forget=False):
        tools = protect([tool], self.guard, scope=scope, contracts=contracts)
        saved = self.folder / f"{scope}.json"
        history = json.loads(saved.read_text()) if saved.exists() and not forget else []
        done = self.agent(tools, *lines).kickoff(
            [*history, {"role": "user", "content": "refund pay_7"}]
        )
        saved.write_text(
            json.dumps([m for m in done.messages if m["role"] != "system"], default=str)
        )
        return Ran(told(done.messages)[len(told(history)) :])

    def crew(
        self,
        tool,
        *lines,
        native=True,
        contracts=CONTRACTS,
        scope="ticket-17",
        crew_options=None,
        **task_options,
    ):
        """One task of one agent. Its history is its own."""
        tools = protect([tool], self.guard, scope=scope, contracts=contracts)
        agent = self.agent(tools, *lines, native=native)
        task = Task(
            name="refund",
            description="refund pay_7",
            expected_output="a receipt",
            agent=agent,
            **task_options,
        )
        Crew(agents=[agent], tasks=[task], **(crew_options or {})).kickoff()
        return Ran(told(self.model.seen[-1]))

    def schemas(self, tool, *, protected):
        self.agent(
            protect([tool], self.guard, scope="chat-42") if protected else [tool], DONE
        ).kickoff("refund pay_7")
        return self.model.schemas[0]
