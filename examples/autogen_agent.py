"""An AutoGen agent that is asked twice, because its first run was lost. The customer has one
refund.

    pip install 'effectonce[autogen]' autogen-ext
    python examples/autogen_agent.py

The model is a script, so this needs no network. The bank is a process of its own, and honours no
keys: what is sent twice is paid twice.
"""

import asyncio
import json
import tempfile
from pathlib import Path

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import ToolCallExecutionEvent
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, ModelInfo, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient

from effectonce import Guard
from effectonce.integrations.autogen import protect
from effectonce.testing.bank import Bank

CAPABLE = ModelInfo(
    vision=False,
    function_calling=True,
    json_output=False,
    family="unknown",
    structured_output=False,
)


def asks(call_id: str, reason: str) -> CreateResult:
    """The model asks for a refund: each time with another id, and in other words."""
    arguments = json.dumps({"payment_id": "pay_7", "amount_minor": 1_400_000, "reason": reason})
    calls = [FunctionCall(id=call_id, name="refund", arguments=arguments)]
    usage = RequestUsage(prompt_tokens=0, completion_tokens=0)
    return CreateResult(finish_reason="function_calls", content=calls, usage=usage, cached=False)


with tempfile.TemporaryDirectory() as folder, Bank(Path(folder, "ledger")) as bank:
    guard = Guard(f"sqlite:///{folder}/effects.db", spool=Path(folder, "spool"))

    async def refund(payment_id: str, amount_minor: int, reason: str) -> str:
        """Refund a payment."""
        return bank.pay(payment_id, amount_minor)["receipt"]

    for line in (asks("call_1", "late delivery"), asks("call_2", "the parcel was late")):
        agent = AssistantAgent("desk", ReplayChatCompletionClient([line], CAPABLE), tools=[refund])
        contracts = {"refund": {"kind": "irreversible", "volatile": ["reason"]}}
        agent = protect(agent, guard, scope="chat-42", contracts=contracts)
        result = asyncio.run(agent.run(task="refund pay_7, please"))
        told = [
            each.content
            for event in result.messages
            if isinstance(event, ToolCallExecutionEvent)
            for each in event.content
        ]
        print("the model got:", *told)
    print("refunds in the bank's ledger:", len(bank.ledger()))
    guard.close()
