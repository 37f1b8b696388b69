"""Microsoft Agent Framework with effectonce: a middleware."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncebench.adapters import _agents, _effectonce, agent_framework
from oncebench.kit import Setup

NAME = "Microsoft Agent Framework with effectonce"
KIND = "framework"
REQUIRES = (*agent_framework.REQUIRES, _effectonce.requirement("agent-framework"))
README = "docs/howto/agents.md of effectonce, Microsoft Agent Framework"
LACKS = _agents.WITH_EFFECTONCE
said = _agents.bare_said


def open(setup: Setup) -> Callable[..., Any]:
    import effectonce.integrations.agent_framework  # noqa: F401

    return _agents.open_with_effectonce(setup, talk)


def talk(run: _agents.Run, once: dict[str, Any]) -> _agents.Shown:
    from effectonce.integrations.agent_framework import EffectOnce

    return agent_framework.talk(run, middleware=EffectOnce(**once, scope=lambda _: "payments"))
