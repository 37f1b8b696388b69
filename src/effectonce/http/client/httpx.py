"""httpx and httpx2: a transport around a transport, sync and async."""

from __future__ import annotations

import sys
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, closing
from functools import lru_cache
from typing import Any, Self

from effectonce._core.classification.signals import BODY_MAX
from effectonce.http.client.attempts import (
    Answered,
    ClientPolicy,
    OutgoingRequest,
    aexchange,
    broken,
    exchange,
    held,
    nothing,
)


class Transport:
    """Sends through another transport, under the policy of the wire."""

    def __init__(self, wire: ClientPolicy, inner: Any) -> None:
        self._wire, self.effectonce_inner = wire, inner

    def handle_request(self, request: Any) -> Any:
        given = request.extensions

        def send(left_s: float) -> Answered:
            request.extensions = _within(given, left_s)
            response = self.effectonce_inner.handle_request(request)
            if not held(response.status_code, response.headers):
                return _answered(response)
            with closing(response.stream) as body:
                return _answered(response, b"".join(body))

        try:
            return exchange(self._wire, _asked(request), send)
        finally:
            request.extensions = given

    async def handle_async_request(self, request: Any) -> Any:
        given = request.extensions

        async def send(left_s: float) -> Answered:
            request.extensions = _within(given, left_s)
            response = await self.effectonce_inner.handle_async_request(request)
            if not held(response.status_code, response.headers):
                return _answered(response)
            async with aclosing(response.stream) as body:
                return _answered(response, b"".join([part async for part in body]))

        try:
            return await aexchange(self._wire, _asked(request), send)
        finally:
            request.extensions = given

    def close(self) -> None:
        self.effectonce_inner.close()

    async def aclose(self) -> None:
        await self.effectonce_inner.aclose()

    def __enter__(self) -> Self:
        self.effectonce_inner.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self.effectonce_inner.__exit__(*raised)

    async def __aenter__(self) -> Self:
        await self.effectonce_inner.__aenter__()
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.effectonce_inner.__aexit__(*raised)


def install(client: Any, wire: ClientPolicy) -> Any:
    client._transport = Transport(wire, client._transport)
    for pattern, mounted in client._mounts.items():
        if mounted is not None:
            client._mounts[pattern] = Transport(wire, mounted)
    return client


def protected(client: Any) -> bool:
    return isinstance(client._transport, Transport)


def _asked(request: Any) -> OutgoingRequest:
    url = request.url
    body = b"".join(request.stream) if type(request.stream).__name__ == "ByteStream" else None
    return OutgoingRequest(
        request.method.upper(), str(url), url.host.lower(), url.path, request.headers, body
    )


def _answered(response: Any, body: bytes | None = None) -> Answered:
    package = type(response).__module__.partition(".")[0]
    if body is not None:
        response.stream = sys.modules[package].ByteStream(body)

    def watch(broke_off: Callable[[], object], ended: Callable[[], object]) -> None:
        response.stream = _watched(package)(response.stream, broke_off, ended)

    plain = _decoded(body or b"", response.headers.get("content-encoding", ""))
    mark, unread = response.headers.__setitem__, watch if body is None else None
    return Answered(response.status_code, response.headers, plain, response, mark, nothing, unread)


@lru_cache
def _watched(package: str) -> Any:
    """Body class: reports a break-off, or the end. A reader that stops early breaks nothing off."""
    theirs = sys.modules[package]

    class WatchedStream(theirs.SyncByteStream, theirs.AsyncByteStream):  # type: ignore[name-defined, misc]
        def __init__(
            self, inner: Any, broke_off: Callable[[], object], ended: Callable[[], object]
        ) -> None:
            self._inner, self._broke_off, self._ended = inner, broke_off, ended

        def __iter__(self) -> Iterator[bytes]:
            with broken(self._broke_off):
                yield from self._inner
            self._ended()

        async def __aiter__(self) -> AsyncIterator[bytes]:
            with broken(self._broke_off):
                async for part in self._inner:
                    yield part
            self._ended()

        def close(self) -> None:
            self._inner.close()

        async def aclose(self) -> None:
            await self._inner.aclose()

    return WatchedStream


def _decoded(body: bytes, encoding: str) -> bytes:
    """Readable for the tables. What is packed in another way is judged by its status."""
    if encoding not in ("gzip", "deflate"):
        return body
    try:
        return zlib.decompressobj(47).decompress(body, BODY_MAX)
    except zlib.error:
        return b""


def _within(extensions: Any, left_s: float) -> dict[str, Any]:
    given = extensions.get("timeout") or {}
    limits = dict.fromkeys(("connect", "read", "write", "pool")) | given
    shorter = {name: left_s if s is None else min(s, left_s) for name, s in limits.items()}
    return {**extensions, "timeout": shorter}
