"""The proxy over streamable HTTP, as an ASGI app: in front of one server, for clients in any
language.

As on stdio everything passes as it came, except calls of tools that are not reads. What differs:

 1. A client that closes its connection has given up, as has one that says so. Its call goes on,
    is recorded, and counts as not shown; a session that the client ends is ended when its calls
    are. What else became of an answer is not seen here, so in a conversation as well the same
    call is taken for a retry for a while.
 2. A caller is all that it sends on and that may be a credential, as a keyed digest: see
    `_credentials_of_callers.py`. A new token is a new caller.
 3. A round that asks for input ends the claim, and nothing is recorded: the next round claims it
    again, under the same key.
 4. A call that needs an approval is a question to the person at the client, as on stdio. In the
    older versions it is asked in the stream that answers the call, and the client answers it
    with a request of its own, in the same session.
 5. Requests from a page of another site are refused, and those for another host, whatever their
    method: a browser must not be able to call tools here, nor to listen.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from effectonce._core.classification.verdicts import Certainty
from effectonce.effect import current_effect
from effectonce.errors import EffectOnceError, StoreUnavailable
from effectonce.guard import Guard
from effectonce.mcp._calls import (
    BESIDE_S,
    McpCall,
    NotRecognised,
    ToolError,
    Unanswered,
    result_of,
    shown,
    too_large,
    tool_call,
)
from effectonce.mcp._contracts import CALLS_S, Contracts, hidden_in
from effectonce.mcp._credentials_of_callers import SESSION, Callers, NoCaller
from effectonce.mcp._effects import Effects, HeldCall
from effectonce.mcp._elicitation import InputRequired, PersonAtClient, can_elicit
from effectonce.mcp._http_client import JSON, HttpClient, Receive, Scope, Send
from effectonce.mcp._http_questions import Questions, Session
from effectonce.mcp._jsonrpc import (
    BAD_ID,
    CALL_MAX,
    Envelope,
    name_of,
    outside,
    refused_in,
    written,
)
from effectonce.mcp._results import answer, failure, refused
from effectonce.outcome import Outcome

if TYPE_CHECKING:
    from effectonce.mcp._upstream import Reply, StreamEvent

# a proxy between us and the server has waited too long: it may have gone on
NO_ANSWER = frozenset({408, 499})
LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
# for a piece of a body, and for all of it, if nothing else is given
BODY_PIECE_S, BODY_S = 20.0, 120.0


class Asking:
    """A call at the server."""

    def __init__(self, proxy: McpHttpProxy, call: McpCall, client: HttpClient) -> None:
        self._proxy, self._call, self._client = proxy, call, client
        self.reply: Reply | None = None
        self.last: StreamEvent | None = None  # the one with the result, as it came

    async def run(self) -> dict[str, Any]:
        """Ask. What is returned is recorded; what is raised is judged by the engine."""
        self.last = None
        key = current_effect().downstream_key
        self.reply = await self._proxy.ask(self._client, written(self._call.with_key(key)).rstrip())
        async with (
            contextlib.aclosing(self.reply),
            contextlib.aclosing(self._events(self.reply, self._call.id)) as events,
        ):
            async for event in events:
                if event.answers(name_of(self._call.id)):
                    self.last = event
                elif self.reply.status >= 400:
                    self.last = event
                    refused = self.reply.status < 500 and self.reply.status not in NO_ANSWER
                    certainty = Certainty.NOT_SENT if refused else Certainty.AMBIGUOUS
                    why = f"the server answered {self.reply.status}"
                    raise ToolError(why, event.raw, certainty)
                elif self.reply.is_stream:
                    await self.hand_on(event)
        if self.last is None:
            raise Unanswered("the server's answer ended before its result", sent=True)
        result = result_of(self.last.message)
        return await self._call.judged(result, self.last.raw, key, self._request)

    def _events(self, reply: Reply, request_id: Any) -> AsyncGenerator[StreamEvent]:
        """Of the answer to a request, wherever the server goes on with it."""
        name = name_of(request_id)
        return self._proxy.followed(reply, self._client, lambda event: event.answers(name))

    async def _request(self, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        """Ask the server about the call, beside it. None: it did not answer with a result."""
        message = self._call.beside("dev.effectonce/1", method, params)
        with contextlib.suppress(Unanswered, ToolError, TimeoutError):
            async with asyncio.timeout(BESIDE_S):
                reply = await self._proxy.ask(self._client, written(message).rstrip(), method)
                async with (
                    contextlib.aclosing(reply),
                    contextlib.aclosing(self._events(reply, message["id"])) as events,
                ):
                    async for event in events:
                        if event.answers(name_of(message["id"])):
                            return result_of(event.message)
        return None

    async def say(self, message: dict[str, Any]) -> None:
        """An answer of ours, in the form in which the server gives its own."""
        if self.reply is not None and self.reply.is_stream:
            await self._client.begin(200, self.reply.headers)
        await self._client.say(200, message)

    async def hand_on(self, event: StreamEvent, *, more: bool = True) -> None:
        assert self.reply is not None
        if self._client.begun and not self.reply.is_stream:  # the person was asked in a stream
            await self._client.event(event.raw, more=more)
        else:
            await self._client.begin(self.reply.status, self.reply.headers)
            await self._client.piece(event.raw, more=more)


async def _run(asking: Asking) -> dict[str, Any]:
    return await asking.run()


class McpHttpProxy:
    """Stands in front of the server at *url*. Serve it with `effectonce mcp http`, or with
    limits of your own for what headers may cost.

    *hosts* are names that it answers to, besides those of this machine, and *origins* the sites
    whose pages may ask. *ignored* are headers that say nothing about who calls. *one_caller*
    says that all who send no credentials are one. A body that rests for *body_piece_s* seconds,
    or takes longer than *body_s* in all, is not waited for.
    """

    def __init__(
        self,
        guard: Guard,
        contracts: Contracts,
        url: str,
        *,
        origins: tuple[str, ...] = (),
        hosts: tuple[str, ...] = (),
        ignored: tuple[str, ...] = (),
        one_caller: bool = False,
        call_max: int = CALL_MAX,
        body_piece_s: float = BODY_PIECE_S,
        body_s: float = BODY_S,
    ) -> None:
        # with httpx, which only this needs
        from effectonce.mcp._upstream import McpUpstream, followed  # noqa: PLC0415

        self._contracts, self._origins, self._call_max = contracts, frozenset(origins), call_max
        self._body_piece_s, self._body_s = body_piece_s, body_s
        self._hosts = LOCAL | {host.lower() for host in hosts}
        all_one = "start the proxy with --one-caller"
        self._callers = Callers(guard, all_one=all_one, ignored=ignored, one_caller=one_caller)
        self._upstream, self._follow = McpUpstream(url), followed
        server = contracts.name or url
        self._effects = Effects(guard, contracts, _run, server=server, sees_client=False)
        self._listed: dict[str, Any] = {}
        self._person, self._questions = PersonAtClient(guard, contracts.approver), Questions()
        # calls that are effects. Without a session, many may have one id
        self._under_way: dict[Session, list[McpCall]] = {}
        self._to_end: dict[Session, HttpClient] = {}  # sessions that wait for theirs
        self._ending: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._live(receive, send)
        if scope["type"] != "http":
            return await send({"type": "websocket.close", "code": 1003})
        client = HttpClient(scope, receive, send)
        if not self._is_for_us(client):
            why = "requests for this host are refused; --allow-host names others"
            return await client.say(403, {"error": why})
        if not self._is_ours(client):
            return await client.say(403, {"error": "requests from this origin are refused"})
        body = None
        try:
            if scope["method"] == "POST":
                body = await client.body(self._call_max, self._body_piece_s, self._body_s)
        except TimeoutError:
            await client.begin(408, [*JSON, (b"connection", b"close")])
            why = "The body of this request was not complete in time. Nothing was sent."
            return await client.piece(written(failure(None, why)).rstrip(), more=False)
        if client.gone:
            return None
        if body is not None and len(body) > self._call_max:
            return await client.say(413, failure(None, too_large(self._call_max)))
        try:
            return await self._serve(client, body)
        except Unanswered as error:
            return await client.say(502, failure(None, f"{error}."))
        finally:
            client.close()

    async def _live(self, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await self._upstream.close()
        await send({"type": "lifespan.shutdown.complete"})

    def _is_for_us(self, client: HttpClient) -> bool:
        """Rule 5. Another site's name for this machine is how its page comes without an origin."""
        named = [_host(f"//{value.decode('latin-1')}") for value in client.header_values(b"host")]
        return len(named) == 1 and named[0] in self._hosts

    def _is_ours(self, client: HttpClient) -> bool:
        """Rule 5. A client that is no browser sends no origin."""
        named = [value.decode("latin-1") for value in client.header_values(b"origin")]
        return all(origin in self._origins or _host(origin) in LOCAL for origin in named)

    def _session(self, client: HttpClient) -> Session:
        """Who calls, and the session, if any: what the client gives up is named within it."""
        return self._callers.credentials(client.scope), b" ".join(client.header_values(SESSION))

    async def _serve(self, client: HttpClient, body: bytes | None) -> None:
        session = self._session(client)
        calls = self._under_way.get(session, [])
        if client.scope["method"] == "DELETE":
            self._questions.forget(session)
        if client.scope["method"] == "DELETE" and calls:
            self._to_end[session] = client  # rule 1: it does not have to wait
            return await client.done(200)
        message = None if body is None else outside(body)
        if body is not None and message is None and (refusal := refused_in(body)) is not None:
            return await client.say(400, failure(*refusal))
        if message is not None and message.has_bad_id:
            return await client.say(400, failure(None, BAD_ID))
        if body is None or message is None:
            return await self._pass(client, body)
        given_up = [call for call in calls if name_of(call.id) == message.given_up]
        for call in given_up:
            call.given_up = True
        if given_up:
            return await client.done(202)
        if message.is_response and self._questions.answer(session, message.name, body):
            return await client.done(202)
        if message.is_request and message.method == "initialize":
            return await self._pass(client, body, greets=can_elicit(body))
        if message.is_request and message.method == "tools/list":
            return await self._list(client, body)
        if message.is_request and message.method == "tools/call":
            return await self._call(client, message, body)
        return await self._pass(client, body)

    # ------------------------------------------------------------ what passes

    async def ask(self, client: HttpClient, body: bytes | None, instead: str = "") -> Reply:
        """Send a request on, with the client's headers. *instead*: the method of one of ours."""
        scope, headers = client.scope, client.scope["headers"]
        if instead:  # these two repeat what the body says
            names = {name for name, _ in headers}
            headers = without(headers, b"mcp-method", b"mcp-name")
            if b"mcp-method" in names:
                headers.append((b"mcp-method", instead.encode()))
        return await self._upstream.ask(scope["method"], headers, body, scope["query_string"])

    def followed(
        self, reply: Reply, client: HttpClient, is_last: Callable[[StreamEvent], bool]
    ) -> AsyncGenerator[StreamEvent]:
        """The events of an answer. One whose stream is closed before its last event is resumed."""
        own = (b"accept", b"content-type", b"last-event-id", b"mcp-method", b"mcp-name")
        kept = without(client.scope["headers"], *own)

        async def resume(position: bytes) -> Reply:
            headers = [*kept, (b"accept", b"text/event-stream"), (b"last-event-id", position)]
            return await self._upstream.ask("GET", headers, None, client.scope["query_string"])

        return self._follow(reply, is_last, resume, CALLS_S)

    async def _pass(self, client: HttpClient, body: bytes | None, *, greets: bool = False) -> None:
        """*greets*: the client can ask its person, in the session that begins with the answer."""
        client.watch()
        async with contextlib.aclosing(await self.ask(client, body)) as reply:
            for name, session in reply.headers:
                if greets and name.lower() == SESSION:
                    self._questions.can_ask((self._callers.credentials(client.scope), session))
            await client.begin(reply.status, reply.headers)
            with contextlib.suppress(Unanswered):  # the client sees where it ends
                async for piece in _until(client, reply.pieces()):
                    await client.piece(piece, more=True)
        await client.piece(b"", more=False)

    async def _list(self, client: HttpClient, body: bytes) -> None:
        async with contextlib.aclosing(await self.ask(client, body)) as reply:
            async for event in reply.events():
                await client.begin(reply.status, reply.headers)
                hidden = None
                if event.message:
                    hidden = hidden_in(event.message, self._contracts, self._listed)
                raw = event.raw if hidden is None else event.saying(hidden.rstrip())
                await client.piece(raw, more=True)
        await client.begin(reply.status, reply.headers)
        await client.piece(b"", more=False)

    # ------------------------------------------------------------ an effect

    async def _call(self, client: HttpClient, message: Envelope, body: bytes) -> None:
        try:
            call = tool_call(body, self._contracts, self._listed)
        except NotRecognised as error:
            return await client.say(400, failure(message.id, str(error)))
        name, contract = call.name, call.contract
        if contract.passes:
            return await self._pass(client, body)
        client.watch()
        asking, session = Asking(self, call, client), self._session(client)
        self._under_way.setdefault(session, []).append(call)

        async def once() -> tuple[HeldCall, Outcome[Any]]:
            entry = await self._effects.enter(
                name, call.arguments, contract, call.meta, tenant=whose
            )
            return entry, await entry.run(asking)

        async def elicit(params: Mapping[str, Any]) -> Any:
            return await self._questions.ask(session, client, params, contract.input_s)

        try:
            whose = await self._callers.tenant(session[0])
            ended = await self._person.around(call, once, elicit)
            if isinstance(ended, InputRequired):
                return await asking.say(answer(call.id, ended.result))
            entry, outcome = ended
        except NoCaller as error:
            return await client.say(400, failure(call.id, f"{error}."))
        except ToolError:
            assert asking.last is not None
            return await asking.hand_on(asking.last, more=False)
        except EffectOnceError as error:
            return await asking.say(answer(call.id, refused(error, contract, modern=call.modern)))
        finally:
            self._forget(session, call)
        if outcome.error is None:
            if not client.gone and not call.given_up:
                # then it is not counted, and the same call is replayed
                with contextlib.suppress(StoreUnavailable):
                    await self._effects.shown(entry)
            if not outcome.replayed and asking.last is not None:
                return await asking.hand_on(asking.last, more=False)
        return await asking.say(answer(call.id, shown(outcome, entry, modern=call.modern)))

    def _forget(self, session: Session, call: McpCall) -> None:
        calls = self._under_way[session]
        calls.remove(call)
        if calls:
            return
        del self._under_way[session]
        leaving = self._to_end.pop(session, None)
        if leaving is not None:
            task = asyncio.ensure_future(self._end(leaving))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def _end(self, client: HttpClient) -> None:
        with contextlib.suppress(Unanswered):
            async for _ in (await self.ask(client, None)).pieces():
                pass


async def _until(client: HttpClient, pieces: Any) -> Any:
    """What comes, for as long as the client is there to get it: a stream may have no end."""
    coming = aiter(pieces)
    while not client.gone:
        following = asyncio.ensure_future(anext(coming, None))
        assert client._leaving is not None  # noqa: SLF001  # it is watched
        await asyncio.wait([following, client._leaving], return_when=asyncio.FIRST_COMPLETED)  # noqa: SLF001
        if not following.done():
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await following
            return
        piece = following.result()
        if piece is None:
            return
        yield piece


def without(headers: Iterable[tuple[bytes, bytes]], *names: bytes) -> list[tuple[bytes, bytes]]:
    return [pair for pair in headers if pair[0] not in names]


def _host(origin: str) -> str | None:
    """The host of a URL, or of what stands behind `//` in one."""
    try:
        return urlsplit(origin).hostname
    except ValueError:
        return None
