"""A client of the proxy over HTTP: its request, and what it is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from effectonce.mcp._jsonrpc import written

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
JSON = [(b"content-type", b"application/json")]
STREAM = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]


class HttpClient:
    """The client that asked: what it is sent, and whether it is still there."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope, self._receive, self._send = scope, receive, send
        self.begun = self._lost = False
        self._leaving: asyncio.Task[None] | None = None

    async def body(self, size_max: int, piece_s: float, whole_s: float) -> bytes:
        """What it asks, or more than *size_max* bytes of it; if it went before all of it was
        here, it is gone.

        `TimeoutError`: it rested for *piece_s* seconds, or took more than *whole_s* in all.
        """
        pieces, size, more = [], 0, True
        now = asyncio.get_running_loop().time
        ends_at = now() + whole_s
        while more:
            async with asyncio.timeout_at(min(ends_at, now() + piece_s)):
                message = await self._receive()
            if message["type"] == "http.disconnect":
                self._lost = True
                break
            pieces.append(message.get("body", b""))
            more = message.get("more_body", False) and size <= size_max
            size += len(pieces[-1])
        return b"".join(pieces)

    def watch(self) -> None:
        """Notice when it goes."""
        self._leaving = asyncio.ensure_future(self._leave())

    async def _leave(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    @property
    def gone(self) -> bool:
        return self._lost or (self._leaving is not None and self._leaving.done())

    async def until_gone(self) -> None:
        """It is watched."""
        assert self._leaving is not None
        await asyncio.shield(self._leaving)

    async def _say(self, message: Message) -> None:
        try:
            await self._send(message)
        except OSError:  # a server may tell us so that it is gone, which changes nothing: rule 1
            self._lost = True

    async def begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        if not self.begun:
            self.begun = True
            await self._say({"type": "http.response.start", "status": status, "headers": headers})

    async def piece(self, body: bytes, *, more: bool) -> None:
        await self._say({"type": "http.response.body", "body": body, "more_body": more})

    async def event(self, message: bytes, *, more: bool) -> None:
        """A message in a stream that has begun."""
        lines = b"".join(b"data: " + line + b"\n" for line in message.splitlines())
        await self.piece(b"event: message\n" + lines + b"\n", more=more)

    async def say(self, status: int, message: dict[str, Any]) -> None:
        """A whole answer; in a stream that has begun, its last event."""
        line = written(message).rstrip()
        if self.begun:
            return await self.event(line, more=False)
        await self.begin(status, JSON)
        return await self.piece(line, more=False)

    async def done(self, status: int) -> None:
        """Nothing more is to be sent."""
        await self.begin(status, [(b"content-length", b"0")])
        await self.piece(b"", more=False)

    def header_values(self, header: bytes) -> list[bytes]:
        return [value for name, value in self.scope["headers"] if name == header]

    def close(self) -> None:
        if self._leaving is not None:
            self._leaving.cancel()
