"""The proxy over streamable HTTP: the official client, the official server, and requests that no
SDK would make.
"""

from __future__ import annotations

import contextlib
import functools
import json
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer

import anyio
import httpx
import pytest
import uvicorn
from mcp import Client
from mcp.server.mcpserver import MCPServer

from effectonce import Guard
from effectonce._core.record import State
from effectonce.mcp._contracts import Contracts
from effectonce.mcp._upstream import McpUpstream, Reply
from effectonce.mcp.http import McpHttpProxy
from tests.mcp_proxy.conftest import environment
from tests.mcp_proxy.test_sdk import CONVERSATION, ERAS, give_up
from tests.servers._process import free_port, until


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
        served(McpHttpProxy(guard, Contracts(name="bank"), direct, one_caller=True)) as url,
    ):
        world.direct, world.url, world.guard, world.effects = direct, url, guard, stage.effects
        yield world
    guard.close()


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
            tools, paid = (
                await client.list_tools(),
                await client.call_tool("refund", {"payment_id": "p"}),
            )
            return client.server_capabilities, tools, paid.is_error, paid.meta

    direct, through = (anyio.run(story, url) for url in (world.direct, world.url))

    assert through == direct
    assert world.effects("p") == 2


def test_conversations_are_told_apart_and_a_doubt_is_told(world):
    async def story():
        async with Client(world.url) as client:
            for conversation in ("a", "b", "a"):
                await client.call_tool(
                    "refund", {"payment_id": "p"}, meta={CONVERSATION: conversation}
                )
            return [await client.call_tool("lost", {"payment_id": "q"}) for _ in range(2)]

    doubts = anyio.run(story)

    assert (world.effects("p"), world.effects("q")) == (2, 1)
    assert {result.meta["dev.effectonce/error"]["code"] for result in doubts} == {"OUTCOME_UNKNOWN"}


def post(world, message, **headers):
    accept = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    return httpx.post(
        world.url, content=json.dumps(message), headers=accept | headers, trust_env=False
    )


def called(payment, **meta):
    versions = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    clients = {
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {
        "name": "refund",
        "arguments": {"payment_id": payment},
        "_meta": versions | clients | meta,
    }
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


MODERN = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "refund"}


def test_nobody_is_shown_what_another_one_did(world):
    answers = [
        post(world, called("p"), authorization=f"Bearer {who}", **MODERN)
        for who in ("alice", "bob", "alice")
    ]

    assert [answer.status_code for answer in answers] == [200] * 3
    assert world.effects("p") == 2
    assert "dev.effectonce/replayed" in answers[2].text


@pytest.mark.parametrize(
    "site", ["https://evil.example", "null", "http://[", "http://localhost.evil.example"]
)
def test_a_page_of_another_site_is_refused(world, site):
    refused = post(world, called("p"), origin=site, **MODERN)
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
    with served(McpHttpProxy(guard, Contracts(), "http://127.0.0.1:1/mcp", one_caller=True)) as url:
        answer = httpx.post(url, json=called("p"), headers=MODERN, trust_env=False)

    assert answer.status_code == 502
    assert "was not reached" in answer.json()["error"]["message"]
    assert guard.in_doubt() == ()


# ---------------------------------------------------------------- a server that no SDK would make


async def live(receive, send):
    """What an ASGI app without a lifespan of its own does with one."""
    while (await receive())["type"] != "lifespan.shutdown":
        await send({"type": "lifespan.startup.complete"})
    await send({"type": "lifespan.shutdown.complete"})


