"""Strands Agents with effectonce: a plugin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncebench.adapters import _agents, _effectonce, strands
from oncebench.kit import Setup

NAME = "Strands Agents with effectonce"
KIND = "framework"
REQUIRES = (*strands.REQUIRES, _effectonce.requirement("strands"))
README = "docs/howto/agents.md of effectonce, Strands Agents"
LACKS = _agents.WITH_EFFECTONCE
said = _agents.bare_said


def open(setup: Setup) -> Callable[..., Any]:
    import effectonce.integrations.strands  # noqa: F401

    return _agents.open_with_effectonce(setup, talk)


def talk(run: _agents.Run, once: dict[str, Any]) -> _agents.Shown:
    from effectonce.integrations.strands import EffectOnce

    return strands.talk(run, plugins=[EffectOnce(**once, scope=lambda _: "payments")])
