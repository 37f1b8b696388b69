"""A bank that runs as a process of its own and only counts.

Theory of operation. What a library says about its own effects proves nothing, so the effects
land here: in another process, which knows nothing of effectonce's records. The ledger is a file
of JSON lines and has the last word.

 1. A payment is one line. It is on the disk before the answer leaves: a client that got a "yes"
    finds the line, whatever is killed next.
 2. Faults are asked for by the request (`X-Fault`), so a test says in one place what goes wrong,
    and nothing is random.
 3. The parent counts by reading the file. It never asks the process.
 4. The bank ends when its stdin closes, so it cannot outlive its parent, however that dies.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import threading
import time
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import Any, Self
from urllib.parse import quote, unquote

from effectonce.errors import Rejected

LOOPBACK = "127.0.0.1"
STOP_WITHIN_S = 5.0
FAULT = re.compile(r"|refuse|silent|lose-answer|answer-late:\d+(\.\d+)?")


# ---------------------------------------------------------------- the bank's side


class Book:
    """The ledger and what the bank remembers of it. It remembers across restarts."""

    def __init__(self, path: str | Path, *, honours_keys: bool = False) -> None:
        self._honours_keys = honours_keys
        self._lock = threading.Lock()
        self._entries = read_ledger(path)
        self._by_key: dict[str, dict[str, Any]] = {}
        self._by_payment: dict[str, list[dict[str, Any]]] = {}
        for entry in self._entries:
            self._remember(entry)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def pay(
        self, payment_id: str, amount_minor: int, key: str | None
    ) -> tuple[dict[str, Any], bool]:
        """The entry of this payment, and whether it is new."""
        # one lock for everything: two requests with one key must not both be the first
        with self._lock:
            known = self._by_key.get(key) if self._honours_keys and key is not None else None
            if known is not None:
                return known, False
            entry: dict[str, Any] = {"payment_id": payment_id, "amount_minor": amount_minor}
            entry |= {"key": key, "receipt": f"rcpt_{len(self._entries) + 1}"}
            os.write(self._file, json.dumps(entry).encode() + b"\n")
            os.fsync(self._file)
            self._entries.append(entry)
            self._remember(entry)
            return entry, True

    def find(self, payment_id: str) -> list[dict[str, Any]]:
        with self._lock:
            return list(self._by_payment.get(payment_id, ()))

    def close(self) -> None:
        os.close(self._file)

    def _remember(self, entry: dict[str, Any]) -> None:
        if entry["key"] is not None:
            self._by_key.setdefault(entry["key"], entry)
        self._by_payment.setdefault(entry["payment_id"], []).append(entry)


class BankServer(ThreadingHTTPServer):
    """The counter where payments are handed in. Loopback only."""

    request_queue_size = 128

    def __init__(self, book: Book, port: int = 0) -> None:
        self.book = book
        super().__init__((LOOPBACK, port), _Counter)

    def server_bind(self) -> None:
        # HTTPServer would look up its own host name here, which can take seconds without a network.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = LOOPBACK, self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is everyday business here; anything else is shown."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Counter(BaseHTTPRequestHandler):
    # keep-alive: thousands of payments per second over one connection
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body leave in one packet
    server: BankServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        payment = _payment(body)
        if self.path not in ("/payments", "/refunds") or payment is None:
            return self._error(400, 'POST /payments {"payment_id": str, "amount_minor": int}')
        asked = self.headers.get("X-Fault") or ""
        # a test whose fault has a slip in it would pass for the wrong reason
        if FAULT.fullmatch(asked) is None:
            known = "refuse, silent, lose-answer or answer-late:SECONDS"
            return self._error(400, f"there is no fault {asked!r}: {known}")
        fault, _, seconds = asked.partition(":")
        if fault == "refuse":
            return self._error(422, f"the bank refuses {payment[0]}")
        if fault == "silent":
            self.close_connection = True
            return None
        entry, is_new = self.server.book.pay(*payment, self.headers.get("Idempotency-Key"))
        if fault == "lose-answer":
            self.close_connection = True
            return None
        if fault == "answer-late":
            time.sleep(float(seconds))
        return self._answer(201 if is_new else 200, entry)

    def do_GET(self) -> None:
        entries = self.server.book.find(unquote(self.path.removeprefix("/payments/")))
        if not entries:
            return self._error(404, "no such payment")
        return self._answer(200, {"effects": len(entries), "receipt": entries[0]["receipt"]})

    def _error(self, status: int, error: str) -> None:
        self._answer(status, {"error": error})

    def _answer(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Say nothing: the ledger says it all."""


def _payment(body: bytes) -> tuple[str, int] | None:
    try:
        content = json.loads(body)
    except ValueError:
        return None
    match content:
        case {"payment_id": str(payment_id), "amount_minor": int(amount_minor)}:
            return payment_id, amount_minor
        case _:
            return None


