"""Strands Agents. Best configured, a FileSessionManager keeps the conversation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncebench.adapters import _agents
from oncebench.kit import Setup

NAME = "Strands Agents"
KIND = "framework"
REQUIRES = ("strands-agents==1.62.0",)
README = "docs: Custom tools; Session management, FileSessionManager, for the best configuration"
LACKS = _agents.BARE
said = _agents.bare_said


def open(setup: Setup) -> Callable[..., Any]:
    import strands  # noqa: F401

    return _agents.opened(setup, talk, ids=True)  # ToolContext.tool_use


def talk(run: _agents.Run, **options: Any) -> _agents.Shown:
    from strands import Agent, tool
    from strands.session import FileSessionManager

    session = None
    if run.kept is not None:
        session = FileSessionManager(run.conversation, storage_dir=str(run.kept / "sessions"))
    agent = Agent(
        model=_model(run),
        tools=[tool(run.tool)],
        session_manager=session,
        callback_handler=None,
        **options,
    )
    agent(run.prompt)
    return _shown(agent.messages)


def _model(run: _agents.Run) -> Any:
    from strands.models.model import Model

    class Script(Model):
        def update_config(self, **_: Any) -> None:
            pass

        def get_config(self) -> dict[str, Any]:
            return {}

        def structured_output(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

        async def stream(self, messages: Any, *_: Any, **__: Any) -> Any:
            call = run.asks(_shown(messages))
            start: dict[str, Any] = {}
            delta: dict[str, Any] = {"text": "done"}
            if call is not None:
                start = {"toolUse": {"name": _agents.NAME, "toolUseId": call}}
                delta = {"toolUse": {"input": run.arguments_json}}
            yield {"messageStart": {"role": "assistant"}}
            yield {"contentBlockStart": {"start": start}}
            yield {"contentBlockDelta": {"delta": delta}}
            yield {"contentBlockStop": {}}
            yield {"messageStop": {"stopReason": "end_turn" if call is None else "tool_use"}}

    return Script()


def _shown(messages: Any) -> _agents.Shown:
    blocks = [block for message in messages for block in message["content"]]
    results = [block["toolResult"] for block in blocks if "toolResult" in block]
    return [(each["toolUseId"], _text(each["content"][0])) for each in results]


def _text(content: Any) -> Any:
    return content["json"] if "json" in content else content.get("text")
