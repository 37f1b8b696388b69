"""The service that a subject acts on: a process of its own that keeps the ledger.

Every request that is not a GET is an effect. `GET /effects?order=7` answers what happened, where
the service can be asked. `POST /mcp` is the same as an MCP server with one tool, `pay`. A request
with a whole URL, as a client sends to its HTTP proxy, is answered like one with a path, so that
`HTTP_PROXY` alone leads a program here. Paths that begin with `/_` are the kit's own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import struct
import sys
import threading
import time
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from oncebench.world.faults import BEFORE, Armed, Fault
from oncebench.world.ledger import Effect, KeyConflict, Ledger
from oncebench.world.mcp import UnknownMethod, reply_to

RESET = struct.pack("ii", 1, 0)  # SO_LINGER of zero seconds: close() sends RST


class Service(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, ledger: Ledger, *, can_be_asked: bool) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.ledger = ledger
        self.armed = Armed()
        self.can_be_asked = can_be_asked
        self.requests: list[dict[str, Any]] = []
        self.late: list[threading.Thread] = []

    def handle_error(self, *_: Any) -> None:
        """A client that left is what this service is for."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Service

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if parts.path == "/_ledger":
            for landing in self.server.late:
                landing.join()
            return self._answer(200, [asdict(e) for e in self.server.ledger.effects()])
        if parts.path == "/_requests":
            return self._answer(200, self.server.requests)
        if parts.path != "/effects" or not self.server.can_be_asked:
            return self._answer(404, {"error": "this service cannot be asked"})
        asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
        return self._answer(200, [e.answer() for e in self._happened(asked)])

    def _happened(self, asked: dict[str, str]) -> list[Effect]:
        return [
            e
            for e in self.server.ledger.effects()
            if isinstance(e.body, dict)
            and all(str(e.body.get(name)) == value for name, value in asked.items())
        ]

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        raw = self.rfile.read(length)
        if len(raw) < length:  # its sender died: half a request is none
            return self._hang_up()
        path = urlsplit(self.path).path
        body = _parsed(raw)
        if path == "/_arm":
            self.server.armed.add(Fault(**body))
            return self._answer(200, {})
        if path == "/_release":
            self.server.armed.released.set()
            return self._answer(200, {})
        if path == "/mcp":
            return self._mcp(body)
        return self._effect(path, body)

    do_PUT = do_PATCH = do_DELETE = do_POST  # noqa: N815  # http.server looks for these names

    # ------------------------------------------------------------ an effect, and its fault

    def _effect(self, path: str, body: Any) -> None:
        number, fault = self.server.armed.next(body)
        key = self.headers.get("Idempotency-Key")
        request = {
            "number": number,
            "path": path,
            "body": body,
            "key": key,
            "asked_at": time.time(),
            "fate": "open",
        }
        self.server.requests.append(request)
        if fault is not None and fault.kind.startswith("hold"):
            self.server.armed.released.wait(60)
        if fault is not None and fault.kind in BEFORE:
            request["fate"] = "nothing"
            return self._nothing_happens(fault)
        if fault is not None and fault.kind == "late":
            landing = threading.Thread(
                target=self._land_late, args=(fault.late_s, request), daemon=True
            )
            landing.start()
            self.server.late.append(landing)
            if fault.pid is not None:
                os.kill(fault.pid, signal.SIGKILL)
            return self._hang_up()
        try:
            effect = self._land(request)
        except KeyConflict:
            request["fate"] = "nothing"
            return self._answer(422, {"error": "this key was used for another request"})
        request["fate"] = effect.answer()
        if fault is None or fault.kind == "hold":
            return self._answer(200, effect.answer())
        return self._happened_but(fault, effect, request)

    def _land(self, request: dict[str, Any]) -> Effect:
        asked = {name: request[name] for name in ("path", "body", "key", "asked_at")}
        return self.server.ledger.land(method=self.command, **asked)

    def _land_late(self, late_s: float, request: dict[str, Any]) -> None:
        self.server.armed.released.wait(late_s)
        with contextlib.suppress(KeyConflict):
            effect = self._land(request)
            request["fate"] = effect.answer()

    def _nothing_happens(self, fault: Fault) -> None:
        if fault.kind[:3].isdigit():
            return self._answer(int(fault.kind[:3]), {"error": "nothing happened"})
        if fault.pid is not None:
            os.kill(fault.pid, signal.SIGKILL)
        return self._hang_up()

    def _happened_but(self, fault: Fault, effect: Effect, request: dict[str, Any]) -> None:
        match fault.kind:
            case "no answer":
                self.connection.recv(1)  # until the client leaves: its patience decides, not ours
            case "truncated":
                self._send(b'{"recei', length=64)
            case "500 after":
                return self._answer(500, {"error": "internal error"})
            case "twice":
                self._land(request)
                return self._answer(200, effect.answer())
            case "kill after" if fault.pid is not None:
                os.kill(fault.pid, signal.SIGKILL)
            case _:
                pass
        return self._hang_up()

    # ------------------------------------------------------------ answers

    def _mcp(self, message: Any) -> None:
        def call(arguments: Any) -> None:
            self._mcp_id = message["id"]
            self._effect("/pay", arguments)

        try:
            reply = reply_to(message, call)
        except UnknownMethod as error:
            reply = error.reply
        if reply is None:
            return self._send(b"", length=0, status=202)
        if reply is not ...:
            return self._answer(200, reply)
        return None

    def _answer(self, status: int, body: Any) -> None:
        mcp_id = getattr(self, "_mcp_id", None)
        if mcp_id is not None:
            body = {
                "jsonrpc": "2.0",
                "id": mcp_id,
                "result": {
                    "content": [{"type": "text", "text": json.dumps(body)}],
                    "structuredContent": body,
                    "isError": status != 200,
                },
            }
            status = 200
            self._mcp_id = None
        data = json.dumps(body).encode()
        self._send(data, length=len(data), status=status)

    def _send(self, data: bytes, *, length: int, status: int = 200) -> None:
        self.send_response(status)
        if status in {429, 503}:
            self.send_header("retry-after", "0")
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(length))
        self.end_headers()
        self.wfile.write(data)

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.connection.close()


def _parsed(raw: bytes) -> Any:
    try:
        return json.loads(raw) if raw else None
    except ValueError:
        return raw.decode("utf-8", "replace")


def _end_with_the_kit() -> None:
    """The kit holds the other end of stdin as long as it lives: it may be killed, too."""
    sys.stdin.read()
    os._exit(0)


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m oncebench.world.server")
    options.add_argument("ledger", type=Path)
    options.add_argument("--window-s", type=float)
    options.add_argument("--can-be-asked", action="store_true")
    asked = options.parse_args()
    threading.Thread(target=_end_with_the_kit, daemon=True).start()
    service = Service(
        Ledger(asked.ledger, window_s=asked.window_s), can_be_asked=asked.can_be_asked
    )
    print(service.server_port, flush=True)  # noqa: T201  # the process that started it reads it
    service.serve_forever()


if __name__ == "__main__":
    main()
