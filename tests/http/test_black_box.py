"""A real server with two workers, on each store, seen from outside: every effect is a line in a
ledger that no worker can take back.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import httpx
import pytest

from tests.servers import redis
from tests.servers._process import descendants, free_port, until

ROOT = Path(__file__).parents[2]
WORKERS = 2
CALLERS = 50
NO_CERTIFICATES = False  # to load them takes longer than a request


class Shop:
    """uvicorn with its workers, and the ledger."""

    def __init__(self, url, folder, count):
        self.folder, self.ledger, self.port, self.bookings = (
            folder,
            folder / "ledger",
            free_port(),
            count,
        )
        self.url = f"http://127.0.0.1:{self.port}"
        environment = os.environ | {"SHOP_STORE": url, "SHOP_LEDGER": str(self.ledger)}
        command = [
            sys.executable,
            "-m",
            "uvicorn",
            "tests.http.shop:app",
            "--port",
            str(self.port),
            "--workers",
            str(WORKERS),
        ]
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "--log-level", "warning", "--no-access-log"],
                cwd=ROOT,
                env=environment,
                stdout=log,
                stderr=log,
            )
        until(self.ready, f"two workers, see {folder / 'log'}")

    def ready(self):
        """Both workers answer: the kernel chooses one for each connection."""
        assert self.process.poll() is None, (self.folder / "log").read_text()
        with contextlib.suppress(httpx.TransportError):
            return len({self.pid_of_a_worker() for _ in range(10)}) == WORKERS
        return False

    def pid_of_a_worker(self):
        return httpx.get(f"{self.url}/ready", verify=NO_CERTIFICATES).text

    def end(self):
        for pid in (*descendants(self.process.pid), self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def lines(self, order):
        """What was really done for an order: the worker's pid and the key that the handler would
        have handed on.
        """
        written = self.ledger.read_text().splitlines() if self.ledger.exists() else []
        return [tuple(line.split()[1:]) for line in written if line.split()[0] == order]

    def post(self, path, order, *, key=None, tenant="alice", **more):
        headers = {
            "x-tenant": tenant,
            "idempotency-key": key or order,
            "content-type": "application/json",
        }
        with httpx.Client(timeout=60, verify=NO_CERTIFICATES) as client:
            return client.post(self.url + path, headers=headers, json={"order": order} | more)

    def gate(self):
        path = self.folder / f"gate-{uuid.uuid4()}"
        os.mkfifo(path)
        return str(path)

    def held(self, path, order, gate):
        """A request that is being worked on: it waits at the gate."""
        box = []

        def send():
            try:
                box.append(self.post(path, order, gate=gate))
            except httpx.TransportError as error:
                box.append(error)

        thread = threading.Thread(target=send)
        thread.start()
        until(lambda: self.lines(order), "the handler's first line")
        return thread, box

    def raw(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)


def pass_through(gate):
    with open(gate, "wb"):  # noqa: PTH123
        pass


@pytest.fixture(scope="module", params=["sqlite", "postgres", "redis"])
def shop(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "sqlite":
        path = folder / "effects.db"
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE bookings (amount INTEGER)")
        connection.close()

        def count():
            with contextlib.closing(sqlite3.connect(path)) as reader:
                return reader.execute("SELECT count(*) FROM bookings").fetchone()[0]

        url = f"sqlite:///{path}"
    elif request.param == "postgres":
        server = request.getfixturevalue("postgres")
        url = server.database()
        server.execute("CREATE TABLE bookings (amount INTEGER)", url)

        def count():
            return server.execute("SELECT count(*) FROM bookings", url)[0][0]

    else:
        url, count = redis.emptied(redis.server()).url, None
    made = Shop(url, folder, count)
    yield made
    made.end()


@pytest.fixture
def order():
    return str(uuid.uuid4())


def test_a_repeat_gets_the_same_bytes_from_whichever_worker(shop, order):
    first = shop.post("/ietf", order)
    again = [shop.post("/ietf", order) for _ in range(8)]

    assert first.status_code == 201
    assert {(s.status_code, s.content, s.headers.get("idempotent-replayed")) for s in again} == {
        (201, first.content, "true")
    }
    assert len(shop.lines(order)) == 1


def test_the_same_request_in_flight_is_told_so(shop, order):
    gate = shop.gate()
    thread, box = shop.held("/ietf", order, gate)

    meanwhile = [shop.post("/ietf", order, gate=gate) for _ in range(4)]
    pass_through(gate)
    thread.join()

    assert {(s.status_code, s.headers["retry-after"]) for s in meanwhile} == {(409, "1")}
    assert box[0].status_code == 201
    assert len(shop.lines(order)) == 1


@pytest.mark.parametrize("crowd", [300, pytest.param(2000, marks=pytest.mark.long)])
def test_a_crowd_of_duplicates_is_one_effect(shop, order, crowd):
    headers = {"x-tenant": "alice", "idempotency-key": order}

    async def caller(client):
        return [
            await client.post(f"{shop.url}/waits", headers=headers, json={"order": order})
            for _ in range(crowd // CALLERS)
        ]

    async def main():
        async with httpx.AsyncClient(timeout=60) as client:
            return [
                answer
                for each in await asyncio.gather(*(caller(client) for _ in range(CALLERS)))
                for answer in each
            ]

    seen = asyncio.run(main())

    assert {(s.status_code, s.content) for s in seen} == {(201, seen[0].content)}
    assert sum("idempotent-replayed" in s.headers for s in seen) == crowd - 1
    assert len(shop.lines(order)) == 1


def killed(shop, path, order):
    """The worker dies with SIGKILL while the handler runs; then the same request comes until it
    is not in flight any more.
    """
    gate, seen = shop.gate(), []
    thread, box = shop.held(path, order, gate)
    os.kill(int(shop.lines(order)[0][0]), signal.SIGKILL)
    thread.join()
    # for whoever runs it again
    opened = threading.Thread(target=pass_through, args=(gate,), daemon=True)
    opened.start()

    def settled():
        with contextlib.suppress(httpx.TransportError):
            seen.append(shop.post(path, order, gate=gate))
            return seen[-1].status_code != 409
        return False

    until(settled, "an answer that is not 409")
    until(shop.ready, "two workers again")
    if opened.is_alive():
        pass_gate = os.open(gate, os.O_RDONLY | os.O_NONBLOCK)
        opened.join()
        os.close(pass_gate)
    return box[0], seen[-1]


@pytest.mark.cover(1)
@pytest.mark.parametrize("path", ["/ietf", "/v1"])
def test_a_worker_that_is_killed_leaves_a_doubt_and_nothing_is_done_twice(shop, order, path):
    lost, told = killed(shop, path, order)

    assert isinstance(lost, httpx.TransportError)
    assert told.status_code == 500
    assert "OUTCOME_UNKNOWN" in told.text.upper()
    assert len(shop.lines(order)) == 1


def test_a_worker_that_is_killed_is_taken_over_under_the_same_key_where_that_is_allowed(
    shop, order
):
    _, done = killed(shop, "/v2", order)

    assert done.status_code == 201
    assert len(shop.lines(order)) == 2
    # a downstream that honours it has done it once
    assert len({key for _, key in shop.lines(order)}) == 1


# Redis has no transactions that a handler could share
@pytest.mark.parametrize("shop", ["sqlite", "postgres"], indirect=True)
def test_a_worker_that_is_killed_in_a_transaction_leaves_nothing(shop, order):
    before = shop.bookings()

    _, done = killed(shop, "/tx", order)

    assert done.status_code == 201
    assert shop.bookings() == before + 1


def head(order, path="/ietf", **headers):
    named = {
        "host": "x",
        "x-tenant": "alice",
        "idempotency-key": order,
        "content-type": "application/json",
    } | headers
    return (
        f"POST {path}"
        f" HTTP/1.1\r\n{''.join(f'{n}: {v}' + chr(13) + chr(10) for n, v in named.items())}\r\n".encode()
    )


def test_a_client_that_leaves_gets_its_answer_when_it_comes_again(shop, order):
    gate = shop.gate()
    body = b'{"order":"%s","gate":"%s"}' % (order.encode(), gate.encode())
    with shop.raw() as line:
        line.sendall(head(order, **{"content-length": len(body)}) + body)
        until(lambda: shop.lines(order), "the handler's line")
    pass_through(gate)

    until(lambda: shop.post("/ietf", order, gate=gate).status_code == 201, "the recorded answer")

    again = shop.post("/ietf", order, gate=gate)
    assert again.headers["idempotent-replayed"] == "true"
    assert len(shop.lines(order)) == 1


def test_a_slow_upload_holds_up_nobody_and_one_that_breaks_off_claims_nothing(shop, order):
    body = b'{"order":"%s"}' % order.encode()
    with shop.raw() as slow:
        slow.sendall(head(order, **{"content-length": len(body)}) + body[:5])

        quick = shop.post("/ietf", order)
        slow.sendall(body[5:])
        answer = slow.recv(65_536)

    with shop.raw() as broken:
        other = str(uuid.uuid4())
        broken.sendall(head(other, **{"content-length": 1000}) + b'{"order')

    assert (quick.status_code, answer.split(b"\r\n")[0]) == (201, b"HTTP/1.1 201 Created")
    assert b"idempotent-replayed: true" in answer
    assert shop.post("/ietf", other).status_code == 201
    assert (len(shop.lines(order)), len(shop.lines(other))) == (1, 1)


def test_a_chunked_upload_is_the_same_request_as_a_whole_one(shop, order):
    def pieces():
        yield b'{"order":'
        yield b'"%s"}' % order.encode()

    headers = {"x-tenant": "alice", "idempotency-key": order, "content-type": "application/json"}
    chunked = httpx.post(f"{shop.url}/ietf", headers=headers, content=pieces())
    whole = shop.post("/ietf", order)

    assert chunked.status_code == 201
    assert (whole.headers["idempotent-replayed"], whole.content) == ("true", chunked.content)


def test_an_upload_without_end_is_refused_at_the_limit(shop, order):
    with shop.raw() as line:
        line.sendall(head(order, **{"transfer-encoding": "chunked"}))
        for _ in range(32):  # twice as much as is allowed, and there would be more
            line.sendall(b"10000\r\n" + b"x" * 65_536 + b"\r\n")
        answer = line.recv(65_536)

    assert answer.startswith(b"HTTP/1.1 413")
    assert shop.post("/ietf", order).status_code == 201  # nothing was claimed


def test_a_streamed_response_is_replayed_whole(shop, order):
    first, again = shop.post("/ietf", order, stream=True), shop.post("/ietf", order, stream=True)

    assert first.headers["transfer-encoding"] == "chunked"
    assert (again.content, again.headers["idempotent-replayed"]) == (first.content, "true")
