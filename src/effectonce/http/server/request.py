"""What is read of a request before its body."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from msgspec import Struct

from effectonce._core.codec import encode
from effectonce.http.server.responses import Scope

HEADER = b"idempotency-key"
HEADERS_READ = frozenset({HEADER, b"content-length", b"content-type", b"content-encoding"})
PATHS_MAX = 64  # that were asked for, and are remembered: most effects are asked for under few


class RequestHeaders(Struct):
    """What the headers say that we have to know."""

    lines: list[bytes]  # of the key
    length: bytes = b""  # that of the body, as it was announced
    content_type: bytes = b""
    content_encoding: bytes = b""


def read_headers(headers: Iterable[tuple[bytes, bytes]]) -> RequestHeaders:
    read = RequestHeaders([])
    for name, value in headers:
        if name not in HEADERS_READ:
            continue
        if name == HEADER:
            read.lines.append(value)
        elif name == b"content-length":
            read.length = value
        elif name == b"content-type":
            read.content_type = _added(read.content_type, value)
        else:
            read.content_encoding = _added(read.content_encoding, value)
    return read


def _added(lines: bytes, value: bytes) -> bytes:
    """Which of two lines the app looks at is not known, so both count."""
    return b"%b, %b" % (lines, value) if lines else value


@lru_cache(PATHS_MAX)
def route_of(method: str, path: str) -> tuple[str, bytes]:
    """What is asked for, for people to read, and as the arguments that are stored."""
    path = path.encode("utf-8", "replace").decode()
    return f"{method} {path}", encode({"method": method, "path": path})


def exact_path(path: str) -> str:
    """A path as portable text. Two paths are never one, not even those that are not UTF-8."""
    return path if path.isascii() else path.encode("utf-8", "surrogatepass").decode("latin-1")


def asked_path(scope: Scope) -> str:
    """The path, for a fingerprint; as it was sent besides, where decoding makes one path of two.

    `%2F` is no slash to some apps and upstreams, and servers write U+FFFD for whatever is no UTF-8.
    """
    path, sent = scope["path"], (scope.get("raw_path") or b"").lower()
    exactly = exact_path(path)
    return f"{exactly} {sent.decode('latin-1')}" if b"%2f" in sent or "\ufffd" in path else exactly
