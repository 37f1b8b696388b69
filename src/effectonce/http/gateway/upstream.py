"""One upstream, as an ASGI app: what stands behind the middleware of a gateway.

A request is sent on under the policy of its upstream: attempts, deadline, breaker and retry
budget. Another attempt is made only if nothing was sent, or if sending the same request again
does no harm: a safe method, or a key that the upstream honours. So there are three ends:

 1. The upstream answered. Its answer goes back as it is, whatever its status.
 2. Nothing was sent. `Unreached` says so to the middleware, and the key can be used as if for
    the first time.
 3. It was sent, and there is no answer. That is a 502 or a 504 of ours, or an answer that breaks
    off; the middleware learns that the outcome is unknown.

An answer that refuses is no outcome if it only asks to come again, or if an attempt before it
may have landed. The client gets it as it is, and the middleware gets what is known beside it.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from effectonce import Verdict, classify
from effectonce._core.classification.verdicts import SURE, Bucket, Certainty
from effectonce.effect import Effect, running
from effectonce.errors import CircuitOpen, ContractViolation, GaveUp
from effectonce.http.gateway.headers import end_to_end, onward
from effectonce.http.gateway.settings import TENANT, UpstreamSettings
from effectonce.http.gateway.tenant_isolation import Bulkheads, Connections
from effectonce.http.server.problems import BrokenOff, TooManyAtOnce, Unreached, problem
from effectonce.http.server.recorder import CERTAINTY
from effectonce.http.server.responses import Message, Receive, Response, Scope, Send
from effectonce.http.server.spooled_body import BodyLimits, Spooled, read_body
from effectonce.retries.retry import Retrier

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


class _Troubled(Exception):
    """An attempt that could have gone better."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.why)
        self.effectonce_verdict = verdict


class _Body(httpx.AsyncByteStream):
    """The body of a request, here as a whole: it is sent as often as there are attempts."""

    def __init__(self, spooled: Spooled) -> None:
        self._spooled = spooled

    async def __aiter__(self) -> AsyncIterator[bytes]:
        sent, last = 0, False
        while not last:
            piece, last = await self._spooled.piece(sent)
            sent += len(piece)
            if piece:
                yield piece


