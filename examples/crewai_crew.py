"""A crew whose guardrail is not content, so its task is executed again. The customer has one
refund.

    pip install 'effectonce[crewai]'
    python examples/crewai_crew.py

The model is a script, so this needs no network. The bank is a process of its own, and honours no
keys: what is sent twice is paid twice.
"""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false"}

from crewai import Agent, BaseLLM, Crew, Task
from crewai.tools import tool

from effectonce import Guard
from effectonce.integrations.crewai import protect
from effectonce.testing.bank import Bank


class Script(BaseLLM):
    """A model with a script."""

    lines: list[Any]

    def call(self, messages: Any, *_: Any, **__: Any) -> Any:
        if messages[-1]["role"] == "tool":
            print("the model got:", messages[-1]["content"])
        return self.lines.pop(0)

    def supports_function_calling(self) -> bool:
        return True

    def get_context_window_size(self) -> int:
        return 100_000


def asks(call_id: str, reason: str) -> list[dict[str, Any]]:
    """The model asks for a refund: each time with another id, and in other words."""
    arguments = json.dumps({"payment_id": "pay_7", "amount_minor": 1_400_000, "reason": reason})
    return [
        {"id": call_id, "type": "function", "function": {"name": "refund", "arguments": arguments}}
    ]


with tempfile.TemporaryDirectory() as folder, Bank(Path(folder, "ledger")) as bank:
    guard = Guard(f"sqlite:///{folder}/effects.db", spool=Path(folder, "spool"))

    @tool
    def refund(payment_id: str, amount_minor: int, reason: str) -> str:
        """Refund a payment."""
        return bank.pay(payment_id, amount_minor)["receipt"]

    script = Script(
        model="script",
        lines=[
            asks("call_1", "late delivery"),
            "done",
            asks("call_2", "the parcel was late"),
            "done, with receipt rcpt_1",
        ],
    )
    contracts = {"refund": {"kind": "irreversible", "volatile": ["reason"]}}
    tools = protect([refund], guard, scope="ticket-17", contracts=contracts)
    clerk = Agent(
        role="clerk", goal="refund what is due", backstory="A clerk.", llm=script, tools=tools
    )
    task = Task(
        description="refund pay_7, please",
        expected_output="a receipt",
        agent=clerk,
        guardrail=lambda output: ("rcpt_" in output.raw, "name the receipt"),
    )
    Crew(agents=[clerk], tasks=[task]).kickoff()
    print("refunds in the bank's ledger:", len(bank.ledger()))
    guard.close()
