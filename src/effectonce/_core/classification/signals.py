"""What can be read off an error or a response of any library, without importing that library.

Foreign objects are looked at from a distance: a property may raise, answer nonsense, or never
stop answering. So everything is read through `get`, only plain data is believed, and everything
is bounded. Nothing is awaited and no body is read from the network: what the library has already
read is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from itertools import islice
from typing import Any

import orjson
from msgspec import Struct

from effectonce._core.classification.retry_after import bounded, duration, number
from effectonce._core.classification.verdicts import (
    GAVE_UP,
    SURE,
    TRIED_HEADER,
    UNSURE,
    Tried,
    Verdict,
)
from effectonce._core.safe_access import attempt, get

LINKS_MAX, NODES_MAX, ITEMS_MAX = 24, 24, 64
HEADERS_MAX = 4096  # more than any client takes: what a layer of ours says is the last one
TEXT_MAX, CODE_MAX, BODY_MAX = 4096, 128, 262_144

CODES = (
    "error_code",
    "code",
    "Code",
    "sqlstate",
    "pgcode",
    "grpc_status_code",
    "sqlite_errorname",
    "reason",
)
TYPES = ("type", "status", "__type")
STATUSES = ("status_code", "status", "http_status", "code", "HTTPStatusCode")
INSIDE = ("error", "Error", "body", "json_body", "details", "response")
REASONS = ("finish_reason", "stop_reason", "stopReason", "finishReason")
BY_GATEWAYS = (502, 503, 504)  # what a gateway answers in place of the service behind it
SOON_S = 3600.0  # who has to wait longer has used up a quota, whatever it is called


class Signals(Struct, frozen=True, kw_only=True):
    """What one error says. Codes are in the order in which they count."""

    classes: tuple[str, ...] = ()  # "package.Name" over the MRO
    codes: tuple[str, ...] = ()
    finish: tuple[str, ...] = ()
    status: int | None = None
    errno: int | None = None
    headers: Mapping[str, str] = {}
    host: str = ""
    text: str = ""
    delay_s: float | None = None  # from the body or an attribute
    in_stream: bool = False
    never: bool = False  # the error itself says that it is not worth another attempt
    gave_up: bool = False  # a layer of ours has made enough attempts
    unsure: bool = False  # and one of them may have landed


class Link(Struct, frozen=True):
    """An error on the way from the outermost to its first cause."""

    thing: Any
    trusted: bool  # False: raised while that one was handled, so it may be about another request


def items(value: Any) -> list[Any]:
    """The first few items of a list or tuple."""
    return list(value[:ITEMS_MAX]) if isinstance(value, list | tuple) else []


def chain(thing: Any) -> list[Link]:
    """The error and what it wraps, nearest first, each once."""
    links, seen, at = [Link(thing, trusted=True)], {id(thing)}, 0
    while at < len(links) < LINKS_MAX:
        link, at = links[at], at + 1
        if isinstance(link.thing, BaseException):
            for inner, trusted in _wrapped(link.thing):
                if id(inner) not in seen and len(links) < LINKS_MAX:
                    seen.add(id(inner))
                    links.append(Link(inner, link.trusted and trusted))
    return links


def _wrapped(error: BaseException) -> Iterator[tuple[BaseException, bool]]:
    group = items(get(error, "exceptions"))
    arguments = [inner for inner in items(error.args) if isinstance(inner, BaseException)]
    named = [
        error.__cause__,
        get(error, "reason"),
        get(error, "cause"),
        *(group if len(group) == 1 else ()),
    ]
    yield from ((inner, True) for inner in named if isinstance(inner, BaseException))
    # of several requests, none speaks for all
    yield from ((inner, len(arguments) == 1) for inner in arguments)
    if error.__context__ is not None and not error.__suppress_context__:
        yield error.__context__, False


def read(thing: Any) -> Signals:
    """Everything that is to be read off *thing*."""
    if isinstance(thing, str):
        return Signals(text=thing[:TEXT_MAX])
    if _is_status(thing):
        return Signals(status=int(thing))
    classes = _classes(thing)
    remote = _remote_call(thing) if "grpc.RpcError" in classes else None
    nodes = _nodes(thing)
    headers = _headers(nodes, remote)
    codes, delay_s = _codes(nodes, remote, headers), _delay(nodes)
    is_error = isinstance(thing, BaseException)
    tried = _tried(thing, headers)
    status = None if _made_up(thing, classes) else _first(_status_of(node) for node in nodes)
    return Signals(
        classes=classes,
        codes=(*_hints(nodes, classes, delay_s, status), *codes),
        finish=() if is_error else _finish(thing),
        status=status,
        errno=_int(get(thing, "errno")) if is_error else None,
        headers=headers,
        host=_host(nodes),
        text=_text(
            thing, nodes, remote, is_error=is_error, failed=status is not None and status >= 400
        ),
        delay_s=delay_s,
        in_stream=get(thing, "in_stream") is True
        or (status is not None and status < 300 and bool(codes)),
        never=get(thing, "non_retryable") is True or get(thing, "should_retry") is False,
        gave_up=GAVE_UP in tried or "effectonce.GaveUp" in classes,
        unsure=UNSURE in tried,
    )


def _made_up(thing: Any, classes: tuple[str, ...]) -> bool:
    """Is its status the client's own? aiohttp says 400 of an answer that is not HTTP."""
    return "aiohttp.ClientResponseError" in classes and "aiohttp.HttpProcessingError" in _classes(
        get(thing, "__cause__")
    )


