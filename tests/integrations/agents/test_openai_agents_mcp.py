"""Agents of the OpenAI Agents SDK whose tools are those of an MCP server, over stdio and over
HTTP.
"""

import asyncio
import contextlib
import copy
import json
import sys

import pytest
from agents import Agent, RunConfig, Runner
from agents.mcp import MCPServerStdio, MCPServerStreamableHttp
from mcp import MCPError
from mcp.server.mcpserver import MCPServer
from mcp_types import INTERNAL_ERROR

from effectonce import InDoubt
from effectonce.integrations._agent_tools import FAILED
from effectonce.integrations.openai_agents import protect
from tests.integrations.agents.test_openai_agents import DONE, Scripted, asks, outputs
from tests.mcp_proxy.conftest import SDK, environment
from tests.mcp_proxy.test_http import served

PATIENT = {"max_retry_attempts": 2, "retry_backoff_seconds_base": 0.0}


@contextlib.contextmanager
def _served(bank):
    def refund(payment_id: str, amount_minor: int) -> dict:
        """Refund a payment."""
        return {"receipt": bank.pay(payment_id, amount_minor)["receipt"]}

    def refund_and_fail(payment_id: str) -> str:
        """Refund, and report an error."""
        bank.pay(payment_id, 1)
        raise RuntimeError("the bank's answer was lost")

    def look(payment_id: str) -> dict:
        """How often was it paid?"""
        return bank.find(payment_id) or {"effects": 0}

    def refund_and_break(payment_id: str) -> str:
        """Refund, and answer with an error of the protocol."""
        bank.pay(payment_id, 1)
        raise MCPError(INTERNAL_ERROR, "the bank's answer was lost")

    server = MCPServer("bank")
    for tool in (refund, refund_and_fail, refund_and_break, look):
        server.add_tool(tool)
    with served(server.streamable_http_app()) as url:
        yield url


@pytest.fixture(params=[pytest.param("stdio", marks=pytest.mark.long), "http"])
def connect(request, bank, tmp_path):
    """A function that makes a client of the server that pays at the bank."""
    if request.param == "stdio":
        params = {
            "command": sys.executable,
            "args": [str(SDK), str(bank.port)],
            "env": environment(tmp_path),
        }
        yield lambda **options: MCPServerStdio(
            params, cache_tools_list=True, client_session_timeout_seconds=60, **options
        )
        return
    with _served(bank) as url:
        yield lambda **options: MCPServerStreamableHttp(
            {"url": url}, cache_tools_list=True, client_session_timeout_seconds=60, **options
        )


def call(name, call_id="a", **arguments):
    (asked,) = asks((call_id, arguments))
    return [asked.model_copy(update={"name": name})]


async def _run(guard, server, *lines, contracts, change=lambda agent: agent):
    async with server:
        agent = Agent(name="desk", model=Scripted(*lines), mcp_servers=[server])
        agent = change(protect(agent, guard, contracts=contracts))
        config = RunConfig(group_id="chat-42", tracing_disabled=True)
        return await Runner.run(agent, "refund pay_7", run_config=config)


def run(guard, server, *lines, contracts=None, **options):
    return asyncio.run(_run(guard, server, *lines, contracts=contracts, **options))


def told(result):
    return [json.loads(output)["code"] for _, output in outputs(result)]


@pytest.mark.parametrize(
    "change", [lambda agent: agent, lambda agent: agent.clone(name="other"), copy.copy]
)
def test_a_tool_of_a_server_lands_once_also_for_a_copy_of_the_agent(change, connect, guard, bank):
    asked = {"payment_id": "pay_7", "amount_minor": 100}
    with pytest.raises(RuntimeError, match="crashed"):
        run(
            guard,
            connect(),
            call("refund", **asked),
            RuntimeError("crashed before the next turn"),
            change=change,
        )

    result = run(guard, connect(), call("refund", "b", **asked), DONE, change=change)

    (output,) = outputs(result)
    assert "rcpt_1" in str(output)
    assert len(bank.ledger()) == 1


@pytest.mark.parametrize("connect", ["stdio", "http"], indirect=True)
def test_an_error_that_the_server_reports_is_a_doubt(connect, guard, bank):
    lines = [call("refund_and_fail", name, payment_id="pay_7") for name in "ab"]

    result = run(guard, connect(), *lines, DONE)

    assert told(result) == [InDoubt.code] * 2
    assert (
        "the server reports an error: Error executing tool refund_and_fail"
        in guard.in_doubt()[0].reason
    )
    assert len(bank.ledger()) == 1


def test_a_server_that_is_asked_again_by_the_sdk_is_asked_once_within_an_effect(
    connect, guard, bank
):
    lines = [call("refund_and_break", name, payment_id="pay_7") for name in "ab"]

    result = run(guard, connect(**PATIENT), *lines, DONE)

    assert told(result) == [InDoubt.code] * 2
    assert len(bank.ledger()) == 1


def test_arguments_that_are_missing_are_told_and_nothing_is_in_doubt(connect, guard, bank):
    right = call("refund", "b", payment_id="pay_7", amount_minor=100)

    result = run(guard, connect(), call("refund", payment_id="pay_7"), right, DONE)

    first, second = (output for _, output in outputs(result))
    assert json.loads(first)["code"] == FAILED["code"]
    assert "missing required parameters: amount_minor" in first
    assert "rcpt_1" in str(second)
    assert (len(bank.ledger()), guard.in_doubt()) == (1, ())


def test_a_read_is_run_as_the_sdk_likes(connect, guard, bank):
    lines = [call("look", name, payment_id="pay_7") for name in "ab"]

    result = run(guard, connect(), *lines, DONE, contracts={"look": {"kind": "read"}})

    assert [json.loads(output[0]["text"])["effects"] for _, output in outputs(result)] == [0, 0]
    assert sum(guard.counts().values()) == 0


def test_for_an_agent_that_is_not_protected_the_server_is_what_it_was(connect, guard, bank):
    server = connect(**PATIENT)
    lost = call("refund_and_break", payment_id="pay_7")

    around = []

    async def story():
        async with server:
            config = RunConfig(group_id="chat-42", tracing_disabled=True)
            for change in (
                lambda agent: protect(agent, guard),
                lambda agent: protect(agent, guard),
                lambda agent: agent,
            ):
                agent = change(Agent(name="desk", model=Scripted(lost, DONE), mcp_servers=[server]))
                await Runner.run(agent, "refund pay_7", run_config=config)
                around.append(server.call_tool)

    asyncio.run(story())

    # nobody stands around it twice, however many turns and agents there are
    assert around[0] is around[1]
    assert len(bank.ledger()) == 1 + 3  # once, and as often as the SDK tries
