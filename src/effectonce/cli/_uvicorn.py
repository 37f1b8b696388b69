"""How the servers of the command line are started: one way, with one set of limits, for
`gateway`, `serve` and `mcp http`.

A client that is not known yet can cost no more than this: a connection with headers that are
short, few and soon complete. What passes these limits is judged by the app itself: who asks, and
how large the body is.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any, Literal

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADERS_MAX = 32 << 10  # bytes, of all headers of a request and its first line
HEADERS_COUNT_MAX = 100
# from the connection, or the first byte of the next request, to the end of its headers
HEADERS_S = 5.0
KEEP_ALIVE_S = 5  # between two requests
CONNECTIONS_MAX = 1000  # and requests under way. Others get 503
STARTUP_FAILURE = 3

Message = MutableMapping[str, Any]
App = Callable[
    [
        MutableMapping[str, Any],
        Callable[[], Awaitable[Message]],
        Callable[[Message], Awaitable[None]],
    ],
    Awaitable[None],
]


def run_server(
    app: App,
    *,
    lifespan: Literal["on", "off"],
    listener: socket.socket | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    uds: str | None = None,
    certfile: str | None = None,
    keyfile: str | None = None,
    ending: Callable[[], object] = bool,
) -> None:
    """Serve *app* on *listener*, on the socket file *uds*, or on *host* and *port*, until a
    signal ends it. *ending* is called then, before it waits for answers that are under way.
    """
    config = uvicorn.Config(
        _with_few_headers(app),
        host=host,
        port=port,
        uds=uds,
        ssl_certfile=certfile,
        ssl_keyfile=keyfile,
        http=_PromptHeaders,
        ws="none",
        lifespan=lifespan,
        proxy_headers=False,
        server_header=False,
        access_log=False,  # the address of a request may hold what lets its sender in
        log_level="warning",
        h11_max_incomplete_event_size=HEADERS_MAX,
        timeout_keep_alive=KEEP_ALIVE_S,
        limit_concurrency=CONNECTIONS_MAX,
    )
    server = _Server(config)
    server.ending = ending
    try:
        with contextlib.suppress(KeyboardInterrupt):
            server.run(sockets=None if listener is None else [listener])
    finally:
        if uds is not None:
            Path(uds).unlink(missing_ok=True)
    if not server.started:
        sys.exit(STARTUP_FAILURE)


class _Server(uvicorn.Server):
    ending: Callable[[], object] = bool

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.ending()
        await super().shutdown(sockets)


class _PromptHeaders(H11Protocol):
    """A connection is closed if the headers of a request are not complete in time. h11 shows the
    target as it was sent.
    """

    _too_late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """The time runs on while headers are incomplete, however many pieces come."""
        if self.conn.their_state is not h11.IDLE:
            self._forget()
        elif self._too_late is None:
            self._too_late = self.loop.call_later(HEADERS_S, self.transport.abort)

    def _forget(self) -> None:
        if self._too_late is not None:
            self._too_late.cancel()
            self._too_late = None


def _with_few_headers(app: App) -> App:
    """431 for a request with too many headers. h11 sees to their size only while they are
    incomplete.
    """

    async def bounded(
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        headers = scope.get("headers", ())
        size = sum(len(name) + len(value) for name, value in headers) + len(
            scope.get("query_string", b"")
        )
        if len(headers) <= HEADERS_COUNT_MAX and size <= HEADERS_MAX:
            await app(scope, receive, send)
            return
        limits = f"At most {HEADERS_COUNT_MAX} headers are allowed, of {HEADERS_MAX} bytes in all."
        body = f"{limits}\n".encode()
        start = {
            "type": "http.response.start",
            "status": 431,
            "headers": [(b"connection", b"close"), (b"content-type", b"text/plain")],
        }
        await send(start)
        await send({"type": "http.response.body", "body": body})

    return bounded
