"""A server over streamable HTTP, as the proxy asks it: one request, and the events of its answer.

An answer is one JSON document, or a stream of events of which one is the result. Events before
it are handed on as they come; the result is held until it is recorded. A server may close a
stream before the result (2025-11-25), if its events have ids: the rest is asked for by GET, with
the last id that came. That repeats nothing: it reads what the one call has sent.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable

import httpx
from msgspec import Struct

from effectonce.mcp._calls import Unanswered
from effectonce.mcp._credentials_of_callers import NOT_PASSED
from effectonce.mcp._jsonrpc import ANSWER_MAX, answered, outside
from effectonce.stores._urls import shown

Headers = list[tuple[bytes, bytes]]
NOT_HANDLED = frozenset({307, 308})  # redirects that ask for the same request elsewhere
# What is handed on is whole and plain, whatever it was on the way here. The date is written by
# the server that we run on.
ITS_OWN = NOT_PASSED | {b"content-encoding", b"date"}
RESUMES_MAX = 5  # in a row, in which nothing came
# before the rest is asked for, unless the server says when
RESUME_S, RESUME_S_MIN, RESUME_S_MAX = 1.0, 0.1, 60.0


class StreamEvent(Struct, frozen=True):
    """A piece of an answer, as it came. *message* is the JSON in it."""

    raw: bytes
    message: bytes = b""

    def saying(self, message: bytes) -> bytes:
        """The same piece with another message in it."""
        if self.raw == self.message:
            return message
        lines = _lines(self.raw.strip(b"\r\n"))
        kept = [line for line in lines if not line.startswith(b"data:")]
        return b"\n".join([*kept, b"data: " + message, b"", b""])

    @property
    def id(self) -> bytes:
        """Its place in the stream; b"" if it has none."""
        return _field(self.raw, b"id")

    @property
    def retry_s(self) -> float | None:
        """How long the server asks its client to wait before it comes back."""
        retry_ms = _field(self.raw, b"retry")
        return int(retry_ms) / 1000 if retry_ms.isdigit() else None

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

    async def events(self) -> AsyncGenerator[StreamEvent]:
        """The events of a stream, or the one document."""
        if not self.is_stream:
            body = bytearray()
            async for piece in self.pieces():
                body += piece
                _check_size(body)
            yield StreamEvent(bytes(body), bytes(body))
            return
        held, looked = bytearray(), 0
        async for piece in self.pieces():
            held += piece
            while (end := _end(held, max(0, looked - MARK_MAX))) > 0:
                raw, looked = bytes(held[:end]), 0
                del held[:end]
                yield _event(raw)
            _check_size(held)
            looked = len(held)  # a large event comes in many pieces: each is looked at once
        if held:
            yield _event(bytes(held))

    async def pieces(self) -> AsyncIterator[bytes]:
        """As it comes, unread."""
        try:
            async for piece in self.response.aiter_bytes():
                yield piece
        except httpx.HTTPError as error:
            raise Unanswered(f"the server's answer broke off: {error!r}", sent=True) from None
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """The rest is not read. The caller does this: what is never read from would stay open."""
        await self.response.aclose()


async def followed(
    reply: Reply,
    is_last: Callable[[StreamEvent], bool],
    resume: Callable[[bytes], Awaitable[Reply]],
    follow_s: float,
) -> AsyncGenerator[StreamEvent]:
    """An answer's events to the last, wherever they go on. *resume* asks for those after an id."""
    source: Reply | Nothing = reply
    position, delay_s, in_vain, broken = b"", RESUME_S, 0, None
    until = asyncio.get_running_loop().time() + follow_s
    while True:
        try:
            async with contextlib.aclosing(source.events()) as events:
                async for event in events:
                    position, in_vain, broken = event.id or position, 0, None
                    if event.retry_s is not None:
                        delay_s = min(max(event.retry_s, RESUME_S_MIN), RESUME_S_MAX)
                    yield event
                    if is_last(event):  # a stream that was resumed may stay open
                        return
        except Unanswered as error:
            broken = error
        if not position or in_vain >= RESUMES_MAX or asyncio.get_running_loop().time() > until:
            if broken is not None:
                raise broken
            return
        await asyncio.sleep(delay_s)
        in_vain += 1
        source = await _resumed(resume, position)


class Nothing:
    """In place of a reply: perhaps later."""

    async def events(self) -> AsyncGenerator[StreamEvent]:
        for event in tuple[StreamEvent, ...]():
            yield event


async def _resumed(resume: Callable[[bytes], Awaitable[Reply]], position: bytes) -> Reply | Nothing:
    try:
        reply = await resume(position)
    except Unanswered:
        return Nothing()
    if reply.status == 200 and reply.is_stream:
        return reply
    await reply.aclose()
    if reply.status >= 500:
        return Nothing()
    why = f"the server closed its answer and has no rest of it: {reply.status}"
    raise Unanswered(why, sent=True)


class McpUpstream:
    """The one server behind us. Nothing is retried here: whether it may be is not ours to say."""

    def __init__(self, url: str) -> None:
        self.url = url
        # A call takes as long as it takes; only to connect has an end. Clients that listen may
        # be many: the door counts them, not the pool.
        self._client = httpx.AsyncClient(
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
            timeout=httpx.Timeout(None, connect=10.0),
            follow_redirects=False,
            trust_env=False,
        )

    async def ask(
        self,
        method: str,
        headers: Iterable[tuple[bytes, bytes]],
        body: bytes | None,
        query: bytes = b"",
    ) -> Reply:
        # Space around a value is no part of it. Some servers still hand it on, and it may not be
        # sent again.
        passed = [pair for pair in headers if pair[0].lower() not in NOT_PASSED]
        kept = [(name, value.strip(b" \t")) for name, value in passed]
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
            following = response.next_request
            where = shown(str(following.url)) if following else "another place"
            why = f"the server is at {where} now: give that URL to the proxy"
            raise Unanswered(why, sent=response.status_code not in NOT_HANDLED)
        kept = [pair for pair in response.headers.raw if pair[0].lower() not in ITS_OWN]
        return Reply(response.status_code, kept, response)

    async def close(self) -> None:
        await self._client.aclose()


def _check_size(held: bytearray) -> None:
    if len(held) > ANSWER_MAX:
        raise Unanswered(f"the server's answer is larger than {ANSWER_MAX} bytes", sent=True)


MARK_MAX = 3  # so much of the mark below may have come with the piece before


def _end(held: bytearray, since: int) -> int:
    """Where the first event in it ends; 0: it has not ended."""
    marks = (b"\n\n", b"\r\n\r\n", b"\r\r")
    ends = [at + len(mark) for mark in marks if (at := held.find(mark, since)) >= 0]
    return min(ends, default=0)


def _event(raw: bytes) -> StreamEvent:
    return StreamEvent(raw, b"\n".join(_values(raw, b"data")))


def _field(event: bytes, name: bytes) -> bytes:
    """The last value of a field; b"" if it has none."""
    return next(reversed(_values(event, name)), b"")


def _values(event: bytes, name: bytes) -> list[bytes]:
    start = name + b":"
    found = [line for line in _lines(event) if line.startswith(start)]
    return [line.removeprefix(start).removeprefix(b" ") for line in found]


def _lines(event: bytes) -> list[bytes]:
    return event.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
