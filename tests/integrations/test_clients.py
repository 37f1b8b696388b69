"""The real clients against a server that counts: amplified as they come, one request each
without their retries.
"""

import asyncio
import random
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import aiohttp
import anthropic
import botocore.endpoint
import botocore.session
import httpx
import httpx2
import openai
import pytest
import redis
import redis.asyncio
import redis.backoff
import redis.retry
import requests
import stripe
import urllib3
from botocore.config import Config
from google import genai

from effectonce import Guard, Retry
from effectonce.retries.clients import (
    CLIENTS,
    UNLIMITED,
    amplification,
    inner_attempts,
    without_retries,
)
from tests.servers.listener import Listener

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs

MESSAGES = [{"role": "user", "content": "hello"}]
SOON = {"retry-after-ms": "1"}


def counted(server, call):
    """How many requests a call that fails sends."""
    before = server.requests
    # whatever it is, it is theirs; what was sent is counted
    with pytest.raises(Exception):  # noqa: B017
        call()
    return server.requests - before


def proved(server, client, call):
    """What is said and what is sent, before and after; and the client that was used then."""
    before = (inner_attempts(client), counted(server, lambda: call(client)))
    once = without_retries(client)
    return before, (inner_attempts(once), counted(server, lambda: call(once))), once


async def aproved(server, client, call):
    """The same in the other colour."""

    async def acounted(client):
        before = server.requests
        # whatever it is, it is theirs; what was sent is counted
        with pytest.raises(Exception):  # noqa: B017
            await call(client)
        return server.requests - before

    before = (inner_attempts(client), await acounted(client))
    once = without_retries(client)
    return before, (inner_attempts(once), await acounted(once)), once


# ---------------------------------------------------------------- openai and anthropic


def ask_openai(client):
    return client.chat.completions.create(model="m", messages=MESSAGES)


def ask_anthropic(client):
    return client.messages.create(model="m", max_tokens=9, messages=MESSAGES)


OVERLOADED = (529, {"error": {"type": "overloaded_error", "message": "no"}}, SOON)


@pytest.mark.parametrize(
    ("make", "ask"),
    [(openai.OpenAI, ask_openai), (anthropic.Anthropic, ask_anthropic)],
    ids=["openai", "anthropic"],
)
def test_an_sdk_tries_three_times_and_its_copy_once(wire, make, ask):
    wire.says(*OVERLOADED)
    with make(api_key="k", base_url=wire.url) as client:
        before, after, once = proved(wire, client, ask)

        assert (before, after) == ((3, 3), (1, 1))
        assert once is not client
        assert inner_attempts(client) == 3, "the original is as it was"


@pytest.mark.parametrize(
    ("make", "ask"),
    [(openai.AsyncOpenAI, ask_openai), (anthropic.AsyncAnthropic, ask_anthropic)],
    ids=["openai", "anthropic"],
)
def test_an_async_sdk_tries_three_times_and_its_copy_once(wire, make, ask):
    async def main():
        async with make(api_key="k", base_url=wire.url) as client:
            before, after, once = await aproved(wire, client, ask)
            return before, after, once is client

    wire.says(*OVERLOADED)
    assert asyncio.run(main()) == ((3, 3), (1, 1), False)


def test_what_an_sdk_is_built_on_is_counted_and_switched_off_as_well():
    http = httpx2.Client(transport=httpx2.HTTPTransport(retries=4))
    with openai.OpenAI(api_key="k", http_client=http) as client:
        assert inner_attempts(client) == 15
        assert inner_attempts(without_retries(client)) == inner_attempts(http) == 1


# ---------------------------------------------------------------- stripe


@pytest.fixture
def impatient():
    """Stripe's own HTTP client, which would sleep for half a second."""
    http = stripe.RequestsClient(timeout=60)
    http.INITIAL_DELAY = http.MAX_DELAY = 0
    yield http
    http.close()


def test_a_stripe_client_sends_once(wire, impatient):
    wire.says(503, {"error": {"type": "api_error", "message": "no"}})
    client = stripe.StripeClient(
        "sk_test_1", base_addresses={"api": wire.url}, http_client=impatient, max_network_retries=2
    )

    refund = lambda client: client.v1.refunds.create({"payment_intent": "pi_1"})

    assert proved(wire, client, refund) == ((3, 3), (1, 1), client)


def test_a_stripe_client_that_was_told_nothing_is_counted_as_it_behaves(wire, impatient):
    wire.says(503, {"error": {"type": "api_error", "message": "no"}})
    client = stripe.StripeClient(
        "sk_test_1", base_addresses={"api": wire.url}, http_client=impatient
    )
    assert inner_attempts(client) == counted(
        wire, lambda: client.v1.refunds.create({"payment_intent": "pi_1"})
    )


