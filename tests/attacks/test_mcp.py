"""Callers of the MCP proxy that mean harm, or that send what no SDK would, over HTTP and over
stdio.
"""

import contextlib
import itertools
import json
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import anyio
import httpx
import pytest

from effectonce import Guard
from effectonce._core.ops import Search
from effectonce.mcp import _effects
from effectonce.mcp._contracts import LISTED_MAX, Contracts, hidden_in
from effectonce.mcp._credentials_of_callers import Callers
from effectonce.mcp._jsonrpc import ANSWER_MAX, CALL_MAX, LINE_MAX, id_at_ends
from effectonce.mcp._stdio import Cut, Lines
from effectonce.mcp.http import McpHttpProxy
from tests.mcp_proxy.conftest import environment
from tests.mcp_proxy.test_http import Odd, ignored, served, shutdown
from tests.servers._process import free_port, until

REPLAYED = "dev.effectonce/replayed"
SECRET = b"a secret of the guard"
MCP = (sys.executable, "-m", "effectonce.cli", "mcp")
NO_LIMITS = httpx.Limits(max_connections=None)


class Stand:
    """A server that pays, and proxies in front of it on one store."""

    def __init__(self, stage, direct, opened):
        self.effects, self.direct, self._opened = stage.effects, direct, opened
        self.store = f"sqlite:///{stage.folder / 'effects.db'}"

    def proxy(self, secret=b"", **options):
        guard = Guard(self.store, secret=secret)
        self._opened.callback(guard.close)
        self.guard = guard
        return self._opened.enter_context(
            served(McpHttpProxy(guard, Contracts(name="odd"), self.direct, **options))
        )


@pytest.fixture
def stand(stage):
    odd = Odd(stage.bank)
    with served(odd) as odd.direct, contextlib.ExitStack() as opened:
        yield Stand(stage, odd.direct, opened)


def call(url, name="pay", request_id=7, query="", arguments=None, **headers):
    message = {
        "jsonrpc": "2.0",
        "id": request_id,
        "method": "tools/call",
        "params": {"name": name, "arguments": arguments or {}},
    }
    named = {header.replace("_", "-"): value for header, value in headers.items()}
    return httpx.post(url + query, json=message, headers=named, trust_env=False, timeout=30)


# ---------------------------------------------------------------- who calls


@pytest.mark.parametrize(
    "header",
    [
        "authorization",
        "x_api_key",
        "cookie",
        "proxy_authorization",
        "x_forwarded_user",
        "x_some_token",
    ],
)
def test_a_caller_with_another_credential_is_not_shown_the_result_whatever_header_it_is_in(
    stand, header
):
    url = stand.proxy()

    answers = [call(url, **{header: who}) for who in ("alice", "bob", "alice")]

    assert [REPLAYED in answer.text for answer in answers] == [False, False, True]
    assert stand.effects("p") == 2


def test_a_caller_with_another_query_string_is_not_shown_the_result(stand):
    url = stand.proxy()

    answers = [call(url, query=f"?apiKey={who}") for who in ("alice", "bob", "alice")]

    assert [REPLAYED in answer.text for answer in answers] == [False, False, True]


@pytest.mark.parametrize("header", ["x_user_token", "mcp_api_key", "mcp_auth_token", "x_stage"])
def test_a_second_credential_beside_a_shared_one_counts(stand, header):
    url = stand.proxy()

    answers = [
        call(url, authorization="Bearer everybody", **{header: who}) for who in ("alice", "bob")
    ]

    assert [REPLAYED in answer.text for answer in answers] == [False, False]


def test_sessions_without_credentials_share_nothing(stand):
    url = stand.proxy()

    answers = [call(url, mcp_session_id=session) for session in ("a", "b", "a")]

    assert [REPLAYED in answer.text for answer in answers] == [False, False, True]


@pytest.mark.parametrize(
    "header", ["x_forwarded_server", "x_envoy_expected_rq_timeout_ms", "cdn_loop", "x_stage"]
)
def test_a_header_that_a_proxy_adds_to_all_requests_does_not_make_sessions_one(stand, header):
    url = stand.proxy()

    answers = [
        call(url, mcp_session_id=session, **{header: "edge-1"}) for session in ("a", "b", "a")
    ]

    assert [REPLAYED in answer.text for answer in answers] == [False, False, True]


