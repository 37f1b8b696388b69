"""How far did the request get? Real failures of the real HTTP clients, and their classes one by
one.
"""

import asyncio
import datetime as dt
import errno
import socket
import ssl

import aiohttp
import pytest

from effectonce import Action, Bucket, Certainty, advise, classify
from tests.servers.listener import Listener
from tests.vendors.helpers import raised, rows, says

pytestmark = pytest.mark.filterwarnings("ignore")

FATES = ("refused", "hangs", "resets", "hangs_up", "not_found", "untrusted", "no_host")
EXPECTED = {
    "refused": "unreachable N",
    "hangs": "no_answer M",
    "resets": "no_answer M",
    "hangs_up": "no_answer M",
    "not_found": "not_found R",
    "untrusted": "config N",
}


@pytest.fixture(scope="module")
def untrusted(tmp_path_factory):
    """A TLS server whose certificate nobody has signed."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, folder = ec.generate_private_key(ec.SECP256R1()), tmp_path_factory.mktemp("tls")
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    today = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    built = x509.CertificateBuilder(
        name, name, key.public_key(), 1, today, today.replace(year=2040)
    )
    pem = built.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "both.pem").write_bytes(pem + private)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "both.pem")

    def serve(line):
        with context.wrap_socket(line, server_side=True) as wrapped:
            wrapped.recv(1)

    with Listener(serve) as listener:
        yield f"https://127.0.0.1:{listener.port}"


def with_httpx(url, within_s):
    import httpx

    httpx.post(url, timeout=within_s).raise_for_status()


def with_httpx2(url, within_s):
    import httpx2

    httpx2.post(url, timeout=within_s).raise_for_status()


def with_requests(url, within_s):
    import requests

    requests.post(url, timeout=within_s).raise_for_status()


def with_urllib3(url, within_s):
    import urllib3

    response = urllib3.PoolManager(retries=False).request("POST", url, timeout=within_s)
    if response.status >= 400:
        error = RuntimeError(response.status)
        error.response = response
        raise error


def with_aiohttp(url, within_s):
    import aiohttp

    async def post():
        timeout = aiohttp.ClientTimeout(sock_connect=within_s, sock_read=within_s)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.post(url) as response:
            response.raise_for_status()

    asyncio.run(post())


@pytest.mark.parametrize(
    "client", [with_httpx, with_httpx2, with_requests, with_urllib3, with_aiohttp]
)
@pytest.mark.parametrize("fate", FATES)
def test_a_real_failure_of_a_real_client(client, fate, wire, nobody, untrusted):
    if fate in ("hangs", "resets", "hangs_up"):
        getattr(wire, fate)()
    if fate == "not_found":
        wire.says(404, {})
    url = {"refused": nobody, "untrusted": untrusted, "no_host": "http://no-such-host.invalid"}.get(
        fate, wire.url
    )

    found = raised(lambda: client(url, 0.2 if fate == "hangs" else 30.0))

    # without a name server it is a passing failure, with one there is no such name
    if fate == "no_host":
        assert says(found) in ("unreachable N", "config N"), repr(found)
    else:
        assert says(found) == EXPECTED[fate], repr(found)


HTTPX = {
    "unreachable N": "PoolTimeout ConnectTimeout ConnectError",
    "no_answer M": (
        "ProxyError WriteTimeout WriteError ReadTimeout ReadError CloseError RemoteProtocolError"
    ),
    "config M": (
        "LocalProtocolError UnsupportedProtocol InvalidURL TooManyRedirects CookieConflict"
        " StreamClosed"
    ),
    "parse A": "DecodingError",
}


@pytest.mark.parametrize("package", ["httpx", "httpx2"])
@pytest.mark.parametrize(("name", "expected"), rows(HTTPX))
def test_the_classes_of_httpx_and_of_its_fork(package, name, expected):
    cls = getattr(__import__(package), name)

    assert says(cls() if name == "StreamClosed" else cls("x")) == expected


def test_a_broken_event_stream_of_httpx2():
    import httpx2

    assert says(httpx2.SSEError("x")) == "no_answer M"


REQUESTS = {
    "unreachable N": "ConnectTimeout",
    "no_answer M": (
        "ConnectionError ReadTimeout ChunkedEncodingError ContentDecodingError RetryError"
    ),
    "config M": (
        "SSLError ProxyError InvalidURL MissingSchema InvalidSchema InvalidHeader"
        " TooManyRedirects UnrewindableBodyError"
    ),
    "unknown M": "HTTPError",
}


@pytest.mark.parametrize(("name", "expected"), rows(REQUESTS))
def test_the_classes_of_requests(name, expected):
    import requests

    assert says(getattr(requests.exceptions, name)("x")) == expected


def test_what_requests_wraps_is_looked_at():
    import requests
    import urllib3

    def wrapped(inner):
        return requests.ConnectionError(urllib3.exceptions.MaxRetryError(None, "/", inner))

    assert says(wrapped(urllib3.exceptions.NewConnectionError(None, "x"))) == "unreachable N"
    assert (
        says(wrapped(urllib3.exceptions.NameResolutionError("h", None, socket.gaierror(-3, "x"))))
        == "unreachable N"
    )
    assert says(wrapped(urllib3.exceptions.ConnectTimeoutError("x"))) == "unreachable N"
    assert (
        says(requests.ConnectionError(urllib3.exceptions.ProtocolError("Connection aborted.")))
        == "no_answer M"
    )
    spent = urllib3.exceptions.MaxRetryError(None, "/", urllib3.exceptions.ResponseError("503"))
    assert says(requests.exceptions.RetryError(spent)) == "no_answer M"


def test_tls_that_breaks_after_the_request_has_left_is_not_taken_for_a_bad_certificate():
    import requests
    import urllib3

    broken = urllib3.exceptions.SSLError(
        ssl.SSLEOFError(8, "EOF occurred in violation of protocol")
    )
    assert (
        says(requests.exceptions.SSLError(urllib3.exceptions.MaxRetryError(None, "/", broken)))
        == "no_answer M"
    )
    untrusted = urllib3.exceptions.SSLError(
        ssl.SSLCertVerificationError(1, "certificate verify failed")
    )
    assert (
        says(requests.exceptions.SSLError(urllib3.exceptions.MaxRetryError(None, "/", untrusted)))
        == "config N"
    )


def test_a_body_that_is_no_json_was_acted_on(wire):
    import requests

    wire.says(200, "<html>")
    assert says(raised(lambda: requests.post(wire.url, timeout=30).json())) == "parse A"


def test_every_requests_error_is_an_oserror_and_is_not_taken_for_one(wire):
    import requests

    wire.says(401, {})
    found = raised(lambda: requests.post(wire.url, timeout=30).raise_for_status())
    assert isinstance(found, OSError)
    assert says(found) == "auth R"


def test_a_body_that_was_not_read_is_not_read_by_us(wire):
    import requests

    wire.says(429, {"error": {"code": "insufficient_quota"}})
    response = requests.post(wire.url, timeout=30, stream=True)
    assert says(response) == "rate_limit R"
    assert not response._content_consumed
    assert response.json()
    assert says(response) == "quota R"


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda e: e.NewConnectionError(None, "x"), "unreachable N"),
        (lambda e: e.NameResolutionError("h", None, socket.gaierror()), "unreachable N"),
        (lambda e: e.ConnectTimeoutError("x"), "unreachable N"),
        (lambda e: e.EmptyPoolError(None, "x"), "unreachable N"),
        (lambda e: e.FullPoolError(None, "x"), "unreachable N"),
        (lambda e: e.ReadTimeoutError(None, "/", "x"), "no_answer M"),
        (lambda e: e.ProtocolError("x"), "no_answer M"),
        (lambda e: e.IncompleteRead(1, 2), "no_answer M"),
        (lambda e: e.SSLError("x"), "config M"),
        (lambda e: e.MaxRetryError(None, "/", e.ReadTimeoutError(None, "/", "x")), "no_answer M"),
        (lambda e: e.MaxRetryError(None, "/", e.NewConnectionError(None, "x")), "unreachable N"),
    ],
)
def test_the_classes_of_urllib3(make, expected):
    import urllib3

    assert says(make(urllib3.exceptions)) == expected


def aiohttp_errors():
    import aiohttp
    from aiohttp.client_reqrep import ConnectionKey

    key = ConnectionKey("h", 443, True, True, None, None, None)
    yield aiohttp.ClientConnectorError(key, OSError(errno.ECONNREFUSED, "x")), "unreachable N"
    yield aiohttp.ClientConnectorDNSError(key, OSError(1, "x")), "unreachable N"
    yield aiohttp.ClientProxyConnectionError(key, OSError(1, "x")), "unreachable N"
    yield aiohttp.ConnectionTimeoutError(), "unreachable N"
    yield aiohttp.ClientConnectorCertificateError(key, ssl.SSLCertVerificationError()), "config N"
    yield aiohttp.ClientConnectorSSLError(key, ssl.SSLError(1, "x")), "config N"
    yield aiohttp.ServerFingerprintMismatch(b"a", b"b", "h", 443), "config N"
    yield aiohttp.InvalidURL("x"), "config N"
    yield aiohttp.NonHttpUrlClientError("x"), "config N"
    yield aiohttp.ServerDisconnectedError(), "no_answer M"
    yield aiohttp.ClientOSError(errno.ECONNREFUSED, "x"), "no_answer M"
    yield aiohttp.ClientConnectionResetError("x"), "no_answer M"
    yield aiohttp.SocketTimeoutError(), "no_answer M"
    yield aiohttp.ServerTimeoutError(), "no_answer M"
    yield aiohttp.ClientPayloadError("x"), "no_answer M"
    info = aiohttp.RequestInfo("http://x", "POST", {}, "http://x")
    yield aiohttp.ContentTypeError(info, (), status=200), "parse A"
    yield aiohttp.ClientResponseError(info, (), status=503), "server_error M"
    yield (
        aiohttp.ClientResponseError(info, (), status=429, headers={"Retry-After": "7"}),
        "rate_limit R 7 s",
    )
    yield aiohttp.WSServerHandshakeError(info, (), status=403), "auth R"


def test_the_classes_of_aiohttp():
    told = {repr(error): (says(error), expected) for error, expected in aiohttp_errors()}

    assert {name: got for name, (got, expected) in told.items() if got != expected} == {}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionRefusedError(), "unreachable N"),
        (socket.gaierror(-3, "Temporary failure in name resolution"), "unreachable N"),
        (socket.gaierror(-2, "Name or service not known"), "config N"),
        *(
            (OSError(getattr(errno, n), "x"), "unreachable M")
            for n in ("EHOSTUNREACH", "ENETUNREACH", "ENETDOWN", "EHOSTDOWN")
        ),
        (OSError(errno.EADDRNOTAVAIL, "x"), "unreachable N"),
        (ConnectionResetError(), "no_answer M"),
        (ConnectionAbortedError(), "no_answer M"),
        (BrokenPipeError(), "no_answer M"),
        (OSError(errno.ETIMEDOUT, "x"), "no_answer M"),
        (TimeoutError(), "no_answer M"),
        *(
            (OSError(getattr(errno, n), "x"), "overloaded M")
            for n in ("EMFILE", "ENFILE", "ENOMEM", "ENOSPC")
        ),
        *((OSError(getattr(errno, n), "x"), "config M") for n in ("EACCES", "EPERM", "ENOENT")),
        (ssl.SSLCertVerificationError(), "config N"),
        (ssl.SSLError(1, "x"), "no_answer M"),
        (asyncio.CancelledError(), "cancelled M"),
        (KeyboardInterrupt(), "cancelled M"),
        (SystemExit(1), "cancelled M"),
        (GeneratorExit(), "cancelled M"),
    ],
    ids=repr,
)
def test_the_operating_system(error, expected):
    assert says(error) == expected


def test_what_runs_out_on_this_machine_is_not_the_hosts_fault():
    assert classify(OSError(errno.EMFILE, "x")).scope == "process"


def test_json_that_is_none_and_data_of_the_wrong_shape():
    import json

    import pydantic

    assert says(raised(lambda: json.loads("<html>"))) == "parse M"
    assert says(raised(lambda: pydantic.TypeAdapter(int).validate_python("x"))) == "parse M"


def test_a_command_that_failed_is_for_the_model_to_read():
    import subprocess

    failed = raised(lambda: subprocess.run(["sh", "-c", "exit 1"], check=True))

    assert says(failed) == "tool_error M"
    assert advise(failed, kind="read").action is Action.REPLAN
    assert advise(failed).action is Action.ESCALATE  # what a write had done by then is not known


@pytest.mark.parametrize("returncode", [-9, -15])
def test_a_command_that_was_killed_says_nothing_to_the_model(returncode):
    import subprocess

    killed = subprocess.CalledProcessError(returncode, ["sh"])

    assert says(killed) == "no_answer M"
    assert says(subprocess.TimeoutExpired(["sh"], 3)) == "no_answer M"


def test_an_answer_to_aiohttp_that_is_not_http_is_no_refusal():
    """aiohttp raises it as a ClientResponseError with the status 400, which the server never
    said.
    """

    async def garbage(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"done, but not in HTTP\r\n\r\n")
        await writer.drain()
        writer.close()

    async def main():
        server = await asyncio.start_server(garbage, "127.0.0.1", 0)
        async with server, aiohttp.ClientSession() as client:
            with pytest.raises(aiohttp.ClientResponseError) as caught:
                await client.post(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/pay")
        return classify(caught.value)

    verdict = asyncio.run(main())

    assert (verdict.bucket, verdict.certainty) == (Bucket.NO_ANSWER, Certainty.AMBIGUOUS)
