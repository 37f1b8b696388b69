"""The gateway as a process of its own, in front of a real API that writes each effect down.
Nothing here is in our process but the client.
"""

import contextlib
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import httpx
import pytest

from effectonce.http.gateway.headers import end_to_end
from tests.servers import redis
from tests.servers._process import free_port, until

ROOT = Path(__file__).parents[2]
SETTINGS = """
{top}
store = "{store}"
hosts = ["api.example", "127.0.0.1"]
body_max = 100000
lease_s = {lease_s}
key = {{ strict = false }}

[upstream]
url = "http://127.0.0.1:{upstream}/base"
key_header = "x-key"
{upstream_more}

[tenants.tokens]
alice-secret = "alice"
"sha256:{bob}" = "bob"

[retry]
attempts = 3
base_s = 0.01
throttled_base_s = 0.01
deadline_s = 20

[breaker]
consecutive = {failures}
{more}
"""
NO_CERTIFICATES = False  # to load them takes longer than a request
BOB = "81b637d8fcd2c6da6359e6963113a1170de795e4b725b84d1e0b4cfd9ec58ce9"  # of "bob"


def started(command, folder, name, **environment):
    with (folder / name).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            env=os.environ | environment,
            stdout=log,
            stderr=log,
        )


def ended(process):
    process.kill()
    process.wait()


