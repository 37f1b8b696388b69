"""An agent of Pydantic AI that is asked twice, because its first run was lost. The customer has
one refund.

    pip install 'effectonce[pydantic-ai]'
    python examples/pydantic_ai_agent.py

The model is a script, so this needs no network. The bank is a process of its own, and honours no
keys: what is sent twice is paid twice.
"""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

from effectonce import Guard
from effectonce.integrations.pydantic_ai import EffectOnce
from effectonce.testing.bank import Bank


def script(call_id: str, reason: str) -> FunctionModel:
    """A model that asks for a refund, each time with another id and in other words, and then is
    done.
    """
    arguments = {"payment_id": "pay_7", "amount_minor": 1_400_000, "reason": reason}
    lines = [ToolCallPart("refund", arguments, tool_call_id=call_id), TextPart("done")]
    return FunctionModel(lambda _messages, _info: ModelResponse(parts=[lines.pop(0)]))


with tempfile.TemporaryDirectory() as folder, Bank(Path(folder, "ledger")) as bank:
    guard = Guard(f"sqlite:///{folder}/effects.db", spool=Path(folder, "spool"))
    once: EffectOnce = EffectOnce(
        guard, contracts={"refund": {"kind": "irreversible", "volatile": ["reason"]}}
    )

    async def refund(payment_id: str, amount_minor: int, reason: str) -> str:
        """Refund a payment."""
        return bank.pay(payment_id, amount_minor)["receipt"]

    for model in (script("call_1", "late delivery"), script("call_2", "the parcel was late")):
        agent: Agent[Any, str] = Agent(model, tools=[refund], capabilities=[once])
        result = asyncio.run(agent.run("refund pay_7, please", conversation_id="chat-42"))
        parts = [part for message in result.all_messages() for part in message.parts]
        print(
            "the model got:", *(part.content for part in parts if isinstance(part, ToolReturnPart))
        )
    print("refunds in the bank's ledger:", len(bank.ledger()))
    guard.close()
