"""A refund over EUR 1,000 waits for a person: an interruption of the OpenAI Agents SDK. Start it,
and resume it under a name, however often: the bank has one refund. Between two runs nothing is
kept but files.

    pip install 'effectonce[openai-agents]'
    python examples/openai_agents_approval.py
    python examples/openai_agents_approval.py ada

Or decide elsewhere, with `effectonce approve yes EFFECT --reason TEXT --store
sqlite:///effects.db`, and run it without a name. The model is a script, so this needs no network.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from agents import Agent, ModelResponse, RunConfig, Runner, RunState, Usage, function_tool
from agents.models.interface import Model
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from effectonce import Guard, current_effect
from effectonce.integrations.openai_agents import protect, sync_approvals
from effectonce.testing.bank import Bank

guard = Guard("sqlite:///effects.db")
PAUSED = Path("paused.json")


def over_1000_euros(amount_minor: int) -> bool:
    """Which refunds need a person."""
    return amount_minor > 100_000


@guard.tool(kind="irreversible", downstream="key", approval=over_1000_euros)
def refund(payment_id: str, amount_minor: int) -> str:
    """Refund a payment."""
    with Bank("run.ledger", honours_keys=True) as bank:
        key = current_effect().downstream_key
        receipt: str = bank.pay(payment_id, amount_minor, key=key)["receipt"]
        return receipt


class Script(Model):
    """A model with a script: it asks for a refund, and says what came of it."""

    async def get_response(self, *_: Any, **given: Any) -> ModelResponse:
        last = given["input"][-1]
        if last.get("type") != "function_call_output":
            call = json.dumps({"payment_id": "pay_7", "amount_minor": 140_000})
            output: Any = ResponseFunctionToolCall(
                type="function_call", call_id="call_1", name="refund", arguments=call
            )
        else:
            text = ResponseOutputText(type="output_text", text=last["output"], annotations=[])
            output = ResponseOutputMessage(
                id="m", type="message", role="assistant", status="completed", content=[text]
            )
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


desk = Agent(name="desk", model=Script(), tools=[function_tool(refund)])
desk = protect(desk, guard, approver=lambda run: run.context["user"], asked_by=lambda _: "desk")
config = RunConfig(group_id="chat-42", tracing_disabled=True)


async def start() -> Any:
    result = await Runner.run(desk, "refund pay_7, please", run_config=config)
    state = result.to_state()
    if not result.interruptions or await sync_approvals(state, run_config=config):
        return result
    return await Runner.run(desk, state, run_config=config)  # it was decided before


def keep(result: Any) -> None:
    PAUSED.write_text(result.to_state().to_string())


async def resume(stored: str, user: str | None) -> Any:
    state = await RunState.from_string(desk, stored)
    if user is not None:
        state.approve(state.get_interruptions()[0])
    await sync_approvals(state, run_config=config)  # what was decided there needs no answer
    return await Runner.run(desk, state, context={"user": user}, run_config=config)


if __name__ == "__main__":
    user = sys.argv[1] if sys.argv[1:] else None
    result = asyncio.run(resume(PAUSED.read_text(), user) if PAUSED.exists() else start())
    for waiting in result.interruptions:
        print("it waits for a person:", waiting.arguments)
        keep(result)
    if result.final_output is not None:
        print("refunded:", result.final_output)
    with Bank("run.ledger", honours_keys=True) as bank:
        print("refunds at the bank:", len(bank.ledger()))
