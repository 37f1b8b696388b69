"""The proxy over streamable HTTP: the official client, the official server, and requests that no SDK would make."""

from __future__ import annotations

import contextlib
import functools
import json
import socket
import threading

import anyio
import httpx
import pytest
import uvicorn
from mcp import Client
from mcp.server.mcpserver import MCPServer

from effectonce import Guard
from effectonce.mcp._contracts import Contracts
from effectonce.mcp.http import McpHttpProxy

CONVERSATION = "dev.effectonce/conversation"
ERAS = ("legacy", "2026-07-28")


@contextlib.contextmanager
def served(app):
    """An ASGI app on a port of its own, in a thread."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on"))
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


class World:
    def __init__(self, bank, gate):
        self.bank, self.gate = bank, gate
        self.server = MCPServer("bank")
        for tool in (self.refund, self.slow, self.lost):
            self.server.add_tool(tool)

    def refund(self, payment_id: str) -> dict:
        """Refund a payment."""
        return self.bank.pay(payment_id, 1)

    async def slow(self, payment_id: str) -> dict:
        """Refund at once, and answer when the gate is open."""
        entry = await anyio.to_thread.run_sync(lambda: self.bank.pay(payment_id, 1))
        while not await anyio.Path(self.gate).exists():  # noqa: ASYNC110  # the test makes it
            await anyio.sleep(0.01)
        return entry

    def lost(self, payment_id: str) -> dict:
        """Refund, and lose the answer."""
        return self.bank.pay(payment_id, 1, fault="lose-answer")


@pytest.fixture
def world(stage):
    world = World(stage.bank, stage.folder / "gate")
    guard = Guard(f"sqlite:///{stage.folder / 'effects.db'}", spool=stage.folder / "spool")
    with (
        served(world.server.streamable_http_app()) as direct,
        served(McpHttpProxy(guard, Contracts(name="bank"), direct)) as url,
    ):
        world.direct, world.url, world.guard, world.effects = direct, url, guard, stage.effects
        yield world
    guard.close()


async def give_up(call, seen):
    async with anyio.create_task_group() as group:
        group.start_soon(call)
        while not seen():  # noqa: ASYNC110  # another process makes it true
            await anyio.sleep(0.01)
        group.cancel_scope.cancel()


@pytest.mark.parametrize("era", ERAS)
def test_three_calls_whose_client_gives_up_are_three_effects_without_us_and_one_with_us(world, era):
    async def direct():
        for count in (1, 2, 3):
            async with Client(world.direct, mode=era) as client:
                call = functools.partial(client.call_tool, "slow", {"payment_id": "direct"})
                await give_up(call, lambda count=count: world.effects("direct") == count)

    async def through_the_proxy():
        async with Client(world.url, mode=era) as client:
            call = functools.partial(client.call_tool, "slow", {"payment_id": "p"})
            await give_up(call, lambda: world.effects("p") == 1)
            for _ in range(2):
                with anyio.move_on_after(0.2):
                    await call()
        world.gate.touch()
        async with Client(world.url, mode=era) as client:
            return await client.call_tool("slow", {"payment_id": "p"})

    anyio.run(direct)
    late = anyio.run(through_the_proxy)

    assert (world.effects("direct"), world.effects("p")) == (3, 1)
    assert late.meta["dev.effectonce/replayed"] is True


@pytest.mark.parametrize("era", ERAS)
def test_what_a_client_sees_is_what_it_sees_without_us(world, era):
    async def story(url):
        async with Client(url, mode=era) as client:
            tools, paid = await client.list_tools(), await client.call_tool("refund", {"payment_id": "p"})
            return client.server_capabilities, tools, paid.is_error, paid.meta

    direct, through = (anyio.run(story, url) for url in (world.direct, world.url))

    assert through == direct
    assert world.effects("p") == 2


def test_conversations_are_told_apart_and_a_doubt_is_told(world):
    async def story():
        async with Client(world.url) as client:
            for conversation in ("a", "b", "a"):
                await client.call_tool("refund", {"payment_id": "p"}, meta={CONVERSATION: conversation})
            return [await client.call_tool("lost", {"payment_id": "q"}) for _ in range(2)]

    doubts = anyio.run(story)

    assert (world.effects("p"), world.effects("q")) == (2, 1)
    assert {result.meta["dev.effectonce/error"]["code"] for result in doubts} == {"OUTCOME_UNKNOWN"}


def post(world, message, **headers):
    accept = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    return httpx.post(world.url, content=json.dumps(message), headers=accept | headers, trust_env=False)


def called(payment, **meta):
    versions = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    clients = {
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": "refund", "arguments": {"payment_id": payment}, "_meta": versions | clients | meta}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


MODERN = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "refund"}


def test_nobody_is_shown_what_another_one_did(world):
    answers = [post(world, called("p"), authorization=f"Bearer {who}", **MODERN) for who in ("alice", "bob", "alice")]

    assert [answer.status_code for answer in answers] == [200] * 3
    assert world.effects("p") == 2
    assert "dev.effectonce/replayed" in answers[2].text


def test_a_page_of_another_site_is_refused(world):
    refused = post(world, called("p"), origin="https://evil.example", **MODERN)
    local = post(world, called("q"), origin="http://localhost:3000", **MODERN)

    assert (refused.status_code, world.effects("p")) == (403, 0)
    assert (local.status_code, world.effects("q")) == (200, 1)


def test_what_the_server_refuses_is_answered_as_it_answered_and_leaves_nothing(world):
    wrong = MODERN | {"mcp-name": "another"}

    direct = httpx.post(
        world.direct,
        json=called("p"),
        headers={"accept": "application/json, text/event-stream", **wrong},
        trust_env=False,
    )
    through = post(world, called("p"), **wrong)

    assert (through.status_code, through.json()) == (direct.status_code, direct.json())
    assert through.status_code == 400
    assert world.guard.counts() == {} or sum(world.guard.counts().values()) <= 1
    assert post(world, called("p"), **MODERN).status_code == 200
    assert world.effects("p") == 1


def test_a_server_that_is_not_there_is_said_so_and_nothing_was_sent(stage):
    guard = Guard("memory://")
    with served(McpHttpProxy(guard, Contracts(), "http://127.0.0.1:1/mcp")) as url:
        answer = httpx.post(url, json=called("p"), headers=MODERN, trust_env=False)

    assert answer.status_code == 502
    assert "was not reached" in answer.json()["error"]["message"]
    assert guard.in_doubt() == ()
