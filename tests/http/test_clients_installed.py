"""What protect changes in a client, what it leaves alone, and what it refuses."""

import asyncio
import io
import re
from pathlib import Path

import aiohttp
import httpx
import pytest
import requests
import urllib3

from effectonce import (
    Breaker,
    Bucket,
    Certainty,
    Circuit,
    ContractViolation,
    Guard,
    Phase,
    Retry,
    RetryBudget,
    Rule,
    Scope,
)
from effectonce.http.client.protect import ROWS, WITNESSES, KeyHeader, protect
from effectonce.retries.clients import inner_attempts
from effectonce.stores.memory import MemoryStore
from tests.http.callers import SOON, each_client
from tests.servers._process import until

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("collected")]  # theirs
ONCE = Retry(attempts=1)


def protected_once(client):
    assert protect(client) is client
    assert inner_attempts(client) == 1
    with pytest.raises(TypeError, match="protected already"):
        protect(client)


@each_client
def test_a_client_is_protected_once_in_place_and_sends_each_attempt_once(caller):
    async def main():
        async with caller.make() as client:
            protected_once(client)

    if caller.colour == "async":
        asyncio.run(main())
        return
    with caller.make() as client:
        protected_once(client)


def test_a_client_that_is_not_known_is_refused():
    with pytest.raises(
        TypeError,
        match=r"io.StringIO is not a client that effectonce can protect. Nothing was changed",
    ):
        protect(io.StringIO())


def test_a_shared_budget_needs_a_store():
    with httpx.Client() as client:
        with pytest.raises(ContractViolation, match="say through which store"):
            protect(client, budget=RetryBudget("shop", shared=True))

        protect(client, budget=RetryBudget("shop", shared=True), store=MemoryStore())


def test_transports_that_are_mounted_are_protected_and_none_stays_none(shop):
    mounts = {"http://": httpx.HTTPTransport(retries=5), "http://example.com": None}
    shop.faults = ["reset"]

    with httpx.Client(mounts=mounts) as client:
        protect(client, retry=SOON)
        assert client.get(shop.url).status_code == 200
        assert inner_attempts(client) == 1
    assert len(shop.requests) == 2


def test_a_pool_that_was_there_before_is_made_anew(shop):
    shop.faults = [None, "reset"]

    with urllib3.PoolManager() as manager:
        manager.request("GET", shop.url)
        assert protect(manager, retry=SOON).request("GET", shop.url).status == 200
    assert len(shop.requests) == 3


def test_a_middleware_of_the_callers_own_runs_outside_of_ours(shop):
    seen = []

    async def own(request, handler):
        seen.append(request.method)
        return await handler(request)

    async def main():
        async with (
            aiohttp.ClientSession(middlewares=(own,)) as session,
            protect(session, retry=SOON).get(shop.url) as response,
        ):
            return response.status

    shop.faults = ["reset"]
    assert asyncio.run(main()) == 200
    assert (seen, len(shop.requests)) == (["GET"], 2)


@each_client
def test_rules_say_what_the_tables_do_not_know(shop, caller):
    shop.faults = [(400, {})]

    [(status, _)] = caller.calls(
        shop.url, ("GET", "/basket"), rules=[Rule(400, Bucket.SERVER_ERROR)]
    )

    assert (status, len(shop.requests)) == (200, 2)


# ---------------------------------------------------------------- bodies that are sent


def parts():
    yield b"one"
    yield b"two"


async def aparts():
    yield b"one"


def test_a_body_that_can_be_read_once_is_sent_once(shop):
    shop.faults = [(503, {"retry-after": "0"})] * 3

    with httpx.Client() as client:
        assert (
            protect(client, retry=SOON).put(f"{shop.url}/file", content=parts()).status_code == 503
        )
    with requests.Session() as session:
        assert protect(session, retry=SOON).put(f"{shop.url}/file", data=parts()).status_code == 503
    with urllib3.PoolManager() as manager:
        assert (
            protect(manager, retry=SOON).request("PUT", f"{shop.url}/file", body=parts()).status
            == 503
        )

    assert len(shop.requests) == 3


def test_so_is_one_in_a_loop(shop):
    async def main():
        async with aiohttp.ClientSession() as session:
            response = await protect(session, retry=SOON).put(f"{shop.url}/file", data=aparts())
            return response.status

    shop.faults = [(503, {"retry-after": "0"})]
    assert asyncio.run(main()) == 503
    assert len(shop.requests) == 1


# ---------------------------------------------------------------- bodies that come


def test_an_answer_that_was_read_already_can_be_read_as_a_stream(shop):
    with httpx.Client() as client, protect(client).stream("GET", shop.url) as response:
        assert b"".join(response.iter_raw()) == b'{"effect": 0}'
    with requests.Session() as session, protect(session).get(shop.url, stream=True) as response:
        assert response.raw.read() == b'{"effect": 0}'


