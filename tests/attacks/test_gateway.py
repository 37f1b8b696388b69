"""What a tenant, or a client of one, does to the gateway: to the other tenants, to the API, and
past the API's idea of who is asking.
"""

import contextlib
import hashlib
import re
import socket
import threading
import uuid

import httpx
import pytest
from click.testing import CliRunner

from effectonce import ContractViolation
from effectonce.cli import main
from effectonce.http.gateway.app import read_settings
from tests.http.test_gateway import Street, built, ended, opened, order
from tests.http.test_gateway_settings import GOOD
from tests.servers._process import until

__all__ = ["built", "order"]  # fixtures
ALICE, BOB = {"authorization": "Bearer alice-secret"}, {"authorization": "Bearer bob"}


@pytest.fixture(scope="module")
def street(tmp_path_factory):
    made = Street(tmp_path_factory.mktemp("street"))
    try:
        made.start()
        yield made
    finally:
        made.end()


# ---------------------------------------------------------------- one tenant against the others


def test_one_tenants_failures_close_the_door_for_no_other(built, order):
    street = built(failures=5, more="open_s = 60")

    failing = [
        httpx.get(f"{street.url}/fails", headers=ALICE, timeout=60).status_code for _ in range(5)
    ]
    read, write = httpx.get(f"{street.url}/x", headers=BOB), street.post(order, token="bob")

    assert 503 in failing  # hers is open
    assert (read.status_code, write.status_code) == (200, 200)


def test_failing_reads_do_not_stop_writes(built, order):
    street = built(failures=1, more="open_s = 60")

    httpx.get(f"{street.url}/fails", headers=ALICE, timeout=60)
    read, write = httpx.get(f"{street.url}/x", headers=ALICE), street.post(order)

    assert (read.status_code, write.status_code) == (503, 200)


def test_one_tenant_spends_the_retries_of_no_other(built, order):
    street = built(more="[budget]\ncapacity = 5\nearns = 0")

    street.post(order, status=429)
    street.post("another", key=str(uuid.uuid4()), status=429)
    street.post("bobs", key=str(uuid.uuid4()), token="bob", status=429)

    assert (len(street.effects(order)), len(street.effects("another"))) == (2, 1)
    assert len(street.effects("bobs")) == 2


# ---------------------------------------------------------------- slow clients, and a crowded
# upstream


def begun(street, method, token, *, key="", said=b"x" * 10):
    """A request whose body stops in the middle. The gateway has begun to read it."""
    wire = socket.create_connection(("127.0.0.1", street.port), timeout=30)
    head = (
        f"{method} /pay HTTP/1.1\r\nHost: api.example\r\nAuthorization: Bearer {token}\r\nExpect:"
        " 100-continue\r\n"
    )
    wire.sendall(
        f"{head}Idempotency-Key: {key or uuid.uuid4()}\r\nContent-Length: 1000\r\n\r\n".encode()
    )
    assert wire.recv(65_536).startswith(b"HTTP/1.1 100 ")
    wire.sendall(said)
    return wire


def test_slow_bodies_of_one_tenant_do_not_hold_the_connections_of_the_others(built):
    street = built(upstream_more="connections = 4\nconnect_s = 1")

    with contextlib.ExitStack() as slow:
        for _ in range(4):
            slow.enter_context(begun(street, "PUT", "alice-secret"))
        put = httpx.put(f"{street.url}/x", headers=BOB, content=b"x" * 10, timeout=60)

    assert put.status_code == 200


@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_a_body_that_stops_is_not_waited_for(built, method):
    street = built(top="body_piece_s = 0.2")

    with begun(street, method, "alice-secret") as wire:
        said = b"".join(iter(lambda: wire.recv(65_536), b""))

    assert said.startswith(b"HTTP/1.1 408 ")
    assert b"content-type: application/problem+json" in said
    assert b'"code":"BODY_TOO_SLOW"' in said


