"""An agent of the Microsoft Agent Framework that is asked twice, because its first run was lost.
The customer has one refund.

    pip install 'effectonce[agent-framework]'
    python examples/agent_framework_agent.py

The model is a script, so this needs no network. The bank is a process of its own, and honours no
keys: what is sent twice is paid twice.
"""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    Message,
    tool,
)

from effectonce import Guard
from effectonce.integrations.agent_framework import EffectOnce
from effectonce.testing.bank import Bank


class Script(FunctionInvocationLayer[Any], ChatMiddlewareLayer[Any], BaseChatClient[Any]):
    """A model with a script."""

    def __init__(self, *lines: Content) -> None:
        super().__init__()
        self.lines = list(lines)

    async def _inner_get_response(self, **_: Any) -> ChatResponse[Any]:
        return ChatResponse(messages=[Message("assistant", [self.lines.pop(0)])])


def asks(call_id: str, reason: str) -> Content:
    """The model asks for a refund: each time with another id, and in other words."""
    arguments = {"payment_id": "pay_7", "amount_minor": 1_400_000, "reason": reason}
    return Content.from_function_call(call_id, "refund", arguments=arguments)


async def talk(agent: Agent[Any]) -> None:
    """Let the agent work in the customer's session."""
    response = await agent.run(
        "refund pay_7, please", session=agent.create_session(session_id="chat-42")
    )
    contents = [content for message in response.messages for content in message.contents]
    print(
        "the model got:",
        *(content.result for content in contents if content.type == "function_result"),
    )


with tempfile.TemporaryDirectory() as folder, Bank(Path(folder, "ledger")) as bank:
    guard = Guard(f"sqlite:///{folder}/effects.db", spool=Path(folder, "spool"))

    @tool
    async def refund(payment_id: str, amount_minor: int, reason: str) -> str:
        """Refund a payment."""
        return str(bank.pay(payment_id, amount_minor)["receipt"])

    for line in (asks("call_1", "late delivery"), asks("call_2", "the parcel was late")):
        middleware = EffectOnce(
            guard, contracts={"refund": {"kind": "irreversible", "volatile": ["reason"]}}
        )
        agent = Agent(
            Script(line, Content.from_text("done")), tools=[refund], middleware=middleware
        )
        asyncio.run(talk(agent))
    print("refunds in the bank's ledger:", len(bank.ledger()))
    guard.close()