@pytest.mark.parametrize("header", ["x_envoy_attempt_count", "cf_ray"])
def test_a_retry_is_recognised_though_a_proxy_writes_another_header_each_time(stand, header):
    url = stand.proxy()

    answers = [call(url, x_api_key="alice", **{header: n}) for n in "12"]

    assert [REPLAYED in answer.text for answer in answers] == [False, True]


def test_a_caller_that_is_named_by_its_credential_is_the_same_in_another_session(stand):
    url = stand.proxy()

    answers = [call(url, x_user_id="alice", mcp_session_id=session) for session in ("a", "b")]

    assert [REPLAYED in answer.text for answer in answers] == [False, True]


def test_a_call_that_says_nothing_about_its_caller_is_refused_and_not_sent(stand):
    refused = call(stand.proxy())

    assert refused.status_code == 400
    assert "--one-caller" in refused.json()["error"]["message"]
    assert stand.effects("p") == 0


def test_callers_without_credentials_are_one_only_if_the_operator_says_so(stand):
    url = stand.proxy(one_caller=True)

    answers = [call(url), call(url, mcp_session_id="b"), call(url, x_api_key="alice")]

    assert [REPLAYED in answer.text for answer in answers] == [False, True, False]


def test_a_retry_is_recognised_though_headers_that_change_with_every_request_do(stand):
    url = stand.proxy(ignored=("X-Attempt",))

    answers = [
        call(
            url,
            x_api_key="a",
            traceparent=f"00-{n}",
            x_request_id=n,
            user_agent=f"agent/{n}",
            x_attempt=n,
        )
        for n in "12"
    ]

    assert [REPLAYED in answer.text for answer in answers] == [False, True]


@pytest.mark.parametrize(
    "limits", [{"body_piece_s": 0.2}, {"body_s": 0.5}], ids=["it rests", "it drips"]
)
def test_a_body_that_does_not_end_is_not_waited_for_over_http(stand, limits):
    address = urlsplit(stand.proxy(**limits))
    with socket.create_connection((address.hostname, address.port), timeout=30) as wire:
        wire.sendall(
            f"POST {address.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n".encode()
        )
        wire.settimeout(0.05)
        said = b""
        for _ in range(600):
            with contextlib.suppress(TimeoutError):
                said += wire.recv(65_536)
            if b"\r\n\r\n" in said:
                break
            if "body_s" in limits:
                wire.sendall(b"x")

    assert said.startswith(b"HTTP/1.1 408 ")


def test_a_caller_cannot_give_up_the_call_of_another_one(stand, stage):
    url, gate = stand.proxy(), stage.folder / "gate"
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
    with ThreadPoolExecutor(1) as client:
        waiting = client.submit(call, url, "wait", arguments={"gate": str(gate)}, x_api_key="alice")
        until(lambda: stand.effects("p") == 1, "the call at the server")
        others = httpx.post(url, json=cancel, headers={"x-api-key": "bob"}, trust_env=False)
        own = httpx.post(url, json=cancel, headers={"x-api-key": "alice"}, trust_env=False)
        gate.touch()
        waiting.result()

    assert own.status_code == 202
    assert others.status_code != 202


def tenants(guard):
    return {record.request.tenant for record in guard.store.apply(Search())}


def test_a_credential_is_in_the_store_only_as_a_digest_under_a_key(stand):
    call(stand.proxy(SECRET), authorization="Bearer alice")
    keyed = tenants(stand.guard)
    call(stand.proxy(), authorization="Bearer alice")
    by_store = tenants(stand.guard) - keyed

    headers = [(b"authorization", b"Bearer alice")]
    others = Guard("memory://", secret=b"another")
    elsewhere = Callers(others, all_one="")
    guessed = anyio.run(elsewhere.tenant, elsewhere.credentials({"headers": headers}))

    assert all(name.startswith("caller ") for name in (*keyed, *by_store))
    assert len({*keyed, *by_store, guessed}) == 3


@pytest.mark.parametrize("secret", [b"", SECRET])
def test_a_retry_after_a_restart_of_the_proxy_is_recognised(stand, secret):
    answers = [call(stand.proxy(secret), x_api_key="alice") for _ in range(2)]

    assert [REPLAYED in answer.text for answer in answers] == [False, True]


# ---------------------------------------------------------------- pages of other sites


