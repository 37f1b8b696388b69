"""OpenAI Agents SDK with effectonce: protect(agent). Where a call needs an approval, the model is
told so, and the prompt is given again when it was decided in effectonce's store. Best configured,
it is a pause of the run (`approver=`); `sync_approvals` tells the state what was decided.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncebench.adapters import _agents, _effectonce, openai_agents
from oncebench.kit import Setup

NAME = "OpenAI Agents SDK with effectonce"
KIND = "framework"
REQUIRES = (*openai_agents.REQUIRES, _effectonce.requirement("openai-agents"))
README = "docs/howto/agents.md of effectonce, OpenAI Agents SDK; approvals-in-frameworks.md"
OFFERS = ("approval",)
LACKS = _agents.WITH_EFFECTONCE
said = _agents.bare_said


def open(setup: Setup) -> Callable[..., Any]:
    import effectonce.integrations.openai_agents  # noqa: F401

    return _agents.open_with_effectonce(setup, talk)


def talk(run: _agents.Run, once: dict[str, Any]) -> _agents.Shown:
    from effectonce.integrations.openai_agents import protect, sync_approvals

    pauses = {"approver": "ada"} if run.approval and run.best else {}

    def protected(agent: Any) -> Any:
        return protect(agent, **once, **pauses, scope=lambda _: "payments")

    return openai_agents.talk(run, protected, sync_approvals if pauses else openai_agents.no_sync)