@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_a_body_that_drips_is_not_waited_for_either(built, method):
    street = built(top="body_piece_s = 20\nbody_s = 0.5")

    with begun(street, method, "alice-secret") as wire:
        wire.settimeout(0.05)
        said = b""
        for _ in range(900):
            with contextlib.suppress(TimeoutError):
                said = wire.recv(65_536)
                break
            wire.sendall(b"x")

    assert said.startswith(b"HTTP/1.1 408 ")


def test_requests_of_one_tenant_that_hang_leave_connections_to_the_others(built):
    street = built(upstream_more="connections = 8\nconnect_s = 0.3")
    said = []

    def hang():
        with contextlib.suppress(httpx.TransportError):
            said.append(httpx.get(f"{street.url}/hold", headers=ALICE, timeout=60))

    threads = [threading.Thread(target=hang, daemon=True) for _ in range(12)]
    for thread in threads:
        thread.start()
    until(lambda: len(said) == 8, "those that are too many")
    bob = httpx.get(f"{street.url}/x", headers=BOB, timeout=60)
    held = len(street.effects("held"))
    ended(street.gateway)
    for thread in threads:
        thread.join()

    assert bob.status_code == 200
    assert held == 4
    assert {(s.status_code, s.json()["code"], s.headers["retry-after"]) for s in said} == {
        (429, "TOO_MANY_AT_ONCE", "1")
    }


def test_a_request_that_had_to_wait_for_too_long_leaves_its_key_as_good_as_new(built, order):
    street = built(upstream_more="connections = 2\nconnect_s = 0.2")
    thread, box, gate = street.held(str(uuid.uuid4()))
    busy = street.post(order)
    opened(gate)
    thread.join()

    assert (busy.status_code, busy.json()["code"]) == (429, "TOO_MANY_AT_ONCE")
    assert (box[0].status_code, street.post(order).status_code) == (200, 200)
    assert len(street.effects(order)) == 1


# ---------------------------------------------------------------- who is asking


def request(*lines, target="/pay", method="PUT"):
    said = (f"{method} {target} HTTP/1.1", "Host: api.example", "Content-Length: 0", *lines)
    return "".join(f"{line}\r\n" for line in (*said, "Connection: close", "")).encode()


@pytest.mark.parametrize(
    "named",
    [
        "authorization",
        "Authorization , x-hop",
        "x-hop,\tAUTHORIZATION",
        "idempotency-key",
        "x-key",
        "cookie",
        "signature",
        "signature-input",
        "stripe-signature",
        "content-digest",
        "x-api-key",
        "x-auth-token",
        "forwarded",
        "x-forwarded-for",
        "host",
        "content-type",
        "x-user-id",
        "remote-user",
        "stripe-account",
        "x-goog-iap-jwt-assertion",
        "x-ssl-client-verify",
        "x-amzn-oidc-data",
        "if-match",
        "x-http-method-override",
    ],
)
def test_no_client_can_have_a_header_removed_that_says_who_asks_or_what(street, named):
    said = street.raw(request("Authorization: Bearer alice-secret", f"Connection: {named}"))

    assert said.startswith(b"HTTP/1.1 400 ")
    assert b'"code":"HEADER_REFUSED"' in said


def test_nor_the_header_that_names_the_tenant(built):
    street = built()
    ended(street.gateway)
    config = street.config.read_text()
    street.config.write_text(
        re.sub(r"\[tenants.tokens\](\n.+)+", '[tenants]\nheader = "x-account"', config)
    )
    street.start_gateway()

    removed = street.raw(request("X-Account: alice", "Connection: x-account"))
    passed = street.raw(request("X-Account: alice", "Connection: x-hop"))

    assert b'"code":"HEADER_REFUSED"' in removed
    assert b'["x-account","alice"]' in passed