class Odd:
    """An upstream that does what the called tool's name says, and pays first."""

    def __init__(self, bank):
        self.bank, self.heard = bank, []

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            return await live(receive, send)
        body = (await receive())["body"]
        if scope["path"] == "/moved":
            await send(
                {
                    "type": "http.response.start",
                    "status": 307,
                    "headers": [(b"location", self.direct.encode())],
                }
            )
            return await send({"type": "http.response.body", "body": b""})
        message = json.loads(body)
        self.heard.append(message)
        if isinstance(message, list):
            await anyio.to_thread.run_sync(lambda: self.bank.pay("p", 1))
            return await self.say(send, message[0], {"content": []})
        if message["method"] == "tools/list":
            schema = {
                "type": "object",
                "properties": {"id": {}, "idempotency_key": {}},
                "required": ["id", "idempotency_key"],
            }
            result = {"tools": [{"name": "pay", "inputSchema": schema}]}
            if scope["path"] == "/lines":
                await self.begin(send, 200, b"text/event-stream")
                lines = json.dumps(
                    {"jsonrpc": "2.0", "id": message["id"], "result": result}, indent=1
                ).splitlines()
                event = "id: 3\n" + "".join(f"data: {line}\n" for line in lines) + "\n"
                return await send({"type": "http.response.body", "body": event.encode()})
            return await self.say(send, message, result)
        await anyio.to_thread.run_sync(lambda: self.bank.pay("p", 1))
        match message["params"]["name"]:
            case "hang up":
                raise RuntimeError("gone")
            case "500" | "408" as status:
                await self.begin(send, int(status), b"text/plain")
                return await send({"type": "http.response.body", "body": b"oops"})
            case "half":
                await self.begin(send, 200, b"text/event-stream")
                return await send(
                    {
                        "type": "http.response.body",
                        "body": b'data: {"jsonrpc":"2.0","method":"n"}\n\n',
                    }
                )
            case "wait":
                # the test makes it
                while not await anyio.Path(message["params"]["arguments"]["gate"]).exists():  # noqa: ASYNC110
                    await anyio.sleep(0.005)
                return await self.say(
                    send, message, {"content": [{"type": "text", "text": "paid"}]}
                )
            case "says":
                await self.begin(send, 200, b"application/json")
                return await send(
                    {
                        "type": "http.response.body",
                        "body": message["params"]["arguments"]["words"].encode("latin-1"),
                    }
                )
            case "large":
                return await self.say(
                    send, message, {"content": [{"type": "text", "text": "x" * (16 << 20)}]}
                )
            case "stream":
                await self.begin(send, 200, b"text/event-stream")
                for event in (
                    b": hello\n\n",
                    b'id: 1\r\nevent: message\r\ndata: {"jsonrpc":"2.0","method":"n"}\r\n\r\n',
                ):
                    await send({"type": "http.response.body", "body": event, "more_body": True})
                answer = json.dumps(
                    {"jsonrpc": "2.0", "id": message["id"], "result": {"content": []}}
                ).encode()
                return await send(
                    {"type": "http.response.body", "body": b"data: " + answer + b"\n\n"}
                )
            case _:
                return await self.say(
                    send, message, {"content": [{"type": "text", "text": "paid"}]}
                )

    async def begin(self, send, status, kind):
        await send(
            {"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]}
        )

    async def say(self, send, message, result):
        await self.begin(send, 200, b"application/json")
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
        await send({"type": "http.response.body", "body": body})


@pytest.fixture
def odd(stage):
    odd = Odd(stage.bank)
    contracts = Contracts(name="odd", tools={"pay": {"key_argument": "idempotency_key"}})
    with (
        served(odd) as direct,
        served(McpHttpProxy(Guard("memory://"), contracts, direct, one_caller=True)) as url,
    ):
        odd.direct, odd.url, odd.effects = direct, url, stage.effects
        yield odd


def asked(method, **params):
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}


def ask(url, method, **params):
    return httpx.post(url, json=asked(method, **params), trust_env=False)


@pytest.mark.parametrize("tool", ["hang up", "500", "408", "half"])
def test_a_call_without_an_answer_is_a_doubt(odd, tool):
    for _ in range(2):
        answer = ask(odd.url, "tools/call", name=tool, arguments={})

    assert "OUTCOME_UNKNOWN" in answer.text
    assert odd.effects("p") == 1


@pytest.mark.parametrize(
    "body",
    [
        b'[{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"pay","arguments":{}}}]',
        b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"pay","arguments":{"n":NaN}}}',
    ],
)
def test_a_call_that_cannot_be_recognised_is_refused(odd, body):
    answer = httpx.post(odd.url, content=body, trust_env=False)

    assert answer.status_code == 400
    assert "cannot be protected" in answer.json()["error"]["message"]
    assert odd.effects("p") == 0


