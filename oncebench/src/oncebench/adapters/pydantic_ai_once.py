"""Pydantic AI with effectonce's capability. A call that needs an approval is a deferred one; it is
decided in effectonce's store, and the run that was kept goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncebench.adapters import _agents, _effectonce, pydantic_ai
from oncebench.kit import Setup

NAME = "Pydantic AI with effectonce"
KIND = "framework"
REQUIRES = (*pydantic_ai.REQUIRES, _effectonce.requirement("pydantic-ai"))
README = "docs/howto/agents.md of effectonce, Pydantic AI; approvals-in-frameworks.md"
OFFERS = ("approval",)
LACKS = _agents.WITH_EFFECTONCE
said = _agents.bare_said


def open(setup: Setup) -> Callable[..., Any]:
    import effectonce.integrations.pydantic_ai  # noqa: F401

    return _agents.open_with_effectonce(setup, talk)


def talk(run: _agents.Run, once: dict[str, Any]) -> _agents.Shown:
    from effectonce.integrations.pydantic_ai import EffectOnce

    guarded = [] if once["contracts"] else [run.tool]
    capability: Any = EffectOnce(**once, guarded=guarded, scope=lambda _: "payments")
    return pydantic_ai.talk(run, capabilities=[capability])
