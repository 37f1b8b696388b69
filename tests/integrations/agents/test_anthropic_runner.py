"""Anthropic's tool runner, with a server that says what it is told to. What holds in every SDK is
in `test_facts.py`.
"""

import httpx2
import pytest
from anthropic import Anthropic, beta_tool

from effectonce.integrations.anthropic_runner import protect
from tests.frameworks.facts import CONTRACTS, DONE, one, refund_of
from tests.integrations.agents.desks import AnthropicDesk, AnthropicServer


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_refusal_is_known_from_then_on(guard, bank, mode):
    desk = AnthropicDesk(guard, mode)

    ran = desk.run(desk.tool(refund_of(bank, "refuse")), one("a"), one("b"), DONE)

    assert "the bank refuses pay_7" in ran.said[0]
    assert ran.said[1]["code"] == "REPLAYED_FAILURE"
    assert bank.ledger() == []


def test_a_tool_use_that_is_answered_twice_is_one_effect(guard, bank):
    @beta_tool
    def refund(payment_id: str, reason: str) -> str:
        """Refund a payment."""
        return bank.pay(payment_id, 100)["receipt"]

    server = AnthropicServer(one("a"), DONE)
    with httpx2.Client(transport=httpx2.MockTransport(server)) as wire:
        client = Anthropic(api_key="none", http_client=wire, max_retries=0)
        runner = protect(
            client,
            guard,
            conversation="chat-42",
            contracts=CONTRACTS,
            tools=[refund],
            model="m",
            max_tokens=100,
            messages=[{"role": "user", "content": "refund pay_7"}],
        )
        message = next(runner)
        runner.append_messages(message, runner.generate_tool_call_response())
        runner.until_done()

    assert len(bank.ledger()) == 1
