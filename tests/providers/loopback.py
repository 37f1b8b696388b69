"""All providers on this machine, in a process of its own: each does with a repeat what its file
says, and keeps a ledger of what it did.

An account is one customer of one provider, with a clock, faults and a ledger of its own. What a
file does not say is the worst that a tool has to expect: an unknown repeat runs again, an unknown
window is short, and a request that meets a running one gets a plain 409.

    POST /<account>/...          what a tool asks for; GET lists what was done
    GET  /<account>/responses/K  what was answered to a key, as Mangopay says it
    POST /control/<account>      {"faults": [...], "advance_s": ...}
    GET  /control/<account>      {"effects": [...], "requests": [...]}

Faults, each for one request: `reset` before anything is done, `lose` the answer after it, `error
after` and `error before` it (500), `slow` (no answer until the client hangs up), `refuse` (422),
and `running`: the client is cut off, and the work goes on until a repeat has met it. A status
alone, or `502 before`, is the answer of something in front of the provider, which never saw the
request; `504 after`, `cut off` and `not JSON` are what becomes of its answer on the way back.
"""

import json
import re
import socket
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import inf
from urllib.parse import parse_qsl

from effectonce.providers import provider

UNPUBLISHED_S = 600.0
WAIT_S = 30.0
IDEMPOTENT = re.compile(r'@idempotent\(key: "([^"]*)"\)')
REPLAYED = {"Idempotent-Replayed": "true"}
IN_FRONT = ("400", "401", "403", "404", "422", "429", "502 before", "503")
ON_THE_WAY = {"lose": "reset", "slow": "hang", "cut off": "cut off", "not JSON": "not JSON"}


def window_of(facts):
    """For how long a provider keeps a key. What no page states is not believed."""
    if facts.window_s is None or facts.facts.window_s.unverified:
        return UNPUBLISHED_S
    return inf if facts.window_s == "no end" else float(facts.window_s)


class Entry:
    """What is known under a key."""

    def __init__(self, body, at):
        self.body, self.at, self.answer, self.made = body, at, None, None
        self.met, self.over = threading.Event(), threading.Event()


