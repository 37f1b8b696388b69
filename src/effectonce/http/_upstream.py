"""One upstream, as an ASGI app: what stands behind the middleware of a gateway.

A request is sent on under the policy of its upstream: attempts, deadline, breaker and retry budget. Another attempt is made only if nothing
was sent, or if sending the same request again does no harm: a safe method, or a key that the upstream honours. So there are three ends:

 1. The upstream answered. Its answer goes back as it is, whatever its status.
 2. Nothing was sent. `Unreached` says so to the middleware, and the key stays as good as new.
 3. It was sent, and there is no answer. That is a 502 or a 504 of ours, or an answer that breaks off; the middleware is told what it is:
    nobody knows.

An answer that refuses is no outcome if it only asks to come again, or if an attempt before it may have landed. The client gets it as it is,
and the middleware is told beside it what is known.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator

import httpx

from effectonce import Verdict, classify
from effectonce._core.verdicts import SURE, Bucket, Certainty
from effectonce.circuit import Circuit
from effectonce.effect import Effect, running
from effectonce.errors import CircuitOpen, ContractViolation, GaveUp
from effectonce.http._answers import Answer, Headers, Message, Receive, Scope, Send
from effectonce.http._exchange import CERTAINTY
from effectonce.http._gateway_settings import UpstreamSettings
from effectonce.http._problems import BrokenOff, Gone, TooLarge, Unreached, problem
from effectonce.http._spooled import Spooled
from effectonce.policy import Retry
from effectonce.retry_budget import RetryBudget
from effectonce.retrying import Retrier, retry
from effectonce.stores.base import Store

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
# What is said to the next hop only. What else `Connection` names goes as well.
HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"expect",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
FORWARDED = frozenset({b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-port", b"x-forwarded-proto"})


class _Troubled(Exception):
    """An attempt that could have gone better."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.why)
        self.effectonce_verdict = verdict


