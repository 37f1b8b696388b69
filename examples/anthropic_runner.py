"""Anthropic's tool runner, asked twice, because its first run was lost. The customer has one
refund.

    pip install 'effectonce[anthropic]'
    python examples/anthropic_runner.py

The other side of the wire is a script, so this needs no network. The bank is a process of its
own, and honours no keys: what is sent twice is paid twice.
"""

import tempfile
from pathlib import Path
from typing import Any

import httpx2
from anthropic import Anthropic, beta_tool

from effectonce import Guard
from effectonce.integrations.anthropic_runner import protect
from effectonce.testing.bank import Bank


def script(call_id: str, reason: str) -> httpx2.MockTransport:
    """A model that asks for a refund, each time with another id and in other words, and then is
    done.
    """
    arguments = {"payment_id": "pay_7", "amount_minor": 1_400_000, "reason": reason}
    asks = {"type": "tool_use", "id": call_id, "name": "refund", "input": arguments}
    lines: list[dict[str, Any]] = [asks, {"type": "text", "text": "done"}]

    def answer(_request: httpx2.Request) -> httpx2.Response:
        line, left = lines.pop(0), len(lines)
        message = {
            "id": f"msg_{left}",
            "type": "message",
            "role": "assistant",
            "model": "script",
            "content": [line],
        }
        usage = {"input_tokens": 1, "output_tokens": 1}
        return httpx2.Response(
            200,
            json=message
            | {
                "usage": usage,
                "stop_reason": "tool_use" if left else "end_turn",
                "stop_sequence": None,
            },
        )

    return httpx2.MockTransport(answer)


with tempfile.TemporaryDirectory() as folder, Bank(Path(folder, "ledger")) as bank:
    guard = Guard(f"sqlite:///{folder}/effects.db", spool=Path(folder, "spool"))

    @beta_tool
    def refund(payment_id: str, amount_minor: int, reason: str) -> str:
        """Refund a payment."""
        return bank.pay(payment_id, amount_minor)["receipt"]

    for wire in (script("toolu_1", "late delivery"), script("toolu_2", "the parcel was late")):
        runner = protect(
            Anthropic(api_key="none", http_client=httpx2.Client(transport=wire)),
            guard,
            conversation="chat-42",
            contracts={"refund": {"kind": "irreversible", "volatile": ["reason"]}},
            tools=[refund],
            model="script",
            max_tokens=100,
            messages=[{"role": "user", "content": "refund pay_7, please"}],
        )
        for _ in runner:
            response = runner.generate_tool_call_response()
            if response is not None:
                print("the model got:", *(block["content"] for block in response["content"]))
    print("refunds in the bank's ledger:", len(bank.ledger()))
    guard.close()
