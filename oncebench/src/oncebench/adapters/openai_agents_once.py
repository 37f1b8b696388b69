"""OpenAI Agents SDK with effectonce: protect(agent)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncebench.adapters import _agents, _effectonce, openai_agents
from oncebench.kit import Setup

NAME = "OpenAI Agents SDK with effectonce"
KIND = "framework"
REQUIRES = (*openai_agents.REQUIRES, _effectonce.requirement("openai-agents"))
README = "docs/howto/agents.md of effectonce, OpenAI Agents SDK"
LACKS = _agents.WITH_EFFECTONCE
said = _agents.bare_said


def open(setup: Setup) -> Callable[..., Any]:
    import effectonce.integrations.openai_agents  # noqa: F401

    return _agents.open_with_effectonce(setup, talk)


def talk(run: _agents.Run, once: dict[str, Any]) -> _agents.Shown:
    from effectonce.integrations.openai_agents import protect

    def protected(agent: Any) -> Any:
        return protect(agent, **once, scope=lambda _: "payments")

    return openai_agents.talk(run, protected)