@pytest.mark.cover(1)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", "[", ""])
def test_a_request_for_another_host_is_refused_whatever_its_method(stand, method, host):
    answer = httpx.request(
        method, stand.proxy(one_caller=True), headers={"host": host}, trust_env=False
    )

    assert answer.status_code in (400, 403)


def test_it_answers_to_the_hosts_that_it_was_given(stand):
    answer = call(stand.proxy(hosts=("mcp.example",)), host="MCP.example:8931", x_api_key="a")

    assert answer.status_code == 200


# ---------------------------------------------------------------- ids that are none


BAD_IDS = [
    r'"\ud800"',
    r'"\udc00x"',
    r'"a\ud800\u0041"',
    "NaN",
    "1e400",
    "1.5",
    "9" * 400,
    '{"a":1}',
    "[1]",
    "true",
    "null",
]


def line(request_id, method, name="pay"):
    return b'{"jsonrpc":"2.0","id":%s,"method":"%s","params":{"name":"%s","arguments":{}}}\n' % (
        request_id if isinstance(request_id, bytes) else request_id.encode(),
        method.encode(),
        name.encode(),
    )


ALL_BAD_IDS = [*BAD_IDS, b'"\xed\xa0\x80"']


@pytest.mark.parametrize("method", ["tools/call", "tools/list", "x/pid"])
def test_a_bad_id_over_stdio_is_an_error_for_that_message_and_nothing_else(stage, method):
    client = stage.client()

    for bad in ALL_BAD_IDS:
        client.send(line(bad, method))
        error = json.loads(client.line())
        assert error["id"] is None, bad
        assert "Nothing was sent" in error["error"]["message"], bad

    assert stage.effects() == 0
    assert client.result("pay")["content"][0]["text"] == "rcpt_1"
    assert client.close()[0] == 0


@pytest.mark.parametrize("method", ["tools/call", "tools/list", "x/pid"])
def test_a_bad_id_over_http_is_an_error_for_that_message_and_nothing_else(stand, method):
    url = stand.proxy(one_caller=True)

    answers = [httpx.post(url, content=line(bad, method), trust_env=False) for bad in ALL_BAD_IDS]

    assert {answer.status_code for answer in answers} == {400}
    assert {answer.json()["id"] for answer in answers} == {None}
    assert stand.effects("p") == 0
    assert call(url).status_code == 200


@pytest.mark.parametrize("method", ["tools/call", "x/silent"])
def test_an_id_that_is_in_use_is_an_error_for_the_second_message_alone(stage, method):
    client, gate = stage.client(), stage.folder / "gate"
    first = client.call("wait", {"gate": str(gate)})
    until(lambda: stage.effects() == 1, "the first call at the server")

    client.send(line(str(first), method, "wait"))
    refused = client.answer(first)
    gate.touch()
    answer = client.answer(first)

    assert "is in use" in refused["error"]["message"]
    assert answer["result"]["content"][0]["text"] == "rcpt_1"
    assert stage.effects() == 1


@pytest.mark.parametrize(
    "words",
    [r'{"jsonrpc":"2.0","id":"\ud800","result":{}}', r'{"jsonrpc":"2.0","id":[1],"result":{}}'],
)
def test_a_bad_id_of_the_server_does_not_end_the_proxy(stage, words):
    """The words come instead of an answer, so the call itself waits; others go on."""
    client = stage.client()
    client.call("says", {"words": words})

    assert client.line().strip() == words.encode()
    assert client.result("pay", {"id": "y"})["content"][0]["text"] == "rcpt_2"


def test_a_result_with_half_a_surrogate_pair_is_done_once_and_its_repeat_is_answered(stage):
    client = stage.client()
    words = r'{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"\ud800"}]}}'

    first, second = (client.result("says", {"words": words}) for _ in range(2))

    assert first["content"][0]["text"] == "\ud800"
    assert second["_meta"]["dev.effectonce/error"]["code"] == "RESULT_UNAVAILABLE"
    assert stage.effects() == 1


# ---------------------------------------------------------------- sizes


def test_a_call_that_is_too_large_is_refused_with_its_limit_over_http(stand):
    url = stand.proxy(one_caller=True)

    refused = call(url, arguments={"x": "y" * CALL_MAX})

    assert refused.status_code == 413
    assert f"at most {CALL_MAX} bytes" in refused.json()["error"]["message"]
    assert stand.effects("p") == 0
    assert call(url, arguments={"x": "y" * (CALL_MAX // 2)}).status_code == 200


def test_a_call_that_is_too_large_is_refused_with_its_limit_over_stdio(stage):
    client = stage.client(None, "--call-max", "1000")

    refused = client.answer(client.call("pay", {"x": "y" * 1000}))

    assert "at most 1000 bytes" in refused["error"]["message"]
    assert client.result("pay")["content"][0]["text"] == "rcpt_1"


@pytest.mark.parametrize("size", [ANSWER_MAX, LINE_MAX])
def test_an_answer_that_is_too_large_is_a_doubt_for_that_call_alone_over_stdio(stage, size):
    client = stage.client()
    large = client.call("large", {"bytes": size})

    doubt = client.answer(large)["result"]

    assert doubt["_meta"]["dev.effectonce/error"]["code"] == "OUTCOME_UNKNOWN"
    assert client.result("pay", {"id": "y"})["content"][0]["text"] == "rcpt_2"


def test_an_answer_that_is_too_large_is_a_doubt_for_that_call_alone_over_http(stand):
    url = stand.proxy(one_caller=True)

    doubt = call(url, "large")

    assert "OUTCOME_UNKNOWN" in doubt.text
    assert len(doubt.content) < 10_000
    assert call(url).json()["result"]["content"] == [{"type": "text", "text": "paid"}]


def test_a_line_without_end_is_not_kept():
    lines = Lines(line_max=100_000)

    made = list(
        itertools.chain.from_iterable(lines.cut(b'{"id":5,' + b"x" * 50_000) for _ in range(200))
    )
    (cut,) = lines.cut(b"\n")
    following = lines.cut(b"next\n")

    assert made == []
    assert isinstance(cut, Cut)
    assert len(cut) < 10_000
    assert id_at_ends(cut) == 5
    assert following == [b"next\n"]


@pytest.mark.parametrize(
    ("ends", "named"),
    [
        (b'{"jsonrpc":"2.0","id":"a","result":{"x":1', "a"),
        (b'{"result":{"id":1},"jsonrpc":"2.0","id":5}\n', 5),
        (b'{"result":"xxx","id":5,"jsonrpc":"2.0"}\n', 5),
        (b'{"result":{"id":1}}\n', None),
        (b'{"jsonrpc":"2.0","id":"\\ud800","result":1}', None),
    ],
)
def test_the_id_of_a_line_that_was_cut_is_found_where_sdks_write_it(ends, named):
    assert id_at_ends(ends) == named


def test_names_of_tools_that_are_made_up_are_not_kept(stand, monkeypatch):
    monkeypatch.setattr(_effects, "TOOLS_MAX", 5)
    url = stand.proxy(one_caller=True)

    for n in range(9):
        call(url, f"made up {n}")

    assert stand.effects("p") == 9
    assert len(stand.guard._tools) == 5
    assert [REPLAYED in call(url, f"made up {n}").text for n in (0, 8)] == [True, True]


def test_a_server_that_lists_other_tools_each_time_fills_no_memory():
    listed = {}
    for n in range(0, LISTED_MAX + 500, 50):
        tools = [{"name": f"tool {n + each}", "inputSchema": {}} for each in range(50)]
        hidden_in(
            json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"tools": tools}}).encode(),
            Contracts(name="odd"),
            listed,
        )

    assert len(listed) == LISTED_MAX
    assert f"tool {LISTED_MAX + 499}" in listed


class Endless:
    """A server whose streams have no end, and that answers everything else."""

    def __init__(self):
        self.open = 0

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        while (await receive()).get("more_body"):
            pass
        stream = scope["method"] == "GET"
        kind = b"text/event-stream" if stream else b"application/json"
        self.open += stream
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]}
        )
        await send(
            {
                "type": "http.response.body",
                "body": b": here\n\n" if stream else b'{"jsonrpc":"2.0","id":1}',
                "more_body": stream,
            }
        )
        while stream and (await receive())["type"] != "http.disconnect":
            pass
        self.open -= stream