class Street:
    """The gateway and the API, each in a process that can be killed and started again on the
    same port.
    """

    def __init__(
        self,
        folder,
        *,
        store=None,
        honours=False,
        upstream_more="",
        more="",
        top="",
        failures=1000,
        lease_s=30.0,
    ):
        self.folder, self.honours, self.ledger = folder, honours, folder / "ledger"
        self.port, self.upstream_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        store = store or f"sqlite:///{folder}/gateway.db"
        told = {
            "upstream_more": "honours_key_s = 3600\n" * honours + upstream_more,
            "more": more,
            "top": top,
            "failures": failures,
            "lease_s": lease_s,
        }
        self.config = folder / "gateway.toml"
        self.config.write_text(
            SETTINGS.format(store=store, upstream=self.upstream_port, bob=BOB, **told)
        )
        self.api = self.gateway = None

    def start(self):
        self.start_api()
        self.start_gateway()

    def start_api(self, *more):
        environment = {"API_LEDGER": str(self.ledger), "API_HONOURS": str(int(self.honours))}
        command = [
            "-m",
            "uvicorn",
            "tests.http.upstream:app",
            "--no-proxy-headers",
            "--port",
            str(self.upstream_port),
        ]
        self.api = started([*command, *more], self.folder, "api.log", **environment)
        until(lambda: self._listens(self.api, self.upstream_port), "the API")

    def start_gateway(self, *more):
        command = [
            "-m",
            "effectonce.cli",
            "gateway",
            "--config",
            str(self.config),
            "--listen",
            f"127.0.0.1:{self.port}",
            *more,
        ]
        self.gateway = started(command, self.folder, "gateway.log")
        until(lambda: self._listens(self.gateway, self.port), "the gateway")

    def _listens(self, process, port):
        assert process.poll() is None, (self.folder / "gateway.log").read_text() + (
            self.folder / "api.log"
        ).read_text()
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port)).close()
            return True
        return False

    def end(self):
        for process in (self.gateway, self.api):
            if process is not None:
                ended(process)

    def effects(self, order):
        lines = self.ledger.read_text().splitlines() if self.ledger.exists() else []
        return [line.split()[1] for line in lines if line.split()[0] == order]

    def post(self, order, *, path="/pay", key=None, token="alice-secret", headers=(), **more):
        named = {"authorization": f"Bearer {token}", "idempotency-key": key or order} | dict(
            headers
        )
        with httpx.Client(timeout=60, verify=NO_CERTIFICATES) as client:
            return client.post(self.url + path, headers=named, json={"order": order} | more)

    def held(self, order):
        """A request that the API has done, and waits at the gate with its answer."""
        gate, box = self.folder / f"gate-{uuid.uuid4()}", []
        os.mkfifo(gate)

        def send():
            try:
                box.append(self.post(order, gate=str(gate)))
            except httpx.TransportError as error:
                box.append(error)

        thread = threading.Thread(target=send)
        thread.start()
        until(lambda: self.effects(order), "the effect")
        return thread, box, str(gate)

    def raw(self, request):
        """What comes back for these bytes, to the end of the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection:
            connection.sendall(request)
            said = b""
            while piece := connection.recv(65536):
                said += piece
        return said

    def until_settled(self, order, **more):
        seen = []

        def settled():
            seen.append(self.post(order, **more))
            return seen[-1].status_code != 409

        until(settled, "an answer that is not 409")
        return seen[-1]


# test_black_box.py has the middleware on each store in the small tier
@pytest.fixture(
    scope="module",
    params=[
        "sqlite",
        *(pytest.param(each, marks=pytest.mark.long) for each in ("postgres", "redis")),
    ],
)
def street(request, tmp_path_factory):
    stores = {
        "sqlite": lambda: None,
        "postgres": lambda: request.getfixturevalue("postgres").database(),
        "redis": lambda: redis.emptied(redis.server()).url,
    }
    made = Street(tmp_path_factory.mktemp("street"), store=stores[request.param]())
    try:
        made.start()
        yield made
    finally:
        made.end()


@pytest.fixture
def built(tmp_path):
    streets = []

    def build(**settings):
        streets.append(Street(tmp_path, **settings))
        streets[-1].start()
        return streets[-1]

    yield build
    for made in streets:
        made.end()


@pytest.fixture
def order():
    return str(uuid.uuid4())


def opened(gate):
    with open(gate, "wb"):  # noqa: PTH123
        pass


# ---------------------------------------------------------------- once


def test_duplicates_are_one_effect_and_get_the_same_bytes(street, order):
    first = street.post(order)
    again = [street.post(order) for _ in range(5)]

    assert first.status_code == 200
    assert {(s.status_code, s.content, s.headers.get("idempotent-replayed")) for s in again} == {
        (200, first.content, "true")
    }
    assert len(street.effects(order)) == 1


def test_a_crowd_of_duplicates_is_one_effect(street, order):
    thread, box, gate = street.held(order)
    meanwhile = [street.post(order, gate=gate) for _ in range(5)]
    opened(gate)
    thread.join()

    assert {(s.status_code, s.json()["code"]) for s in meanwhile} == {(409, "RETRY_IN_FLIGHT")}
    assert box[0].status_code == 200
    assert len(street.effects(order)) == 1


def test_two_tenants_with_one_key_are_two_effects_under_two_keys(street, order):
    street.post(order)
    bob = street.post(order, token="bob")

    assert "idempotent-replayed" not in bob.headers
    assert len(set(street.effects(order))) == 2
    assert order not in street.effects(order)


def test_another_request_under_the_key_is_a_conflict(street, order):
    street.post(order)

    assert street.post("other", key=order).json()["code"] == "KEY_CONFLICT"
    assert street.effects("other") == []


# ---------------------------------------------------------------- crashes


def killed_meanwhile(street, order):
    """Kill the gateway while the API works, and start it again: what its client saw, and the gate."""
    thread, box, gate = street.held(order)
    ended(street.gateway)
    thread.join()
    opened(gate)
    street.start_gateway()
    return box[0], gate


def test_a_gateway_that_is_killed_leaves_a_doubt_if_the_upstream_does_not_honour_keys(built, order):
    street = built(lease_s=1.0)
    lost, gate = killed_meanwhile(street, order)

    told = street.until_settled(order, gate=gate)

    assert isinstance(lost, httpx.TransportError)
    assert (told.status_code, told.json()["code"]) == (500, "OUTCOME_UNKNOWN")
    assert len(street.effects(order)) == 1


def test_a_gateway_that_is_killed_goes_on_under_the_same_key_if_the_upstream_honours_it(
    built, order
):
    street = built(honours=True, lease_s=1.0)
    _, gate = killed_meanwhile(street, order)
    opener = threading.Thread(target=opened, args=(gate,), daemon=True)
    opener.start()

    told = street.until_settled(order, gate=gate)
    opener.join()

    assert told.status_code == 200
    assert len(street.effects(order)) == 1
    assert street.post(order, gate=gate).headers["idempotent-replayed"] == "true"


def test_an_upstream_that_is_down_gets_nothing_and_the_key_stays_good(built, order):
    street = built()
    ended(street.api)

    down = street.post(order)
    street.start_api()
    up = street.post(order)

    assert (down.status_code, down.headers["content-type"]) == (503, "application/problem+json")
    assert down.json()["code"] == "UPSTREAM_UNREACHED"
    assert "Nothing was sent" in down.json()["detail"]
    assert int(down.headers["retry-after"]) >= 1
    assert (up.status_code, "idempotent-replayed" in up.headers) == (200, False)
    assert len(street.effects(order)) == 1


def test_stripes_rule_to_store_errors_does_not_store_that_nothing_was_sent(built, order):
    street = built()
    street.config.write_text('profile = "stripe_v1"\n' + street.config.read_text())
    ended(street.gateway)
    street.start_gateway()
    ended(street.api)

    down = street.post(order)
    street.start_api()

    assert down.status_code == 503
    assert street.post(order).status_code == 200
    assert len(street.effects(order)) == 1


def test_an_upstream_that_dies_in_the_middle_is_not_asked_again(built, order):
    street = built()

    lost = street.post(order, dies=True)
    street.api.wait()
    street.start_api()
    told = street.post(order, dies=True)

    assert (lost.status_code, lost.json()["code"]) == (502, "UPSTREAM_BROKE_OFF")
    assert (told.status_code, told.json()["code"]) == (500, "OUTCOME_UNKNOWN")
    assert len(street.effects(order)) == 1


def test_an_upstream_that_does_not_answer_in_time_is_a_doubt(built, order):
    street = built(upstream_more="answer_s = 0.2")
    thread, box, gate = street.held(order)
    thread.join()
    opened(gate)

    assert (box[0].status_code, box[0].json()["code"]) == (504, "UPSTREAM_TIMED_OUT")
    assert street.post(order, gate=gate).json()["code"] == "OUTCOME_UNKNOWN"
    assert len(street.effects(order)) == 1


@pytest.mark.parametrize("sent", [0, 10])
def test_an_answer_that_breaks_off_is_not_taken_for_a_whole_one(built, order, sent):
    street = built()

    try:
        lost = street.post(order, breaks=sent)
    except httpx.RemoteProtocolError:
        lost = None
    street.api.wait()
    street.start_api()

    assert lost is None or lost.json()["code"] == "UPSTREAM_BROKE_OFF"
    assert street.post(order, breaks=sent).json()["code"] == "OUTCOME_UNKNOWN"
    assert len(street.effects(order)) == 1


def test_an_answer_without_end_ends_when_nobody_listens(street):
    headers = {"authorization": "Bearer alice-secret"}

    with httpx.stream("GET", f"{street.url}/endless", headers=headers) as response:
        next(response.iter_raw())

    until(lambda: street.effects("left"), "the API saw that nobody listens")


# ---------------------------------------------------------------- the policy


def test_a_refusal_that_asks_to_come_again_is_tried_as_often_as_the_policy_says(built, order):
    street = built()

    refused = street.post(order, status=429)

    assert refused.status_code == 429
    assert len(street.effects(order)) == 3
    assert len(set(street.effects(order))) == 1


def test_an_error_of_the_upstream_is_sent_again_only_under_a_key_that_it_honours(built, order):
    plain = built()

    failed = plain.post(order, status=503)

    assert (failed.status_code, len(plain.effects(order))) == (503, 1)
    assert plain.post(order, status=503).json()["code"] == "OUTCOME_UNKNOWN"


def test_an_upstream_that_honours_keys_is_asked_again_with_the_whole_body(built, order):
    street = built(honours=True)

    failed = street.post(order, status=503, padding="x" * 50_000)

    assert failed.status_code == 503
    assert failed.json()["size"] > 50_000
    assert (street.folder / "api.log").read_text().count('POST /base/pay HTTP/1.1" 503') == 3
    assert len(street.effects(order)) == 1


def test_a_wait_that_does_not_fit_the_deadline_is_handed_back(built, order):
    street = built()

    refused = street.post(order, status=429, retry_after=3600)

    assert (refused.status_code, refused.headers["retry-after"]) == (429, "3600")
    assert len(street.effects(order)) == 1


def test_an_open_circuit_keeps_requests_away_and_says_when_to_come_again(built, order):
    street = built(failures=1, more="open_s = 60")
    ended(street.api)
    street.post(order)
    street.start_api()

    kept = street.post(order)

    assert (kept.status_code, kept.json()["code"]) == (503, "UPSTREAM_UNREACHED")
    assert int(kept.headers["retry-after"]) > 10
    assert street.effects(order) == []


def test_what_a_client_does_wrong_does_not_open_the_circuit(built):
    street = built(failures=1)
    headers = {"authorization": "Bearer alice-secret"}

    large = httpx.put(f"{street.url}/x", headers=headers, content=iter([b"x" * 60_000] * 2))
    with socket.create_connection(("127.0.0.1", street.port)) as client:
        client.sendall(
            request(method="PUT", more="X-Long: 1\r\n", body="x" * 50).replace(
                b"-Length: 50", b"-Length: 90"
            )
        )
    after = httpx.get(f"{street.url}/x", headers=headers)

    assert (large.status_code, after.status_code) == (413, 200)


# ---------------------------------------------------------------- what the upstream is told


def test_the_upstream_is_told_what_was_asked_under_our_key_and_by_whom(street, order):
    headers = {
        "connection": "keep-alive, x-hop",
        "x-hop": "1",
        "te": "trailers",
        "x-forwarded-for": "6.6.6.6",
        "x-key": "forged",
    }

    seen = street.post(order, path="/a%2Fb?q=%20&q=2", headers=headers)
    told = seen.json()

    assert (told["target"], told["query"]) == ("/base/a%2Fb", "q=%20&q=2")
    by_name = dict(told["headers"])
    assert len(told["headers"]) == len(by_name)
    assert by_name["host"] == f"127.0.0.1:{street.upstream_port}"
    assert by_name["x-key"] == street.effects(order)[0] != "forged"
    assert by_name["authorization"] == "Bearer alice-secret"
    assert not {"x-hop", "te", "idempotency-key"} & set(by_name)
    assert by_name["x-forwarded-for"] == "127.0.0.1"
    assert by_name["x-forwarded-host"] == f"127.0.0.1:{street.port}"
    assert by_name["x-forwarded-proto"] == "http"
    assert seen.headers["x-shop"] == "7"
    assert "x-private" not in seen.headers


def test_a_proxy_in_front_that_is_trusted_is_added_to(built, order):
    street = built(upstream_more="trust_forwarded = true\nkey_quoted = true")
    headers = {"x-forwarded-for": "9.9.9.9", "x-forwarded-proto": "https"}

    by_name = dict(street.post(order, headers=headers).json()["headers"])

    assert (by_name["x-forwarded-for"], by_name["x-forwarded-proto"]) == (
        "9.9.9.9, 127.0.0.1",
        "https",
    )
    assert by_name["x-key"].startswith('"')


def test_a_read_passes_without_a_key_and_a_body_of_any_method_is_sent_on(street):
    headers = {"authorization": "Bearer alice-secret"}

    def pieces():
        for _ in range(9):
            yield b"x" * 10_000

    read = httpx.get(f"{street.url}/things?x=1", headers=headers)
    put = httpx.put(f"{street.url}/things/1", headers=headers, content=pieces())

    assert (read.status_code, read.json()["query"]) == (200, "x=1")
    assert (put.status_code, put.json()["size"]) == (200, 90_000)
    assert dict(put.json()["headers"])["transfer-encoding"] == "chunked"


def test_a_key_of_the_clients_own_does_not_reach_the_upstream_by_another_method(street):
    headers = {"authorization": "Bearer alice-secret", "x-key": "forged", "idempotency-key": "mine"}

    told = dict(httpx.put(f"{street.url}/x", headers=headers).json()["headers"])

    assert "x-key" not in told
    assert told["idempotency-key"] == "mine"


def test_a_write_that_the_upstream_cannot_recognise_goes_over_a_connection_of_its_own(
    street, order
):
    with httpx.Client(headers={"authorization": "Bearer alice-secret"}) as client:
        reads = {client.get(f"{street.url}/x").json()["client_port"] for _ in range(3)}
    writes = {street.post(str(uuid.uuid4())).json()["client_port"] for _ in range(3)}

    assert (len(reads), len(writes)) == (1, 3)


def test_a_head_has_no_body(street):
    seen = httpx.head(f"{street.url}/x", headers={"authorization": "Bearer alice-secret"})

    assert (seen.status_code, seen.content, seen.headers["x-shop"]) == (200, b"", "7")


# ---------------------------------------------------------------- the doors


def request(target="/pay", host="127.0.0.1", method="POST", more="", body='{"order":"never"}'):
    lines = (
        f"{method} {target} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer"
        f" alice-secret\r\nConnection: close\r\n{more}"
    )
    return f'{lines}Idempotency-Key: "{uuid.uuid4()}"\r\nContent-Length: {len(body)}\r\n\r\n{body}'.encode()


@pytest.mark.parametrize(
    "host", ["evil.example", "api.example.evil", "", "127.0.0.1@evil.example", "xapi.example"]
)
def test_other_hosts_are_refused(street, host):
    said = street.raw(request(host=host))

    assert said.startswith(b"HTTP/1.1 421 ")
    assert b'"code":"WRONG_HOST"' in said
    assert street.effects("never") == []


@pytest.mark.parametrize("host", ["api.example", "API.example:8443", "127.0.0.1:1"])
def test_hosts_of_the_list_are_served_on_any_port(street, host):
    assert street.raw(request(host=host, method="GET", body="")).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("POST", "http://evil.example/pay"),
        ("POST", "http://127.0.0.1/pay"),
        ("CONNECT", "evil.example:443"),
        ("CONNECT", "/pay"),
        ("TRACE", "/pay"),
        ("OPTIONS", "*"),
        ("POST", "/x/../pay"),
        ("POST", "/x/%2e%2e/pay"),
        ("POST", "/./pay"),
        ("POST", "/x\\..\\pay"),
        ("POST", "/pay#x"),
        ("POST", "/pay%00"),
    ],
)
def test_there_is_no_way_to_anything_else(street, method, target):
    said = street.raw(request(target, method=method))

    assert said.startswith(b"HTTP/1.1 400 ")
    assert b'"code":"TARGET_REFUSED"' in said
    assert street.effects("never") == []


def test_two_slashes_lead_to_no_other_host(street):
    said = street.raw(request("//evil.example/x", method="GET", body=""))

    assert b'"target":"/base//evil.example/x"' in said


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    "authorization", [None, "Bearer wrong", "Basic YWxpY2U=", "Bearer", f"Bearer {BOB}"]
)
def test_nobody_is_anonymous(street, method, authorization, order):
    headers = {"idempotency-key": order} | (
        {} if authorization is None else {"authorization": authorization}
    )

    said = httpx.request(method, f"{street.url}/pay", headers=headers, json={"order": order})

    assert (said.status_code, said.json()["code"]) == (401, "NOT_AUTHENTICATED")
    assert street.effects(order) == []


@pytest.mark.parametrize("method", ["POST", "PUT"])
@pytest.mark.parametrize("announced", [True, False])
def test_a_body_that_is_too_large_is_refused(street, method, announced, order):
    headers = {"authorization": "Bearer alice-secret", "idempotency-key": order}
    pieces = [b"x" * 60_000, b"x" * 60_000]

    said = httpx.request(
        method,
        f"{street.url}/pay",
        headers=headers,
        content=b"".join(pieces) if announced else iter(pieces),
    )

    assert (said.status_code, said.json()["code"]) == (413, "BODY_TOO_LARGE")
    assert "100000" in said.json()["detail"]


def test_a_key_is_needed_for_a_write(street, order):
    said = httpx.post(
        f"{street.url}/pay", headers={"authorization": "Bearer alice-secret"}, json={"order": order}
    )

    assert (said.status_code, said.json()["code"]) == (400, "KEY_MISSING")
    assert street.effects(order) == []


# ---------------------------------------------------------------- TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj"
        " /CN=localhost"
    )
    subprocess.run(
        [
            *command.split(),
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-keyout",
            folder / "key",
            "-out",
            folder / "cert",
        ],
        check=True,
        capture_output=True,
    )
    return str(folder / "cert"), str(folder / "key")


def test_tls_on_both_sides_and_an_upstream_that_nobody_vouches_for_gets_nothing(
    built, certificate, order
):
    cert, key = certificate
    street = built()
    street.end()
    street.config.write_text(street.config.read_text().replace('url = "http:', 'url = "https:'))
    street.start_api("--ssl-certfile", cert, "--ssl-keyfile", key)
    street.start_gateway("--certfile", cert, "--keyfile", key)
    trusted = ssl.create_default_context(cafile=cert)
    headers = {"authorization": "Bearer alice-secret", "idempotency-key": order}
    url = f"https://127.0.0.1:{street.port}/pay"

    refused = httpx.post(url, headers=headers, json={"order": order}, verify=trusted)
    street.config.write_text(
        street.config.read_text().replace("[upstream]", f'[upstream]\nca_file = "{cert}"')
    )
    ended(street.gateway)
    street.start_gateway("--certfile", cert, "--keyfile", key)
    served = httpx.post(url, headers=headers, json={"order": order}, verify=trusted)

    assert (refused.status_code, refused.json()["code"]) == (503, "UPSTREAM_UNREACHED")
    assert served.status_code == 200
    assert dict(served.json()["headers"])["x-forwarded-proto"] == "https"
    assert len(street.effects(order)) == 1


def test_it_ends_when_it_is_told_to(built, order):
    street = built()
    street.post(order)

    street.gateway.send_signal(signal.SIGTERM)

    assert street.gateway.wait() in (0, -signal.SIGTERM)
    assert "Traceback" not in (street.folder / "gateway.log").read_text()


def test_space_around_the_value_of_a_header_is_not_sent_on():
    """Some servers hand it to their app, and no client may send it."""
    assert end_to_end([(b"X-Note", b"\t late  "), (b"Connection", b"close ")]) == [
        (b"x-note", b"late")
    ]
