"""The official client and server, with and without the proxy between them, in both eras of the
protocol.
"""

from __future__ import annotations

import functools
import sys

import anyio
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.mcp_proxy.conftest import SDK, environment, proxied

ERAS = ("legacy", "2026-07-28")
# A server of the SDK takes a second of CPU to start: in the small tier, most tests over stdio are of
# one era.
OLD = ("legacy", pytest.param("2026-07-28", marks=pytest.mark.long))
NEW = (pytest.param("legacy", marks=pytest.mark.long), "2026-07-28")
CONVERSATION = "dev.effectonce/conversation"


def connect(stage, era, *options, proxy=True):
    command = [sys.executable, str(SDK), str(stage.bank.port)]
    if proxy:
        command = proxied(command, "--store", f"sqlite:///{stage.folder / 'effects.db'}", *options)
    parameters = StdioServerParameters(
        command=command[0], args=command[1:], env=environment(stage.folder)
    )
    return Client(stdio_client(parameters), mode=era)


def run(function):
    return anyio.run(function)


async def give_up(call, seen):
    """Stop waiting as soon as the bank has seen it, as a client does whose time is over."""
    async with anyio.create_task_group() as group:
        group.start_soon(call)
        while not seen():  # noqa: ASYNC110  # another process makes it true
            await anyio.sleep(0.01)
        group.cancel_scope.cancel()


@pytest.mark.long
@pytest.mark.parametrize("era", ERAS)
def test_three_calls_whose_client_gives_up_are_three_effects_without_us_and_one_with_us(stage, era):
    gate = stage.folder / "gate"

    async def direct():
        async with connect(stage, era, proxy=False) as client:
            for count in (1, 2, 3):
                call = functools.partial(
                    client.call_tool,
                    "refund_when_told",
                    {"payment_id": "direct", "gate": str(gate)},
                )
                await give_up(call, lambda count=count: stage.effects("direct") == count)

    async def through_the_proxy():
        async with connect(stage, era) as client:
            call = functools.partial(
                client.call_tool, "refund_when_told", {"payment_id": "p", "gate": str(gate)}
            )
            await give_up(call, lambda: stage.effects("p") == 1)
            for _ in range(2):
                with pytest.raises(MCPError, match="timed out"):
                    await call(read_timeout_seconds=0.2)
            gate.touch()
            return await call()

    run(direct)
    late = run(through_the_proxy)

    assert (stage.effects("direct"), stage.effects("p")) == (3, 1)
    assert late.meta["dev.effectonce/replayed"] is True
    assert "nothing was done again" in late.content[-1].text


@pytest.mark.parametrize("era", NEW)
def test_a_call_is_what_it_is_without_us(stage, era):
    async def story(proxy):
        async with connect(stage, era, proxy=proxy) as client:
            tools = await client.list_tools()
            paid = await client.call_tool("refund", {"payment_id": f"p{proxy}", "amount_minor": 7})
            wrong = await client.call_tool("refund", {"payment_id": 3})
            return (
                client.server_capabilities,
                tools,
                paid.structured_content,
                paid.content,
                paid.is_error,
                wrong.is_error,
            )

    direct, through = (run(lambda proxy=proxy: story(proxy)) for proxy in (False, True))

    assert through[:2] == direct[:2]
    assert through[4:] == direct[4:] == (False, True)
    assert len(stage.bank.ledger()) == 2


def test_five_calls_at_once_are_one_and_another_conversation_is_its_own(stage):
    gate = stage.folder / "gate"

    async def story():
        results = []
        async with connect(stage, "auto") as client, anyio.create_task_group() as group:

            async def call(conversation):
                arguments = {"payment_id": "p", "gate": str(gate)}
                results.append(
                    await client.call_tool(
                        "refund_when_told", arguments, meta={CONVERSATION: conversation}
                    )
                )

            for conversation in ("a", "a", "b", "a", "a"):
                group.start_soon(call, conversation)
            while stage.effects("p") < 2:  # noqa: ASYNC110  # another process makes it true
                await anyio.sleep(0.01)
            await client.list_tools()  # behind all five
            gate.touch()
        return results

    results = run(story)

    assert {result.is_error for result in results} == {False}
    assert stage.effects("p") == 2
