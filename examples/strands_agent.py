"""An agent of Strands that is asked twice, because its first session was lost. The customer has
one refund.

    pip install 'effectonce[strands]'
    python examples/strands_agent.py

The model is a script, so this needs no network. The bank is a process of its own, and honours no
keys: what is sent twice is paid twice.
"""

import json
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from strands import Agent, tool
from strands.models.model import Model
from strands.session import FileSessionManager

from effectonce import Guard
from effectonce.integrations.strands import EffectOnce
from effectonce.testing.bank import Bank


class Script(Model):
    """A model that asks for a refund, each time with another id and in other words, and then is
    done.
    """

    def __init__(self, call_id: str, reason: str) -> None:
        arguments = json.dumps({"payment_id": "pay_7", "amount_minor": 1_400_000, "reason": reason})
        asks = (
            {"start": {"toolUse": {"name": "refund", "toolUseId": call_id}}},
            {"delta": {"toolUse": {"input": arguments}}},
        )
        self.lines = [(*asks, "tool_use"), ({"start": {}}, {"delta": {"text": "done"}}, "end_turn")]

    def update_config(self, **_: Any) -> None:
        """There is nothing to set."""

    def get_config(self) -> dict[str, Any]:
        """There is nothing set."""
        return {}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        """It has none."""
        raise NotImplementedError

    async def stream(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        """Say the next line."""
        start, delta, why = self.lines.pop(0)
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": start}
        yield {"contentBlockDelta": delta}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": why}}


with tempfile.TemporaryDirectory() as folder, Bank(Path(folder, "ledger")) as bank:
    guard = Guard(f"sqlite:///{folder}/effects.db", spool=Path(folder, "spool"))
    once = EffectOnce(guard, contracts={"refund": {"kind": "irreversible", "volatile": ["reason"]}})

    @tool
    def refund(payment_id: str, amount_minor: int, reason: str) -> str:
        """Refund a payment."""
        return str(bank.pay(payment_id, amount_minor)["receipt"])

    for model in (Script("call_1", "late delivery"), Script("call_2", "the parcel was late")):
        session = FileSessionManager("chat-42", storage_dir=tempfile.mkdtemp(dir=folder))
        agent = Agent(
            model=model,
            tools=[refund],
            plugins=[once],
            session_manager=session,
            callback_handler=None,
        )
        agent("refund pay_7, please")
        blocks = [block for message in agent.messages for block in message["content"]]
        told = [
            content["text"]
            for block in blocks
            if "toolResult" in block
            for content in block["toolResult"]["content"]
        ]
        print("the model got:", *told)
    print("refunds in the bank's ledger:", len(bank.ledger()))
    guard.close()
