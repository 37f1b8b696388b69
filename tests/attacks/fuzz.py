"""Raw requests that no client would write, to each door: `python -m tests.attacks.fuzz
--requests 1000000`.

What counts: an answer of ours with 5xx, a request without an answer in time, an effect that
landed twice, an answer for another tenant, and memory that goes on growing. The requests depend
on the seed alone.
"""

import argparse
import collections
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import h11

from tests.attacks.doors import DOORS, TENANTS
from tests.servers._process import free_port, until

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 60.0
# behind the proxy of MCP stands a slow server
SHARES = {"middleware": 0.44, "gateway": 0.32, "mcp": 0.02, "dashboard": 0.22}
STREAM_S = 0.5  # after that long without a piece, an answer that has begun is taken for a stream
LANES = 8
GROWTH_MAX_B = 16 << 20  # of the second half: caches have filled up by then
METHODS = ["POST"] * 8 + [
    "PATCH",
    "GET",
    "PUT",
    "DELETE",
    "HEAD",
    "OPTIONS",
    "TRACE",
    "post",
    "P\x00ST",
    "CONNECT",
    "",
    "A" * 300,
]
TARGETS = [
    *["/pay"] * 10,
    *(
        "/",
        "/mcp",
        "/letters",
        "/effects",
        "/in-doubt",
        "/storm",
        "/metrics",
        "/static/app.css",
        "/effects/eff_0123456789ab",
    ),
    *(
        "/pay?a=1&a=2",
        "/pay?apiKey=x",
        "/../pay",
        "/..;/pay",
        "/%2e%2e/pay",
        "//pay",
        "/pay%00",
        "/pay%",
        "/\xff",
        "*",
        "pay",
    ),
    *(
        "http://shop/pay",
        "http://evil/pay",
        "/pay;x=1",
        "/p%61y",
        "/" + "a" * 3000,
        "/pay#x",
        "/pay\t",
        "/pay\\x",
        "/%ff%fe",
    ),
]
HEADERS = [
    b"Connection: x-tenant",
    b"Connection: authorization, idempotency-key",
    b"Connection: close",
    b"Connection: keep-alive",
    b"X_Tenant: bob",
    b"X-Forwarded-For: 1.2.3.4",
    b"X_Forwarded_For: 1.2.3.4",
    b"Forwarded: for=bob",
    b"Host: evil",
    b"Authorization: Bearer",
    b"Authorization: Bearer bob",
    b"Cookie: user=bob",
    b"X-API-Key: bob",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip, chunked",
    b"Content-Length: 3",
    b"Content-Length: -1",
    b"Content-Length: 99999999999999999999",
    b"Expect: 100-continue",
    b"Content-Encoding: gzip",
    b"Content-Type: multipart/form-data; boundary=x",
    b"Content-Type: application/x-www-form-urlencoded",
    b"Content-Type: \xff",
    b"Accept: text/event-stream",
    b"Mcp-Session-Id: 0",
    b"Last-Event-ID: 1",
    b"Origin: http://evil",
    b"Sec-Fetch-Site: cross-site",
    *[b"Sec-Fetch-Site: same-origin"] * 4,
    b"Upgrade: websocket",
    b"Range: bytes=0-",
    b"Idempotency-Key: \xff\xfe",
    b'Idempotency-Key: "a"; x="y"',
    b"Idempotency-Key:",
    b" folded: yes",
    b"no colon",
    b"X: " + b"a" * 9000,
    b"Name\x00: x",
    b"X: \x1b]8;;http://evil\x07",
]
BODIES = [
    b"",
    b"{}",
    b"null",
    b"[" * 5000,
    b'{"order":' + b"9" * 5000 + b"}",
    b'{"order":1e999}',
    b'{"order":NaN}',
    b"\xff\x00",
    b'{"a":"\\ud800"}',
    b"--x\r\n\r\n--x--",
    b"x" * 70_000,
    b'{"jsonrpc":"2.0","id":"\\ud800","method":"tools/list"}',
    b'{"jsonrpc":"2.0","id":{},"method":"ping"}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":7}',
    b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":NaN}}',
]


USUAL = {  # method, host, target: half of what is odd is odd elsewhere
    "middleware": ("POST", "shop", ["/pay"]),
    "gateway": ("POST", "shop", ["/pay"]),
    "mcp": ("POST", "127.0.0.1", ["/mcp"]),
    "dashboard": (
        "GET",
        "127.0.0.1",
        ["/", "/effects", "/in-doubt", "/letters", "/breakers", "/workflows", "/storm"],
    ),
}


