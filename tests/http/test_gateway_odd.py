"""The gateway between odd clients and odd APIs: what an answer proves, and what is passed on."""

import contextlib
import json
import socket
import uuid

import httpx
import pytest

from effectonce import Certainty, classify
from effectonce.http.gateway.headers import end_to_end
from tests.http.server import Shop
from tests.http.test_gateway import Street

AGAIN = {"retry-after": "0"}


class Raw:
    """The gateway in front of a scripted API, and requests as they are written."""

    def __init__(self, folder, *, honours, profile="ietf"):
        self.street = Street(folder, honours=honours)
        self.street.config.write_text(f'profile = "{profile}"\n' + self.street.config.read_text())
        self.api = Shop(self.street.upstream_port)
        self.street.start_gateway()

    def post(self, order, *faults):
        self.api.faults = list(faults)
        return self.street.post(order)

    def write(self, head, body=b""):
        """The status of what comes back."""
        said = "".join(
            f"{line}\r\n"
            for line in (head, "host: api.example", "authorization: Bearer alice-secret")
        )
        with socket.create_connection(("127.0.0.1", self.street.port), timeout=60) as wire:
            wire.sendall(said.encode() + b"connection: close\r\n" + body)
            answer = b"".join(iter(lambda: wire.recv(65_536), b""))
        return int(answer.split()[1])


@pytest.fixture(scope="module", params=[False, True], ids=["forgets keys", "honours keys"])
def both(request, tmp_path_factory):
    raw = Raw(tmp_path_factory.mktemp("odd"), honours=request.param)
    yield raw
    raw.street.end()
    raw.api.close()


@pytest.fixture
def raw(both):
    both.api.forget()
    both.api.header = "x-key"
    return both


@pytest.fixture
def order():
    return str(uuid.uuid4())


@pytest.mark.parametrize("status", [408, 499, (409, AGAIN)], ids=str)
def test_an_answer_that_proves_nothing_is_no_outcome(raw, order, status):
    fault = status if isinstance(status, tuple) else (status, {})

    first = raw.post(order, *[fault] * 3)
    again = raw.post(order)

    assert first.status_code == fault[0]
    assert (again.status_code, again.json().get("code")) in [(200, None), (500, "OUTCOME_UNKNOWN")]
    assert (again.status_code == 200) is raw.street.honours
    assert "idempotent-replayed" not in again.headers
    assert len(set(raw.api.keys)) == 1


@pytest.mark.parametrize(
    ("status", "headers"), [(421, {}), (423, {}), (425, {}), (429, {}), (503, AGAIN), (529, {})]
)
def test_an_answer_that_asks_to_come_again_leaves_the_key_as_good_as_new(
    raw, order, status, headers
):
    first, again = raw.post(order, *[(status, headers)] * 3), raw.post(order)

    assert (first.status_code, again.status_code, raw.api.effects) == (status, 200, 1)
    assert "x-effectonce-tried" not in first.headers
    assert len(raw.api.keys) == 4


@pytest.mark.parametrize("status", [400, 402, 409, 410])
def test_a_refusal_is_the_outcome(raw, order, status):
    first, again = raw.post(order, (status, {})), raw.post(order)

    assert (first.status_code, again.status_code, again.headers["idempotent-replayed"]) == (
        status,
        status,
        "true",
    )
    assert len(raw.api.keys) == 1


@pytest.mark.parametrize("status", [400, 401, 402, 409, 422])
def test_a_refusal_after_a_lost_answer_proves_nothing(raw, order, status):
    first, again = raw.post(order, "lose", (status, {})), raw.post(order)

    if raw.street.honours:
        assert_proves_nothing(status, first, again)
        assert "x-effectonce-tried" not in again.headers
    else:
        told = first.status_code, again.status_code, again.json()["code"]
        assert told == (502, 500, "OUTCOME_UNKNOWN")
    assert (raw.api.effects, len(set(raw.api.keys))) == (1, 1)


def assert_proves_nothing(status, refused, again):
    assert (refused.status_code, again.status_code, again.json()) == (status, 200, {"effect": 1})
    assert refused.headers["x-effectonce-tried"] == "unsure"
    assert classify(refused).certainty is Certainty.AMBIGUOUS


