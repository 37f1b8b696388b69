"""Responses as values: what is stored of the app's own, and what the middleware says itself."""

from __future__ import annotations

import base64
import http
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from math import ceil
from typing import Any, NamedTuple, TypeAlias

import msgspec
import orjson
from msgspec import Struct, structs

from effectonce._core.codec import OK, decode
from effectonce._core.effect_ref import EffectRef
from effectonce._core.ops import Recorded
from effectonce._core.tagged_json import NotReadable
from effectonce.errors import ContractViolation
from effectonce.http.server.profiles import Profile, Style, Trouble

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers: TypeAlias = Iterable[tuple[bytes, bytes]]

KEPT = frozenset(
    {
        "cache-control",
        "content-disposition",
        "content-encoding",
        "content-language",
        "content-location",
        "content-type",
        "etag",
        "last-modified",
        "link",
        "location",
        "vary",
    }
)
NEVER_KEPT = frozenset(
    {"set-cookie", "set-cookie2", "authorization", "www-authenticate", "proxy-authenticate"}
)
REPLAYED = (b"idempotent-replayed", b"true")
BODILESS = frozenset({204, 205, 304})


class Response(Struct, frozen=True):
    """A whole response."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes

    async def deliver(self, send: Send) -> None:
        headers = list(self.headers)
        if self.status not in BODILESS:
            headers.append((b"content-length", b"%d" % len(self.body)))
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


# ---------------------------------------------------------------- what is stored


class StoredResponse(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A recorded response, readable: text as text, the rest in base64, or why it is missing."""

    status: int
    headers: list[tuple[str, str]] = []
    body: str = ""
    base64: str = ""
    gone: str = ""


_STORED = msgspec.json.Decoder(StoredResponse)


def kept_headers(extra: Iterable[str]) -> frozenset[bytes]:
    """The stored headers: the usual ones and *extra*, never a secret of one client's session."""
    kept = KEPT | {name.lower() for name in extra}
    refused = sorted(kept & NEVER_KEPT)
    if refused:
        raise ContractViolation(
            f"{', '.join(refused)} cannot be stored: it would be given to every client that repeats"
            " the request"
        )
    return frozenset(name.encode() for name in kept)


def stored(
    status: int, headers: Headers, body: bytes | None, kept: frozenset[bytes]
) -> dict[str, Any]:
    """What `StoredResponse` reads, in JSON types. None: the body is more than we keep."""
    some = []
    for name, value in headers:
        lower = name.lower()
        if lower in kept:
            some.append([lower.decode("latin-1"), value.decode("latin-1")])
    made: dict[str, Any] = {"status": status, "headers": some}
    if body is None:
        made["gone"] = "the response was larger than what is kept"
    elif body:
        try:
            made["body"] = body.decode()
        except UnicodeDecodeError:
            made["base64"] = base64.b64encode(body).decode()
    return made


def replay(recorded: Recorded) -> Response | Trouble:
    """The recorded response again, byte for byte, or why it cannot be shown."""
    try:
        response = _read(recorded.outcome)
        if response is None:
            return Trouble.FAILED
        body = response.body.encode()
        if response.base64:
            body = base64.b64decode(response.base64, validate=True)
    except (NotReadable, msgspec.DecodeError, ValueError):
        return Trouble.RESULT_GONE
    if response.gone or not 200 <= response.status <= 599:
        return Trouble.RESULT_GONE
    headers = [
        (name.encode("latin-1", "replace"), value.encode("latin-1", "replace"))
        for name, value in response.headers
    ]
    return Response(response.status, (*headers, REPLAYED), body)


def _read(outcome: bytes) -> StoredResponse | None:
    """What `stored` made. None: it failed, and there is no response."""
    if outcome.startswith(OK):
        return _STORED.decode(outcome[len(OK) :])
    read = decode(outcome)
    return None if read.status == "error" else msgspec.convert(read.content, StoredResponse)


# ---------------------------------------------------------------- what we say ourselves


class _Text(NamedTuple):
    title: str
    detail: str