class Fuzzer:
    """Writes requests. Some are right, and repeated in other spellings: their orders are known."""

    def __init__(self, seed, door, references=()):
        self.rng, self.door, self.orders = random.Random(seed), door, 0
        self.seed, self.references = seed, references

    def request(self):
        """The bytes of a request, and who asks."""
        tenant = self.rng.choice(TENANTS)
        return (self._right(tenant) if self.rng.random() < 0.25 else self._odd(tenant)), tenant

    def _right(self, tenant):
        if self.orders == 0 or self.rng.random() < 0.5:
            self.orders += 1
        order = self.seed * 10_000_000 + self.rng.randint(max(1, self.orders - 20), self.orders)
        if self.door == "mcp":
            call = {"name": "pay", "arguments": {"tenant": tenant, "order": order}}
            body = json.dumps(
                {
                    "jsonrpc": "2.0",
                    "id": self.rng.randrange(1 << 30),
                    "method": "tools/call",
                    "params": call,
                }
            ).encode()
            more = [
                b"Accept: application/json, text/event-stream",
                b"Authorization: Bearer " + tenant.encode(),
            ]
            return _written("POST", "/mcp", tenant, "127.0.0.1", body, more)
        if self.door == "dashboard":
            reference = self.rng.choice(self.references)
            page = self.rng.choice(["/effects/{}", "/effects?q={}", "/letters?of={}"]).format(
                reference
            )
            return _written("GET", page, tenant, "127.0.0.1", b"", [])
        key = f"key-of-order-{order}"
        spelled = self.rng.choice([key, f'"{key}"', f' "{key}" '])
        body = self.rng.choice([b'{"order":%d}', b'{ "order" : %d }']) % order
        name = self.rng.choice([b"Idempotency-Key", b"idempotency-key", b"IDEMPOTENCY-KEY"])
        return _written("POST", "/pay", tenant, "shop", body, [name + b": " + spelled.encode()])

    def _odd(self, tenant):
        rng = self.rng
        body = rng.choice(BODIES) if rng.random() < 0.8 else rng.randbytes(rng.randrange(3000))
        more = rng.choices(HEADERS, k=rng.randrange(4))
        method, host, targets = USUAL[self.door]
        method = rng.choice(METHODS) if rng.random() < 0.5 else method
        host = (
            rng.choice(["shop", "127.0.0.1", "evil", "shop:80", ""]) if rng.random() < 0.2 else host
        )
        target = rng.choice(TARGETS) if rng.random() < 0.5 else rng.choice(targets)
        raw = _written(method, target, tenant if rng.random() < 0.9 else "", host, body, more)
        match rng.randrange(12):
            case 0:
                return raw[: rng.randrange(len(raw) + 1)]
            case 1:
                at = rng.randrange(len(raw))
                return raw[:at] + bytes([rng.randrange(256)]) + raw[at + 1 :]
            case 2:
                return raw.replace(b"\r\n", b"\n")
            case _:
                return raw


def _written(method, target, tenant, host, body, more):
    head = [f"{method} {target} HTTP/1.1".encode("latin-1", "replace"), f"Host: {host}".encode()]
    head += [f"X-Tenant: {tenant}".encode()] if tenant else []
    if not any(line.lower().startswith((b"content-length", b"transfer-encoding")) for line in more):
        head.append(b"Content-Length: %d" % len(body))
    if not any(line.lower().startswith(b"content-type") for line in more):
        head.append(b"Content-Type: application/json")
    return b"\r\n".join([*head, *more, b"", body])


class Lane(threading.Thread):
    """One connection after another, each for requests of its own; what was wrong with an answer
    is noted.
    """

    def __init__(self, door, port, seed, requests, references):
        super().__init__(daemon=True)
        self._fuzzer, self._port, self._left, self._door = (
            Fuzzer(seed, door, references),
            port,
            requests,
            door,
        )
        self.statuses, self.wrong, self.answers = collections.Counter(), [], 0

    def run(self):
        for number in range(self._left):
            raw, tenant = self._fuzzer.request()
            self._ask(number, raw, tenant)

    def _ask(self, number, raw, tenant):
        try:
            answer = self._answer(raw)
        except TimeoutError:
            self.wrong.append(("no answer", self._fuzzer.seed, number, raw[:300]))
            return
        except ConnectionError:
            self.statuses["hung up"] += 1
            return
        status = answer[9:12].decode("latin-1") if answer.startswith(b"HTTP/1.1 ") else "nothing"
        self.statuses[status] += 1
        behind = self._door in ("mcp", "gateway") and (
            status in ("501", "502") or b"\r\nserver: uvicorn\r\n" in answer
        )
        if status.startswith("5") and not behind:  # our own servers do not say what they are
            self.wrong.append(("5xx", self._fuzzer.seed, number, raw[:300], answer[:300]))
        others = [each for each in TENANTS if each != tenant and _is_for(each, answer)]
        if others and b"X-Tenant: " + tenant.encode() in raw:
            self.wrong.append(
                ("another tenant", self._fuzzer.seed, number, raw[:300], answer[:300])
            )

    def _answer(self, raw):
        """The first answer. Where the server awaits more of the request, we say that nothing
        follows; from a stream, we hang up.
        """
        with socket.create_connection(("127.0.0.1", self._port), timeout=TIMEOUT_S) as line:
            line.sendall(raw)
            if _awaits_more(raw):
                line.shutdown(socket.SHUT_WR)
            came = b""
            try:
                while not _is_whole(came, raw) and (piece := line.recv(65_536)):
                    came += piece
                    line.settimeout(STREAM_S if b"text/event-stream" in came.lower() else TIMEOUT_S)
            except TimeoutError:
                if not came:
                    raise
            return came