class Account:
    """One customer of one provider."""

    def __init__(self, name):
        self.facts, self.is_aws = provider(name), name.startswith("aws.")
        self.lock = threading.Lock()
        self.now, self.faults, self.effects, self.requests, self.known = 0.0, [], [], [], {}

    # ------------------------------------------------------------ the key

    def key_in(self, path, headers, body):
        key = self.facts.key
        match key.where, key.name:
            case "none", _:
                return None
            case "header", name:
                return headers.get(name)
            case "argument", name if self.is_aws:
                return body.get(name)
            case "argument", "@idempotent(key:)":
                found = IDEMPOTENT.search(body.get("query", ""))
                return found and found[1]
            case "argument", "input.id":
                return body.get("variables", {}).get("input", {}).get("id")
            case "argument", _:
                return path.rpartition("/")[2]
            case "body", "inputs[].id, with idProperty":
                return body["inputs"][0].get("id")
            case "body", name:
                for part in name.split("."):
                    body = body.get(part, {})
                return body or None

    def is_refused(self, key):
        takes = self.facts.key
        if key is None:
            return bool(takes.required)
        return not (takes.length_min or 1) <= len(key) <= (takes.length_max or 255) or not (
            re.fullmatch(takes.pattern or ".*", key)
        )

    def remembered(self, key):
        entry = self.known.get(key)
        kept = entry is not None and self.now - entry.at < window_of(self.facts)
        return entry if kept else None

    # ------------------------------------------------------------ what is done

    def serve(self, path, headers, body):
        """A status, headers and a body; or how the connection ends."""
        with self.lock:
            key = self.key_in(path, headers, body)
            self.requests.append(key)
            fault = self.faults.pop(0) if self.faults else None
            if fault == "reset":
                return "reset"
            if fault in IN_FRONT:
                return self.in_front(int(fault[:3]))
            if self.facts.key.where != "none" and self.is_refused(key):
                return self.error(400, self.code("refused") or "invalid_key")
            entry = self.remembered(key)
            if entry is not None and self.facts.repeat is not None:
                again = self.repeated(entry, body, key)
                return self.on_the_way(fault, again)
            entry = Entry(self.compared(body, key), self.now)
            if key is not None:
                self.known[key] = entry
            if fault != "running":
                return self.first(entry, body, key, fault)
        threading.Thread(target=self.finish, args=(entry, body, key), daemon=True).start()
        return "reset"

    def finish(self, entry, body, key):
        """What goes on after its client was cut off."""
        entry.met.wait(WAIT_S)
        with self.lock:
            self.first(entry, body, key, None)

    def first(self, entry, body, key, fault):
        if fault in ("error before", "refuse"):
            failed = self.error(500 if fault == "error before" else 422, "failed")
            self.keep(entry, key, failed, stored=self.facts.stored == "all")
            return failed
        entry.made = {"id": f"obj_{len(self.effects) + 1}", "status": "created"}
        marks = {name[9:-1]: value for name, value in body.items() if name.startswith("metadata[")}
        self.effects.append({"id": entry.made["id"], "key": key, "metadata": marks})
        done = (201, {}, entry.made)
        failed = self.error(500, "after it was done")
        self.keep(entry, key, failed if self.keeps_errors(fault) else done, stored=True)
        return failed if fault == "error after" else self.on_the_way(fault, done)

    def in_front(self, status):
        _, _, said = self.error(status, "nothing was done")
        return status, {"retry-after": "0"} if status in (429, 503) else {}, said

    def on_the_way(self, fault, answer):
        """What becomes of an answer."""
        if fault == "504 after":
            return self.error(504, "no answer in time")
        return ON_THE_WAY.get(fault, answer)

    def keeps_errors(self, fault):
        return fault == "error after" and self.facts.stored == "all"

    def keep(self, entry, key, answer, *, stored):
        entry.answer = answer
        entry.over.set()
        if not stored:
            self.known.pop(key, None)

    # ------------------------------------------------------------ repeats

    def repeated(self, entry, body, key):
        if not entry.over.is_set():
            return self.in_flight(entry)
        if self.compared(body, key) != entry.body:
            match self.facts.mismatch:
                case "not compared" | "another transfer":
                    pass
                case "the record is updated":
                    return 200, {}, {**entry.made, "status": "updated"}
                case int(status):
                    return self.error(status, self.code("mismatch") or "idempotency key reused")
                case str(code) if code.isupper():
                    return 200, {}, {"errors": [{"extensions": {"code": code}}]}
                case str(code) if self.is_aws:
                    return self.error(400, code)
                case _:
                    return self.error(400, "idempotency key reused")
        match self.facts.repeat:
            case "conflict":
                return self.error(409, self.code("done before") or "conflict")
            case "conflict_with_id":
                status, headers, said = self.error(409, self.code("done before"))
                links = {"conflicting_resource_id": entry.made["id"]}
                return status, headers, {"error": {**said["error"], "links": links}}
            case "latest_status":
                status, _, said = entry.answer
                return (status, {}, {**said, "status": "newest"}) if status < 400 else entry.answer
            case "existing_object":
                return 200, {}, entry.answer[2]
            case _:
                status, _, said = entry.answer
                return status, REPLAYED, said

    def answered(self, key):
        with self.lock:
            entry = self.remembered(key)
        if entry is None or not entry.over.is_set():
            return self.error(404, "not found")
        status, _, said = entry.answer
        return 200, {}, {"StatusCode": str(status), "Resource": said}

    def in_flight(self, entry):
        """It met a running request, which ends before the answer about it is read."""
        entry.met.set()
        self.lock.release()
        entry.over.wait(WAIT_S)
        self.lock.acquire()
        match self.facts.in_flight:
            case "one of the requests runs":
                return entry.answer[0], REPLAYED, entry.answer[2]
            case str(code) if code.isupper():
                return 200, {}, {"errors": [{"extensions": {"code": code}}]}
            case str(code) if self.is_aws:
                return self.error(400, code)
            case "a transient error":
                return self.error(503, "transient")
            case int(status):
                return self.error(status, self.code("in flight") or "still running")
            case _:
                return self.error(409, "conflict")

    def compared(self, body, key):
        """What has to be the same. Plaid compares the transfer, and not what is written on it."""
        compared = body.get("order") if self.facts.name == "plaid" else body
        return json.dumps(compared, sort_keys=True).replace(key or "", "")

    def code(self, says):
        return next((row.code for row in self.facts.errors if row.says == says and row.code), None)

    def error(self, status, code):
        if self.is_aws:
            return status, {}, {"__type": f"com.amazonaws#{code}", "message": code}
        return status, {}, {"error": {"code": code, "type": code, "message": code}}