def test_so_it_can_in_a_loop(shop):
    async def main():
        async with (
            httpx.AsyncClient() as client,
            protect(client).stream("GET", shop.url) as response,
        ):
            first = [part async for part in response.aiter_raw()]
        async with aiohttp.ClientSession() as session, protect(session).get(shop.url) as response:
            return b"".join(first), await response.content.read()

    assert asyncio.run(main()) == (b'{"effect": 0}', b'{"effect": 0}')


def test_a_long_answer_is_not_held(shop):
    """What does not say how long it is belongs to the caller, part by part."""
    given = []

    def endless():
        for number in range(10):
            given.append(number)
            yield b"%d" % number

    transport = httpx.MockTransport(lambda request: httpx.Response(200, content=endless()))
    with (
        httpx.Client(transport=transport) as client,
        protect(client).stream("GET", "http://shop.test/") as response,
    ):
        assert next(response.iter_raw()) == b"0"
        assert given == [0]


def test_a_long_answer_is_not_held_in_a_loop_either(shop):
    async def endless():
        yield b"0"

    async def main():
        transport = httpx.MockTransport(lambda request: httpx.Response(200, content=endless()))
        async with (
            httpx.AsyncClient(transport=transport) as client,
            protect(client).stream("GET", "http://shop.test/") as response,
        ):
            return [part async for part in response.aiter_raw()]

    assert asyncio.run(main()) == [b"0"]


def test_a_stream_that_is_refused_gives_its_connection_back(shop):
    shop.faults = [(503, {"retry-after": "0"})]

    with requests.Session() as session:
        adapter = requests.adapters.HTTPAdapter(pool_connections=1, pool_maxsize=1, pool_block=True)
        session.mount("http://", adapter)
        with protect(session, retry=SOON).get(shop.url, stream=True) as response:
            assert response.json() == {"effect": 0}
    with urllib3.PoolManager(maxsize=1, block=True) as manager:
        shop.faults = [(503, {"retry-after": "0"})]
        response = protect(manager, retry=SOON).request("GET", shop.url, preload_content=False)
        assert response.read() == b'{"effect": 0}'
        response.release_conn()


# ---------------------------------------------------------------- how long


@pytest.mark.parametrize(
    "timeout",
    [None, 25.0, (25.0, 25.0), (25.0, None), urllib3.Timeout(25.0), urllib3.Timeout(total=25.0)],
    ids=repr,
)
def test_requests_has_no_more_time_than_there_is(shop, timeout):
    shop.faults = ["hang"]

    with requests.Session() as session, pytest.raises(requests.ReadTimeout):
        protect(session, retry=Retry(attempts=3, deadline_s=0.2)).get(shop.url, timeout=timeout)


@pytest.mark.parametrize(
    "timeout", [None, 25.0, urllib3.Timeout(25.0), urllib3.Timeout(total=25.0)], ids=repr
)
def test_urllib3_has_no_more_time_than_there_is(shop, timeout):
    shop.faults = ["hang"]
    said = {} if timeout is None else {"timeout": timeout}

    with urllib3.PoolManager() as manager, pytest.raises(urllib3.exceptions.ReadTimeoutError):
        protect(manager, retry=Retry(attempts=3, deadline_s=0.2)).request("GET", shop.url, **said)


def test_a_cancelled_request_is_cancelled_and_its_number_is_free_again(shop):
    guard = Guard("memory://")
    shop.faults = ["hang"]

    @guard.tool(kind="write", downstream="key")
    async def pay(order: int) -> int:
        async with httpx.AsyncClient() as http:
            client = protect(http, retry=SOON)
            sending = asyncio.create_task(client.post(f"{shop.url}/pay"))
            await asyncio.to_thread(until, lambda: shop.requests, "the request")
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            return (await client.post(f"{shop.url}/pay")).status_code

    async def main():
        with guard.step("chat", "pay"):
            return await pay(1)

    assert asyncio.run(main()) == 200
    assert (shop.effects, len(shop.keys), len(set(shop.keys))) == (1, 2, 1)


def test_the_page_shows_the_clients_as_the_code_has_them():
    def key(row):
        if row.keys is None:
            return "none"
        random = isinstance(row.keys, KeyHeader) and row.keys.replaces_random
        return "`Idempotency-Key`" + (", instead of a random one" if random else "")

    lines = ["| client | what is changed | key |", "|---|---|---|"]
    lines += [f"| {row.name} | {row.where} | {key(row)} |" for row in ROWS]
    page = (Path(__file__).parents[2] / "docs" / "howto" / "one-key-on-the-wire.md").read_text()

    assert (
        "\n".join(lines)
        == re.search(r"<!-- protect -->\n(.*?)\n<!-- /protect -->", page, re.DOTALL)[1]
    )


