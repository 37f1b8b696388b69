"""requests: an adapter around an adapter."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from effectonce.http.client.attempts import Answered, ClientPolicy, asked_of, exchange
from effectonce.http.client.urllib3 import watch
from effectonce.retries.clients import adapter_without_retries


class Adapter:
    """Sends through another adapter, under the policy of the wire."""

    def __init__(self, wire: ClientPolicy, inner: Any) -> None:
        self._wire, self.effectonce_inner = wire, inner

    # theirs
    def send(self, request: Any, stream: bool = False, timeout: Any = None, **settings: Any) -> Any:  # noqa: FBT001, FBT002
        def send(left_s: float) -> Answered:
            shorter = _within(timeout, left_s)
            response = self.effectonce_inner.send(
                request, stream=stream, timeout=shorter, **settings
            )
            # where what authenticates sends again: past us, it would leave without its key
            response.connection = self
            body = b"" if stream else response.content
            mark, unread = response.headers.__setitem__, watch(response.raw) if stream else None
            return Answered(
                response.status_code, response.headers, body, response, mark, response.close, unread
            )

        return exchange(self._wire, asked_of(request.method.upper(), request), send)

    def close(self) -> None:
        self.effectonce_inner.close()


class Adapters(OrderedDict[str, Any]):
    """Those of a session. One that is mounted later is protected, too."""

    def __init__(self, wire: ClientPolicy, adapters: Mapping[str, Any]) -> None:
        super().__init__()
        self._wire = wire
        for prefix, adapter in adapters.items():
            self[prefix] = adapter

    def __setitem__(self, prefix: str, adapter: Any) -> None:
        if not isinstance(adapter, Adapter):  # `mount` puts shorter prefixes behind longer ones
            adapter = Adapter(self._wire, adapter_without_retries(adapter))
        super().__setitem__(prefix, adapter)


def install(session: Any, wire: ClientPolicy) -> Any:
    session.adapters = Adapters(wire, session.adapters)
    return session


def protected(session: Any) -> bool:
    return isinstance(session.adapters, Adapters)


def _within(timeout: Any, left_s: float) -> Any:
    """The same with less time: a number, a pair, a `Timeout` of urllib3, or none given."""
    if hasattr(timeout, "clone"):
        shorter = timeout.clone()
        shorter.total = left_s if shorter.total is None else min(shorter.total, left_s)
        return shorter
    connect, read = timeout if isinstance(timeout, tuple) else (timeout, timeout)
    return tuple(left_s if limit is None else min(limit, left_s) for limit in (connect, read))
