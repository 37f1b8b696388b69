"""LangChain with effectonce: a middleware. A call that needs an approval is an interrupt, where
there is a checkpointer; it is decided in effectonce's store, and the thread goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncebench.adapters import _agents, _effectonce, langchain
from oncebench.kit import Setup

NAME = "LangChain with effectonce"
KIND = "framework"
REQUIRES = (*langchain.REQUIRES, _effectonce.requirement("langchain"))
README = "docs/howto/agents.md of effectonce, LangChain and LangGraph; approvals-in-frameworks.md"
OFFERS = ("approval",)
LACKS = _agents.WITH_EFFECTONCE
said = _agents.bare_said


def open(setup: Setup) -> Callable[..., Any]:
    import effectonce.integrations.langchain  # noqa: F401

    return _agents.open_with_effectonce(setup, talk)


def talk(run: _agents.Run, once: dict[str, Any]) -> _agents.Shown:
    from effectonce.integrations.langchain import EffectOnce

    return langchain.talk(run, (EffectOnce(**once, scope=lambda _: "payments"),))
