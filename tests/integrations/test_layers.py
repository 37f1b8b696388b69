"""Four layers that each try three times, end to end: a loop of the harness, the guard, a policy
of the tool's own, and the SDK.
"""

import logging

import openai
import pytest
import tenacity

from effectonce import Budget, GaveUp, Guard, InDoubt, Retry, current_effect, retry
from effectonce.retries.clients import without_retries

QUICK = Retry(attempts=3, base_s=0, cap_s=0)
# it tries everything again, as harnesses do
HARNESS = {"stop": tenacity.stop_after_attempt(3), "reraise": True}


@pytest.fixture
def client(wire):
    with openai.OpenAI(api_key="k", base_url=wire.url) as client:
        yield client


def asked(client, **headers):
    return client.with_options(timeout=60).chat.completions.create(
        model="m", messages=[{"role": "user", "content": "hello"}], extra_headers=headers
    )


@pytest.mark.parametrize("attempts", [1, 2, 3])
def test_four_layers_send_what_the_budget_of_the_turn_allows_under_one_key(wire, client, attempts):
    wire.says(503, {"error": {"message": "no"}}, {"retry-after-ms": "1"})
    guard, client, keys = Guard("memory://"), without_retries(client), set()

    @retry(QUICK, kind="idempotent_write")
    def request():
        keys.add(current_effect().downstream_key)
        return asked(client, **{"Idempotency-Key": current_effect().downstream_key})

    @guard.tool(kind="write", downstream="key", retry=QUICK, clients=[client])
    def order():
        return request()

    @tenacity.retry(**HARNESS)
    def harness():
        with (
            guard.turn("chat", "turn-7", budget=Budget(attempts=attempts)),
            guard.step("chat", "order"),
        ):
            order()

    with pytest.raises(GaveUp) as caught:
        harness()
    assert wire.requests == attempts
    assert len(keys) == len(wire.keys) == 1
    assert caught.value.marker in str(caught.value)


def test_a_tool_without_a_key_is_sent_once_whatever_retries(wire, client):
    wire.resets()
    guard, client = Guard("memory://"), without_retries(client)

    @guard.tool(kind="write", retry=QUICK)
    def order():
        asked(client)

    @tenacity.retry(**HARNESS)
    def harness():
        with guard.step("chat", "order"):
            order()

    with pytest.raises(InDoubt):
        harness()
    assert wire.requests == 1


def test_a_client_that_retries_by_itself_is_told_at_registration_and_by_health(caplog):
    guard = Guard("memory://")
    client = openai.OpenAI(api_key="k")
    with caplog.at_level(logging.WARNING, "effectonce"):
        guard.tool(kind="read", name="ask", retry=QUICK, clients=[client])(lambda: None)
        guard.tool(kind="read", name="careful", retry=QUICK, clients=[without_retries(client)])(
            lambda: None
        )

    found = "ask: one call may send 9 times: 3 of ours, and openai tries each of them 3 times. "
    advice = (
        "Let one layer retry: without_retries(client) of effectonce.retries.clients, for openai."
    )
    assert caplog.messages == [found + advice]
    (finding,) = [f for f in guard.health().findings if f.subject.startswith("retries")]
    assert finding.subject == "retries of ask"
    assert "one call may send 9 times" in finding.found
    assert guard.health().ok