def test_so_it_does_those_that_are_only_watched():
    lines = [
        "| client | what is changed |",
        "|---|---|",
        *(f"| {row.name} | {row.where} |" for row in WITNESSES),
    ]
    page = (Path(__file__).parents[2] / "docs" / "howto" / "one-key-on-the-wire.md").read_text()

    assert (
        "\n".join(lines)
        == re.search(r"<!-- watched -->\n(.*?)\n<!-- /watched -->", page, re.DOTALL)[1]
    )


# ---------------------------------------------------------------- our own pool


def full_httpx(shop, circuit):
    http = protect(
        httpx.Client(limits=httpx.Limits(max_connections=1)), retry=ONCE, breaker=circuit
    )
    with http, http.stream("POST", f"{shop.url}/pay"):
        http.post(f"{shop.url}/pay", timeout=httpx.Timeout(30, pool=0.01))


def full_urllib3(shop, circuit):
    http = protect(urllib3.PoolManager(maxsize=1, block=True), retry=ONCE, breaker=circuit)
    answer = http.request("POST", f"{shop.url}/pay", preload_content=False)
    try:
        http.request("POST", f"{shop.url}/pay", pool_timeout=0.01)
    finally:
        answer.drain_conn()


@pytest.mark.parametrize(
    ("full", "error"),
    [(full_httpx, httpx.PoolTimeout), (full_urllib3, urllib3.exceptions.EmptyPoolError)],
    ids=["httpx", "urllib3"],
)
def test_a_pool_of_ours_that_is_full_does_not_open_the_circuit_of_the_host(shop, full, error):
    shop.faults = ["break"]  # an answer without a length is not read at once
    circuit = Circuit("shop", Breaker(consecutive=1))

    with pytest.raises(error) as raised:
        full(shop, circuit)

    tried = raised.value.effectonce_tried
    assert (tried.verdict.certainty, tried.verdict.scope) == (Certainty.NOT_SENT, Scope.PROCESS)
    assert circuit.phase is Phase.CLOSED


# ---------------------------------------------------------------- adapters that come later


def later(session, shop, adapter):
    """A session whose adapter for the shop was mounted when it was protected already."""
    protect(session, retry=SOON)
    session.mount(shop.url, adapter)
    return session


@pytest.mark.parametrize("how", ["mount", "adapters"])
def test_an_adapter_that_is_mounted_later_is_protected_and_sends_once(shop, how):
    patient = requests.adapters.HTTPAdapter(
        max_retries=urllib3.Retry(5, allowed_methods=None, status_forcelist=[500])
    )
    shop.faults = [(500, {})]
    guard = Guard("memory://", cache=0)

    with requests.Session() as made:
        session = protect(made, retry=SOON)
        if how == "mount":
            session.mount(shop.url, patient)
        else:
            session.adapters[shop.url] = patient
            session.adapters.move_to_end(shop.url, last=False)
        assert inner_attempts(session) == 1
        assert session.get_adapter(shop.url).effectonce_inner is patient

        @guard.tool(kind="write", through=session, retry=ONCE)
        def pay(order: int) -> int:
            return session.post(f"{shop.url}/pay").raise_for_status()

        for _ in range(2):
            with guard.step("chat", "pay"), pytest.raises(Exception, match="in doubt"):
                pay(1)
    assert (len(shop.requests), len(shop.keys)) == (1, 1)


def test_a_refusal_through_it_is_seen(shop):
    guard, shop.faults = Guard("memory://", cache=0), [(422, {})]

    with requests.Session() as made:
        session = later(made, shop, requests.adapters.HTTPAdapter())

        @guard.tool(kind="write", through=session)
        def pay(order: int) -> None:
            session.post(f"{shop.url}/pay")
            raise ValueError("my own parsing")

        with guard.step("chat", "pay"):
            with pytest.raises(ValueError, match="my own"):
                pay(1)
            with pytest.raises(Exception, match="my own") as replayed:
                pay(1)
    assert type(replayed.value).__name__ == "ReplayedFailure"


def test_an_adapter_that_is_not_known_is_not_mounted_later_either(shop):
    class Odd(requests.adapters.BaseAdapter):
        def close(self):
            pass

    with requests.Session() as session:
        with pytest.raises(TypeError, match="was not mounted"):
            later(session, shop, Odd())
        assert shop.url not in session.adapters
        assert session.get(shop.url).status_code == 200


def test_adapters_keep_their_order_and_can_be_shared(shop):
    with requests.Session() as one, requests.Session() as two:
        later(one, shop, requests.adapters.HTTPAdapter())
        shared = one.get_adapter(shop.url)
        later(two, shop, shared)

        assert list(two.adapters) == [shop.url, "https://", "http://"]
        assert two.get_adapter(shop.url) is shared  # protected already, by a policy of its own
