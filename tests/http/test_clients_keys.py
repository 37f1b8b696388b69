"""Which key goes with which request: the same when the tool runs again, another than that of its
neighbours.
"""

import asyncio
import threading

import httpx
import pytest
import requests
import urllib3

from effectonce import Circuits, Found, Guard, Retry, current_effect
from effectonce.errors import ContractViolation
from effectonce.http.client.protect import KeyHeader, named, protect
from tests.http.callers import CALLERS, SOON, each_client

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs
AGAIN = Retry(attempts=3, base_s=0.001)
RANDOM = "0b2f6c3e-5d1a-4c57-9a52-0f6f1f9b8a11"


def tool(shop, work, **contract):
    """A keyed tool around *work*, which gets a protected client."""
    guard = Guard("memory://")

    @guard.tool(**{"kind": "write", "downstream": "key", "retry": AGAIN, "name": "pay"} | contract)
    def pay(order: int) -> str:
        with httpx.Client(base_url=shop.url) as http:
            return work(protect(http, retry=SOON))

    def call(order=1, step="pay"):
        with guard.step("chat", step):
            return pay(order)

    call.guard, call.tool = guard, pay
    return call


@each_client
def test_each_request_of_a_tool_has_its_own_key(shop, caller):
    caller.guarded(shop.url, "/pay", "/pay", "/mail", ("PATCH", "/pay"))

    assert shop.effects == 4
    assert len(set(shop.keys)) == 4


@each_client
def test_the_keys_are_the_same_when_the_tool_runs_again(shop, caller):
    shop.faults = [None, None, "lose"]

    caller.guarded(
        shop.url, "/pay", "/pay", "/mail", retry=Retry(attempts=1), contract={"retry": AGAIN}
    )

    assert shop.effects == 3
    assert shop.keys[:3] == shop.keys[3:]


def test_another_effect_has_other_keys(shop):
    call = tool(shop, lambda http: http.post("/pay").text)

    call(1, "first")
    call(1, "second")

    assert shop.effects == 2
    assert len(set(shop.keys)) == 2


def test_what_comes_after_something_that_is_found_done_keeps_its_key(shop):
    """The customer exists when the tool runs again: the charge must not take the place of the
    first request.
    """
    known = []

    def work(http):
        if not known:
            http.post("/customers")
            known.append("anna")
        try:
            return http.post("/charges").text
        except httpx.HTTPError as error:
            raise OSError("the tool breaks") from error

    shop.faults = [None, "lose", "lose", "lose"]
    patient = tool(shop, work)
    with pytest.raises(Exception, match="the tool breaks"):
        patient()
    patient()

    charges = {key for _, path, key in shop.requests if path == "/charges"}
    assert (shop.effects, len(charges)) == (2, 1)


def test_requests_that_leave_together_have_different_keys(shop):
    """The first is held back until the second has come: both are under way."""
    guard, both = Guard("memory://"), threading.Barrier(2)
    act = shop.act
    shop.lock, locked = threading.Semaphore(2), shop.lock

    def together(*request):
        both.wait(60)
        return act(*request)

    shop.act = together

    @guard.tool(kind="write", downstream="key")
    async def pay(order: int) -> None:
        async with httpx.AsyncClient(base_url=shop.url) as http:
            client = protect(http)
            await asyncio.gather(client.post("/pay"), client.post("/pay"))

    async def main():
        with guard.step("chat", "pay"):
            await pay(1)

    try:
        asyncio.run(main())
    finally:
        shop.act, shop.lock = act, locked
    assert len(set(shop.keys)) == 2


def test_a_name_stands_for_the_number(shop):
    def work(http):
        for who in ("anna", "bert"):
            with named(who):
                http.post("/mail")
        return str(current_effect().request_key("post", "/mail", "bert"))

    assert tool(shop, work)() == shop.keys[1]
    assert len(set(shop.keys)) == 2


def test_what_has_no_name_cannot_be_named():
    with pytest.raises(ContractViolation, match="what tells this request"), named(""):
        raise AssertionError


def test_a_tool_of_one_request_sends_the_key_of_its_effect(shop):
    def work(http):
        http.post("/pay")
        return current_effect().downstream_key

    assert [tool(shop, work, one_request=True)()] == shop.keys


def test_a_tool_of_one_request_that_makes_two_sends_two_keys(shop):
    def work(http):
        http.post("/pay")
        http.post("/pay")
        http.post("/mail")
        return "done"

    tool(shop, work, one_request=True)()

    assert len(set(shop.keys)) == 3


def test_a_probe_can_tell_which_key_was_sent(shop):
    asked = []
    shop.faults = ["lose"]
    call = tool(
        shop,
        lambda http: http.post("/pay").text,
        kind="write",
        downstream="probe",
        retry=Retry(attempts=1),
    )

    @call.tool.probe
    def find(order: int) -> Found:
        asked.append(current_effect().request_key("POST", "/pay"))
        with httpx.Client(base_url=shop.url) as http:
            protect(http).post("/search")
        return Found("found")

    assert call() == "found"
    assert asked == shop.keys[:1]
    assert shop.keys[1] is None, "a probe only looks"


# ---------------------------------------------------------------- how the key is written


@each_client
def test_each_host_gets_the_header_that_it_expects(shop, caller):
    shop.header = "x-request-key"
    elsewhere = shop.url.replace("127.0.0.1", "localhost")
    keys = {"127.0.0.1": "X-Request-Key", "localhost": None}

    caller.guarded(shop.url, "/pay", keys=keys)
    caller.guarded(elsewhere, "/pay", keys=keys)

    assert shop.keys[0].startswith("eo_")
    assert shop.keys[1] is None