class _Body(httpx.AsyncByteStream):
    """The body of a request, as it comes, and taped: a refusal that asks to come again is answered with the whole of it."""

    def __init__(self, receive: Receive, body_max: int, memory_max: int) -> None:
        self._receive, self._body_max, self._tape, self._more = receive, body_max, Spooled(memory_max), True

    async def __aiter__(self) -> AsyncIterator[bytes]:
        sent = 0
        while sent < self._tape.size:
            piece, _ = await self._tape.piece(sent)
            sent += len(piece)
            yield piece
        while self._more:
            piece = await self._next()
            if piece:
                yield piece

    async def _next(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise Gone
        piece: bytes = message.get("body", b"")
        self._more = message.get("more_body", False)
        if self._tape.size + len(piece) > self._body_max:
            raise TooLarge
        await self._tape.add(piece)
        return piece

    def untape(self) -> None:
        self._tape.close()


class Upstream:
    """Sends each request on, and its answer back."""

    def __init__(
        self,
        settings: UpstreamSettings,
        policy: Retry,
        circuit: Circuit,
        budget: RetryBudget,
        store: Store,
        *,
        body_max: int,
        memory_max: int,
    ) -> None:
        self._settings, self._url = settings, httpx.URL(settings.url)
        self._body_max, self._memory_max = body_max, memory_max
        self._once, self._again = (
            retry(policy, kind=kind, one_request=True, breaker=circuit, budget=budget, store=store, name="the upstream")
            for kind in ("write", "idempotent_write")
        )
        verify = _verify(settings)
        self._kept = _transport(verify, settings.connections, kept=settings.connections)
        # A connection that was kept may be closed by the upstream just when we use it, and then nobody knows. A new one costs less.
        self._new = _transport(verify, settings.connections, kept=0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        effect = running.get()
        honoured = effect is not None and self._settings.honours_key_s is not None
        repeatable = honoured or scope["method"] in SAFE
        body = _Body(receive, self._body_max, self._memory_max)
        try:
            attempts = _Attempts()
            answer = await self._ask(self._request(scope, body, effect), attempts, repeatable=repeatable)
            if isinstance(answer, Answer):
                await answer.deliver(send if effect is None else _unsure(send))
            else:
                certainty = None if effect is None else attempts.certainty(answer.status_code, sent_before=effect.sent_before)
                await _hand_back(answer, receive, send, certainty)
        finally:
            body.untape()

    async def close(self) -> None:
        """Close what is kept open."""
        await self._kept.aclose()
        await self._new.aclose()

    # ------------------------------------------------------------ there

    def _request(self, scope: Scope, body: _Body, effect: Effect | None) -> httpx.Request:
        target = self._url.raw_path.rstrip(b"/") + scope["raw_path"]
        if scope["query_string"]:
            target += b"?" + scope["query_string"]
        headers = _onward(scope, self._settings, self._url, None if effect is None else effect.downstream_key)
        return httpx.Request(scope["method"], self._url, headers=headers, stream=body, extensions={"target": target})

    async def _ask(self, request: httpx.Request, attempts: _Attempts, *, repeatable: bool) -> httpx.Response | Answer:
        how = self._again if repeatable else self._once
        transport = self._kept if repeatable else self._new
        try:
            return await self._attempts(how, transport, request, attempts)
        except (_Troubled, GaveUp, CircuitOpen) as error:
            if attempts.answered is not None:
                return attempts.answered
            if attempts.unsure:
                return _no_answer(attempts.last)
            after_s = error.retry_after_s if isinstance(error, CircuitOpen | GaveUp) else None
            raise Unreached(f"the upstream was not reached: {error}", after_s) from error

    async def _attempts(
        self, how: Retrier, transport: httpx.AsyncHTTPTransport, request: httpx.Request, attempts: _Attempts
    ) -> httpx.Response:
        async for attempt in how:
            async with attempt:
                await attempts.forget()
                answer_s = min(self._settings.answer_s, attempt.remaining_s)
                connect_s = min(self._settings.connect_s, attempt.remaining_s)
                request.extensions["timeout"] = {"connect": connect_s, "pool": connect_s, "read": answer_s, "write": answer_s}
                try:
                    response = await transport.handle_async_request(request)
                except httpx.TransportError as error:
                    raise attempts.failed(error, classify(error, now=time.time())) from error
                verdict = classify(httpx.Response(response.status_code, headers=response.headers), now=time.time())
                if verdict.retryable:
                    raise attempts.unwell(response, verdict)
                attempts.heard(verdict)
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

    def failed(self, error: httpx.TransportError, verdict: Verdict) -> _Troubled:
        self.last = error
        self.heard(verdict)
        return _Troubled(verdict)

    def unwell(self, response: httpx.Response, verdict: Verdict) -> _Troubled:
        self.answered = response
        self.heard(verdict)
        return _Troubled(verdict)

    def heard(self, verdict: Verdict) -> None:
        # A conflict that does not say with what is the word of the API: it is not asked to do anything else.
        self.unsure = self.unsure or not (verdict.certainty in SURE or verdict.bucket is Bucket.CONFLICT)
        self.undone = verdict.certainty in SURE and verdict.retryable

    def certainty(self, status: int, *, sent_before: bool) -> Certainty | None:
        """What is known after this answer, if that is more than its status says."""
        if self.unsure or sent_before:
            return Certainty.AMBIGUOUS if self.undone or 400 <= status < 500 else None
        return Certainty.NOT_SENT if self.undone else None


def _no_answer(error: httpx.TransportError | None) -> Answer:
    if isinstance(error, httpx.TimeoutException):
        return problem("UPSTREAM_TIMED_OUT")
    return problem("UPSTREAM_BROKE_OFF")


def _unsure(send: Send) -> Send:
    """What is sent here is our own word, and not that of the API: there was no answer, whatever becomes of errors."""

    async def tell(message: Message) -> None:
        await send({**message, CERTAINTY: Certainty.AMBIGUOUS} if message["type"] == "http.response.start" else message)

    return tell


def _verify(settings: UpstreamSettings) -> ssl.SSLContext | bool:
    if not settings.verify:
        return False
    try:
        return ssl.create_default_context(cafile=settings.ca_file or None)
    except OSError as error:
        raise ContractViolation(f"upstream ca_file={settings.ca_file!r} cannot be used: {error}") from None


def _transport(verify: ssl.SSLContext | bool, connections: int, *, kept: int) -> httpx.AsyncHTTPTransport:  # noqa: FBT001
    limits = httpx.Limits(max_connections=connections, max_keepalive_connections=kept)
    return httpx.AsyncHTTPTransport(verify=verify, limits=limits)


# ---------------------------------------------------------------- headers


def end_to_end(headers: Headers) -> list[tuple[bytes, bytes]]:
    """The headers that are meant for more than the next hop."""
    lines = [(name.lower(), value.strip(b" \t")) for name, value in headers]  # space around a value is no part of it
    named = {word.strip().lower() for name, value in lines if name == b"connection" for word in value.split(b",")}
    named.discard(b"content-length")  # without it the body would be no part of the message
    if any(name == b"transfer-encoding" for name, _ in lines):
        named.add(b"content-length")  # where both are, somebody else could see another end of it than we did
    return [(name, value) for name, value in lines if name not in HOP_BY_HOP and name not in named]


def _onward(scope: Scope, settings: UpstreamSettings, url: httpx.URL, key: str | None) -> list[tuple[bytes, bytes]]:
    """What the upstream is told: as the client said it, for its own host, under our key, and who the client was."""
    chunked = any(name == b"transfer-encoding" for name, _ in scope["headers"])
    dropped = {b"host", settings.key_header.lower().encode()} | (set() if settings.trust_forwarded else FORWARDED)
    if key is not None:
        dropped |= {b"idempotency-key"}
    headers = [(name, value) for name, value in end_to_end(scope["headers"]) if name not in dropped]
    headers.insert(0, (b"host", url.netloc))
    if chunked:
        headers.append((b"transfer-encoding", b"chunked"))
    if key is not None:
        headers.append((settings.key_header.encode(), (f'"{key}"' if settings.key_quoted else key).encode()))
    return _forwarded(headers, scope)


def _forwarded(headers: list[tuple[bytes, bytes]], scope: Scope) -> list[tuple[bytes, bytes]]:
    """Who asked, of which host and how: in addition to what a proxy before us said, if that is trusted."""
    host = next(value for name, value in scope["headers"] if name == b"host")
    client = scope["client"][0] if scope.get("client") else "unknown"
    before = [value for name, value in headers if name == b"x-forwarded-for"]
    told = {name for name, _ in headers}
    made = [(name, value) for name, value in headers if name != b"x-forwarded-for"]
    made.append((b"x-forwarded-for", b", ".join((*before, client.encode()))))
    said = ((b"x-forwarded-host", host), (b"x-forwarded-proto", scope["scheme"].encode()))
    return made + [(name, value) for name, value in said if name not in told]


# ---------------------------------------------------------------- and back


async def _hand_back(response: httpx.Response, receive: Receive, send: Send, certainty: Certainty | None) -> None:
    """The answer as it comes, for as long as somebody listens."""
    left = asyncio.create_task(_left(receive))
    try:
        # The server puts its own date on each response.
        headers = [(name, value) for name, value in end_to_end(response.headers.raw) if name != b"date"]
        beside = {} if certainty is None else {CERTAINTY: certainty}
        await send({"type": "http.response.start", "status": response.status_code, "headers": headers, **beside})
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