def _tried(thing: Any, headers: Mapping[str, str]) -> str:
    """What a layer of ours below says: on the error, or in response headers that others pass on."""
    tried, verdict = get(thing, "effectonce_tried"), get(thing, "effectonce_verdict")
    if isinstance(tried, Tried):
        return tried.mark
    if isinstance(verdict, Verdict) and verdict.certainty not in SURE:
        # an error of ours that other code has wrapped: what it was raised from speaks for one
        # attempt only
        return UNSURE
    return headers.get(TRIED_HEADER, "")


def _classes(thing: Any) -> tuple[str, ...]:
    named = ((getattr(cls, "__module__", ""), cls.__name__) for cls in type(thing).__mro__[:-1])
    return tuple(
        f"{module.partition('.')[0]}.{name}" for module, name in named if isinstance(module, str)
    )


def _nodes(thing: Any) -> list[Any]:
    """Where codes, statuses and headers may be: the thing, its response, body, and error inside."""
    nodes, seen = [thing], {id(thing)}
    for node in nodes:
        parsed = [_body(node)]
        for inner in islice(
            (*(get(node, name) for name in INSIDE), *parsed), NODES_MAX - len(nodes)
        ):
            single = inner[0] if isinstance(inner, list) and len(inner) == 1 else inner
            if (
                single is None
                or id(single) in seen
                or isinstance(single, str | bytes | int | float | type)
            ):
                continue
            if callable(single) or (isinstance(single, BaseException) and single is not thing):
                continue
            seen.add(id(single))
            nodes.append(single)
    return nodes


def _body(node: Any) -> Any:
    """The body of a response as far as the library has read it."""
    raw = next(
        (b for b in (_stored(node, name) for name in ("_content", "_body", "body", "text")) if b),
        None,
    )
    if raw is None or len(raw) > BODY_MAX or raw.lstrip()[:1] not in (b"{", b"[", "{", "["):
        return None
    return attempt(orjson.loads, raw)


def _stored(node: Any, name: str) -> bytes | str | None:
    """Plain data of the node itself: a property could read from the network."""
    held = node if isinstance(node, Mapping) else attempt(vars, node)
    value = get(held, name) if isinstance(held, Mapping) else None
    return value if isinstance(value, bytes | str) else None


def _code(value: Any) -> str:
    """A code as text: a name, an Enum's name, or a negative number as JSON-RPC has them."""
    if isinstance(value, Enum):
        value = value.name
    if isinstance(value, int) and not isinstance(value, bool) and value < 0:
        return str(int(value))
    return str(value) if isinstance(value, str) and 0 < len(value) <= CODE_MAX else ""


def _codes(nodes: list[Any], remote: _Remote | None, headers: Mapping[str, str]) -> tuple[str, ...]:
    found = [remote.code] if remote is not None else []
    for names in (CODES, TYPES):
        for node in nodes:
            found += [
                _code(get(node, name))
                for name in names
                if name != "reason" or isinstance(node, Mapping)
            ]
    found.append(headers.get("x-amzn-errortype", ""))
    found += [_code(get(node, "error")) for node in nodes]
    cleaned = (c.partition(":")[0].rpartition("#")[2] for c in found)
    return tuple(dict.fromkeys(c for c in cleaned if c and c not in ("error", "None")))


def _hints(
    nodes: list[Any], classes: tuple[str, ...], delay_s: float | None, status: int | None
) -> Iterator[str]:
    """Codes not written as codes: a transport phase, google.rpc details, a name not resolved."""
    phase = get(nodes[0], "phase")
    if isinstance(phase, str):
        yield f"phase={phase[:CODE_MAX]}"
    # EAI_NONAME on Linux and on macOS
    if "socket.gaierror" in classes and get(nodes[0], "errno") in (-2, 8):
        yield "EAI_NONAME"
    if "subprocess.CalledProcessError" in classes and (_int(get(nodes[0], "returncode")) or 0) < 0:
        yield "returncode=signal"
    # Where there is no JSON, the SDK keeps the headers as `json_body`: only the error inside
    # tells that Stripe has answered.
    if (
        "stripe.APIError" in classes
        and status in BY_GATEWAYS
        and get(get(nodes[0], "json_body"), "error") is None
    ):
        yield "body=none"
    yield from _quotas(nodes, delay_s)
    for detail in _details(nodes):
        if _code(get(detail, "@type")).endswith("ErrorInfo"):
            yield _code(get(detail, "reason"))