BANK = "api.bank.example"


def through_httpx(proxy, **policy):
    with httpx.Client(proxy=proxy) as client:
        protect(client, **policy).post(f"http://{BANK}/pay")


def through_requests(proxy, **policy):
    with requests.Session() as client:
        protect(client, **policy).post(f"http://{BANK}/pay", proxies={"http": proxy})


def through_urllib3(proxy, **policy):
    with urllib3.ProxyManager(proxy) as client:
        protect(client, **policy).request("POST", f"http://{BANK}/pay")


@pytest.mark.parametrize("send", [through_httpx, through_requests, through_urllib3])
def test_a_host_behind_a_proxy_is_known_by_its_own_name(shop, send):
    guard, circuits = Guard("memory://"), Circuits()

    @guard.tool(kind="write", downstream="key")
    def pay(order: int) -> None:
        send(shop.url, keys={BANK: "Idempotency-Key"}, breaker=circuits)

    with guard.step("chat", "pay"):
        pay(1)

    assert shop.keys[0].startswith("eo_")
    assert list(circuits) == [BANK]


def test_a_host_that_is_not_mentioned_gets_what_all_others_get(shop):
    CALLERS["httpx"].guarded(
        shop.url, "/pay", keys={"api.example.com": None, "*": "Idempotency-Key"}
    )
    CALLERS["httpx"].guarded(shop.url, "/pay", keys={"api.example.com": "Idempotency-Key"})

    assert shop.keys[0] is not None
    assert shop.keys[1] is None


@pytest.mark.parametrize(
    "host", ["https://api.example.com", "api.example.com:8443", "user@api.example.com", "[::1]"]
)
def test_a_host_that_would_fit_no_request_is_refused(host):
    """Its requests would leave without a key, and nobody would know."""
    with httpx.Client() as client, pytest.raises(ContractViolation, match="write the host alone"):
        protect(client, keys={host: "Idempotency-Key"})


@pytest.mark.parametrize("keys", [True, {"api.example.com": 1}])
def test_a_key_that_goes_into_no_header_is_refused(keys):
    with (
        httpx.Client() as client,
        pytest.raises(ContractViolation, match="give the name of a header"),
    ):
        protect(client, keys=keys)


def test_a_key_may_be_a_structured_field(shop):
    CALLERS["httpx"].guarded(shop.url, "/pay", keys=KeyHeader(quoted=True))

    assert shop.keys[0].startswith('"eo_')
    assert shop.keys[0].endswith('"')


def test_a_header_that_is_none_is_refused():
    with pytest.raises(ContractViolation, match="cannot be the name of a header"):
        KeyHeader("Idempotency Key")


@each_client
def test_a_key_that_the_tool_gives_itself_is_kept(shop, caller):
    caller.guarded(shop.url, ("POST", "/pay", {"Idempotency-Key": RANDOM}))

    assert shop.keys == [RANDOM]


@each_client
def test_a_random_key_is_replaced_where_that_is_said(shop, caller):
    mine, theirs = (
        ("POST", "/pay", {"Idempotency-Key": "order-17"}),
        ("POST", "/pay", {"Idempotency-Key": RANDOM}),
    )

    caller.guarded(shop.url, mine, theirs, keys=KeyHeader(replaces_random=True))
    caller.calls(shop.url, theirs, keys=KeyHeader(replaces_random=True))

    assert shop.keys[0] == "order-17"
    assert shop.keys[1].startswith("eo_")
    assert shop.keys[2] == RANDOM, "alone, a random key is better than none"


def test_a_request_that_is_sent_for_another_effect_has_no_old_key_in_it(shop):
    with_httpx, with_requests = (
        httpx.Request("POST", f"{shop.url}/pay"),
        requests.Request("POST", f"{shop.url}/pay").prepare(),
    )
    with_httpx.headers["X-Mine"], with_httpx.extensions["timeout"] = "1", {"read": 500.0}

    def work(http):
        http.send(with_httpx)
        with requests.Session() as session:
            protect(session).send(with_requests)
        return "done"

    call = tool(shop, work)
    call(1, "first")
    call(1, "second")

    assert len(set(shop.keys)) == 4
    assert "Idempotency-Key" not in with_httpx.headers
    assert with_httpx.extensions["timeout"] == {"read": 500.0}, "less time is for one effect, too"
    assert "Idempotency-Key" not in with_requests.headers


def test_headers_of_the_caller_are_not_changed(shop):
    headers = {"x-mine": "1"}

    def work(http):
        with urllib3.PoolManager() as manager:
            protect(manager).request("POST", f"{shop.url}/pay", headers=headers)
        return "done"

    tool(shop, work)()

    assert shop.keys[0].startswith("eo_")
    assert headers == {"x-mine": "1"}


@each_client
def test_a_redirect_is_followed_and_has_a_key(shop, caller):
    shop.faults = [(307, {"location": "/elsewhere"}), "lose"]

    assert caller.guarded(shop.url, "/pay") == [200]
    assert [path for _, path, _ in shop.requests] == ["/pay", "/elsewhere", "/elsewhere"]
    assert (shop.effects, shop.keys[1] is None, shop.keys[1]) == (1, False, shop.keys[2])


def test_what_is_idempotent_by_its_method_needs_no_key_and_may_be_repeated(shop):
    tried = []

    def replace(client):
        answer = client.put("/pay", json={"order": 1})
        tried.append(answer.status_code)
        if len(tried) < 3:
            raise TimeoutError("its answer was lost on the way to the caller")
        return "replaced"

    assert tool(shop, replace)() == "replaced"
