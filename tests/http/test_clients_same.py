"""A key belongs to a request: another request has another key, also where the first one had no
answer.
"""

import asyncio
import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from time import time
from uuid import UUID, uuid1, uuid4

import httpx
import pytest
import stripe
from hypothesis import given, settings
from hypothesis import strategies as st

from effectonce import Guard, Retry
from effectonce.http.client import named, protect
from effectonce.http.client.same_request import fingerprints
from tests.http.callers import CALLERS
from tests.http.server import Shop

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs
ONCE = Retry(attempts=1)
AGAIN = Retry(attempts=3, base_s=0.001)


class Bank(Shop):
    """Pays once per key and answers with the receipt of that key, whatever is asked for."""

    def forget(self):
        super().forget()
        self.receipts, self.targets = {}, []

    def serve(self, handler):
        self.targets.append(handler.path)
        super().serve(handler)

    def act(self, method, path, key):
        receipt = self.receipts.setdefault((path, key), self.bodies[-1].decode())
        return {"id": "x", "object": "refund", "paid": receipt}

    @property
    def paid(self):
        return sorted(self.receipts.values())


@pytest.fixture
def bank():
    with Bank() as bank:
        yield bank


def run(work, **contract):
    """*work* as a tool, called once."""
    guard = Guard("memory://")

    @guard.tool(**{"kind": "write", "downstream": "key", "retry": ONCE} | contract)
    def pay(order: int) -> str:
        return work()

    with guard.step("chat", "pay"):
        return pay(1)


# ---------------------------------------------------------------- every client


def send_with(caller):
    """Return a function that sends some bodies with a client, and tells each status or error."""

    def send(url, bodies):
        statuses = []
        for body in bodies:
            request = ("POST", "/pay", {"content-type": "application/json"}, body)
            try:
                statuses += [status for status, _ in caller.calls(url, request, retry=ONCE)]
            except Exception:
                statuses.append(None)
        return statuses

    return send


def with_stripe(url, bodies):
    statuses = []
    client = protect(stripe.StripeClient("sk_test_1", base_addresses={"api": url}), retry=ONCE)
    for body in bodies:
        try:
            statuses.append(client.refunds.create(json.loads(body)).last_response.code)
        except stripe.APIConnectionError:
            statuses.append(None)
    return statuses


each_client = pytest.mark.parametrize(
    "send",
    [with_stripe, *(send_with(caller) for caller in CALLERS.values())],
    ids=["stripe", *CALLERS],
)
ANNA, BERT = b'{"payment_intent": "anna"}', b'{"payment_intent": "bert"}'


@each_client
@pytest.mark.parametrize("one_request", [False, pytest.param(True, marks=pytest.mark.long)])
def test_another_request_after_one_without_an_answer_has_a_key_of_its_own(bank, send, one_request):
    bank.faults = ["lose"]

    assert run(lambda: send(bank.url, [ANNA, BERT]), one_request=one_request) == [None, 200]
    assert ["anna" in bank.paid[0], "bert" in bank.paid[1]] == [True, True]


@each_client
def test_the_same_request_again_has_the_key_of_the_first(bank, send):
    bank.faults = ["lose"]

    assert run(lambda: send(bank.url, [ANNA, ANNA])) == [None, 200]
    assert len(set(bank.keys)) == 1


@each_client
def test_the_keys_are_the_same_when_the_tool_runs_again_in_the_same_order(bank, send):
    bank.faults, runs = ["lose"], []

    def work():
        runs.append(send(bank.url, [ANNA, BERT]))
        if len(runs) == 1:
            raise ConnectionError("the tool breaks")
        return runs[-1]

    assert run(work, retry=AGAIN) == [200, 200]
    assert bank.keys[:2] == bank.keys[2:]
    assert len(bank.receipts) == 2


# ---------------------------------------------------------------- what is the same


def test_another_query_is_another_request(bank):
    bank.faults = ["lose"]

    def work():
        with httpx.Client() as made:
            client = protect(made, retry=ONCE)
            for who in ("anna", "bert"):
                with suppress(httpx.HTTPError):
                    client.post(f"{bank.url}/pay", params={"to": who}, content=who)
        return "done"

    run(work)

    assert bank.paid == ["anna", "bert"]


