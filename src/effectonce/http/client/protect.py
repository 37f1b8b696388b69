"""One line for a client that exists: it sends one key, and tries again only where that does no
harm.

    client = protect(httpx.Client())

What `protect` changes is where the client sends from: a transport of httpx and httpx2, an
adapter of requests, a middleware of aiohttp, the pools of urllib3; and for openai, anthropic and
Stripe, the same inside the client that they are built on; and an endpoint of botocore. Nothing
of theirs is imported.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import EllipsisType
from typing import Any, TypeVar

from msgspec import Struct

from effectonce import Circuit, Circuits, ContractViolation, Kind, Retry, RetryBudget
from effectonce._core.classification.classify import Rules
from effectonce._core.safe_access import attempt
from effectonce._runtime.unprotected_sends import note_protected
from effectonce.http.client import aiohttp, botocore, grpc, httpx, requests, smtplib, urllib3
from effectonce.http.client.attempts import ClientPolicy
from effectonce.http.client.keys import KeyHeader, Keys, given_to_sdk, named
from effectonce.policy import kind_of
from effectonce.retries.clients import class_names, without_retries
from effectonce.retries.retry import REPEATABLE
from effectonce.stores.base import Store

__all__ = ["KeyHeader", "named", "protect"]

T = TypeVar("T")


class ClientSupport(Struct, frozen=True):
    """What is known about one kind of client."""

    name: str  # as people call it
    classes: tuple[str, ...]  # "package:Name"
    install: Callable[[Any, ClientPolicy], Any]
    protected: Callable[[Any], bool]
    keys: Keys = "Idempotency-Key"  # if nothing else is given
    where: str = ""  # for the page


class Witness(Struct, frozen=True):
    """Only watched: what the client sends is seen; the tool's policy decides on retries."""

    name: str
    classes: tuple[str, ...]
    install: Callable[[Any], Any]
    protected: Callable[[Any], bool]
    where: str


def protect(
    client: T,
    *,
    retry: Retry | None = None,
    keys: Keys | EllipsisType = ...,
    breaker: Circuit | Circuits | None = None,
    budget: RetryBudget | None = None,
    store: Store | None = None,
    rules: Rules = (),
    kind: Kind | str = Kind.WRITE,
) -> T:
    """A client like *client* whose requests carry the key of the running effect, and are tried
    again where that does no harm.

    Use what is returned, as with `without_retries`: the client's own retries are switched off.
    *keys* says which header carries the key: a name or a `KeyHeader`, for each host that honours
    one (`{"api.example.com": "Idempotency-Key"}`, `"*"` for all others), or None. *breaker* may
    be one `Circuit`, or `Circuits`, which keep one for each host. *retry*, *budget*, *store*,
    *rules* and *kind* are as for `retry`: `kind="read"` says that no request of this client does
    harm when it is repeated.

    A class or an object of smtplib, and a channel of gRPC, are only watched, and take none of
    these.
    """
    row = _known(client)
    if isinstance(row, Witness):
        policies = (retry, breaker, budget, store, keys, rules, kind)
        return _watched(
            client, row, given=policies != (None, None, None, None, ..., (), Kind.WRITE)
        )
    if budget is not None and budget.shared and store is None:
        raise ContractViolation(
            f"the retry budget of {budget.name} is shared: say through which store,"
            " protect(store=...)"
        )
    if row.protected(client):
        raise TypeError(
            f"this {row.name} is protected already. Make another one for another policy."
        )
    policy = Retry() if retry is None else retry
    expected = row.keys if isinstance(keys, EllipsisType) else keys
    harmless = kind_of(kind) in REPEATABLE
    wire = ClientPolicy(policy, expected, breaker, budget, store, rules, harmless=harmless)
    protected: T = row.install(without_retries(client), wire)
    note_protected(protected, keyed=expected is not None)
    return protected


def _watched(client: T, row: Witness, *, given: bool) -> T:
    if given:
        raise ContractViolation(
            f"protect({row.name}) takes no policy: it carries no key, and its tool's retry="
            " decides. It is only watched."
        )
    if row.protected(client):
        raise TypeError(f"this {row.name} is protected already.")
    protected: T = row.install(client)
    note_protected(protected, keyed=False)
    return protected


def is_bare(thing: Any) -> bool:
    """Is it a client that could be protected, and is not?"""
    row = _row(thing)
    return row is not None and attempt(row.protected, thing) is False


def _row(client: Any) -> ClientSupport | Witness | None:
    names = (*class_names(client), *_own_names(client))
    return next((_BY_CLASS[name] for name in names if name in _BY_CLASS), None)


def _known(client: Any) -> ClientSupport | Witness:
    row = _row(client)
    if row is not None:
        return row
    raise TypeError(
        f"{type(client).__module__}.{type(client).__qualname__} is not a client that effectonce can"
        " protect. Nothing was changed. Give the HTTP client that it is built on; known are"
        f" {', '.join(row.name for row in KNOWN)}."
    )


