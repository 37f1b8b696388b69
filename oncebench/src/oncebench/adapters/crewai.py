"""CrewAI. Best configured, the application keeps the messages of an agent's runs, because an
agent that is kicked off has no history of its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from oncebench.adapters import _agents
from oncebench.kit import Setup

NAME = "CrewAI"
KIND = "framework"
REQUIRES = ("crewai==1.15.30",)
README = "docs: Agents, Direct agent interaction with kickoff(), messages; Custom tools"
LACKS = _agents.BARE
said = _agents.bare_said


def open(setup: Setup) -> Callable[..., Any]:
    quiet()
    import crewai  # noqa: F401

    return _agents.opened(setup, talk)


def quiet() -> None:
    """It sends nothing to its makers."""
    os.environ |= {
        "CREWAI_DISABLE_TELEMETRY": "true",
        "CREWAI_TRACING_ENABLED": "false",
        "OTEL_SDK_DISABLED": "true",
    }


def talk(
    run: _agents.Run, protect: Callable[[list[Any]], list[Any]] = lambda tools: tools
) -> _agents.Shown:
    from crewai import Agent
    from crewai.tools import tool

    agent = Agent(
        role="clerk",
        goal="pay what is due",
        backstory="A clerk.",
        llm=_model(run),
        tools=protect([tool(run.tool)]),
        verbose=False,
    )
    file = None if run.kept is None else run.kept / f"{run.conversation}.json"
    history = json.loads(file.read_text()) if file is not None and file.exists() else []
    messages = agent.kickoff([*history, {"role": "user", "content": run.prompt}]).messages
    if file is not None:
        kept = [message for message in messages if message["role"] != "system"]
        file.write_text(json.dumps(kept, default=str))
    return _shown(messages)


def _model(run: _agents.Run) -> Any:
    from crewai import BaseLLM

    class Script(BaseLLM):
        def call(self, messages: Any, *_: Any, **__: Any) -> Any:
            call = run.asks(_shown(messages))
            if call is None:
                return "done"
            function = {"name": _agents.NAME, "arguments": run.arguments_json}
            return [{"id": call, "type": "function", "function": function}]

        async def acall(self, messages: Any, *_: Any, **__: Any) -> Any:
            return self.call(messages)

        def supports_function_calling(self) -> bool:
            return True

        def get_context_window_size(self) -> int:
            return 100_000

    return Script(model="script")


def _shown(messages: Any) -> _agents.Shown:
    return [(m["tool_call_id"], m["content"]) for m in messages if m["role"] == "tool"]