def test_what_changes_on_every_attempt_makes_no_other_request(bank):
    bank.faults = ["lose", (500, {}), "cut"]

    def work():
        with httpx.Client() as made:
            client = protect(made, retry=ONCE)
            while True:
                fresh = {
                    "to": "anna",
                    "requestId": str(uuid4()),
                    "at": datetime.now(UTC).isoformat(),
                    "signed": time(),
                }
                try:
                    answer = client.post(
                        f"{bank.url}/pay", json=fresh, params={"nonce": str(time())}
                    )
                except httpx.HTTPError:
                    continue
                if answer.is_success:
                    return answer.text

    run(work)

    assert (len(bank.keys), len(set(bank.keys)), len(bank.receipts)) == (4, 1, 1)


def test_another_card_after_a_refusal_is_another_request(bank):
    bank.faults = [(402, {})]

    assert run(lambda: send_with(CALLERS["httpx"])(bank.url, [ANNA, BERT])) == [402, 200]
    assert bank.keys[0] != bank.keys[1]


def test_a_body_that_can_be_read_once_is_never_the_same_as_another_unless_it_has_a_name(bank):
    bank.faults = ["lose", None, "lose"]

    def work():
        with httpx.Client() as made:
            client = protect(made, retry=ONCE)
            for name in ("", "", "upload", "upload"):
                try:
                    if name:
                        with named(name):
                            client.post(f"{bank.url}/pay", content=iter([b"bytes"]))
                    else:
                        client.post(f"{bank.url}/pay", content=iter([b"bytes"]))
                except httpx.HTTPError:
                    pass
        return "done"

    run(work)

    assert len(set(bank.keys[:2])) == 2
    assert len(set(bank.keys[2:])) == 1


@pytest.mark.parametrize("name", ["httpx", "requests"])
def test_a_request_that_is_handed_on_with_another_query_keeps_its_key(bank, name):
    elsewhere = bank.url.replace("127.0.0.1", "localhost") + "/pay?region=eu"
    bank.faults = [(307, {"location": elsewhere}), "lose"]

    assert run(lambda: send_with(CALLERS[name])(bank.url, [ANNA, ANNA])) == [None, 200]
    assert bank.targets == ["/pay", "/pay?region=eu", "/pay"]
    assert (len(set(bank.keys)), bank.paid) == (1, [ANNA.decode()])


def test_requests_side_by_side_keep_their_keys_when_some_are_sent_again(bank):
    async def main():
        async with httpx.AsyncClient() as made:
            client = protect(made, retry=ONCE)

            async def pay(who):
                while True:
                    with suppress(httpx.HTTPError):
                        return (await client.post(f"{bank.url}/pay", json={"to": who})).json()[
                            "paid"
                        ]

            return await asyncio.gather(*(pay(who) for who in ("anna", "bert", "carl")))

    bank.faults = ["lose", "lose", None, "lose"]

    answers = run(lambda: asyncio.run(main()))

    assert [json.loads(answer)["to"] for answer in answers] == ["anna", "bert", "carl"]
    assert len(bank.receipts) == 3


# ---------------------------------------------------------------- the next attempt


def test_the_next_attempt_that_skips_what_is_done_sends_the_rest_under_its_own_key(bank):
    """Anna is found done when the tool runs again: Bert comes first, and must not get her key."""
    bank.faults = [None, "lose"]
    done = []

    def work():
        with httpx.Client() as made:
            client = protect(made, retry=ONCE)
            for who in ("anna", "bert", "carl"):
                if who not in done:
                    client.post(f"{bank.url}/pay", content=who)
                    done.append(who)
        return "done"

    run(work, retry=AGAIN)

    assert bank.paid == ["anna", "bert", "carl"]
    assert bank.keys[1] == bank.keys[2], "the same request again"


def test_a_request_in_the_place_of_another_one_of_the_attempt_before_is_reported(bank, caplog):
    bank.faults, tries = ["lose"], iter(["anna", "bert"])

    def work():
        with httpx.Client() as made:
            return protect(made, retry=ONCE).post(f"{bank.url}/pay", content=next(tries)).text

    run(work, retry=AGAIN)

    assert len(set(bank.keys)) == 1, (
        "it may be one request whose body changes: a second key might be a second effect"
    )
    assert "goes out under the key of another request" in caplog.text


