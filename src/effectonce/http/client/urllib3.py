"""urllib3: around the one method of a pool that sends. The manager goes on following redirects."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from effectonce.http.client.attempts import (
    Answered,
    ClientPolicy,
    OutgoingRequest,
    Watch,
    broken,
    exchange,
    whole,
)


def install(manager: Any, wire: ClientPolicy) -> Any:
    # pools that were made before have other retries, so they are not asked any more
    make = manager._new_pool

    def new_pool(*args: Any, **settings: Any) -> Any:
        pool = make(*args, **settings)
        pool.urlopen = functools.partial(_urlopen, wire, pool, pool.urlopen)
        return pool

    manager._new_pool = new_pool
    manager.effectonce_wire = wire
    return manager


def protected(manager: Any) -> bool:
    return hasattr(manager, "effectonce_wire")


def _urlopen(
    wire: ClientPolicy,
    pool: Any,
    urlopen: Any,
    method: str,
    url: str,
    body: Any = None,
    headers: Any = None,
    **how: Any,
) -> Any:
    mine = sys.modules["urllib3"].HTTPHeaderDict(pool.headers if headers is None else headers)
    timeout, retries, pool_s = (
        how.pop(name, None) for name in ("timeout", "retries", "pool_timeout")
    )

    def send(left_s: float) -> Answered:
        shorter = _within(pool, timeout, left_s)
        # retries=False: errors as they are, and every answer. The manager needs the number of
        # redirects that are left.
        wait_s = left_s if pool_s is None else min(pool_s, left_s)
        limits = {"timeout": shorter, "pool_timeout": wait_s, "retries": False}
        response = urlopen(method, url, body=body, headers=mine, **limits, **how)
        response.retries = pool.retries if retries is None else retries
        preloaded, mark = how.get("preload_content", True), response.headers.__setitem__
        read, unread = (response.data, None) if preloaded else (b"", watch(response))
        return Answered(
            response.status, response.headers, read, response, mark, response.drain_conn, unread
        )

    target = urlsplit(url)
    # A proxy of plain HTTP gets the whole URL, and then the pool is that of the proxy.
    full = url if target.hostname else f"{pool.scheme}://{pool.host}{url}"
    asked = OutgoingRequest(
        method.upper(), full, (target.hostname or pool.host).lower(), target.path, mine, whole(body)
    )
    return exchange(wire, asked, send)


def watch(response: Any) -> Watch | None:
    """How to learn that a body read later broke off. None: this release reads it in another way."""
    catching = getattr(response, "_error_catcher", None)
    if catching is None:
        return None

    def tell(off: Callable[[], object], _: Callable[[], object]) -> None:
        @contextmanager
        def caught() -> Iterator[None]:
            with broken(off), catching():
                yield

        response._error_catcher = caught

    return tell


def _within(pool: Any, given: Any, left_s: float) -> Any:
    kind = type(pool.timeout)
    if given is None:
        given = pool.timeout
    timeout = given.clone() if isinstance(given, kind) else kind.from_float(given)
    timeout.total = left_s if timeout.total is None else min(timeout.total, left_s)
    return timeout