TEXTS: dict[Trouble, _Text] = {
    Trouble.KEY_MISSING: _Text(
        "Idempotency-Key is missing",
        "This operation needs an Idempotency-Key, so that it can be repeated safely. Draw a new"
        " one, such as a UUID, for each operation.",
    ),
    Trouble.KEY_MALFORMED: _Text(
        "Idempotency-Key cannot be used",
        "Nothing was done. Correct the key and send the request again.",
    ),
    Trouble.NOT_AUTHENTICATED: _Text(
        "Not authenticated", "It is not known whose request this is. Nothing was done."
    ),
    Trouble.NOT_ALLOWED: _Text("Not allowed", "Nothing was done."),
    Trouble.BODY_TOO_LARGE: _Text("The request is too large", "Nothing was done."),
    Trouble.BODY_TOO_SLOW: _Text(
        "The request did not come in time", "The body was not complete in time. Nothing was done."
    ),
    Trouble.OVER_QUOTA: _Text(
        "Over quota",
        "More new keys, or more bytes, came than are allowed in this time. Nothing was done."
        " Repeat the request later, with the same key.",
    ),
    Trouble.CONFLICT: _Text(
        "Idempotency-Key is already used",
        "The same key came before with another request. Nothing was done. Repeat the original"
        " request, or use a new key for a new one.",
    ),
    Trouble.IN_FLIGHT: _Text(
        "A request is outstanding for this Idempotency-Key",
        "The same request is being worked on. Repeat it with the same key to get its result.",
    ),
    Trouble.IN_DOUBT: _Text(
        "The outcome is unknown",
        "The same request came before and may have been done. It is not done again under this"
        " key, and a new one could do it twice.",
    ),
    Trouble.EXPIRED: _Text(
        "Idempotency-Key has expired",
        "The same key was used before, and its result is not kept any more. Nothing was done"
        " now. Look first, then use a new key.",
    ),
    Trouble.RESULT_GONE: _Text(
        "The result cannot be shown again",
        "The request was done, and it is not done again. Look its result up.",
    ),
    Trouble.FAILED: _Text(
        "The request was not done",
        "It was found that the earlier request under this key was not done. It is not done"
        " under this key any more: use a new one.",
    ),
    Trouble.STORE_UNAVAILABLE: _Text(
        "Temporarily unavailable",
        "It cannot be made sure just now that the request is done once. Repeat it with the same"
        " key.",
    ),
}
_AGAIN = frozenset({Trouble.IN_FLIGHT, Trouble.OVER_QUOTA, Trouble.STORE_UNAVAILABLE})
_TITLES = {  # as RFC 9110 has them: before 3.13, Python has older ones, and a client sees no Python
    413: "Content Too Large",
    414: "URI Too Long",
    416: "Range Not Satisfiable",
    422: "Unprocessable Content",
}


def refusal(
    profile: Profile,
    trouble: Trouble,
    detail: str = "",
    docs: str = "",
    effect: EffectRef | None = None,
    *,
    perhaps_done: bool = False,
    retry_after_s: float = 0.0,
) -> Response:
    """Our own answer, in the words of the profile. It says what happened, what is known and what
    to do, and nothing that is stored.

    A 503 that says when to come back is taken for a promise that nothing was done. What is
    *perhaps_done* does not say it.
    """
    detail = f"{detail} {TEXTS[trouble].detail}".strip()
    status = profile.status[trouble]
    headers = [(b"content-type", profile.style.value.encode()), (b"cache-control", b"no-store")]
    if trouble in _AGAIN and not perhaps_done:
        headers.append((b"retry-after", b"%d" % max(profile.retry_after_s, ceil(retry_after_s))))
    if docs:
        headers.append((b"link", f'<{docs}>; rel="describedby"'.encode("ascii", "replace")))
    if profile.style is Style.PROBLEM:
        content = _problem(trouble, status, detail, docs)
    else:
        content = _stripe(trouble, status, detail)
    if effect is not None:
        content["operation"] = effect.reference
    return Response(status, tuple(headers), orjson.dumps(content))


def last(answer: Response, scope: Scope) -> Response:
    """This answer ends the connection, the rest unread. HTTP/2 ends a stream, without a header."""
    if not str(scope.get("http_version", "1.1")).startswith("1."):
        return answer
    return structs.replace(answer, headers=(*answer.headers, (b"connection", b"close")))


def _problem(trouble: Trouble, status: int, detail: str, docs: str) -> dict[str, Any]:
    """RFC 9457: without a page that explains it there is no type, and the title is the status's."""
    if docs:
        about, title = f"{docs}#{trouble.lower().replace('_', '-')}", TEXTS[trouble].title
    else:
        about, title = "about:blank", _TITLES.get(status) or http.HTTPStatus(status).phrase
    return {"type": about, "title": title, "status": status, "detail": detail, "code": str(trouble)}


def _stripe(trouble: Trouble, status: int, detail: str) -> dict[str, Any]:
    server = "api_error" if status >= 500 else "invalid_request_error"
    kind = "idempotency_error" if trouble is Trouble.CONFLICT else server
    code = "idempotency_key_in_use" if trouble is Trouble.IN_FLIGHT else trouble.lower()
    return {"error": {"type": kind, "code": code, "message": detail}}