@pytest.fixture
def endless():
    server = Endless()
    with served(server) as server.url:
        yield server


def ask_and_go(server, times):
    """Clients that are gone before the server answers; then one that stays."""
    heard = []

    async def gone():
        return {"type": "http.disconnect"}

    asking = [{"type": "http.request", "body": b'{"jsonrpc":"2.0","id":1,"method":"ping"}'}]

    async def asked():
        return asking.pop() if asking else await anyio.sleep_forever()

    async def send(message):
        heard.append(message)

    async def live():
        proxy = McpHttpProxy(Guard("memory://"), Contracts(name="odd"), server.url, one_caller=True)
        scope = {
            "type": "http",
            "path": "/mcp",
            "headers": [(b"host", b"localhost")],
            "query_string": b"",
        }
        for _ in range(times):
            await proxy(scope | {"method": "GET"}, gone, send)
        heard.clear()
        with anyio.fail_after(60):
            await proxy(scope | {"method": "POST"}, asked, send)
        await anyio.to_thread.run_sync(
            until, lambda: server.open == 0, "streams that are of no use any more"
        )
        await proxy({"type": "lifespan"}, shutdown, ignored)

    anyio.run(live)
    return heard


def test_clients_that_go_before_the_server_answers_hold_no_connection_to_it(endless):
    heard = ask_and_go(endless, 3)

    assert heard[0]["status"] == 200


