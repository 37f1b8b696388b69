"""Google ADK with effectonce: a plugin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncebench.adapters import _agents, _effectonce, google_adk
from oncebench.kit import Setup

NAME = "Google ADK with effectonce"
KIND = "framework"
REQUIRES = (*google_adk.REQUIRES, _effectonce.requirement("google-adk"))
README = "docs/howto/agents.md of effectonce, Google ADK"
LACKS = _agents.WITH_EFFECTONCE
said = _agents.bare_said


def open(setup: Setup) -> Callable[..., Any]:
    import effectonce.integrations.google_adk  # noqa: F401

    return _agents.open_with_effectonce(setup, talk)


def talk(run: _agents.Run, once: dict[str, Any]) -> _agents.Shown:
    from effectonce.integrations.google_adk import EffectOnce

    return google_adk.talk(run, plugins=[EffectOnce(**once, scope=lambda _: "payments")])
