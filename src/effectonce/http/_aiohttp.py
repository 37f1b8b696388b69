"""aiohttp: a client middleware, next to the wire."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from effectonce.http._wire import HELD_MAX, Answered, Asked, Wire, aexchange, held

Handler = Callable[[Any], Awaitable[Any]]


class Middleware:
    """Sends through the rest of the session, under the policy of the wire."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def __call__(self, request: Any, handler: Handler) -> Any:
        async def send(left_s: float) -> Answered:
            async with asyncio.timeout(left_s):
                response = await handler(request)
                body = await _read(response) if held(response.status, response.headers) else b""
            return Answered(response.status, response.headers, body, response, _marker(response), response.release)

        return await aexchange(self._wire, _asked(request), send)


def install(session: Any, wire: Wire) -> Any:
    session._middlewares = (*session._middlewares, Middleware(wire))
    return session


def protected(session: Any) -> bool:
    return any(isinstance(middleware, Middleware) for middleware in session._middlewares)


def _asked(request: Any) -> Asked:
    body, url = request.body, request.url
    rewinds = isinstance(body, bytes) or any(cls.__name__ == "BytesPayload" for cls in type(body).__mro__)
    return Asked(request.method.upper(), str(url), (url.host or "").lower(), url.path, request.headers, rewinds)


async def _read(response: Any) -> bytes:
    """The body, which is then put back for whoever reads it as a stream."""
    stream = response.content
    body: bytes = await stream.read()
    if body:
        again = type(stream)(stream._protocol, HELD_MAX + len(body), loop=asyncio.get_running_loop())
        again.feed_data(body)
        again.feed_eof()
        response.content = again
    return body


def _marker(response: Any) -> Callable[[str, str], object]:
    def mark(name: str, value: str) -> None:
        headers = response.headers.copy()
        headers[name] = value
        response._headers = type(response.headers)(headers)
        response._cache.pop("headers", None)

    return mark
