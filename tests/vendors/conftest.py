"""A server on this machine that answers as it is told, in any vendor's words; the real SDKs talk
to it.
"""

import json
import socket
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.http.conftest import nobody

__all__ = ["nobody", "server", "wire"]


class Wire:
    """What the server says next, and where it is."""

    def __init__(self):
        self.says(200, {})
        self.requests, self.keys = 0, set()
        wire = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                wire.requests += 1
                wire.keys |= {self.headers["idempotency-key"]} - {None}
                self.rfile.read(int(self.headers.get("content-length") or 0))
                if wire.breaks:
                    wire.breaks(self)
                    return
                # All at once: a client that has the whole answer may be told the next before
                # this is written.
                status, headers, body = wire.status, wire.headers, wire.body
                self.send_response(status)
                for name, value in ({"content-type": "application/json"} | headers).items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def says(self, status, body, headers=None):
        self.status, self.headers, self.breaks = status, headers or {}, None
        self.body = (
            body
            if isinstance(body, bytes)
            else body.encode()
            if isinstance(body, str)
            else json.dumps(body).encode()
        )
        return self

    def streams(self, *events):
        """A 200 that goes wrong inside: server-sent events."""
        text = "".join(
            f"event: {e.get('type', 'message')}\ndata: {json.dumps(e)}\n\n" for e in events
        )
        return self.says(200, text, {"content-type": "text/event-stream"})

    def hangs(self):
        self.breaks = lambda handler: threading.Event().wait(2)

    def resets(self):
        def reset(handler):
            linger = struct.pack("ii", 1, 0)
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            handler.connection.close()
            handler.close_connection = True

        self.breaks = reset

    def hangs_up(self):
        def close(handler):
            handler.connection.shutdown(socket.SHUT_RDWR)
            handler.close_connection = True

        self.breaks = close


@pytest.fixture(scope="session")
def server():
    wire = Wire()
    yield wire
    wire.server.shutdown()
    wire.server.server_close()


@pytest.fixture
def wire(server):
    server.says(200, {})
    return server