def test_stripes_module_sends_once(wire, impatient, monkeypatch):
    wire.says(503, {"error": {"type": "api_error", "message": "no"}})
    for name, value in {
        "api_key": "sk_test_1",
        "api_base": wire.url,
        "default_http_client": impatient,
    }.items():
        monkeypatch.setattr(stripe, name, value)
    # put back afterwards
    monkeypatch.setattr(stripe, "max_network_retries", stripe.max_network_retries)

    refund = lambda module: module.Refund.create(payment_intent="pi_1")

    assert proved(wire, stripe, refund) == ((3, 3), (1, 1), stripe)


# ---------------------------------------------------------------- botocore

AWS_CALLS = {
    "sqs": lambda client: client.list_queues(),
    "dynamodb": lambda client: client.list_tables(),
}


def aws(service, url, retries):
    identity = {"region_name": "eu-west-1", "aws_access_key_id": "k", "aws_secret_access_key": "s"}
    return botocore.session.Session().create_client(
        service, endpoint_url=url, config=Config(retries=retries), **identity
    )


@pytest.mark.parametrize(
    ("service", "retries", "times"),
    [
        ("sqs", {"mode": "standard"}, 3),
        ("sqs", {"mode": "adaptive"}, 3),
        ("sqs", {"mode": "legacy", "max_attempts": 1}, 2),
        ("sqs", {"mode": "standard", "total_max_attempts": 2}, 2),
        ("dynamodb", {"mode": "standard"}, 4),
    ],
)
def test_an_aws_client_sends_once(wire, service, retries, times):
    wire.says(500, {"__type": "InternalFailure", "message": "no"})
    client = aws(service, wire.url, retries)

    assert proved(wire, client, AWS_CALLS[service]) == ((times, times), (1, 1), client)
    client.close()


@pytest.mark.parametrize(("service", "times"), [("sqs", 5), ("dynamodb", 10)])
def test_the_legacy_defaults_of_aws_are_known(wire, monkeypatch, service, times):
    # it would take half a minute
    monkeypatch.setattr(botocore.endpoint.time, "sleep", lambda _: None)
    wire.says(500, {"__type": "InternalFailure", "message": "no"})
    client = aws(service, wire.url, {"mode": "legacy"})

    assert proved(wire, client, AWS_CALLS[service]) == ((times, times), (1, 1), client)
    client.close()


# ---------------------------------------------------------------- redis


class LostReplies(Listener):
    """A Redis that greets everybody, and hangs up on who writes."""

    requests = 0

    def __init__(self):
        super().__init__(self._answer)

    def _answer(self, line):
        while data := line.recv(4096):
            if b"APPEND" in data:
                self.requests += 1
                return
            line.sendall(b"+OK\r\n" * data.count(b"*"))


@pytest.fixture
def lost():
    with LostReplies() as server:
        yield server


def test_a_redis_client_sends_once(lost):
    retry = redis.retry.Retry(redis.backoff.NoBackoff(), 3)
    client = redis.Redis(port=lost.port, retry=retry, protocol=2)

    assert proved(lost, client, lambda client: client.append("k", "v")) == ((4, 4), (1, 1), client)
    client.close()


def test_an_async_redis_client_sends_once(lost):
    async def main():
        retry = redis.asyncio.retry.Retry(redis.backoff.NoBackoff(), 3)
        async with redis.asyncio.Redis(port=lost.port, retry=retry, protocol=2) as client:
            before, after, once = await aproved(
                lost, client, lambda client: client.append("k", "v")
            )
            return before, after, once is client

    assert asyncio.run(main()) == ((4, 4), (1, 1), True)


@pytest.mark.parametrize(("settings", "times"), [({}, 1), ({"retry_on_timeout": True}, 2)])
def test_a_pool_of_redis_without_retries_of_its_own_is_counted_as_its_connections_behave(
    settings, times
):
    client = redis.Redis(connection_pool=redis.ConnectionPool(**settings))

    assert client.connection_pool.make_connection().retry.get_retries() == times - 1
    assert inner_attempts(client) == times
    assert inner_attempts(without_retries(client)) == 1
    assert client.connection_pool.make_connection().retry.get_retries() == 0


def test_the_defaults_of_redis_are_known():
    assert inner_attempts(redis.Redis()) == 11
    assert (
        inner_attempts(redis.Redis(retry=redis.retry.Retry(redis.backoff.NoBackoff(), -1)))
        == UNLIMITED
    )


# ---------------------------------------------------------------- urllib3 and requests


def test_urllib3_sends_once_and_still_follows_redirects(wire):
    get = lambda manager: manager.request("GET", wire.url)
    with urllib3.PoolManager() as manager:
        wire.hangs_up()
        assert proved(wire, manager, get) == ((4, 4), (1, 1), manager)

        wire.says(302, "", {"location": wire.url})
        assert counted(wire, lambda: get(manager)) == 4, "three redirects are followed, as before"