def test_clients_that_only_listen_leave_room_for_others(endless):
    proxy = McpHttpProxy(Guard("memory://"), Contracts(name="odd"), endless.url, one_caller=True)
    with (
        served(proxy) as url,
        contextlib.ExitStack() as listening,
        httpx.Client(trust_env=False, timeout=60, limits=NO_LIMITS) as client,
    ):
        for _ in range(120):
            listening.enter_context(client.stream("GET", url))

        answer = client.post(url, json={"jsonrpc": "2.0", "id": 1, "method": "ping"})

    assert answer.status_code == 200


# ---------------------------------------------------------------- what is written and printed


def test_mcp_init_writes_no_password_of_the_store(stage):
    hosts = ("claude-code", "claude-desktop", "vscode", "cursor", "codex")
    options = [part for host in hosts for part in ("--client", host)]
    command = [*MCP, "init", "bank"]
    environ = environment(stage.folder) | {
        "EFFECTONCE_STORE": "postgresql://ada:hunter2@db.example/effects"
    }

    def init(*more):
        whole = [*command, *options, *more, "--", *stage.command]
        return subprocess.run(
            whole, capture_output=True, text=True, env=environ, cwd=stage.folder, check=True
        )

    shown = init("--dry-run")
    done = init()

    files = [path for path in stage.folder.rglob("*") if path.is_file()]
    written = {path.name: path.read_text(errors="replace") for path in files}
    assert not any(
        "hunter2" in text for text in (*written.values(), shown.stdout, shown.stderr, done.stderr)
    )
    assert json.loads(written[".mcp.json"])["mcpServers"]["bank"]["env"] == {
        "EFFECTONCE_STORE": "${EFFECTONCE_STORE}"
    }
    assert (
        '"EFFECTONCE_STORE": "${env:EFFECTONCE_STORE}"'
        in (stage.folder / ".vscode" / "mcp.json").read_text()
    )
    assert (
        '"EFFECTONCE_STORE": "${env:EFFECTONCE_STORE}"'
        in (stage.folder / ".cursor" / "mcp.json").read_text()
    )
    assert 'env_vars = ["EFFECTONCE_STORE"]' in written["config.toml"]
    assert "Claude Desktop cannot refer to EFFECTONCE_STORE" in done.stderr


def test_the_line_at_the_start_of_mcp_http_shows_no_credentials(stage):
    url = "http://ada:hunter2@127.0.0.1:1/mcp?token=hunter3"
    command = [*MCP, "http", url, "--listen", f"127.0.0.1:{free_port()}"]
    with subprocess.Popen(
        command, env=environment(stage.folder), stderr=subprocess.PIPE
    ) as process:
        said = process.stderr.readline()
        process.terminate()

    assert b"Listening on" in said
    assert b"hunter" not in said


def test_an_address_that_everybody_reaches_needs_a_name(stage):
    command = [*MCP, "http", "http://127.0.0.1:1/mcp", "--listen", "0.0.0.0:0"]

    done = subprocess.run(
        command, env=environment(stage.folder), capture_output=True, text=True, check=False
    )

    assert done.returncode == 2
    assert "--allow-host" in done.stderr