@pytest.mark.parametrize("method", ["tools/call", "ping"])
def test_nobody_is_sent_past_us_by_a_server_that_moved(odd, method):
    guard = Guard("memory://")
    with served(
        McpHttpProxy(guard, Contracts(), odd.direct.replace("/mcp", "/moved"), one_caller=True)
    ) as url:
        call = asked(method, name="pay", arguments={})
        answer = httpx.post(url, json=call, trust_env=False, follow_redirects=True)

    assert answer.status_code == 502
    assert f"is at {odd.direct} now" in answer.json()["error"]["message"]
    assert (odd.effects("p"), guard.in_doubt()) == (0, ())


def test_clients_that_count_alike_do_not_get_in_each_others_way(odd, stage):
    gates = [stage.folder / name for name in ("first", "second")]
    with ThreadPoolExecutor(2) as clients:
        asked = [
            clients.submit(ask, odd.url, "tools/call", name="wait", arguments={"gate": str(gate)})
            for gate in gates
        ]
        until(lambda: odd.effects("p") == 2, "both calls at the server")
        gates[0].touch()
        first = asked[0].result()
        gates[1].touch()
        second = asked[1].result()

    assert [answer.status_code for answer in (first, second)] == [200, 200]


@pytest.mark.parametrize(
    "words",
    ['{"id":7,"result":{"content":[],"n":NaN}}', '{"id":7,"result":{"content":[],"n":"\xff"}}'],
)
def test_an_answer_that_only_some_readers_can_read_is_one(odd, words):
    first = ask(odd.url, "tools/call", name="says", arguments={"words": words})
    second = ask(odd.url, "tools/call", name="says", arguments={"words": words})

    assert first.content == words.encode("latin-1")
    assert "This is the recorded result" in second.text
    assert odd.effects("p") == 1


@pytest.mark.parametrize("words", ["", "[]", "paid", '{"id":8,"result":{}}'])
def test_a_document_that_is_no_answer_is_a_doubt_and_not_half_of_the_answer(odd, words):
    answer = ask(odd.url, "tools/call", name="says", arguments={"words": words})

    assert "OUTCOME_UNKNOWN" in answer.json()["result"]["content"][0]["text"]
    assert odd.effects("p") == 1


def test_events_before_the_result_pass_as_they_came(odd):
    direct, through = (
        ask(url, "tools/call", name="stream", arguments={}) for url in (odd.direct, odd.url)
    )

    assert through.content == direct.content
    assert through.headers["content-type"] == direct.headers["content-type"] == "text/event-stream"


def test_over_http_as_well_an_argument_that_takes_a_key_is_filled_and_not_shown(odd):
    (tool,) = ask(odd.url, "tools/list").json()["result"]["tools"]
    ask(odd.url, "tools/call", name="pay", arguments={"id": "p", "idempotency_key": "made up"})

    assert tool["inputSchema"] == {"type": "object", "properties": {"id": {}}, "required": ["id"]}
    assert odd.heard[-1]["params"]["arguments"]["idempotency_key"].startswith("eo_")


def test_an_event_of_many_lines_does_not_show_it_either(odd):
    contracts = Contracts(tools={"pay": {"key_argument": "idempotency_key"}})
    with served(
        McpHttpProxy(Guard("memory://"), contracts, odd.direct.replace("/mcp", "/lines"))
    ) as url:
        shown = ask(url, "tools/list").text

    assert "idempotency_key" not in shown
    assert shown.startswith("id: 3\ndata: {")
    assert json.loads(shown.partition("data: ")[2])["result"]["tools"][0]["name"] == "pay"


