"""aiohttp: a client middleware, next to the wire."""

from __future__ import annotations

import asyncio
import functools
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

from effectonce.http.client.attempts import (
    HELD_MAX,
    Answered,
    ClientPolicy,
    OutgoingRequest,
    Watch,
    aexchange,
    broken,
    held,
    whole,
)

READS = {"read", "readany", "readchunk", "readexactly", "readline", "readuntil", "wait_eof"}
Handler = Callable[[Any], Awaitable[Any]]


class Middleware:
    """Sends through the rest of the session, under the policy of the wire."""

    def __init__(self, wire: ClientPolicy) -> None:
        self._wire = wire

    async def __call__(self, request: Any, handler: Handler) -> Any:
        async def send(left_s: float) -> Answered:
            async with asyncio.timeout(left_s):
                response = await handler(request)
                whole = held(response.status, response.headers)
                body = await _read(response) if whole else b""
            mark, unread = _marker(response), None if whole else _watch(response)
            return Answered(
                response.status, response.headers, body, response, mark, response.release, unread
            )

        return await aexchange(self._wire, _asked(request), send)


def install(session: Any, wire: ClientPolicy) -> Any:
    innermost, here, asking = Middleware(wire), weakref.ref(session), type(session)._request

    async def request(*args: Any, middlewares: Any = None, **how: Any) -> Any:
        """Those that are given for one request take the place of the session's."""
        given = middlewares if middlewares is None else (*middlewares, innermost)
        return await asking(here(), *args, middlewares=given, **how)

    session._middlewares = (*session._middlewares, innermost)
    object.__setattr__(session, "_request", request)  # its own __setattr__ may warn
    return session


def protected(session: Any) -> bool:
    return any(isinstance(middleware, Middleware) for middleware in session._middlewares)


def _asked(request: Any) -> OutgoingRequest:
    body, url = request.body, request.url
    if any(cls.__name__ == "BytesPayload" for cls in type(body).__mro__):
        body = bytes(body._value)
    method, host = request.method.upper(), (url.host or "").lower()
    return OutgoingRequest(method, str(url), host, url.path, request.headers, whole(body))


async def _read(response: Any) -> bytes:
    """The body, which is then put back for a reader that reads it as a stream."""
    stream = response.content
    # or it would keep its connection for as long as the error is referenced
    with broken(response.close):
        body: bytes = await stream.read()
    if body:
        loop = asyncio.get_running_loop()
        again = type(stream)(stream._protocol, HELD_MAX + len(body), loop=loop)
        again.feed_data(body)
        again.feed_eof()
        response.content = again
    return body


def _watch(response: Any) -> Watch:
    def tell(off: Callable[[], object], ended: Callable[[], object]) -> None:
        response.content = WatchedResponse(response.content, off, ended)

    return tell


class WatchedResponse:
    """An unread response body: it reports when it breaks off, and when all of it was read."""

    def __init__(self, stream: Any, off: Callable[[], object], ended: Callable[[], object]) -> None:
        self._stream, self._off, self._ended = stream, off, ended

    def __getattr__(self, name: str) -> Any:
        if name.startswith("iter_"):  # they read by what is watched
            return functools.partial(getattr(type(self._stream), name), self)
        found = getattr(self._stream, name)
        return self._reading(found) if name in READS else found

    def __aiter__(self) -> Any:
        return type(self._stream).__aiter__(self)

    def _reading(self, read: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def reading(*args: Any, **how: Any) -> Any:
            with broken(self._off):
                part = await read(*args, **how)
            if self._stream.at_eof() and self._stream.exception() is None:
                self._ended()
            return part

        return reading


def _marker(response: Any) -> Callable[[str, str], object]:
    def mark(name: str, value: str) -> None:
        headers = response.headers.copy()
        headers[name] = value
        response._headers = type(response.headers)(headers)
        response._cache.pop("headers", None)

    return mark
