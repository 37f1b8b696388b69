"""A loop inside the tool: whatever became of the request before, it sends the same key again."""

import asyncio
from math import inf

import aiohttp
import httpx
import httpx2
import pytest
import requests
import urllib3

from effectonce import Guard, Retry
from effectonce.http.client import protect
from tests.http.callers import LONG, SOON, each_client
from tests.http.server import Shop

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("collected")]  # theirs
ONCE = Retry(attempts=1)
TRIES = 3


def looping(send):
    """A keyed tool that calls *send* until it ends well."""
    guard = Guard("memory://")

    @guard.tool(kind="write", downstream="key", retry=ONCE)
    def work(order: int) -> list[str]:
        failed = []
        for _ in range(TRIES):
            try:
                return [*failed, send()]
            except Exception as error:
                failed.append(type(error).__name__)
        return failed

    with guard.step("chat", "work"):
        return work(1)


def in_a_loop(caller, url, path="/pay"):
    return looping(lambda: str(caller.calls(url, path, retry=ONCE)[0][0]))


# ---------------------------------------------------------------- an answer that breaks off
# while it is read


@each_client
def test_an_answer_that_does_not_say_its_length_and_breaks_off_is_asked_for_under_the_same_key(
    shop, caller
):
    shop.faults = ["break"]

    assert in_a_loop(caller, shop.url)[1:] == ["200"]
    assert (shop.effects, len(shop.keys), len(set(shop.keys))) == (1, 2, 1)


def stream_with_httpx(client, url):
    with client.stream("POST", url, content=b"1") as response:
        return b"".join(response.iter_raw()).decode()


def stream_with_requests(client, url):
    with client.post(url, data=b"1", stream=True) as response:
        return b"".join(response.iter_content(1)).decode()


def stream_with_urllib3(client, url):
    return b"".join(
        client.request("POST", url, body=b"1", preload_content=False).stream(1)
    ).decode()


STREAMS = {
    "httpx": (httpx.Client, stream_with_httpx),
    "httpx2": (httpx2.Client, stream_with_httpx),
    "requests": (requests.Session, stream_with_requests),
    "urllib3": (urllib3.PoolManager, stream_with_urllib3),
}


@pytest.mark.parametrize(("make", "stream"), STREAMS.values(), ids=STREAMS)
def test_so_is_a_stream(shop, make, stream):
    shop.faults = ["break"]

    with make() as made:
        client = protect(made, retry=ONCE)
        told = looping(lambda: stream(client, shop.url + "/pay"))

    assert told[1:] == ['{"effect": 1}']
    assert (shop.effects, len(shop.keys), len(set(shop.keys))) == (1, 2, 1)


def read_lines(content):
    async def read():
        return b"".join([line async for line in content])

    return read()


READINGS = {
    "read": lambda content: content.read(),
    "lines": read_lines,
    "chunks": lambda content: join(content.iter_any()),
    "pairs": lambda content: join(content.iter_chunks(), of=lambda pair: pair[0]),
}


async def join(pieces, of=lambda piece: piece):
    return b"".join([of(piece) async for piece in pieces])


@pytest.mark.parametrize("reading", READINGS.values(), ids=READINGS)
def test_so_is_a_stream_of_aiohttp(shop, reading):
    shop.faults = ["break"]

    async def send():
        async with (
            aiohttp.ClientSession() as made,
            protect(made, retry=ONCE).post(shop.url + "/pay") as response,
        ):
            return (await reading(response.content)).decode()

    assert looping(lambda: asyncio.run(send()))[1:] == ['{"effect": 1}']
    assert (shop.effects, len(shop.keys), len(set(shop.keys))) == (1, 2, 1)


@pytest.mark.parametrize("name", ["httpx", "requests", "urllib3"])
def test_a_stream_that_the_caller_has_read_enough_of_was_answered(shop, name):
    """The next request is another one."""
    shop.faults = ["break", None]
    first_piece = {
        "httpx": lambda client, url: next(
            client.send(client.build_request("POST", url), stream=True).iter_raw()
        ),
        "requests": lambda client, url: next(client.post(url, stream=True).iter_content(1)),
        "urllib3": lambda client, url: next(
            client.request("POST", url, preload_content=False).stream(1)
        ),
    }[name]

    with STREAMS[name][0]() as made:
        client = protect(made, retry=ONCE)
        looping(lambda: str([first_piece(client, shop.url + "/pay") for _ in range(2)]))

    assert len(set(shop.keys)) == 2