def test_events_are_told_apart_wherever_the_pieces_are_cut():
    async def events(size):
        async def pieces():
            for at in range(0, len(whole), size):
                yield whole[at : at + size]

        response = httpx.Response(
            200, headers={"content-type": "text/event-stream"}, content=pieces()
        )
        return [event.raw async for event in Reply(200, [], response).events()]

    parts = [b"data: 1\n\n", b": x\r\n\r\n", b"data: 2\ndata: 3\r\r", b"data: 4\n\n", b"data: end"]
    whole = b"".join(parts)

    assert [anyio.run(events, size) for size in range(1, len(whole) + 1)] == [parts] * len(whole)


def spoken(url, *heard, gone=lambda sent: False):
    """A request without a server in between: what is said to a client that sends *heard*, and
    hangs up when it is *gone*.
    """
    sent, heard = [], list(heard)

    async def receive():
        if not heard:
            await anyio.sleep_forever()
        return heard.pop(0)

    async def send(message):
        if gone(sent):
            raise OSError("the client has gone")  # as the specification of ASGI has it
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/mcp",
        "headers": [(b"host", b"localhost")],
        "query_string": b"",
    }
    guard = Guard("memory://")

    async def story():
        proxy = McpHttpProxy(guard, Contracts(), url, one_caller=True)
        await proxy(scope, receive, send)
        await proxy({"type": "lifespan"}, shutdown, ignored)

    anyio.run(story)
    return guard, sent


async def shutdown():
    return {"type": "lifespan.shutdown"}


async def ignored(message):
    pass


def test_a_client_that_goes_while_its_call_runs_leaves_no_doubt(odd):
    call = json.dumps(asked("tools/call", name="stream", arguments={})).encode()

    guard, _ = spoken(
        odd.direct, {"type": "http.request", "body": call}, gone=lambda sent: len(sent) > 1
    )

    assert odd.effects("p") == 1
    assert guard.counts()[State.COMPLETED] == 1


def test_half_a_request_is_not_sent_on(odd):
    half = {"type": "http.request", "body": b'{"jsonrpc":"2.0","id":7,"met', "more_body": True}

    _, sent = spoken(odd.direct, half, {"type": "http.disconnect"})

    assert (odd.heard, sent) == ([], [])


def test_a_body_that_is_no_call_passes_byte_for_byte(odd):
    with (
        served(Echo()) as direct,
        served(McpHttpProxy(Guard("memory://"), Contracts(), direct)) as url,
    ):
        for body in (b"not JSON", b'{ "jsonrpc":"2.0" ,"method":"x"}', b"[1, 2]"):
            assert httpx.post(url, content=body, trust_env=False).content == body


class Echo:
    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            return await live(receive, send)
        body = (await receive())["body"]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        return await send({"type": "http.response.body", "body": body})


def test_the_command_serves_what_the_class_serves(stage, odd):
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "effectonce.cli",
        "mcp",
        "http",
        odd.direct,
        "--one-caller",
        "--listen",
        f"127.0.0.1:{port}",
    ]
    with subprocess.Popen(
        command, env=environment(stage.folder), stderr=subprocess.PIPE
    ) as process:
        try:
            assert b"Listening on" in process.stderr.readline()
            transport = httpx.HTTPTransport(retries=20)
            with httpx.Client(transport=transport, trust_env=False) as client:
                call = asked("tools/call", name="look", arguments={})
                answers = [
                    client.post(f"http://127.0.0.1:{port}/mcp", json=call).json() for _ in range(2)
                ]
        finally:
            process.terminate()

    assert answers[1]["result"]["_meta"]["dev.effectonce/replayed"] is True
    assert odd.effects("p") == 1


def test_space_around_the_value_of_a_header_is_not_sent_on():
    """Some servers hand it to their app, and no client may send it."""
    heard = []

    class Server(BaseHTTPRequestHandler):
        def do_POST(self):
            heard.append(self.headers["mcp-name"])
            self.send_response(202)
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.handle_request).start()
        upstream = McpUpstream(f"http://127.0.0.1:{server.server_port}/mcp")

        async def ask():
            reply = await upstream.ask("POST", [(b"mcp-name", b"\t pay  ")], b"{}")
            await reply.response.aclose()
            await upstream.close()
            return reply.status

        assert anyio.run(ask) == 202
    assert heard == ["pay"]
