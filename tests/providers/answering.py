"""A provider on this machine: it answers in the documented format, and remembers what it was
asked.
"""

import contextlib
import json
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from effectonce import CannotTell, Guard, InDoubt, NotFound, Retry


class Provider(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, answer):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer, self.asked, self.status = answer, [], 200
        self.objects, self.sent_keys = [], []
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _answer(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        split = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(split.query).items()}
        server = self.server
        server.sent_keys += self.headers.get_all("Idempotency-Key", [])
        server.asked.append((self.command, split.path, query, body))
        if server.status != 200:
            return self._send(server.status, {"message": "down", "error": {"message": "down"}}, {})
        status, content, headers = server.answer(server, self.command, split.path, query, body)
        return self._send(status, content, headers)

    def _send(self, status, content, headers):
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_HEAD = _answer  # noqa: N815

    def handle(self):
        with contextlib.suppress(ConnectionError):
            super().handle()

    def log_message(self, *args):
        pass


def page(server, query, size=2, name="page"):
    """Which objects this page has, and the name of the next one."""
    first = int(query.get(name) or 0)
    rest = server.objects[first + size :]
    return server.objects[first : first + size], str(first + size) if rest else None


def asked(leave, probe):
    """Send once, lose the answer, and ask: what the probe answered, and what the call got, or why
    it is in doubt.
    """
    guard, answers = Guard("memory://", reconcile=False), []

    @guard.tool(kind="write", downstream="probe", retry=Retry(attempts=1))
    def send(to: str):
        leave(to)
        raise TimeoutError

    @send.probe
    def find(to: str):
        answers.append(probe(to))
        return answers[-1]

    with guard.step("chat", 1):
        try:
            return "found", send("ada")
        except InDoubt:
            pass
    match answers:
        case [NotFound()]:
            return "not_found", ""
        case [CannotTell(reason)]:
            return "cannot_tell", reason
    raise AssertionError(answers)


def facts(server, make, result, probe):
    """What holds for every recipe that looks through a list. *make* is called inside the tool and
    returns an object of the provider, with the mark of this effect or without one.
    """
    mine, other = partial(make, marked=True), partial(make, marked=False)

    def leave(*objects):
        def put(_to):
            server.objects = [each() for each in objects]

        return put

    assert asked(leave(mine, other), probe()) == ("found", result)
    before = len(server.asked)
    assert asked(leave(other, other, other, other, mine), probe()) == ("found", result)
    assert len(server.asked) - before == 3  # pages
    for proof, said in ((None, "no proof"), (3600, "does not show it yet")):
        answer, why = asked(leave(other), probe(proof_after_s=proof))
        assert (answer, said in why) == ("cannot_tell", True), why
    assert asked(leave(other), probe(proof_after_s=0))[0] == "not_found"
    answer, why = asked(leave(mine, mine), probe())
    assert (answer, "more than one" in why) == ("cannot_tell", True)
    for status in (429, 503):
        server.status = status
        answer, why = asked(leave(mine), probe())
        assert (answer, "could not be asked" in why) == ("cannot_tell", True)
    server.status = 200