def _quotas(nodes: list[Any], delay_s: float | None) -> Iterator[str]:
    """Which quotas google.rpc says are used up: the longest first."""
    violations = [
        violation for detail in _details(nodes) for violation in items(get(detail, "violations"))
    ]
    names = [_code(get(violation, "quotaId")) for violation in violations]
    if any(get(violation, "quotaValue") in ("0", 0) for violation in violations):
        yield "quotaValue=0"
    if any("PerDay" in name for name in names) and (delay_s is None or delay_s > SOON_S):
        yield "quotaId=PerDay"
    if any("PerMinute" in name for name in names):
        yield "quotaId=PerMinute"


def _details(nodes: list[Any]) -> Iterator[Any]:
    for node in nodes:
        yield from items(get(node, "details"))


def _delay(nodes: list[Any]) -> float | None:
    """RetryInfo as JSON or as a message, or an attribute by which libraries hand the delay on."""
    for detail in _details(nodes):
        written = get(detail, "retryDelay")
        if isinstance(written, str):
            return duration(written)
        message = get(detail, "retry_delay")
        whole = None if message is None else number(get(message, "seconds"))
        if whole is not None:
            return bounded(whole + (number(get(message, "nanos")) or 0.0) / 1e9)
    for node in nodes:
        for name in ("retry_after", "retry_after_s", "next_retry_delay"):
            value = get(node, name)
            given = number(
                attempt(value.total_seconds) if hasattr(value, "total_seconds") else value
            )
            if given is not None:
                return bounded(given)
    return None


def _headers(nodes: list[Any], remote: _Remote | None) -> dict[str, str]:
    found = {} if remote is None else dict(remote.metadata)
    for node in nodes:
        for name in ("headers", "HTTPHeaders", "_headers"):
            found = dict(_pairs(get(node, name))) | found
        found = dict(_pairs(get(get(node, "ResponseMetadata"), "HTTPHeaders"))) | found
    return found


def _pairs(value: Any) -> Iterator[tuple[str, str]]:
    pairs = attempt(value.items) if hasattr(value, "items") else value
    for pair in (
        attempt(lambda: list(islice(pairs, HEADERS_MAX))) if isinstance(pairs, Iterable) else ()
    ):
        name, content = pair if isinstance(pair, tuple) and len(pair) == 2 else ("", "")
        if isinstance(name, str | bytes) and isinstance(content, str | bytes | int | float):
            yield _plain(name).lower(), _plain(content)


def _plain(value: bytes | str | float) -> str:
    return (value.decode("latin-1") if isinstance(value, bytes) else str(value))[:TEXT_MAX].strip()


def _is_status(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599


def _int(value: Any) -> int | None:
    return int(value) if isinstance(value, int) else None


def _status_of(node: Any) -> int | None:
    found = next((v for v in (get(node, name) for name in STATUSES) if _is_status(v)), None)
    if found is None:
        found = get(get(node, "ResponseMetadata"), "HTTPStatusCode")
    return int(found) if _is_status(found) else None


def _first(values: Iterable[Any]) -> Any:
    return next((value for value in values if value is not None), None)


def _finish(thing: Any) -> tuple[str, ...]:
    """Why a model stopped, or did not start."""
    answers = [thing, *items(get(thing, "choices"))[:1], *items(get(thing, "candidates"))[:1]]
    found = [_code(get(answer, name)) for answer in answers for name in REASONS]
    found.append(
        _code(
            get(
                _first((get(thing, "incomplete_details"), get(thing, "incompleteDetails"))),
                "reason",
            )
        )
    )
    feedback = _first((get(thing, "prompt_feedback"), get(thing, "promptFeedback")))
    blocked = _first((get(feedback, "block_reason"), get(feedback, "blockReason")))
    if _code(blocked):
        found.append("BLOCKED")
    if any(_code(get(get(answer, "message"), "refusal")) for answer in answers):
        found.append("refusal")
    if get(thing, "isError") is True or get(thing, "is_error") is True:
        found.append("isError")
    return tuple(reason for reason in found if reason)


def _host(nodes: list[Any]) -> str:
    url = _first(get(node, "url") for node in nodes)
    written = attempt(str, url) if url is not None else None
    return (
        written.partition("://")[2].partition("/")[0].lower()[:TEXT_MAX]
        if isinstance(written, str)
        else ""
    )


def _text(
    thing: Any, nodes: list[Any], remote: _Remote | None, *, is_error: bool, failed: bool
) -> str:
    parts = [attempt(str, thing)] if is_error else []
    parts += [get(node, name) for node in nodes for name in ("message", "Message", "detail")]
    if failed:
        parts += [
            _stored(node, name)
            for node in nodes
            for name in ("_content", "_body", "body", "text", "http_body")
        ]
    if remote is not None:
        parts.append(remote.details)
    return "\n".join(_plain(part[:TEXT_MAX]) for part in parts if isinstance(part, str | bytes))[
        :TEXT_MAX
    ]


class _Remote(Struct, frozen=True):
    """What a gRPC error tells when it is asked: its fields are methods."""

    code: str
    details: str
    metadata: dict[str, str]


def _remote_call(error: Any) -> _Remote:
    code, details, metadata = (
        attempt(get(error, name)) for name in ("code", "details", "trailing_metadata")
    )
    return _Remote(_code(code), details if isinstance(details, str) else "", dict(_pairs(metadata)))