def main() -> None:
    """Serve until stdin closes."""
    parser = argparse.ArgumentParser(
        prog="python -m effectonce.testing.bank", description=main.__doc__
    )
    parser.add_argument("--ledger", required=True, help="the file that payments are appended to")
    parser.add_argument(
        "--honours-keys", action="store_true", help="the same Idempotency-Key is the same payment"
    )
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    options = parser.parse_args()
    server = BankServer(Book(options.ledger, honours_keys=options.honours_keys), options.port)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    # the parent waits for this line
    print(json.dumps({"port": server.server_port}), flush=True)  # noqa: T201
    sys.stdin.buffer.read()


# ---------------------------------------------------------------- the customer's side


class Teller:
    """One kept-alive connection to a bank, for one thread."""

    def __init__(self, port: int, *, timeout_s: float = 5.0) -> None:
        self._http = HTTPConnection(LOOPBACK, port, timeout=timeout_s)

    def pay(
        self,
        payment_id: str,
        amount_minor: int,
        *,
        key: str | None = None,
        fault: str | None = None,
    ) -> dict[str, Any]:
        """Pay. A missing answer is a TimeoutError or a ConnectionError, a refusal is `Rejected`.

        *fault* is what goes wrong: `refuse` and `silent` before it is paid, `lose-answer` and
        `answer-late:SECONDS` afterwards.
        """
        headers = {"Content-Type": "application/json"}
        headers |= {"Idempotency-Key": key} if key is not None else {}
        headers |= {"X-Fault": fault} if fault is not None else {}
        body = json.dumps({"payment_id": payment_id, "amount_minor": amount_minor})
        status, answer = self._exchange("POST", "/payments", body, headers)
        if status not in (200, 201):
            raise Rejected(answer["error"])
        return answer

    def find(self, payment_id: str) -> dict[str, Any] | None:
        """How often it was paid and the first receipt, or None."""
        status, answer = self._exchange("GET", f"/payments/{quote(payment_id, safe='')}")
        return answer if status == 200 else None

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _exchange(
        self, method: str, path: str, body: str | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, Any]]:
        try:
            self._http.request(method, path, body, headers or {})
            response = self._http.getresponse()
            return response.status, json.loads(response.read())
        except (OSError, HTTPException):
            self._http.close()  # a late answer must not be taken for the answer to the next request
            raise


def pay(
    port: int,
    payment_id: str,
    amount_minor: int,
    *,
    key: str | None = None,
    fault: str | None = None,
    timeout_s: float = 5.0,
) -> dict[str, Any]:
    """Pay once over a connection of its own. See `Teller.pay`."""
    with Teller(port, timeout_s=timeout_s) as teller:
        return teller.pay(payment_id, amount_minor, key=key, fault=fault)


def find(port: int, payment_id: str, *, timeout_s: float = 5.0) -> dict[str, Any] | None:
    """Ask the bank about a payment over a connection of its own. See `Teller.find`."""
    with Teller(port, timeout_s=timeout_s) as teller:
        return teller.find(payment_id)


# ---------------------------------------------------------------- the parent's side


def read_ledger(path: str | Path) -> list[dict[str, Any]]:
    """Every payment that happened, in order. It reads the file and asks no process."""
    try:
        return [json.loads(line) for line in Path(path).read_text().splitlines()]
    except FileNotFoundError:
        return []


class Bank:
    """Starts a bank and ends it: `with Bank(path, honours_keys=True) as bank:`."""

    def __init__(
        self, ledger_path: str | Path, *, honours_keys: bool = False, port: int = 0
    ) -> None:
        self.ledger_path = Path(ledger_path)
        self._command = [sys.executable, "-m", "effectonce.testing.bank"]
        self._command += ["--ledger", str(ledger_path), "--port", str(port)]
        self._command += ["--honours-keys"] * honours_keys
        self.port = port

    def __enter__(self) -> Self:
        pipe = subprocess.PIPE
        # In a session of its own: Ctrl-C is for the parent, whose end is ours.
        self._process = subprocess.Popen(  # noqa: S603  # our own module
            self._command, stdin=pipe, stdout=pipe, start_new_session=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.__exit__()
            raise RuntimeError("the bank did not start; its error is above")
        self.port = json.loads(line)["port"]
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        try:
            self._process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def pid(self) -> int:
        """The bank's process."""
        return self._process.pid

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{LOOPBACK}:{self.port}"

    def pay(
        self,
        payment_id: str,
        amount_minor: int,
        *,
        key: str | None = None,
        fault: str | None = None,
        timeout_s: float = 5.0,
    ) -> dict[str, Any]:
        """Pay from the parent. A worker that has only the port uses the function `pay`."""
        return pay(self.port, payment_id, amount_minor, key=key, fault=fault, timeout_s=timeout_s)

    def find(self, payment_id: str) -> dict[str, Any] | None:
        """Ask the process. To count, read `ledger()`."""
        return find(self.port, payment_id)

    def ledger(self) -> list[dict[str, Any]]:
        """Every payment that happened, in order, read from the file."""
        return read_ledger(self.ledger_path)


if __name__ == "__main__":
    main()
