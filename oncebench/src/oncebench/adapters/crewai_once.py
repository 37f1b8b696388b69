"""CrewAI with effectonce: protect(tools)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncebench.adapters import _agents, _effectonce, crewai
from oncebench.kit import Setup

NAME = "CrewAI with effectonce"
KIND = "framework"
REQUIRES = (*crewai.REQUIRES, _effectonce.requirement("crewai"))
README = "docs/howto/agents.md of effectonce, CrewAI"
LACKS = _agents.WITH_EFFECTONCE
said = _agents.bare_said


def open(setup: Setup) -> Callable[..., Any]:
    crewai.quiet()
    import effectonce.integrations.crewai  # noqa: F401

    return _agents.open_with_effectonce(setup, talk)


def talk(run: _agents.Run, once: dict[str, Any]) -> _agents.Shown:
    from effectonce.integrations.crewai import protect

    return crewai.talk(run, lambda tools: protect(tools, **once, scope="payments"))
