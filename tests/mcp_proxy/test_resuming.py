"""A server that closes its stream before the result is there is asked for the rest, as
2025-11-25 says.
"""

from __future__ import annotations

import json

import anyio
import httpx
import pytest
from mcp import Client
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.streamable_http import EventMessage

from effectonce import Guard
from effectonce.mcp._contracts import Contracts
from effectonce.mcp.http import McpHttpProxy
from tests.mcp_proxy.test_http import asked, live, served

PRIMING = b"id: %d\nretry: 1\ndata:\n\n"


class Polled:
    """A server that pays, and closes the stream of the POST after the priming event; *polls*
    says how each GET is answered.
    """

    def __init__(self, bank, polls):
        self.bank, self.polls, self.positions = bank, list(polls), []

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            return await live(receive, send)
        headers = dict(scope["headers"])
        if scope["method"] == "POST":
            body = json.loads((await receive())["body"])
            await anyio.to_thread.run_sync(lambda: self.bank.pay("p", 1))
            self.answer = json.dumps(
                {"jsonrpc": "2.0", "id": body["id"], "result": {"content": []}}
            ).encode()
            return await self.events(send, 200, PRIMING % 1)
        self.positions.append(
            (headers[b"last-event-id"], headers[b"accept"], headers.get(b"mcp-session-id"))
        )
        match self.polls.pop(0):
            case "closed":
                return await self.events(send, 200, PRIMING % (len(self.positions) + 1))
            case "answered":
                note = b'id: 8\ndata: {"jsonrpc":"2.0","method":"notifications/progress"}\n\n'
                return await self.events(send, 200, note + b"id: 9\ndata: " + self.answer + b"\n\n")
            case "dropped":
                raise RuntimeError("gone")
            case status:
                return await self.events(send, status, b"")

    async def events(self, send, status, body):
        await send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [(b"content-type", b"text/event-stream")],
            }
        )
        await send({"type": "http.response.body", "body": body})


def called(bank, polls):
    """What a client gets that calls twice, and the server that it called."""
    server = Polled(bank, polls)
    message = asked("tools/call", name="pay", arguments={})
    with (
        served(server) as direct,
        served(
            McpHttpProxy(Guard("memory://"), Contracts(name="polled"), direct, one_caller=True)
        ) as url,
    ):
        headers = {"accept": "application/json, text/event-stream", "mcp-session-id": "s1"}
        answers = [
            httpx.post(url, json=message, headers=headers, trust_env=False) for _ in range(2)
        ]
    return answers, server


@pytest.mark.parametrize(
    "polls",
    [["answered"], ["closed", "closed", "answered"], ["dropped", "answered"], [503, "answered"]],
)
def test_a_stream_that_is_closed_before_its_result_is_followed(stage, polls):
    (first, again), server = called(stage.bank, polls)

    assert b'"result":{"content": []}' in first.content.replace(b'"result": ', b'"result":')
    assert b"notifications/progress" in first.content
    assert b"OUTCOME_UNKNOWN" not in again.content
    assert b"dev.effectonce/replayed" in again.content
    assert stage.effects("p") == 1
    assert server.positions[0] == (b"1", b"text/event-stream", b"s1")


def test_the_rest_is_asked_for_after_the_last_event_that_came(stage):
    _, server = called(stage.bank, ["closed", "closed", "answered"])

    assert [position for position, _, _ in server.positions] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("status", [404, 405])
def test_a_server_that_has_no_rest_leaves_a_doubt(stage, status):
    (first, again), server = called(stage.bank, [status])

    assert b"OUTCOME_UNKNOWN" in first.content
    assert b"OUTCOME_UNKNOWN" in again.content
    assert (stage.effects("p"), len(server.positions)) == (1, 1)


def test_a_server_that_is_gone_is_not_asked_for_ever(stage):
    (first, _), server = called(stage.bank, ["dropped"] * 100)

    assert b"OUTCOME_UNKNOWN" in first.content
    assert len(server.positions) < 10


class Kept:
    """The events of a server, as its SDK wants them kept."""

    def __init__(self):
        self.events = []

    async def store_event(self, stream_id, message):
        self.events.append((stream_id, message))
        return str(len(self.events))

    async def replay_events_after(self, last_event_id, send_callback):
        stream = self.events[int(last_event_id) - 1][0]
        for number, (of, message) in enumerate(self.events, 1):
            if of == stream and number > int(last_event_id) and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


def test_a_tool_of_the_official_server_that_closes_its_stream_is_followed(stage):
    server = MCPServer("bank")

    @server.tool()
    async def refund(payment_id: str, ctx: Context) -> str:
        """Refund, and let the client come back for the result."""
        await ctx.close_sse_stream()
        return (await anyio.to_thread.run_sync(lambda: stage.bank.pay(payment_id, 1)))["receipt"]

    async def story(url):
        async with Client(url, mode="legacy") as client:
            return [await client.call_tool("refund", {"payment_id": "p"}) for _ in range(2)]

    app = server.streamable_http_app(event_store=Kept(), retry_interval=100)
    with (
        served(app) as direct,
        served(
            McpHttpProxy(Guard("memory://"), Contracts(name="bank"), direct, one_caller=True)
        ) as url,
    ):
        first, again = anyio.run(story, url)

    assert (first.is_error, again.is_error, stage.effects("p")) == (False, False, 1)
    assert again.meta["dev.effectonce/replayed"] is True


def test_an_answer_has_one_date(stage):
    (first, again), _ = called(stage.bank, ["answered"])

    assert [len(answer.headers.get_list("date")) for answer in (first, again)] == [1, 1]