def test_urllib3_is_not_asked_to_come_back(wire):
    wire.says(503, "", {"retry-after": "0"})
    with urllib3.PoolManager(retries=urllib3.Retry(2, status_forcelist=[503])) as manager:
        assert proved(wire, manager, lambda manager: manager.request("GET", wire.url)) == (
            (3, 3),
            (1, 1),
            manager,
        )


@pytest.mark.parametrize(
    ("retries", "times"),
    [
        (False, 1),
        (0, 1),
        (7, 8),
        (urllib3.Retry(9, connect=2, read=1, status=0, other=0), 3),
        (urllib3.Retry(None, connect=2, read=1, status=0, other=0), 3),
        (urllib3.Retry(None), UNLIMITED),
    ],
)
def test_what_urllib3_is_told_is_counted(retries, times):
    assert inner_attempts(urllib3.PoolManager(retries=retries)) == times
    assert inner_attempts(without_retries(urllib3.PoolManager(retries=retries))) == 1


def test_a_requests_session_sends_once(wire):
    wire.hangs_up()
    with requests.Session() as session:
        assert inner_attempts(session) == 1
        session.mount(
            "http://",
            requests.adapters.HTTPAdapter(max_retries=urllib3.Retry(3, allowed_methods=None)),
        )

        assert proved(wire, session, lambda session: session.post(wire.url)) == (
            (4, 4),
            (1, 1),
            session,
        )


def test_an_adapter_that_is_not_known_is_refused():
    class Mine(requests.adapters.BaseAdapter):
        pass

    session = requests.Session()
    session.mount("mine://", Mine())
    with pytest.raises(
        TypeError,
        match=r"sends through a .*Mine, which effectonce does not know.*Nothing was changed",
    ):
        without_retries(session)


# ---------------------------------------------------------------- httpx


@pytest.fixture
def handshakes():
    """A server that hangs up in the middle of a TLS handshake: what httpx calls a failure to
    connect.
    """

    class Handshakes(Listener):
        requests = 0

        def __init__(self):
            super().__init__(self._break_off)

        def _break_off(self, line):
            self.requests += 1
            line.recv(1)

    with Handshakes() as server:
        server.url = f"https://127.0.0.1:{server.port}"
        yield server


@pytest.mark.parametrize("library", [httpx, httpx2], ids=lambda library: library.__name__)
def test_an_httpx_client_connects_once(handshakes, library):
    transport = library.HTTPTransport(retries=1, verify=False)
    with library.Client(mounts={"https://": transport}) as client:
        assert proved(handshakes, client, lambda client: client.get(handshakes.url)) == (
            (2, 2),
            (1, 1),
            client,
        )


@pytest.mark.parametrize("library", [httpx, httpx2], ids=lambda library: library.__name__)
def test_an_async_httpx_client_connects_once(handshakes, library):
    async def main():
        async with library.AsyncClient(
            transport=library.AsyncHTTPTransport(retries=1, verify=False)
        ) as client:
            before, after, once = await aproved(
                handshakes, client, lambda client: client.get(handshakes.url)
            )
            return before, after, once is client

    assert asyncio.run(main()) == ((2, 2), (1, 1), True)


def test_a_transport_without_a_wire_sends_once_and_an_unknown_one_is_refused():
    class Mine(httpx.BaseTransport):
        pass

    assert (
        inner_attempts(httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(200))))
        == 1
    )
    with pytest.raises(
        TypeError, match=r"httpx.* sends through a .*Mine, which effectonce does not know"
    ):
        inner_attempts(httpx.Client(transport=Mine()))


# ---------------------------------------------------------------- aiohttp and google-genai


def test_an_aiohttp_session_sends_once(wire):
    async def main():
        async with aiohttp.ClientSession() as session:
            before, after, once = await aproved(
                wire, session, lambda session: session.put(wire.url)
            )
            return before, after, once is session

    wire.hangs_up()
    assert asyncio.run(main()) == ((2, 2), (1, 1), True)


def ask_google(client):
    return client.models.generate_content(model="m", contents="hello")


def test_a_google_client_sends_once(wire):
    wire.says(503, {"error": {"code": 503, "message": "no", "status": "UNAVAILABLE"}})
    quickly = {"attempts": 3, "initial_delay": 0.001, "max_delay": 0.001, "jitter": 0.001}
    client = genai.Client(
        api_key="k", http_options={"base_url": wire.url, "retry_options": quickly}
    )

    assert proved(wire, client, ask_google) == ((3, 3), (1, 1), client)
    client.close()


