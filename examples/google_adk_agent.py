"""An agent of Google's kit that is asked twice, because its first session was lost. The customer
has one refund.

    pip install 'effectonce[google-adk]'
    python examples/google_adk_agent.py

The model is a script, so this needs no network. The bank is a process of its own, and honours no
keys: what is sent twice is paid twice.
"""

import asyncio
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps.app import App
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types

from effectonce import Guard
from effectonce.integrations.google_adk import EffectOnce
from effectonce.testing.bank import Bank


class Script(BaseLlm):
    """A model with a script."""

    model: str = "script"
    lines: list[types.Part]

    async def generate_content_async(self, *_: Any, **__: Any) -> AsyncGenerator[LlmResponse, None]:
        """Say the next line."""
        yield LlmResponse(content=types.Content(role="model", parts=[self.lines.pop(0)]))


def asks(call_id: str, reason: str) -> types.Part:
    """The model asks for a refund: each time with another id, and in other words."""
    arguments = {"payment_id": "pay_7", "amount_minor": 1_400_000, "reason": reason}
    return types.Part(function_call=types.FunctionCall(id=call_id, name="refund", args=arguments))


async def talk(app: App) -> None:
    """Open the customer's session, and let the agent work."""
    sessions = InMemorySessionService()
    await sessions.create_session(app_name="shop", user_id="ann", session_id="chat-42")
    given = types.Content(role="user", parts=[types.Part(text="refund pay_7, please")])
    runner = Runner(app=app, session_service=sessions)
    async for event in runner.run_async(user_id="ann", session_id="chat-42", new_message=given):
        for answer in event.get_function_responses():
            print("the model got:", (answer.response or {})["result"])


with tempfile.TemporaryDirectory() as folder, Bank(Path(folder, "ledger")) as bank:
    guard = Guard(f"sqlite:///{folder}/effects.db", spool=Path(folder, "spool"))
    once = EffectOnce(guard, contracts={"refund": {"kind": "irreversible", "volatile": ["reason"]}})

    async def refund(payment_id: str, amount_minor: int, reason: str) -> str:
        """Refund a payment."""
        return str(bank.pay(payment_id, amount_minor)["receipt"])

    for line in (asks("call_1", "late delivery"), asks("call_2", "the parcel was late")):
        agent = LlmAgent(
            name="desk", model=Script(lines=[line, types.Part(text="done")]), tools=[refund]
        )
        asyncio.run(talk(App(name="shop", root_agent=agent, plugins=[once])))
    print("refunds in the bank's ledger:", len(bank.ledger()))
    guard.close()