def test_a_stream_that_is_read_again_after_it_broke_takes_no_number_away(shop):
    """What was sent instead has it by then, and what comes next is another request."""
    shop.faults = ["break"]

    async def pay(client):
        async with client.post(shop.url + "/pay") as response:
            return response, await response.content.read()

    async def send():
        async with aiohttp.ClientSession() as made:
            client = protect(made, retry=ONCE)
            async with client.post(shop.url + "/pay") as response:
                with pytest.raises(aiohttp.ClientPayloadError):
                    await response.content.read()
                await pay(client)
                with pytest.raises(aiohttp.ClientPayloadError):
                    await response.content.read()
                await pay(client)
        return "sent"

    assert looping(lambda: asyncio.run(send())) == ["sent"]
    assert (shop.effects, shop.keys[0] == shop.keys[1], shop.keys[1] == shop.keys[2]) == (
        2,
        True,
        False,
    )


# ---------------------------------------------------------------- redirects, authentication


@each_client
def test_a_redirect_to_the_same_place_of_another_host_is_the_same_request(shop, caller):
    shop.faults = ["lose"]

    with Shop() as front:
        front.faults = [(307, {"location": f"{shop.url}/pay%20it"})] * 3
        told = in_a_loop(caller, front.url, "/pay%20it")

    assert told[1:] == ["200"]
    assert (shop.effects, len(shop.keys), len(set(shop.keys))) == (1, 2, 1)
    assert set(front.keys) == set(shop.keys)


@each_client
def test_a_redirect_to_nowhere_says_nothing_about_the_number(shop, caller):
    shop.faults = [(308, {"location": "http://[nowhere/pay"})]

    in_a_loop(caller, shop.url)

    assert shop.keys[0] is not None


def test_requests_that_have_to_authenticate_first_keep_their_key(shop):
    challenge = 'Digest realm="shop", nonce="abc", qop="auth", algorithm=SHA-256'
    shop.faults = [(401, {"www-authenticate": challenge}), "lose"]

    with requests.Session() as made:
        client = protect(made, retry=SOON)
        told = looping(
            lambda: (
                client.post(
                    shop.url + "/pay", auth=requests.auth.HTTPDigestAuth("anna", "secret")
                ).text
            )
        )

    assert told == ['{"effect": 1}']
    assert (shop.effects, len(shop.keys), len(set(shop.keys)), None in shop.keys) == (
        1,
        3,
        1,
        False,
    )


# ---------------------------------------------------------------- time


@pytest.mark.parametrize("deadline_s", [20.0, 600.0])
def test_a_body_that_can_be_read_once_has_the_time_that_the_policy_says(shop, deadline_s):
    given = []

    def handle(request):
        given.append(request.extensions["timeout"]["read"])
        return httpx.Response(200)

    with protect(
        httpx.Client(transport=httpx.MockTransport(handle), timeout=None),
        retry=Retry(attempts=3, deadline_s=deadline_s),
    ) as client:
        client.post("http://shop.example/pay", content=iter([b"1"]))

    assert deadline_s / 2 < given[0] <= deadline_s


def test_an_answer_of_aiohttp_that_stalls_gives_its_connection_back(shop):
    shop.faults = ["stall"]

    async def main():
        connector, timeout = aiohttp.TCPConnector(limit=1), aiohttp.ClientTimeout(sock_read=0.2)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as made:
            client = protect(made, retry=LONG)
            async with client.get(shop.url + "/list") as response:
                return response.status

    assert asyncio.run(main()) == 200
    assert len(shop.requests) >= 2


@each_client
def test_a_policy_without_end_is_no_time_out_that_a_socket_refuses(shop, caller):
    assert [
        status
        for status, _ in caller.calls(
            shop.url, "/pay", wait_s=None, retry=Retry(attempts=3, deadline_s=inf)
        )
    ] == [200]
