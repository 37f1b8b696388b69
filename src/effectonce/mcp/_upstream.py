"""A server over streamable HTTP, as the proxy asks it: one request, and the events of its answer.

An answer is one JSON document, or a stream of events of which one is the result. Events before it are handed on as they come; the result is
held until it is recorded.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

import httpx
from msgspec import Struct

from effectonce.mcp._calls import Unanswered
from effectonce.mcp._wire import answered, outside

Headers = list[tuple[bytes, bytes]]
# What is said to the next hop only, and what httpx writes itself.
OURS = frozenset(
    {
        b"connection",
        b"content-length",
        b"expect",
        b"host",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"transfer-encoding",
        b"upgrade",
    }
)
NOT_HANDLED = frozenset({307, 308})  # redirects that ask for the same request elsewhere
# What is handed on is whole and plain, whatever it was on the way here.
ITS_OWN = OURS | {b"content-encoding"}


class Event(Struct, frozen=True):
    """A piece of an answer, as it came. *message* is the JSON in it."""

    raw: bytes
    message: bytes = b""

    def saying(self, message: bytes) -> bytes:
        """The same piece with another message in it."""
        if self.raw == self.message:
            return message
        lines = self.raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n").strip(b"\n").split(b"\n")
        return b"\n".join([*(line for line in lines if not line.startswith(b"data:")), b"data: " + message, b"", b""])

    def answers(self, request: str) -> bool:
        return self.message != b"" and answered(self.message, outside(self.message)) == request


class Reply(Struct, frozen=True):
    """The beginning of an answer."""

    status: int
    headers: Headers
    response: httpx.Response

    @property
    def is_stream(self) -> bool:
        return str(self.response.headers.get("content-type", "")).startswith("text/event-stream")

    async def events(self) -> AsyncIterator[Event]:
        """The events of a stream, or the one document."""
        if not self.is_stream:
            body = b"".join([piece async for piece in self.pieces()])
            yield Event(body, body)
            return
        held, looked = bytearray(), 0
        async for piece in self.pieces():
            held += piece
            while (end := _end(held, max(0, looked - MARK_MAX))) > 0:
                raw, looked = bytes(held[:end]), 0
                del held[:end]
                yield Event(raw, _data(raw))
            looked = len(held)  # a large event comes in many pieces: each is looked at once
        if held:
            yield Event(bytes(held), _data(bytes(held)))

    async def pieces(self) -> AsyncIterator[bytes]:
        """As it comes, unread."""
        try:
            async for piece in self.response.aiter_bytes():
                yield piece
        except httpx.HTTPError as error:
            raise Unanswered(f"the server's answer broke off: {error!r}", sent=True) from None
        finally:
            await self.response.aclose()


class Upstream:
    """The one server behind us. Nothing is retried here: whether anything may be is not ours to say."""

    def __init__(self, url: str) -> None:
        self.url = url
        # A call takes as long as it takes; only to connect has an end.
        self._client = httpx.AsyncClient(timeout=httpx.Timeout(None, connect=10.0), follow_redirects=False, trust_env=False)

    async def ask(self, method: str, headers: Iterable[tuple[bytes, bytes]], body: bytes | None, query: bytes = b"") -> Reply:
        """Send a request on."""
        dropped = {*OURS, b"accept-encoding"}
        # Space around a value is no part of it. Some servers hand it on all the same, and it may not be sent again.
        kept = [(name, value.strip(b" \t")) for name, value in headers if name.lower() not in dropped]
        url = httpx.URL(self.url, query=query) if query else httpx.URL(self.url)
        request = self._client.build_request(method, url, headers=kept, content=body)
        try:
            response = await self._client.send(request, stream=True)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise Unanswered(f"the server was not reached: {error}", sent=False) from None
        except httpx.HTTPError as error:
            raise Unanswered(f"the server did not answer: {error!r}", sent=True) from None
        if response.is_redirect:  # a client that follows it would go past us from then on
            await response.aclose()
            moved = f"the server is at {response.next_request.url if response.next_request else 'another place'} now"
            raise Unanswered(f"{moved}: give that URL to the proxy", sent=response.status_code not in NOT_HANDLED)
        return Reply(response.status_code, [pair for pair in response.headers.raw if pair[0].lower() not in ITS_OWN], response)

    async def close(self) -> None:
        await self._client.aclose()


MARK_MAX = 3  # so much of the mark below may have come with the piece before


def _end(held: bytearray, since: int) -> int:
    """Where the first event in it ends; 0: it has not ended."""
    ends = [at + len(mark) for mark in (b"\n\n", b"\r\n\r\n", b"\r\r") if (at := held.find(mark, since)) >= 0]
    return min(ends, default=0)


def _data(event: bytes) -> bytes:
    lines = event.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    return b"\n".join(line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:"))