# ---------------------------------------------------------------- fingerprints

NOW = 1_780_000_000.0
JSON = {"content-type": "application/json; charset=utf-8"}
FORM = {"content-type": "application/x-www-form-urlencoded"}
AT = datetime.fromtimestamp(NOW, UTC)
NAIVE = datetime.fromtimestamp(NOW)  # noqa: DTZ006  # what `datetime.now()` says


def same(one, other, headers=JSON, later_s=2.0):
    """Are these two bodies the same request?"""
    first, second = (
        each if isinstance(each, bytes) else json.dumps(each).encode() for each in (one, other)
    )
    return bool(
        fingerprints("", headers, first, NOW) & fingerprints("", headers, second, NOW + later_s)
    )


def uuid6(at):
    ticks = int(at * 1e7) + 0x01B21DD213814000
    return UUID(int=(ticks >> 12) << 80 | 6 << 76 | (ticks & 0xFFF) << 64 | 0b10 << 62 | 7)


def uuid7(at):
    return UUID(int=int(at * 1000) << 80 | 7 << 76 | 5 << 64 | 0b10 << 62 | 9)


def uuid1_at(at):
    ticks = int(at * 1e7) + 0x01B21DD213814000
    return UUID(
        fields=(ticks & 0xFFFFFFFF, ticks >> 32 & 0xFFFF, ticks >> 48 & 0x0FFF | 0x1000, 0x80, 1, 2)
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"to": "anna", "n": 1.0}, {"n": 1, "to": "anna"}),
        ({"ts": 1}, {"ts": 2}),
        ({"nonce": 7}, {"nonce": 8}),
        ({"retry_count": 0}, {"retry_count": 1}),
        ({"requestId": "abc-1"}, {"requestId": "abc-2"}),
        ({"a": [{"Trace-Id": "x"}]}, {"a": [{"Trace-Id": "y"}]}),
        ({"when": AT.isoformat()}, {"when": (AT + timedelta(seconds=2)).isoformat()}),
        (
            {"when": AT.strftime("%Y%m%dT%H%M%SZ")},
            {"when": (AT + timedelta(seconds=9)).strftime("%Y%m%dT%H%M%SZ")},
        ),
        ({"when": NAIVE.isoformat(" ")}, {"when": (NAIVE + timedelta(seconds=2)).isoformat(" ")}),
        (
            {"when": AT.replace(tzinfo=None).isoformat()},
            {"when": (AT.replace(tzinfo=None) + timedelta(minutes=1)).isoformat()},
        ),
        ({"when": NOW}, {"when": NOW + 2}),
        ({"when": int(NOW * 1000)}, {"when": int(NOW * 1000) + 1999}),
        ({"ref": f"anna-{int(NOW)}"}, {"ref": f"anna-{int(NOW) + 1}"}),
        ({"id": str(uuid1_at(NOW))}, {"id": str(uuid1_at(NOW + 1))}),
        ({"id": str(uuid6(NOW))}, {"id": str(uuid6(NOW + 1))}),
        ({"id": str(uuid7(NOW))}, {"id": str(uuid7(NOW + 1))}),
        ({"messageId": str(uuid4())}, {"messageId": str(uuid4())}),
        ({"jsonrpc": "2.0", "id": 1}, {"jsonrpc": "2.0", "id": 2}),
    ],
)
def test_these_are_one_request(one, other):
    assert same(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"to": "anna"}, {"to": "bert"}),
        ({"to": "anna@example.com"}, {"to": "bert@example.com"}),
        ({"to": None}, {}),
        ({"amount": 1}, {"amount": True}),
        ({"customer": str(uuid4())}, {"customer": str(uuid4())}),
        ({"id": str(uuid4())}, {"id": str(uuid4())}),
        ({"id": str(UUID(int=3 << 76 | 2 << 62))}, {"id": str(UUID(int=3 << 76 | 2 << 62 | 1))}),
        ({"request_id": 17}, {"request_id": 18}),
        ({"request_id": "17"}, {"request_id": "18"}),
        ({"slot": "2031-05-01T10:00"}, {"slot": "2031-05-01T11:00"}),
        ({"slot": "2031-99-01T10:00"}, {"slot": "2031-99-01T11:00"}),
        ({"slot": "0001-01-01T10:00"}, {"slot": "0001-01-01T11:00"}),
        ({"slot": 1_900_000_000}, {"slot": 1_900_003_600}),
        ({"id": str(uuid1_at(NOW - 9e6))}, {"id": str(uuid1_at(NOW - 8e6))}),
        (b'{"to": 1, "to": 2}', b'{"to": 1,  "to": 2}'),
        (b"no JSON", b"no  JSON"),
        (b'{"n": 1e999999}', b'{"n": 2e999999}'),
    ],
)
def test_these_are_two_requests(one, other):
    assert not same(one, other)


