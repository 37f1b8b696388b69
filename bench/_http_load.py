"""A load generator that costs little beside the server it loads: sockets, epoll, and no more of
HTTP than where a response ends.
"""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from _http_server import PATH

_END, _LENGTH, _LAST_CHUNK = b"\r\n\r\n", b"content-length: ", b"\r\n0\r\n\r\n"
_CHUNK = 1 << 16
_BODY = b'{"order": "ord_17", "amount": 4200, "currency": "eur"}'
_REQUEST = (
    b"POST %s HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length:"
    b" %d\r\nidempotency-key: " % (PATH.encode(), len(_BODY))
)


def post(key: bytes) -> bytes:
    """A payment under *key*."""
    return b'%s"%s"\r\n\r\n%s' % (_REQUEST, key, _BODY)


@dataclass(slots=True)
class Slice:
    """What came of a few moments of load."""

    answered: int = 0
    lasted_s: float = 0.0
    waits_s: list[float] = field(default_factory=list)  # one for each request


class Load:
    """Connections that each send a request as soon as the one before is answered."""

    def __init__(self, port: int, connections: int) -> None:
        self._lines = [socket.create_connection(("127.0.0.1", port)) for _ in range(connections)]
        self._by_number = {line.fileno(): line for line in self._lines}
        self._poll = select.epoll()
        for line in self._lines:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._poll.register(line, select.EPOLLIN)

    def run(self, requests: Iterator[bytes], for_s: float) -> Slice:
        done, clock, sent_at = Slice(), time.perf_counter, dict[int, float]()
        began = clock()
        for line in self._lines:
            sent_at[line.fileno()] = clock()
            line.sendall(next(requests))
        waiting = len(self._lines)
        while waiting:
            for number, _ in self._poll.poll():
                line = self._by_number[number]
                _accepted(_response(line))
                now = clock()
                done.waits_s.append(now - sent_at[number])
                if now - began < for_s:
                    sent_at[number] = now
                    line.sendall(next(requests))
                else:
                    waiting -= 1
        done.answered, done.lasted_s = len(done.waits_s), clock() - began
        return done

    def ask(self, request: bytes) -> Any:
        """One request on its own; the document that is answered."""
        line = self._lines[0]
        line.sendall(request)
        response = _response(line)
        _accepted(response)
        return json.loads(response[response.index(b"{") : response.rindex(b"}") + 1])

    def close(self) -> None:
        self._poll.close()
        for line in self._lines:
            line.close()


def _response(line: socket.socket) -> bytes:
    data = line.recv(_CHUNK)
    while len(data) < _size(data):
        more = line.recv(_CHUNK)
        if not more:
            raise SystemExit(f"the server hung up after {data[:200]!r}")
        data += more
    return data


def _size(data: bytes) -> int:
    """How long a response is; while that is not known, longer than what is there."""
    end = data.find(_END)
    if end < 0:
        return len(data) + 1
    at = data.find(_LENGTH, 0, end)
    if at < 0:  # chunked: idemkit forgets the length of what it replays
        return len(data) if data.endswith(_LAST_CHUNK) else len(data) + 1
    return end + len(_END) + int(data[at + len(_LENGTH) : data.index(b"\r", at)])


def _accepted(response: bytes) -> None:
    if not response.startswith(b"HTTP/1.1 200"):
        raise SystemExit(f"a payment was not accepted: {response[:400]!r}")