# ---------------------------------------------------------------- the process


ACCOUNTS: dict[str, Account] = {}


def account_of(name):
    return ACCOUNTS.setdefault(name, Account(name.partition("~")[0]))


class Providers(BaseHTTPRequestHandler):
    """Reads requests, and does with a connection what its account says."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # an answer is two writes

    def do_POST(self):
        body = self.body()
        _, first, *rest = self.path.split("/")
        if first == "control":
            account = account_of(rest[0])
            with account.lock:
                account.faults += body.get("faults", [])
                account.now += body.get("advance_s", 0.0)
            self.say(200, {}, {})
            return
        match account_of(first).serve(self.path, self.headers, body):
            case "reset":
                self.cut()
            case "hang":
                with suppress(OSError):
                    self.connection.settimeout(WAIT_S)
                    self.connection.recv(1)
                self.cut()
            case "cut off":
                self.write(201, {"content-length": "100"}, b'{"id": ')
                self.cut()
            case "not JSON":
                self.write(201, {"content-length": "2"}, b"<>")
            case status, headers, said:
                self.say(status, headers, said)

    def do_PATCH(self):
        self.do_POST()

    def body(self):
        sent = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get_content_type() == "application/x-www-form-urlencoded":
            return dict(parse_qsl(sent.decode()))
        return json.loads(sent or b"{}")

    def do_GET(self):
        _, first, *rest = self.path.split("/")
        account = account_of(rest[0] if first == "control" else first)
        if rest[0] == "responses":
            self.say(*account.answered(rest[1]))
            return
        with account.lock:
            done = {"effects": account.effects, "requests": account.requests}
        listed = {"object": "list", "data": account.effects, "has_more": False, "url": self.path}
        self.say(200, {}, done if first == "control" else listed)

    def say(self, status, headers, body):
        said = json.dumps(body).encode()
        self.write(status, headers | {"content-length": str(len(said))}, said)

    def write(self, status, headers, said):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(said)

    def cut(self):
        """A reset: no answer, and no polite end."""
        self.close_connection = True
        with suppress(OSError):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()

    def log_message(self, *_):
        pass


class Loopback:
    """That process, as a test sees it."""

    def __init__(self):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.providers.loopback"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._line = HTTPConnection("127.0.0.1", int(self._process.stdout.readline()))
        self._made = 0

    def account(self, name):
        self._made += 1
        return Customer(self._line, f"{name}~{self._made}")

    def close(self):
        self._line.close()
        self._process.stdin.close()  # it ends with us, whatever becomes of us
        self._process.wait()
        self._process.stdout.close()


class Customer:
    """An account: where it is, what goes wrong there, and what was done."""

    def __init__(self, line, name):
        self.name, self._line, self.url = name, line, f"http://127.0.0.1:{line.port}/{name}"

    def set(self, **control):
        self._ask("POST", control)

    @property
    def effects(self):
        return self._ask("GET")["effects"]

    @property
    def requests(self):
        """The keys that came, in their order."""
        return self._ask("GET")["requests"]

    def _ask(self, method, body=None):
        sent = None if body is None else json.dumps(body)
        self._line.request(method, f"/control/{self.name}", sent)
        return json.loads(self._line.getresponse().read())


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Providers)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # a client that hung up
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()