@pytest.mark.parametrize(
    "name",
    [
        "X_Forwarded_For",
        "x-forwarded_for",
        "X.Forwarded.For",
        "Idempotency_Key",
        "X_Key",
        "Content_Length",
        "Transfer_Encoding",
    ],
)
def test_no_header_passes_that_an_api_may_take_for_one_of_ours(street, name):
    said = street.raw(request("Authorization: Bearer alice-secret", f"{name}: 6.6.6.6"))

    assert said.startswith(b"HTTP/1.1 400 ")
    assert b'"code":"HEADER_REFUSED"' in said


def test_other_headers_with_an_underscore_pass(street):
    assert b'["access_level","1"]' in street.raw(
        request("Authorization: Bearer alice-secret", "access_level: 1")
    )


@pytest.mark.parametrize(
    "name", ["X-Forwarded-Prefix", "X-Forwarded-Server", "X-Real-IP", "Forwarded"]
)
def test_what_only_a_trusted_proxy_may_say_about_the_client_is_dropped(street, name):
    said = street.raw(request("Authorization: Bearer alice-secret", f"{name}: 6.6.6.6"))

    assert said.startswith(b"HTTP/1.1 200 ")
    assert b"6.6.6.6" not in said


@pytest.mark.parametrize(
    "target",
    [
        "/x/..;/pay",
        "/x/..;a=b/pay",
        "/x/.;/pay",
        "/x/..%3b/pay",
        "/x/%2e%2e;/pay",
        "/x/..%20/pay",
        "/x/%252e%252e/pay",
    ],
)
def test_no_path_leads_out_of_itself(street, target):
    said = street.raw(request("Authorization: Bearer alice-secret", target=target))

    assert said.startswith(b"HTTP/1.1 400 ")
    assert b'"code":"TARGET_REFUSED"' in said


EMPTY = f"sha256:{hashlib.sha256(b'').hexdigest()}"


@pytest.mark.parametrize(
    "token", ["", " ", EMPTY, EMPTY.upper().replace("SHA", "sha"), "sha256:", "sha256:abc"]
)
def test_nobody_is_let_in_without_a_token(token):
    with pytest.raises(ContractViolation, match="is no token"):
        read_settings(None, GOOD | {"tenants": {"tokens": {token: "alice"}}})


# ---------------------------------------------------------------- on the command line

NEEDED = [
    "--upstream",
    "http://127.0.0.1:9",
    "--allow-host",
    "api.example",
    "--tenant-header",
    "x-tenant",
    "--check",
]


@pytest.mark.parametrize(
    "url", ["postgresql://app:hunter2@127.0.0.1:9/effects", "redis://127.0.0.1:9?password=hunter2"]
)
def test_no_password_of_the_store_is_an_argument(url):
    said = CliRunner().invoke(main, ["gateway", *NEEDED, "--store", url])

    assert said.exit_code == 2
    assert "--store holds a password" in said.output
    assert "--config" in said.output
    assert "hunter2" not in said.output


def test_the_store_may_be_named_by_the_environment(tmp_path):
    config = tmp_path / "gateway.toml"
    config.write_text('store = "file://x"\n')
    more = {
        "environment": [],
        "file": ["--config", str(config)],
        "option": ["--config", str(config), "--store", "option://x"],
    }

    for named, arguments in more.items():
        said = CliRunner().invoke(
            main, ["gateway", *NEEDED, *arguments], env={"EFFECTONCE_STORE": "environment://x"}
        )
        assert (said.exit_code, f"{named}://" in said.output) == (2, True), said.output


# ---------------------------------------------------------------- quotas


def test_a_tenant_over_its_quota_is_put_off_and_the_others_are_not(built, order):
    street = built(more="[quota]\nkeys = 2\nper_s = 86400")

    seen = [street.post(f"{order}-{number}") for number in (0, 0, 1, 2)]
    bob = street.post(f"{order}-2", token="bob")

    assert [s.status_code for s in seen] == [200, 200, 200, 429]
    assert (seen[3].json()["code"], int(seen[3].headers["retry-after"]) > 60) == (
        "OVER_QUOTA",
        True,
    )
    assert (bob.status_code, len(street.effects(f"{order}-2"))) == (200, 1)
