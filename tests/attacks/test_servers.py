"""Clients that mean harm before they say who they are, at each of the three servers of the
command line, as processes of their own.
"""

import contextlib
import socket
import subprocess
import sys
import time

import pytest

from effectonce import Guard
from tests.cli.desk import environment
from tests.servers._process import free_port, until

DOORS = ("gateway", "mcp http", "serve")


def command(door, folder, port):
    listen = ("--listen", f"127.0.0.1:{port}")
    store = ("--store", f"sqlite:///{folder}/effects.db")
    nobody = "http://127.0.0.1:1"
    return {
        "gateway": (
            "gateway",
            "--upstream",
            nobody,
            "--allow-host",
            "127.0.0.1",
            "--tenant-header",
            "x-tenant",
            *store,
            *listen,
        ),
        "mcp http": ("mcp", "http", f"{nobody}/mcp", *store, *listen),
        "serve": ("serve", *store, *listen),
    }[door]


def listens(process, port):
    assert process.poll() is None, "the server has ended"
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


@pytest.fixture(scope="module", params=DOORS)
def door(request, tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("door")
    guard = Guard(f"sqlite:///{tmp_path}/effects.db")
    guard.counts()  # the dashboard wants a store that is there
    guard.close()
    port = free_port()
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "effectonce.cli", *command(request.param, tmp_path, port)],
            cwd=tmp_path,
            env=environment(HOME=str(tmp_path)),
            stdout=log,
            stderr=log,
        )
    try:
        until(lambda: listens(process, port), request.param)
        yield port
    finally:
        process.kill()
        process.wait()


def connected(port, *pieces):
    client = socket.create_connection(("127.0.0.1", port))
    client.settimeout(30)
    for piece in pieces:
        client.sendall(piece)
    return client


def answer(client):
    """All that is said until the connection ends."""
    said = b""
    with contextlib.suppress(ConnectionError):
        while piece := client.recv(1 << 16):
            said += piece
    return said


def request_with(*headers):
    return b"".join(
        [b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n", *headers, b"\r\n"]
    )


def taken(client, size):
    """How many bytes of endless headers are taken before the connection ends."""
    sent, piece = 0, b"x" * (1 << 16)
    with contextlib.suppress(OSError):
        while sent < size:
            sent += client.send(piece)
    return sent


def test_headers_without_end_are_cut_off_before_they_fill_the_memory(door):
    with connected(door, b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nx-endless: ") as client:
        # what lies in the buffers of the system counts as taken
        assert taken(client, 64 << 20) < 32 << 20


def status_with(door, *headers):
    with connected(door, request_with(*headers)) as client:
        return answer(client).split()[1]


def test_headers_that_are_large_together_are_refused_and_usual_ones_are_not(door):
    large, usual = (
        status_with(door, *(b"x-%d: %s\r\n" % (n, b"y" * size) for n in range(90)))
        for size in (600, 200)
    )

    assert large in (b"400", b"431")
    assert usual not in (b"400", b"431", b"503")


def test_too_many_headers_are_refused(door):
    assert status_with(door, *(b"x-%d: y\r\n" % n for n in range(200))) == b"431"


def test_hundreds_of_half_sent_headers_are_closed_within_seconds_also_if_they_trickle(door):
    began = time.monotonic()
    with contextlib.ExitStack() as opened:
        silent = [opened.enter_context(connected(door)) for _ in range(50)]
        half = [
            opened.enter_context(connected(door, b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n"))
            for _ in range(200)
        ]
        trickling = opened.enter_context(connected(door, b"GET / HTTP/1.1\r\n"))
        until(lambda: is_closed_to(trickling), "the end of a connection that trickles")

        assert [answer(client) for client in (*silent, *half)] == [b""] * 250

    assert time.monotonic() - began < 15


def is_closed_to(client):
    try:
        client.sendall(b"x: y\r\n")
    except OSError:
        return True
    return False


def test_a_connection_that_asks_nothing_more_is_closed(door):
    with connected(door, b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n") as client:
        assert answer(client).startswith(b"HTTP/1.1 ")