@pytest.mark.parametrize("status", [400, 401, 402, 409, 422])
def test_nor_does_a_refusal_of_the_repeat_of_a_request_that_broke_off(raw, order, status):
    broken = raw.post(order, *["lose"] * 3)
    refused, again = raw.post(order, (status, {})), raw.post(order)

    assert broken.status_code == 502
    if raw.street.honours:
        assert_proves_nothing(status, refused, again)
    else:
        assert {refused.json()["code"], again.json()["code"]} == {"OUTCOME_UNKNOWN"}
    assert (raw.api.effects, len(set(raw.api.keys))) == (1, 1)


@pytest.mark.parametrize("again", [(429, AGAIN), (503, AGAIN)], ids=["429", "503"])
def test_who_is_asked_to_come_again_after_a_lost_answer_is_told_that_it_may_have_been_done(
    raw, order, again
):
    """By itself it says that nothing was done, and a client may believe that."""
    at_once, later = (
        raw.post(order, *[again] * 3),
        raw.post(str(uuid.uuid4()), "lose", again, again),
    )

    assert (at_once.status_code, at_once.headers.get("x-effectonce-tried")) == (again[0], None)
    assert (later.status_code, later.headers["x-effectonce-tried"]) == (
        again[0] if raw.street.honours else 502,
        "unsure",
    )
    assert classify(later).certainty is Certainty.AMBIGUOUS


@pytest.mark.cover(1)
@pytest.mark.parametrize("honours", [False, True], ids=["forgets keys", "honours keys"])
@pytest.mark.parametrize(
    "faults",
    [["lose"] * 3, ["cut"] * 3, ["break"] * 3, ["lose", (503, AGAIN), (503, AGAIN)]],
    ids=str,
)
def test_no_answer_is_no_outcome_where_errors_are_outcomes(tmp_path, order, honours, faults):
    """Under Stripe's first rules a 500 of the API is kept and replayed. That there was no answer
    is not its answer, nor to come again.
    """
    raw = Raw(tmp_path, honours=honours, profile="stripe_v1")
    raw.api.header = "x-key"
    try:
        with contextlib.suppress(httpx.RemoteProtocolError):  # begun, and broken off here as there
            raw.post(order, *faults)
        again, other = raw.post(order), raw.post(str(uuid.uuid4()), *[(500, {})] * 3)
    finally:
        raw.street.end()
        raw.api.close()

    assert (
        again.json() == {"effect": 1}
        if honours
        else again.json()["error"]["code"] == "outcome_unknown"
    )
    assert (raw.api.effects, other.status_code) == (1, 500)


# ---------------------------------------------------------------- what is passed on


def test_a_method_in_small_letters_needs_a_key_as_well(raw):
    assert raw.write("patch /pay HTTP/1.1", b"content-length: 2\r\n\r\n{}") == 400
    assert raw.write("trace /pay HTTP/1.1", b"\r\n") == 400
    assert raw.api.requests == []


def test_a_body_keeps_its_length_whatever_a_client_says_about_its_connection(raw, order):
    body = json.dumps({"order": order}).encode()
    framed = b"connection: content-length\r\ncontent-length: %d\r\nidempotency-key: %b\r\n\r\n" % (
        len(body),
        order.encode(),
    )

    assert raw.write("POST /pay HTTP/1.1", framed + body) == 200
    assert raw.api.effects == 1


def test_what_comes_in_chunks_has_no_length_besides(raw, order):
    """Two ends of one body: where they differ, somebody behind us takes the rest for another
    request.
    """
    framed = (
        b"content-length: 4\r\ntransfer-encoding: chunked\r\nidempotency-key: %b\r\n\r\n"
        % order.encode()
    )

    assert raw.write("POST /pay HTTP/1.1", framed + b"2\r\n{}\r\n0\r\n\r\n") == 200
    assert raw.api.lengths == [None]


def test_an_answer_in_chunks_has_no_length_besides(raw, order):
    first = raw.post(order, "both lengths")

    assert (first.status_code, first.json(), first.headers.get("content-length")) == (
        200,
        {"effect": 1},
        None,
    )


def test_what_a_connection_is_said_to_have_is_not_sent_on_but_for_the_length():
    lines = [
        (b"Connection", b"X-Private, content-length"),
        (b"X-Private", b"1"),
        (b"Content-Length", b"5"),
    ]

    assert end_to_end(lines) == [(b"content-length", b"5")]
    assert end_to_end([*lines, (b"Transfer-Encoding", b"chunked")]) == []
