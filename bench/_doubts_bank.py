"""The bank of doubts.py: a process of its own that pays, and counts what it paid.

Run as a program, it serves on a free port of the loopback, which it prints. A fault is armed for
one customer and hits that customer's next payment alone. Two faults kill the process that armed
them: when its request is here, or when it is paid. Its ledger is the truth that every report is
judged by.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

REFUSALS = ("400", "401", "403", "404", "422")  # final: the bank will not do it, and did not
BEFORE_PAYING = (*REFUSALS, "429", "503", "502 before")
KILLED_BEFORE, KILLED_AFTER = "killed after a byte left", "killed after the bank did it"
AFTER_PAYING = ("500 after", "504 after")


class Ledger:
    """What was paid, and which faults are still to come."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._paid: dict[str, list[str]] = {}
        self._by_key: dict[str, str] = {}
        self._armed: dict[str, tuple[str, bool]] = {}
        self.callers: dict[str, int] = {}  # the process that armed it

    def arm(self, who: str, fault: str, *, honours_keys: bool, caller: int) -> None:
        with self._lock:
            self._armed[who] = (fault, honours_keys)
            self.callers[who] = caller

    def fault_for(self, who: str) -> str:
        """The fault of this payment. It is over then."""
        with self._lock:
            fault, honours_keys = self._armed[who]
            self._armed[who] = ("", honours_keys)
            return fault

    def pay(self, who: str, key: str | None) -> str:
        with self._lock:
            known = key if self._armed[who][1] else None
            if known is not None and known in self._by_key:
                return self._by_key[known]
            receipts = self._paid.setdefault(who, [])
            receipts.append(f"receipt {len(receipts) + 1} of {who}")
            if known is not None:
                self._by_key[known] = receipts[-1]
            return receipts[-1]

    def paid(self, who: str) -> list[str]:
        with self._lock:
            return list(self._paid.get(who, ()))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    ledger: Ledger

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._answer(200, {"paid": self.ledger.paid(self.path.rpartition("/")[2])})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))))
        if self.path == "/arm":
            self.ledger.arm(
                asked["who"],
                asked["fault"],
                honours_keys=asked["honours_keys"],
                caller=asked["caller"],
            )
            self._answer(200, {})
        else:
            self._pay(asked["who"], self.ledger.fault_for(asked["who"]))

    def _pay(self, who: str, fault: str) -> None:
        if fault in ("closed before", KILLED_BEFORE):
            return self._hang_up(self.ledger.callers[who] if fault == KILLED_BEFORE else None)
        if fault in BEFORE_PAYING:
            return self._answer(int(fault[:3]), {"error": fault})
        receipt = self.ledger.pay(who, self.headers.get("Idempotency-Key"))
        if fault in ("closed after", KILLED_AFTER):
            return self._hang_up(self.ledger.callers[who] if fault == KILLED_AFTER else None)
        if fault == "no answer":
            self.connection.recv(1)  # until the client gives up: no clock of ours decides
            return self._hang_up()
        if fault in AFTER_PAYING:
            return self._answer(int(fault[:3]), {"error": fault})
        if fault == "cut off":
            self._raw(b'{"rec', length=100)
            return self._hang_up()
        if fault == "not JSON":
            return self._raw(b"<>", length=2)
        return self._answer(200, {"receipt": receipt})

    def _hang_up(self, kills: int | None = None) -> None:
        if kills is not None:
            os.kill(kills, signal.SIGKILL)
        self.close_connection = True
        self.connection.close()

    def _raw(self, body: bytes, *, length: int) -> None:
        self.send_response(200)
        self.send_header("content-length", str(length))
        self.end_headers()
        self.wfile.write(body)

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        if status in (429, 503):
            self.send_header("retry-after", "0")
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


# ---------------------------------------------------------------- what the other processes know
# of it


class Bank:
    """Arms faults, and reads the ledger. It is no part of what is judged, so it goes past every
    subject.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    def arm(self, who: str, fault: str, *, honours_keys: bool) -> None:
        armed = {"who": who, "fault": fault, "honours_keys": honours_keys, "caller": os.getpid()}
        self._ask("POST", "/arm", armed)

    def paid(self, who: str) -> list[str]:
        paid: list[str] = self._ask("GET", f"/paid/{who}")["paid"]
        return paid

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, json.dumps(body))
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()


@contextmanager
def bank() -> Iterator[Bank]:
    """A bank in a process of its own, for as long as the block runs."""
    process = subprocess.Popen([sys.executable, Path(__file__)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield Bank(int(process.stdout.readline()))
    finally:
        process.kill()
        process.communicate()


def main() -> None:
    Handler.ledger = Ledger()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
