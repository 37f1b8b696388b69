"""One layer retries: switch off, or count, what SDKs and HTTP clients try again by themselves.

Layers multiply. Three attempts of ours, three of an SDK, three of its HTTP client and three of a
proxy are 81 requests, of which we know three; and the others were never checked for safety. A
guarded tool therefore uses a client that sends once:

    client = without_retries(OpenAI())

Theory of operation. A client is known by the package and the name of its class, over the MRO, so
nothing of a vendor's is imported. For each there is a row in `CLIENTS`: how often one call of it
may try, how to make it try once, and whether that changes the client itself or makes a copy.
What an SDK is built on is looked at as well: their numbers multiply. What a request says for
itself (`retries=` of urllib3, `options=` of Stripe) still wins; that is in the caller's hand.

Most of these settings are not part of a public interface. So they are read before they are
changed and counted after it, and a release that has moved them is refused, not guessed about.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from msgspec import Struct

from effectonce.stores.base import Finding

T = TypeVar("T")
UNLIMITED = sys.maxsize  # a client that never gives up
_ADVICE = "Switch its retries off where it is made."


class ClientRetries(Struct, frozen=True):
    """What is known about one kind of client."""

    name: str  # as people call it
    classes: tuple[str, ...]  # "package:Name"; a module is its own name
    attempts: Callable[[Any], int]  # how often one call may try
    once: Callable[[Any], Any]  # the client to use instead; None: it was changed in place
    tries: str  # for the page: what it does by default
    off: str  # for the page: what is done about it
    copied: bool = False  # for the page: it is not changed in place


def without_retries(client: T) -> T:
    """A client like *client* that sends each request once. Use what is returned: some are
    changed in place, some are copied.

    In place: Stripe, botocore, redis, urllib3, requests, httpx, aiohttp, google-genai. A copy:
    openai, anthropic; it shares the HTTP client of the original, and if that retries too, it is
    changed in place. Raises `TypeError` for a client that is not known.
    """
    inner_attempts(client)  # what cannot be read must not be written
    copy = _known(client).once(client)
    once: T = client if copy is None else copy
    left = inner_attempts(once)
    if left != 1:
        raise TypeError(
            f"{_named(client)} still tries {left} times, though its retries were switched off."
            f" {_ADVICE}"
        )
    return once


def inner_attempts(client: Any) -> int:
    """How often one call of this client may try, all that it is built on included. 1: it sends
    once.

    Raises `TypeError` for a client that is not known.
    """
    try:
        return _known(client).attempts(client)
    except (AttributeError, KeyError) as moved:
        raise TypeError(
            f"this release of {_named(client)} keeps its retries elsewhere ({moved}), so effectonce"
            f" cannot say how often it sends. Nothing was changed. {_ADVICE}"
        ) from moved


def amplification(attempts: int, *clients: Any) -> Finding | None:
    """What to know of a tool with *attempts* attempts and these clients; None: one request each."""
    counted = [(inner_attempts(client), _known(client).name) for client in clients]
    inner, name = max(counted, default=(1, ""))
    if inner == 1:
        return None
    guilty = ", ".join(dict.fromkeys(each for count, each in counted if count > 1))
    times = "without end" if inner == UNLIMITED else f"{attempts * inner} times"
    theirs = "without end" if inner == UNLIMITED else f"{inner} times"
    return Finding(
        "retries",
        f"one call may send {times}: {attempts} of ours, and {name} tries each of them {theirs}",
        "Let one layer retry: without_retries(client) of effectonce.retries.clients, for"
        f" {guilty}.",
    )


def _known(client: Any) -> ClientRetries:
    for name in class_names(client):
        if name in _BY_CLASS:
            return _BY_CLASS[name]
    raise TypeError(
        f"{_named(client)} is not a client that effectonce knows, so it cannot say how often that"
        f" sends. Nothing was changed. {_ADVICE} Or give the client that it is built on; known are"
        f" {', '.join(row.name for row in CLIENTS)}."
    )


def _named(thing: Any) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def class_names(client: Any) -> Iterable[str]:
    """A client's classes, nearest first. Google's share a top-level name, so two parts count."""
    if type(client).__name__ == "module":
        yield client.__name__
        return
    for cls in type(client).__mro__[:-1]:
        package = str(cls.__module__).split(".")
        yield f"{'.'.join(package[: 2 if package[0] == 'google' else 1])}:{cls.__name__}"


# ---------------------------------------------------------------- openai, anthropic


def _sdk_attempts(client: Any) -> int:
    return _times(_limit(client.max_retries) + 1, inner_attempts(client._client))


def _sdk_once(client: Any) -> Any:
    without_retries(client._client)
    return client.with_options(max_retries=0)


# ---------------------------------------------------------------- stripe


def _stripe_attempts(client: Any) -> int:
    return int(_stripe_options(client).max_network_retries or 0) + 1


def _stripe_once(client: Any) -> None:
    _stripe_options(client).max_network_retries = 0


def _stripe_options(client: Any) -> Any:
    """The module keeps them itself."""
    return client if type(client).__name__ == "module" else client._requestor._options


# ---------------------------------------------------------------- botocore

_AWS = {
    "legacy": {"": 5, "dynamodb": 10},
    "standard": {"": 3, "dynamodb": 4, "dynamodb-streams": 4},
}


def _aws_attempts(client: Any) -> int:
    retries = client.meta.config.retries
    by_service = _AWS["legacy" if retries["mode"] == "legacy" else "standard"]
    default = by_service.get(_service(client), by_service[""])
    return int(retries.get("total_max_attempts") or default)


def _aws_once(client: Any) -> None:
    service = _service(client)
    client.meta.events.unregister(f"needs-retry.{service}", unique_id=f"retry-config-{service}")
    client.meta.config.retries = client.meta.config.retries | {"total_max_attempts": 1}


def _service(client: Any) -> str:
    return str(client.meta.service_model.service_id.hyphenize())


# ---------------------------------------------------------------- redis


def _redis_attempts(client: Any) -> int:
    settings = client.get_connection_kwargs()
    retry = settings.get("retry")
    if retry is None:  # what a connection then does by itself
        return 2 if settings.get("retry_on_timeout") or settings.get("retry_on_error") else 1
    return _limit(retry.get_retries()) + 1


def _redis_once(client: Any) -> None:
    modules = (cls.__module__ for cls in type(client).__mro__)
    package = next(name for name in modules if name.startswith("redis.")).rpartition(".")[0]
    never = sys.modules[f"{package}.retry"].Retry(sys.modules["redis.backoff"].NoBackoff(), 0)
    client.set_retry(never)


# ---------------------------------------------------------------- urllib3, requests


def _retries_of(given: Any) -> int:
    """How often a `Retry` of urllib3 sends again. Redirects are not counted: they were answered."""
    retry = sys.modules["urllib3.util.retry"].Retry.from_int(given)
    kinds = (retry.connect, retry.read, retry.status, retry.other)
    return max(min(_limit(retry.total), _limit(kind)) for kind in kinds)


def _no_retries(given: Any) -> Any:
    """0 and False are both none; the error that comes out differs, and that stays as it was."""
    retry = sys.modules["urllib3.util.retry"].Retry.from_int(given)
    kinds = ("connect", "read", "status", "other")
    return retry.new(**{kind: False if getattr(retry, kind) is False else 0 for kind in kinds})


def _urllib3_attempts(manager: Any) -> int:
    return _retries_of(manager.connection_pool_kw.get("retries")) + 1


def _urllib3_once(manager: Any) -> None:
    manager.connection_pool_kw["retries"] = _no_retries(manager.connection_pool_kw.get("retries"))


def _requests_attempts(session: Any) -> int:
    return max(_retries_of(adapter.max_retries) + 1 for adapter in _adapters(session))


def _requests_once(session: Any) -> None:
    for adapter in _adapters(session):
        adapter_without_retries(adapter)


def adapter_without_retries(adapter: Any) -> Any:
    """An adapter of requests that sends once."""
    if "requests:HTTPAdapter" not in class_names(adapter):
        raise TypeError(
            f"effectonce does not know how often a {_named(adapter)} sends, so it was not mounted."
        )
    adapter.max_retries = _no_retries(adapter.max_retries)
    return adapter


def _adapters(session: Any) -> list[Any]:
    return [
        _part(session, _unwrapped(adapter), "requests:HTTPAdapter")
        for adapter in session.adapters.values()
    ]


# ---------------------------------------------------------------- httpx and httpx2

_PACKAGES = ("httpx", "httpx2")
_WIRED = [f"{p}:{name}" for p in _PACKAGES for name in ("HTTPTransport", "AsyncHTTPTransport")]
_UNWIRED = [f"{p}:{name}Transport" for p in _PACKAGES for name in ("Mock", "ASGI", "WSGI")]


def _httpx_attempts(client: Any) -> int:
    return max((_limit(pool._retries) + 1 for pool in _pools(client)), default=1)


def _httpx_once(client: Any) -> None:
    for pool in _pools(client):
        pool._retries = 0


def _pools(client: Any) -> list[Any]:
    mounted = (transport for transport in client._mounts.values() if transport is not None)
    transports = [_unwrapped(transport) for transport in (client._transport, *mounted)]
    known = [_part(client, transport, *_WIRED, *_UNWIRED) for transport in transports]
    return [each._pool for each in known if not set(class_names(each)) & set(_UNWIRED)]


# ---------------------------------------------------------------- aiohttp


def _aiohttp_attempts(session: Any) -> int:
    return 2 if session._retry_connection else 1


def _aiohttp_once(session: Any) -> None:
    session._retry_connection = False


# ---------------------------------------------------------------- google-genai


def _genai_attempts(client: Any) -> int:
    api = client._api_client
    tried = api._retry.stop.max_attempt_number
    again_by_itself = api._http_options.retry_options is None and api._use_aiohttp()
    below = max(inner_attempts(http) for http in (api._httpx_client, api._async_httpx_client))
    return _times(tried, max(2 if again_by_itself else 1, below))


def _genai_once(client: Any) -> None:
    api = client._api_client
    options = type(api._http_options).model_validate({"retry_options": {"attempts": 1}})
    # With options of its own, its aiohttp path does not try again by itself.
    api._http_options.retry_options = options.retry_options
    once = type(api._retry.stop)(1)
    api._retry, api._async_retry = api._retry.copy(stop=once), api._async_retry.copy(stop=once)
    for http in (api._httpx_client, api._async_httpx_client):
        without_retries(http)


# ---------------------------------------------------------------- what they share


def _limit(retries: Any) -> int:
    """How many retries that means: None, negative and infinite are unlimited, False is none."""
    if retries is False:
        return 0
    return UNLIMITED - 1 if retries is None or retries < 0 or retries >= UNLIMITED else int(retries)


def _times(outer: int, inner: int) -> int:
    return min(outer * inner, UNLIMITED)


def _unwrapped(part: Any) -> Any:
    """What a protected client sends through. Our attempts, not repeated outside, do not count."""
    return getattr(part, "effectonce_inner", part)


def _part(whole: Any, part: Any, *known: str) -> Any:
    """*part*, if it is one that is known."""
    if not set(class_names(part)) & set(known):
        raise TypeError(
            f"{_named(whole)} sends through a {_named(part)}, which effectonce does not know, so it"
            f" cannot say how often that sends. Nothing was changed. {_ADVICE}"
        )
    return part


CLIENTS: tuple[ClientRetries, ...] = (
    *(
        ClientRetries(
            name,
            (f"{name}:SyncAPIClient", f"{name}:AsyncAPIClient"),
            _sdk_attempts,
            _sdk_once,
            tries="3 times, time-outs of a POST included",
            off="`with_options(max_retries=0)`",
            copied=True,
        )
        for name in ("openai", "anthropic")
    ),
    ClientRetries(
        "stripe.StripeClient",
        ("stripe:StripeClient",),
        _stripe_attempts,
        _stripe_once,
        tries="once, unless `max_network_retries` is given",
        off="`max_network_retries` is 0",
    ),
    ClientRetries(
        "stripe",
        ("stripe",),
        _stripe_attempts,
        _stripe_once,
        tries="3 times, under one key of its own",
        off="`stripe.max_network_retries` is 0, for the whole process",
    ),
    ClientRetries(
        "botocore and boto3",
        ("botocore:BaseClient",),
        _aws_attempts,
        _aws_once,
        tries="3 times, 4 with DynamoDB; in legacy mode 5 and 10",
        off="its retry handler is unregistered",
    ),
    ClientRetries(
        "redis",
        ("redis:Redis",),
        _redis_attempts,
        _redis_once,
        tries="11 times, with a pool of its own making; a lost reply to `SET k v NX` is sent again",
        off="`set_retry()` with none; clients that share its pool have none either",
    ),
    ClientRetries(
        "urllib3.PoolManager",
        ("urllib3:PoolManager",),
        _urllib3_attempts,
        _urllib3_once,
        tries="4 times: connecting always, a lost answer only of methods that may be repeated",
        off="connect, read, status and other are 0; redirects are followed as before",
    ),
    ClientRetries(
        "requests.Session",
        ("requests:Session",),
        _requests_attempts,
        _requests_once,
        tries="once, unless an `HTTPAdapter(max_retries=...)` is mounted",
        off="the same for each adapter",
    ),
    ClientRetries(
        "httpx and httpx2",
        ("httpx:Client", "httpx:AsyncClient", "httpx2:Client", "httpx2:AsyncClient"),
        _httpx_attempts,
        _httpx_once,
        tries="once, unless a transport has `retries=`; it connects again, the request leaves once",
        off="the transports' `retries` are 0",
    ),
    ClientRetries(
        "aiohttp.ClientSession",
        ("aiohttp:ClientSession",),
        _aiohttp_attempts,
        _aiohttp_once,
        tries="twice, if the connection breaks: GET, HEAD, OPTIONS, TRACE, PUT and DELETE",
        off="`_retry_connection` is false",
    ),
    ClientRetries(
        "google-genai",
        ("google.genai:Client",),
        _genai_attempts,
        _genai_once,
        tries=(
            "once, or as `retry_options` says; its async client sends again once if aiohttp is"
            " installed and the connection breaks"
        ),
        off="`retry_options` is one attempt, sync and async",
    ),
)
_BY_CLASS = {name: row for row in CLIENTS for name in row.classes}