def _awaits_more(raw):
    server = h11.Connection(h11.SERVER)
    server.receive_data(raw)
    event = None
    with contextlib.suppress(h11.RemoteProtocolError):
        while event is None or isinstance(event, h11.Request | h11.Data):
            event = server.next_event()
    return event is h11.NEED_DATA or isinstance(event, h11.ConnectionClosed)  # without a byte


def _is_for(tenant, answer):
    return (
        f'"for": "{tenant}"'.encode() in answer.replace(b"\\", b"")
        or f"pay_{tenant}".encode() in answer
    )


def _is_whole(came, raw):
    head, ended, body = came.partition(b"\r\n\r\n")
    if not ended:
        return False
    fields = head.lower().split(b"\r\n")
    length = next(
        (line[15:].strip() for line in fields if line.startswith(b"content-length:")), None
    )
    if head[9:12] in (b"204", b"304") or raw.startswith(b"HEAD "):
        return True
    if length is not None:
        return len(body) >= int(length)
    return b"transfer-encoding: chunked" in fields and body.endswith(b"0\r\n\r\n")


def resident_b(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def answers(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def fuzz(door, requests, seed=1):
    """What came of it: statuses, and what was wrong."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        Path(folder).chmod(0o700)
        port = free_port()
        command = [sys.executable, "-m", "tests.attacks.doors", door, str(port), folder]
        said = subprocess.DEVNULL  # what a server says of requests that are none
        with subprocess.Popen(
            command, cwd=ROOT, env=os.environ | {"HOME": folder}, stderr=said
        ) as server:
            try:
                until(lambda: answers(port), f"the {door}")
                return _fuzzed(door, port, server.pid, Path(folder), requests, seed)
            finally:
                server.send_signal(signal.SIGKILL)


def _fuzzed(door, port, pid, folder, requests, seed):
    statuses, wrong, sizes = collections.Counter(), [], []
    references = (folder / "references").read_text().split() if door == "dashboard" else ()
    for half in range(2):
        lanes = [
            Lane(door, port, seed * 100 + half * LANES + n, requests // 2 // LANES, references)
            for n in range(LANES)
        ]
        for lane in lanes:
            lane.start()
        for lane in lanes:
            lane.join()
            statuses += lane.statuses
            wrong += lane.wrong
        sizes.append(resident_b(pid))
    ledger = folder / "ledger"
    done = collections.Counter(ledger.read_text().split("\n")[:-1] if ledger.exists() else [])
    ours = {f"{tenant} " for tenant in TENANTS}
    wrong += [
        ("twice", line, times)
        for line, times in done.items()
        if times > 1 and line.startswith(tuple(ours)) and _is_right(line)
    ]
    if sizes[1] - sizes[0] > GROWTH_MAX_B:
        wrong.append(("memory", sizes))
    return statuses, wrong, sum(done.values()), sizes


def _is_right(line):
    """Was it an order of a right request? Odd ones may be sent without a key, and land as often
    as they are sent.
    """
    return int(line.split()[1]) > 10_000_000


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=20_000, help="to all doors together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--door", choices=DOORS, action="append")
    asked = parser.parse_args()
    doors, failed = asked.door or DOORS, False
    for door in doors:
        started = time.monotonic()
        share = SHARES[door] / sum(SHARES[each] for each in doors)
        statuses, wrong, effects, sizes = fuzz(door, round(asked.requests * share), asked.seed)
        took = time.monotonic() - started
        kinds = collections.Counter(each[0] for each in wrong)
        print(
            f"{door}: {sum(statuses.values()):,} requests in {took:,.0f} s, {effects:,} effects;"
            f" {dict(statuses.most_common())}"
        )
        print(f"  5xx {kinds['5xx']}, no answer {kinds['no answer']}, twice {kinds['twice']}, another tenant {kinds['another tenant']}, "
              f"memory {sizes[0] >> 20} to {sizes[1] >> 20} MiB", flush=True)  # fmt: skip
        for each in wrong[:5]:
            print("  ", each)
        failed = failed or bool(wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