def _own_names(client: Any) -> list[str]:
    """The names of a class that is given instead of a client."""
    mro = client.__mro__ if isinstance(client, type) else ()
    return [f"class {cls.__module__.partition('.')[0]}:{cls.__name__}" for cls in mro]


def _install_in_sdk(client: Any, wire: ClientPolicy) -> Any:
    httpx.install(client._client, wire)
    return client


# ---------------------------------------------------------------- stripe


def _install_in_stripe(client: Any, wire: ClientPolicy) -> Any:
    for http, install in _stripe_parts(client):
        install(without_retries(http), wire)
    wire.replace_random()
    _note_given_keys(client._requestor)
    client.effectonce_wire = wire
    return client


def _note_given_keys(requestor: Any) -> None:
    """Which keys are the caller's own: in the headers they look like those the SDK makes up."""
    theirs = type(requestor)

    class Requestor(theirs):  # type: ignore[misc, valid-type]
        def _new_requestor_with_options(self, options: Any) -> Any:
            # for each call, and for the objects that come back
            made = super()._new_requestor_with_options(options)
            made.__class__ = Requestor
            return made

        def request_headers(self, method: str, api_mode: str, options: Any) -> Any:
            headers = options.get("headers") or {}
            written = {name.lower(): value for name, value in headers.items()}
            given_to_sdk.set(options.get("idempotency_key") or written.get("idempotency-key") or "")
            return super().request_headers(method, api_mode, options)

    requestor.__class__ = Requestor


def _stripe_parts(client: Any) -> list[tuple[Any, Callable[[Any, ClientPolicy], Any]]]:
    """What a StripeClient sends from: requests in sync code, httpx in async code."""
    http = client._requestor._client
    parts: list[tuple[Any, Callable[[Any, ClientPolicy], Any]]] = []
    for each in (http, http._async_fallback_client):
        names = set(class_names(each))
        if "stripe:RequestsClient" in names:
            each._session = each._session or each.requests.Session()
            each._thread_local = threading.local()  # where it keeps the session that it made itself
            parts.append((each._session, requests.install))
        elif "stripe:HTTPXClient" in names:
            both = (each._client, each._client_async)
            parts += [(one, httpx.install) for one in both if one is not None]
        elif each is not None and "stripe:NoImportFoundAsyncClient" not in names:
            raise TypeError(
                f"this StripeClient sends through {type(each).__name__}, which effectonce cannot"
                " protect, so it is not protected. Give it a stripe.RequestsClient or a"
                " stripe.HTTPXClient."
            )
    return parts


ROWS: tuple[ClientSupport, ...] = (
    ClientSupport(
        "httpx and httpx2",
        ("httpx:Client", "httpx:AsyncClient", "httpx2:Client", "httpx2:AsyncClient"),
        httpx.install,
        httpx.protected,
        where="its transports",
    ),
    ClientSupport(
        "requests.Session",
        ("requests:Session",),
        requests.install,
        requests.protected,
        where="its adapters",
    ),
    ClientSupport(
        "aiohttp.ClientSession",
        ("aiohttp:ClientSession",),
        aiohttp.install,
        aiohttp.protected,
        where="a middleware, innermost",
    ),
    ClientSupport(
        "urllib3.PoolManager",
        ("urllib3:PoolManager",),
        urllib3.install,
        urllib3.protected,
        where="its pools",
    ),
    ClientSupport(
        "openai and anthropic",
        (
            "openai:SyncAPIClient",
            "openai:AsyncAPIClient",
            "anthropic:SyncAPIClient",
            "anthropic:AsyncAPIClient",
        ),
        _install_in_sdk,
        lambda client: httpx.protected(client._client),
        keys=None,  # they honour none: a key would promise what no server keeps
        where="the httpx client that they are built on",
    ),
    ClientSupport(
        "stripe.StripeClient",
        ("stripe:StripeClient",),
        _install_in_stripe,
        lambda client: hasattr(client, "effectonce_wire"),
        # it makes up a key for each call: another one when the tool runs again
        keys=KeyHeader(replaces_random=True),
        where="the requests session and the httpx client that it is built on",
    ),
    ClientSupport(
        "botocore and boto3",
        ("botocore:BaseClient",),
        botocore.install,
        botocore.protected,
        keys=None,  # AWS reads none from a header
        where="where its endpoint sends from",
    ),
)
WITNESSES: tuple[Witness, ...] = (
    Witness(
        "smtplib.SMTP",
        ("smtplib:SMTP", "class smtplib:SMTP"),
        smtplib.install,
        smtplib.protected,
        where="the object, or the class that is given",
    ),
    Witness(
        "grpc.Channel and grpc.aio.Channel",
        ("grpc:Channel",),
        grpc.install,
        grpc.protected,
        where="an interceptor",
    ),
)
KNOWN: tuple[ClientSupport | Witness, ...] = (*ROWS, *WITNESSES)
_BY_CLASS = {name: row for row in KNOWN for name in row.classes}
