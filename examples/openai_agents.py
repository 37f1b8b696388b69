"""An agent of the OpenAI Agents SDK that is asked twice, because its first run was lost. The
customer has one refund.

    pip install 'effectonce[openai-agents]'
    python examples/openai_agents.py

The model is a script, so this needs no network. The bank is a process of its own, and honours no
keys: what is sent twice is paid twice.
"""

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

from agents import Agent, ModelResponse, RunConfig, Runner, Usage, function_tool
from agents.models.interface import Model
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from effectonce import Guard
from effectonce.integrations.openai_agents import protect
from effectonce.testing.bank import Bank


class Script(Model):
    """A model with a script."""

    def __init__(self, *lines: Any) -> None:
        self.lines = list(lines)

    async def get_response(self, *_: Any, **__: Any) -> ModelResponse:
        return ModelResponse(output=[self.lines.pop(0)], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


def asks(call_id: str, reason: str) -> ResponseFunctionToolCall:
    """The model asks for a refund: each time with another id, and in other words."""
    arguments = json.dumps({"payment_id": "pay_7", "amount_minor": 1_400_000, "reason": reason})
    return ResponseFunctionToolCall(
        type="function_call", call_id=call_id, name="refund", arguments=arguments
    )


def says(text: str) -> ResponseOutputMessage:
    """The model answers."""
    content = [ResponseOutputText(type="output_text", text=text, annotations=[])]
    return ResponseOutputMessage(
        id="m", type="message", role="assistant", status="completed", content=content
    )


with tempfile.TemporaryDirectory() as folder, Bank(Path(folder, "ledger")) as bank:
    guard = Guard(f"sqlite:///{folder}/effects.db", spool=Path(folder, "spool"))

    @function_tool
    async def refund(payment_id: str, amount_minor: int, reason: str) -> str:
        """Refund a payment."""
        return bank.pay(payment_id, amount_minor)["receipt"]

    for line in (asks("call_1", "late delivery"), asks("call_2", "the parcel was late")):
        agent = Agent(name="desk", model=Script(line, says("done")), tools=[refund])
        agent = protect(
            agent, guard, contracts={"refund": {"kind": "irreversible", "volatile": ["reason"]}}
        )
        config = RunConfig(group_id="chat-42", tracing_disabled=True)
        result = asyncio.run(Runner.run(agent, "refund pay_7, please", run_config=config))
        told = [
            item["output"]
            for item in result.to_input_list()
            if item.get("type") == "function_call_output"
        ]
        print("the model got:", *told)
    print("refunds in the bank's ledger:", len(bank.ledger()))
    guard.close()
