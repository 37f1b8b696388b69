"""Anthropic's tool runner, with a server that says what it is told to."""

import asyncio
import json

import httpx2
import pytest
from anthropic import Anthropic, APIConnectionError, AsyncAnthropic, beta_async_tool, beta_tool

from effectonce import InDoubt
from effectonce.integrations.anthropic_runner import protect

CONTRACTS = {"refund": {"kind": "irreversible", "volatile": ["reason"]}}
DONE = {"type": "text", "text": "done"}


def one(call_id, pay="pay_7", **arguments):
    return {
        "type": "tool_use",
        "id": call_id,
        "name": "refund",
        "input": {"payment_id": pay, "reason": "late"} | arguments,
    }


class Script:
    """The other side of the wire."""

    def __init__(self, *lines):
        self.lines, self.requests, self.history = list(lines), [], []

    def __call__(self, request):
        self.requests.append(json.loads(request.content))
        content = self.lines.pop(0)
        content = content if isinstance(content, list) else [content]
        reason = "tool_use" if content[0]["type"] == "tool_use" else "end_turn"
        usage = {"input_tokens": 1, "output_tokens": 1}
        message = {
            "id": f"msg_{len(self.requests)}",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": content,
            "usage": usage,
        }
        return httpx2.Response(200, json=message | {"stop_reason": reason, "stop_sequence": None})


@pytest.fixture(params=["sync", "async"])
def run(request, guard):
    """A conversation in both colours: what the model got, and what was sent to it last."""

    def sync(tool, *lines, **options):
        script = Script(*lines)
        with httpx2.Client(transport=httpx2.MockTransport(script)) as wire:
            client = Anthropic(api_key="none", http_client=wire, max_retries=0)
            runner = protect(client, guard, **given(tool, options))
            runner.until_done()
        script.history = list(runner._thread.messages)  # the wire carries only what is new
        return script

    def coloured(tool, *lines, **options):
        async def talk():
            script = Script(*lines)
            async with httpx2.AsyncClient(transport=httpx2.MockTransport(script)) as wire:
                client = AsyncAnthropic(api_key="none", http_client=wire, max_retries=0)
                runner = protect(client, guard, **given(tool, options))
                await runner.until_done()
            script.history = list(runner._thread.messages)
            return script

        return asyncio.run(talk())

    chosen = sync if request.param == "sync" else coloured
    chosen.is_async = request.param == "async"
    return chosen


def given(tool, options):
    asked = {
        "model": "m",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "refund pay_7"}],
    }
    return {"conversation": "chat-42", "contracts": CONTRACTS, "tools": [tool]} | asked | options


def refund_of(bank, run, *faults, wrap=lambda function: function):
    faults = list(faults)

    def pay(payment_id):
        return bank.pay(payment_id, 100, fault=faults.pop(0) if faults else None)["receipt"]

    if run.is_async:

        async def refund(payment_id: str, reason: str) -> str:
            """Refund a payment."""
            return pay(payment_id)

        return beta_async_tool(wrap(refund))

    def refund(payment_id: str, reason: str) -> str:
        """Refund a payment."""
        return pay(payment_id)

    return beta_tool(wrap(refund))


def told(script):
    blocks = [
        block
        for message in script.history
        for block in message["content"]
        if isinstance(block, dict)
    ]
    results = [block for block in blocks if block["type"] == "tool_result"]
    return [
        (block["tool_use_id"], block["content"], bool(block.get("is_error"))) for block in results
    ]


def codes(script):
    return [
        json.loads(content[0]["text"])["code"] for _, content, is_error in told(script) if is_error
    ]


def test_a_lost_answer_is_told_as_a_doubt_and_nothing_is_sent_again(guard, bank, run):
    script = run(refund_of(bank, run, "lose-answer"), one("a"), one("b"), DONE)

    assert codes(script) == [InDoubt.code, InDoubt.code]
    assert len(bank.ledger()) == 1
    assert guard.in_doubt()[0].request.key not in str(told(script))


def test_a_model_that_decides_again_gets_the_first_result_under_its_new_id(bank, run):
    with pytest.raises(APIConnectionError):
        run(refund_of(bank, run), one("a"))  # the second request fails, and the run is lost

    script = run(refund_of(bank, run), one("b", reason="the parcel was late"), DONE)

    assert told(script) == [("b", "rcpt_1", False)]
    assert len(bank.ledger()) == 1


def test_a_model_that_saw_the_result_and_asks_again_means_it(bank, run):
    script = run(refund_of(bank, run), one("a"), one("a"), DONE)
    history = [*script.history, {"role": "user", "content": "again"}]

    again = run(refund_of(bank, run), one("c"), DONE, messages=history)

    assert [content for _, content, _ in told(again)] == ["rcpt_1", "rcpt_2", "rcpt_3"]


def test_equal_calls_of_one_message_are_one_and_others_run_beside_them(bank, run):
    script = run(refund_of(bank, run), [one("a"), one("b", "pay_8"), one("c")], DONE)

    said = {call_id: content for call_id, content, _ in told(script)}
    assert said["a"] == said["c"] != said["b"]
    assert len(bank.ledger()) == 2


def test_the_model_sees_the_schema_that_it_saw_before(bank, run):
    tool = refund_of(bank, run)

    script = run(tool, DONE)

    assert script.requests[0]["tools"] == [tool.to_dict()]


def test_arguments_that_do_not_fit_leave_nothing_in_doubt(guard, bank, run):
    wrong = {"type": "tool_use", "id": "a", "name": "refund", "input": {}}

    script = run(refund_of(bank, run), wrong, one("b"), DONE)

    assert [is_error for _, _, is_error in told(script)] == [True, False]
    assert guard.in_doubt() == ()


def test_a_refusal_is_known_from_then_on(bank, run):
    script = run(refund_of(bank, run, "refuse"), one("a"), one("b"), DONE)

    assert "the bank refuses pay_7" in told(script)[0][1]
    assert json.loads(told(script)[1][1][0]["text"])["code"] == "REPLAYED_FAILURE"
    assert bank.ledger() == []


def test_a_tool_that_is_guarded_already_keeps_its_contract(guard, bank, run):
    tool = refund_of(bank, run, wrap=guard.tool(kind="write", volatile=["reason"]))

    for reason in ("late", "the parcel was late"):
        assert told(run(tool, one("a", reason=reason), DONE, contracts=None)) == [
            ("a", "rcpt_1", False)
        ]

    assert len(bank.ledger()) == 1


def test_a_tool_use_that_is_answered_twice_is_one_effect(guard, bank):
    @beta_tool
    def refund(payment_id: str, reason: str) -> str:
        """Refund a payment."""
        return bank.pay(payment_id, 100)["receipt"]

    with httpx2.Client(transport=httpx2.MockTransport(Script(one("a"), DONE))) as wire:
        client = Anthropic(api_key="none", http_client=wire, max_retries=0)
        runner = protect(client, guard, **given(refund, {}))
        message = next(runner)
        runner.append_messages(message, runner.generate_tool_call_response())
        runner.until_done()

    assert len(bank.ledger()) == 1
