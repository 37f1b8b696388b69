"""Headers between two hops: which are refused, which go on to the upstream, and which come back.

A client may name headers in `Connection` that are meant for the next hop only, and we remove
them. Those that say who asks, or what, are not its to remove: we have judged the request by
them, and the API would judge another one. Nor may a header look like one of ours to an API that
takes every sign for a hyphen, as CGI and WSGI do: `X_Forwarded_For`.
"""

from __future__ import annotations

import re

from effectonce._credentials import SAYS_WHO
from effectonce.http.gateway.settings import Settings, UpstreamSettings
from effectonce.http.server.responses import Headers, Scope

# What is meant for the next hop only. What else `Connection` names goes as well.
HOP_BY_HOP = frozenset(
    b"""
    connection expect keep-alive proxy-authenticate proxy-authorization proxy-connection te
    trailer transfer-encoding upgrade
    """.split()
)
ABOUT_THE_CLIENT = frozenset({b"forwarded", b"x-real-ip"})  # and all that begin with:
X_FORWARDED = b"x-forwarded-"
JUDGED_BY = frozenset(
    {b"authorization", b"content-encoding", b"content-type", b"host", b"idempotency-key"}
)
# names of headers that say what is asked for
SAYS_WHAT = re.compile(rb"digest|forwarded|method|^(accept|content|if|prefer|range)(-|$)")
_SIGNS = re.compile(rb"[^a-z0-9]")


def judged_by(settings: Settings) -> frozenset[bytes]:
    """The headers that decide what becomes of a request, or that are ours to write."""
    given = (settings.tenants.header, settings.upstream.key_header)
    return JUDGED_BY | ABOUT_THE_CLIENT | {name.lower().encode() for name in given if name}


def refused_header(headers: Headers, judged: frozenset[bytes]) -> bool:
    """Does one of them remove, or look like, a header that the request is judged by?"""
    lines = [(name.lower(), value) for name, value in headers]
    # which is never removed
    removed = named_in_connection(lines) - HOP_BY_HOP - {b"content-length"}
    if removed & judged or any(SAYS_WHO.search(name) or SAYS_WHAT.search(name) for name in removed):
        return True
    ours = judged | HOP_BY_HOP | {b"content-length"}
    looks_like = {_SIGNS.sub(b"-", name) for name, _ in lines if _SIGNS.sub(b"-", name) != name}
    return any(name in ours or name.startswith(X_FORWARDED) for name in looks_like)


def named_in_connection(lines: Headers) -> set[bytes]:
    named = [value for name, value in lines if name == b"connection"]
    return {word.strip().lower() for value in named for word in value.split(b",")}


def end_to_end(headers: Headers) -> list[tuple[bytes, bytes]]:
    """The headers that are meant for more than the next hop."""
    # space around a value is no part of it
    lines = [(name.lower(), value.strip(b" \t")) for name, value in headers]
    named = named_in_connection(lines)
    named.discard(b"content-length")  # without it the body would be no part of the message
    if any(name == b"transfer-encoding" for name, _ in lines):
        # where both are, another reader could see another end of it than we did
        named.add(b"content-length")
    return [(name, value) for name, value in lines if name not in HOP_BY_HOP and name not in named]


def onward(
    scope: Scope, settings: UpstreamSettings, netloc: bytes, key: str | None
) -> list[tuple[bytes, bytes]]:
    """What the upstream gets: as sent, for its own host, under our key, and who the client was."""
    chunked = any(name == b"transfer-encoding" for name, _ in scope["headers"])
    dropped = {b"host", settings.key_header.lower().encode()}
    if key is not None:
        dropped.add(b"idempotency-key")
    headers = [pair for pair in end_to_end(scope["headers"]) if pair[0] not in dropped]
    if not settings.trust_forwarded:
        headers = [pair for pair in headers if pair[0] not in ABOUT_THE_CLIENT]
        headers = [pair for pair in headers if not pair[0].startswith(X_FORWARDED)]
    headers.insert(0, (b"host", netloc))
    if chunked:
        headers.append((b"transfer-encoding", b"chunked"))
    if key is not None:
        written = f'"{key}"' if settings.key_quoted else key
        headers.append((settings.key_header.encode(), written.encode()))
    return _forwarded(headers, scope)


def _forwarded(headers: list[tuple[bytes, bytes]], scope: Scope) -> list[tuple[bytes, bytes]]:
    """Who asked, of which host and how, added to what a proxy before us wrote, if it is trusted."""
    host = next(value for name, value in scope["headers"] if name == b"host")
    client = scope["client"][0] if scope.get("client") else "unknown"
    before = [value for name, value in headers if name == b"x-forwarded-for"]
    present = {name for name, _ in headers}
    made = [(name, value) for name, value in headers if name != b"x-forwarded-for"]
    made.append((b"x-forwarded-for", b", ".join((*before, client.encode()))))
    forwarded = ((b"x-forwarded-host", host), (b"x-forwarded-proto", scope["scheme"].encode()))
    return made + [(name, value) for name, value in forwarded if name not in present]
