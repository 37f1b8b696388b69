"""requests: an adapter around an adapter."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from effectonce.http._urllib3 import watch
from effectonce.http._wire import Answered, Asked, Wire, exchange, whole


class Adapter:
    """Sends through another adapter, under the policy of the wire."""

    def __init__(self, wire: Wire, inner: Any) -> None:
        self._wire, self.effectonce_inner = wire, inner

    def send(self, request: Any, stream: bool = False, timeout: Any = None, **settings: Any) -> Any:  # noqa: FBT001, FBT002  # theirs
        def send(left_s: float) -> Answered:
            shorter = _within(timeout, left_s)
            response = self.effectonce_inner.send(request, stream=stream, timeout=shorter, **settings)
            response.connection = self  # where what authenticates sends again: past us, it would leave without its key
            body = b"" if stream else response.content
            mark, unread = response.headers.__setitem__, watch(response.raw) if stream else None
            return Answered(response.status_code, response.headers, body, response, mark, response.close, unread)

        return exchange(self._wire, _asked(request), send)

    def close(self) -> None:
        self.effectonce_inner.close()


def install(session: Any, wire: Wire) -> Any:
    for prefix, adapter in session.adapters.items():
        session.adapters[prefix] = Adapter(wire, adapter)
    return session


def protected(session: Any) -> bool:
    return any(isinstance(adapter, Adapter) for adapter in session.adapters.values())


def _asked(request: Any) -> Asked:
    url = urlsplit(request.url)
    return Asked(
        request.method.upper(), request.url, (url.hostname or "").lower(), url.path, request.headers, whole(request.body)
    )


def _within(timeout: Any, left_s: float) -> Any:
    """The same with less time: a number, a pair, a `Timeout` of urllib3, or none given."""
    if hasattr(timeout, "clone"):
        shorter = timeout.clone()
        shorter.total = left_s if shorter.total is None else min(shorter.total, left_s)
        return shorter
    connect, read = timeout if isinstance(timeout, tuple) else (timeout, timeout)
    return tuple(left_s if limit is None else min(limit, left_s) for limit in (connect, read))
