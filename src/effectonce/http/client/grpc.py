"""gRPC: an interceptor next to the wire, for sync and async channels.

A call is looked at when its attempt has ended: it may have been started as a future, or be a
stream. Answered with OK, it is done; a status by which the server says no is a refusal, as the
tables have it; all else is a doubt, also UNAVAILABLE. gRPC does not say whether a byte left:
where the channel has a retry policy, the connection that failed last may have followed one that
did not.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Coroutine
from functools import lru_cache
from typing import Any

from effectonce._core.classification.classify import classify
from effectonce._core.observed_sends import Sighting
from effectonce.effect import Effect, aleaving, leaving, past_us
from effectonce.http.client.attempts import effect_here

KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


def install(channel: Any) -> Any:
    grpc = sys.modules["grpc"]
    if isinstance(channel, grpc.Channel):
        if type(channel).__module__ == "grpc._interceptor":
            raise TypeError(
                "this channel has interceptors, which may send more than once. Protect it first,"
                " then intercept it."
            )
        watched = grpc.intercept_channel(channel, _watching(grpc, sync_continued)())
    else:
        watched, watching = channel, _watching(sys.modules["grpc.aio"], async_continued)()
        for kind in KINDS:  # the innermost is the last one
            getattr(channel, f"_{kind}_interceptors").append(watching)
    watched.effectonce_watched = True
    return watched


def protected(channel: Any) -> bool:
    return hasattr(channel, "effectonce_watched")


def sync_continued(continuation: Callable[..., Any], details: Any, request: Any) -> Any:
    sighting, effect = _announced(details.method)
    if effect is not None:
        leaving(effect, sighting)
    with past_us():
        call = continuation(details, request)
    sighting.look = lambda: _look(sighting, call)
    return call


async def async_continued(
    continuation: Callable[..., Awaitable[Any]], details: Any, request: Any
) -> Any:
    sighting, effect = _announced(details.method)
    if effect is not None:
        await aleaving(effect, sighting)
    with past_us():
        call = await continuation(details, request)
    sighting.look = lambda: _look_at_aio(sighting, call)
    return call


@lru_cache
def _watching(theirs: Any, continued: Any) -> Any:
    """The class of interceptors, sync or async, for calls of all four kinds."""
    names = [f"{kind.title().replace('_', '')}ClientInterceptor" for kind in KINDS]
    bases = tuple(getattr(theirs, name) for name in names)
    return type("Watching", bases, {f"intercept_{kind}": staticmethod(continued) for kind in KINDS})


def _announced(method: Any) -> tuple[Sighting, Effect | None]:
    name = method.decode() if isinstance(method, bytes) else method
    sighting, effect = Sighting(f"gRPC {name}"), effect_here()
    if effect is not None:
        effect.announce(sighting)
    return sighting, effect


def _look(sighting: Sighting, call: Any) -> None:
    if not call.done():
        return
    if call.code() is sys.modules["grpc"].StatusCode.OK:
        sighting.answered = True
    else:
        sighting.verdict = classify(call)


def _look_at_aio(sighting: Sighting, call: Any) -> None:
    if not call.done():
        return
    code = _now(call.code())
    if code is sys.modules["grpc"].StatusCode.OK:
        sighting.answered = True
    else:
        error, trailing = sys.modules["grpc.aio"].AioRpcError, _now(call.trailing_metadata())
        sighting.verdict = classify(error(code, None, trailing, details=_now(call.details())))


def _now(asked: Coroutine[Any, Any, Any]) -> Any:
    """What a call that has ended says, without waiting. None: it would have to."""
    try:
        asked.send(None)
    except StopIteration as stopped:
        return stopped.value
    asked.close()
    return None