def test_what_a_google_client_is_built_on_is_counted_and_switched_off_as_well():
    from google.genai._api_client import httpx as theirs  # httpx or httpx2

    client = genai.Client(
        api_key="k", http_options={"client_args": {"transport": theirs.HTTPTransport(retries=3)}}
    )
    assert inner_attempts(client) == 4
    assert inner_attempts(without_retries(client)) == 1
    client.close()


def test_a_google_client_does_not_send_again_by_itself_over_aiohttp(wire, monkeypatch):
    monkeypatch.setattr(random, "randint", lambda *_: -1)  # it would sleep for one to ten seconds

    async def main():
        client = genai.Client(api_key="k", http_options={"base_url": wire.url})
        before, after, once = await aproved(wire, client, lambda client: ask_google(client.aio))
        await client.aio.aclose()
        client.close()
        return before, after, once is client

    wire.hangs_up()
    assert asyncio.run(main()) == ((2, 2), (1, 1), True)


# ---------------------------------------------------------------- what is not known


def test_a_client_that_is_not_known_is_refused():
    for unknown in (object(), "client", threading):
        with pytest.raises(
            TypeError,
            match=(
                r"not a client that effectonce knows.*Nothing was changed.*Switch its retries off"
            ),
        ):
            inner_attempts(unknown)
        with pytest.raises(TypeError, match="known are openai, anthropic"):
            without_retries(unknown)


def test_a_release_that_keeps_its_retries_elsewhere_is_refused(monkeypatch):
    client = stripe.StripeClient("sk_test_1")
    del client._requestor._options.max_network_retries
    with pytest.raises(
        TypeError, match=r"this release of stripe.*keeps its retries elsewhere.*Nothing was changed"
    ):
        without_retries(client)


def test_what_still_tries_again_after_all_is_told():
    class Stubborn(requests.adapters.HTTPAdapter):
        max_retries = property(lambda _: urllib3.Retry(5), lambda *_: None)

    session = requests.Session()
    session.mount("https://", Stubborn())
    with pytest.raises(TypeError, match="still tries 6 times"):
        without_retries(session)


# ---------------------------------------------------------------- amplification


def test_layers_that_multiply_are_told():
    finding = amplification(3, redis.Redis(), openai.OpenAI(api_key="k"), requests.Session())

    assert (
        finding.found
        == "one call may send 33 times: 3 of ours, and redis tries each of them 11 times"
    )
    assert "without_retries(client)" in finding.advice
    assert finding.advice.endswith("for redis, openai.")
    assert not finding.bad


def test_a_client_that_never_gives_up_is_told_as_that():
    finding = amplification(3, urllib3.PoolManager(retries=urllib3.Retry(None)))
    assert (
        finding.found
        == "one call may send without end: 3 of ours, and urllib3.PoolManager tries each of them"
        " without end"
    )


def test_one_layer_is_nothing_to_tell():
    assert amplification(3) is None
    assert amplification(3, requests.Session(), without_retries(openai.OpenAI(api_key="k"))) is None


class Gateway:
    """A service of somebody's in between: it passes requests on with retries of its own, and
    says 503 if that does not help.
    """

    def __init__(self, upstream):
        again = urllib3.Retry(
            2, status_forcelist=[503], allowed_methods=None, raise_on_status=False
        )
        self.manager = urllib3.PoolManager(retries=again)
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                reply = gateway.manager.request("POST", upstream + self.path, body=body)
                self.send_response(reply.status)
                for name, value in ({"content-length": str(len(reply.data))} | SOON).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(reply.data)

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self.manager.clear()


def test_four_layers_of_three_attempts_are_81_sends_and_without_inner_retries_three(wire):
    wire.says(503, {"error": {"message": "no"}})
    guard = Guard("memory://")

    def tool(name, client):
        @guard.tool(kind="read", name=name, retry=Retry(attempts=3, base_s=0, cap_s=0))
        def ask():
            return ask_openai(client)

        return ask

    with (
        Gateway(wire.url) as near,
        Gateway(near.url) as far,
        openai.OpenAI(api_key="k", base_url=far.url) as client,
    ):
        assert counted(wire, tool("amplified", client)) == 81
        for gateway in (near, far):
            without_retries(gateway.manager)
        assert counted(wire, tool("once", without_retries(client))) == 3


# ---------------------------------------------------------------- the page


def test_the_page_shows_the_clients_as_the_code_has_them():
    lines = ["| client | one call of it tries | `without_retries` | |", "|---|---|---|---|"]
    lines += [
        f"| {row.name} | {row.tries} | {row.off} | {'a copy' if row.copied else 'in place'} |"
        for row in CLIENTS
    ]
    page = (Path(__file__).parents[2] / "docs" / "howto" / "one-retry-layer.md").read_text()

    assert (
        "\n".join(lines)
        == re.search(r"<!-- clients -->\n(.*?)\n<!-- /clients -->", page, re.DOTALL)[1]
    )