def test_a_form_is_read_as_json_is():
    assert same(
        b"to=anna&metadata[request_id]=abc&ts=1", b"to=anna&metadata[request_id]=xyz&ts=2", FORM
    )
    assert not same(b"to=anna&metadata[note]=", b"to=anna&metadata[gift]=", FORM)
    assert not same(b"to=%E9", b"to=%E8", FORM)


def test_other_bodies_are_compared_byte_for_byte():
    assert same(b"\xff ts=1", b"\xff ts=1", {})
    assert not same(b"ts=1", b"ts=2", {})
    assert not same(b'{"ts": 1}' + b" " * (1 << 20), b'{"ts": 2}' + b" " * (1 << 20))


def test_the_boundary_of_multipart_is_drawn_anew_for_each_attempt():
    def parts(boundary, what):
        body = b"--%b\r\n\r\n%b\r\n--%b--\r\n" % (boundary, what, boundary)
        return fingerprints(
            "", {"content-type": f"multipart/form-data; boundary={boundary.decode()}"}, body, NOW
        )

    assert parts(b"one", b"anna") & parts(b"two", b"anna")
    assert not parts(b"one", b"anna") & parts(b"two", b"bert")


def test_the_same_bytes_are_the_same_request_however_late():
    assert same({"when": NOW}, {"when": NOW}, later_s=10_000.0)


def test_a_real_uuid_of_this_moment_is_new():
    one, other = (json.dumps({"id": str(uuid1())}).encode() for _ in range(2))

    assert fingerprints("", JSON, one, time()) & fingerprints("", JSON, other, time())


# ---------------------------------------------------------------- all of it

asked = st.tuples(st.sampled_from(["/pay", "/mail"]), st.sampled_from(["anna", "bert", "carl"]))
fates = st.lists(st.sampled_from(["well", "lost", "refused", "broken off"]), min_size=1, max_size=4)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(asked, fates), min_size=1, max_size=6), st.booleans())
def test_no_two_requests_of_a_run_share_a_key_and_a_repeat_keeps_it(plan, one_request):
    """Each request of the plan is sent until it is answered well, or its fates are used up and
    the tool goes on.
    """
    current, seen, unanswered = [], {}, {}

    class Broken(httpx.SyncByteStream):
        def __iter__(self):
            raise httpx.ReadError("cut")
            yield b""

    def serve(request):
        (path, who), fate = current[0]
        key, what = request.headers["idempotency-key"], (path, who)
        assert seen.setdefault(key, what) == what, "a key belongs to one request"
        if what in unanswered:
            assert unanswered.pop(what) == key, "a repeat has the key of the first"
        if fate != "well":
            unanswered[what] = key
        if fate == "lost":
            raise httpx.ReadTimeout("lost")
        return httpx.Response(
            503 if fate == "refused" else 200, stream=Broken() if fate == "broken off" else None
        )

    def work():
        with httpx.Client(transport=httpx.MockTransport(serve), base_url="http://bank") as made:
            client = protect(made, retry=ONCE)
            for (path, who), each in plan:
                for fate in each:
                    current[:] = [((path, who), fate)]
                    try:
                        answer = client.post(path, json={"to": who, "at": time()})
                    except httpx.HTTPError:
                        continue
                    if answer.is_success:
                        break
        return "done"

    run(work, one_request=one_request)