class HttpUpstream:
    """Sends each request on, and its answer back."""

    def __init__(
        self,
        settings: UpstreamSettings,
        bulkheads: Bulkheads,
        limits: BodyLimits,
        *,
        memory_max: int,
    ) -> None:
        self._settings, self._url = settings, httpx.URL(settings.url)
        self._bulkheads, self._limits, self._memory_max = bulkheads, limits, memory_max
        verify = _verify(settings)
        self._kept = _Pool(verify, settings.connections, kept=settings.connections)
        # A connection that was kept may be closed by the upstream just when we use it, and then
        # the outcome is unknown. A new one costs less.
        self._new = _Pool(verify, settings.connections, kept=0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The body is read before a connection is taken: a slow client holds up only itself."""
        body = Spooled(self._memory_max)
        try:
            await read_body(receive, body, self._limits)
            await self._pass(scope, body, receive, send)
        finally:
            body.close()

    async def _pass(self, scope: Scope, body: Spooled, receive: Receive, send: Send) -> None:
        effect, tenant = running.get(), scope[TENANT]
        honoured = effect is not None and self._settings.honours_key_s is not None
        repeatable = honoured or scope["method"] in SAFE
        bulkhead = self._bulkheads.of(tenant)
        write = bulkhead.repeatable_write if honoured else bulkhead.write
        how = bulkhead.read if scope["method"] in SAFE else write
        pool = self._kept if repeatable else self._new
        async with pool.connection(tenant, self._settings.connect_s) as transport:
            attempts = _Attempts()
            answer = await self._ask(how, transport, self._request(scope, body, effect), attempts)
            if isinstance(answer, Response):
                await answer.deliver(send if effect is None else _unsure(send))
                return
            certainty = None
            if effect is not None:
                before = effect.sent_before
                certainty = attempts.certainty(answer.status_code, sent_before=before)
            await _hand_back(answer, receive, send, certainty)

    async def close(self) -> None:
        await self._kept.close()
        await self._new.close()

    # ------------------------------------------------------------ there

    def _request(self, scope: Scope, body: Spooled, effect: Effect | None) -> httpx.Request:
        target = self._url.raw_path.rstrip(b"/") + scope["raw_path"]
        if scope["query_string"]:
            target += b"?" + scope["query_string"]
        key = None if effect is None else effect.downstream_key
        headers = onward(scope, self._settings, self._url.netloc, key)
        extensions = {"target": target}
        return httpx.Request(
            scope["method"], self._url, headers=headers, stream=_Body(body), extensions=extensions
        )

    async def _ask(
        self,
        how: Retrier,
        transport: httpx.AsyncHTTPTransport,
        request: httpx.Request,
        attempts: _Attempts,
    ) -> httpx.Response | Response:
        try:
            return await self._attempts(how, transport, request, attempts)
        except (_Troubled, GaveUp, CircuitOpen) as error:
            if attempts.answered is not None:
                return attempts.answered
            if attempts.unsure:
                timed_out = isinstance(attempts.last, httpx.TimeoutException)
                return problem("UPSTREAM_TIMED_OUT" if timed_out else "UPSTREAM_BROKE_OFF")
            after_s = error.retry_after_s if isinstance(error, CircuitOpen | GaveUp) else None
            raise Unreached(f"the upstream was not reached: {error}", after_s) from error

    async def _attempts(
        self,
        how: Retrier,
        transport: httpx.AsyncHTTPTransport,
        request: httpx.Request,
        attempts: _Attempts,
    ) -> httpx.Response:
        async for attempt in how:
            async with attempt:
                await attempts.forget()
                read_s = min(self._settings.answer_s, attempt.remaining_s)
                connect_s = min(self._settings.connect_s, attempt.remaining_s)
                limits = {"connect": connect_s, "pool": connect_s, "read": read_s, "write": read_s}
                request.extensions["timeout"] = limits
                try:
                    response = await transport.handle_async_request(request)
                except httpx.TransportError as error:
                    attempts.last = error
                    raise _Troubled(attempts.heard(error)) from error
                seen = httpx.Response(response.status_code, headers=response.headers)
                verdict = attempts.heard(seen)
                if verdict.retryable:
                    attempts.answered = response
                    raise _Troubled(verdict)
                return response
        raise AssertionError("the last attempt returns or raises")


class _Attempts:
    """What the attempts of one request came to."""

    def __init__(self) -> None:
        self.answered: httpx.Response | None = None
        self.last: httpx.TransportError | None = None
        self.unsure = False  # one of them may have had an effect
        self.undone = False  # the last one had none, and may come again

    async def forget(self) -> None:
        if self.answered is not None:
            await self.answered.aclose()
            self.answered = None

    def heard(self, came: httpx.TransportError | httpx.Response) -> Verdict:
        verdict = classify(came, now=time.time())
        # A conflict that does not say with what is the word of the API: it is not asked to do
        # anything else.
        if verdict.certainty not in SURE and verdict.bucket is not Bucket.CONFLICT:
            self.unsure = True
        self.undone = verdict.certainty in SURE and verdict.retryable
        return verdict

    def certainty(self, status: int, *, sent_before: bool) -> Certainty | None:
        """What is known after this answer, if that is more than its status says."""
        if self.unsure or sent_before:
            return Certainty.AMBIGUOUS if self.undone or 400 <= status < 500 else None
        return Certainty.NOT_SENT if self.undone else None


def _unsure(send: Send) -> Send:
    """What is sent here is ours, not the API's: there was no answer, whatever becomes of errors."""

    async def tell(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, CERTAINTY: Certainty.AMBIGUOUS}
        await send(message)

    return tell


def _verify(settings: UpstreamSettings) -> ssl.SSLContext | bool:
    if not settings.verify:
        return False
    try:
        return ssl.create_default_context(cafile=settings.ca_file or None)
    except OSError as error:
        why = f"upstream ca_file={settings.ca_file!r} cannot be used: {error}"
        raise ContractViolation(why) from None


class _Pool:
    """Connections to the upstream, and who has them."""

    def __init__(self, verify: ssl.SSLContext | bool, connections: int, *, kept: int) -> None:  # noqa: FBT001
        limits = httpx.Limits(max_connections=connections, max_keepalive_connections=kept)
        self._transport = httpx.AsyncHTTPTransport(verify=verify, limits=limits)
        self._connections = Connections(connections)

    @asynccontextmanager
    async def connection(
        self, tenant: str, wait_s: float
    ) -> AsyncIterator[httpx.AsyncHTTPTransport]:
        try:
            await self._connections.take(tenant, wait_s)
        except TimeoutError:
            error = Unreached if self._connections.held(tenant) == 0 else TooManyAtOnce
            why = "all connections that it may have to the upstream are in use"
            raise error(why, None) from None
        try:
            yield self._transport
        finally:
            self._connections.give_back(tenant)

    async def close(self) -> None:
        await self._transport.aclose()


# ---------------------------------------------------------------- and back


async def _hand_back(
    response: httpx.Response, receive: Receive, send: Send, certainty: Certainty | None
) -> None:
    """The answer as it comes, for as long as the client listens."""
    left = asyncio.create_task(_left(receive))
    try:
        # The server puts its own date on each response.
        headers = [pair for pair in end_to_end(response.headers.raw) if pair[0] != b"date"]
        status = response.status_code
        start = {"type": "http.response.start", "status": status, "headers": headers}
        await send(start if certainty is None else start | {CERTAINTY: certainty})
        async for piece in response.aiter_raw():
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            if left.done():
                return
        await send({"type": "http.response.body", "body": b""})
    except httpx.TransportError as error:
        raise BrokenOff(f"the upstream began to answer, and broke off: {error}") from error
    finally:
        left.cancel()
        await response.aclose()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
