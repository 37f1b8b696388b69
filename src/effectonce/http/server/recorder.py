"""One request as an effect, and the app as its tool.

Theory of operation. The app runs in a task of its own; what it sends is taped. With the last
message of the response the outcome is known, and the engine writes it down; only then does the
end of the response leave, and only then does the app go on, to its background tasks.

 1. No client ever holds a complete response that is not in the record (or in the spool, if it
    could not be stored in time). What is streamed may begin to leave before that, and never
    ends: a broken stream is repeated, and the repeat gets the truth. A client of HTTP/1.0 cannot
    tell a broken stream from one that ended, so to such a client nothing leaves early that is
    kept.
 2. In a transaction nothing leaves before COMMIT: the response may be about something that is
    rolled back.
 3. A client that is gone changes nothing. The app does not notice, the response is recorded to
    its end, and a repeated request gets it.
 4. Whatever becomes of the record, the first client gets the app's own response, except where it
    would not be true: rolled back, or overtaken by another owner. If the record is left open,
    because something may have been done, a header of the response says so.
"""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Struct, structs

from effectonce._core.classification.verdicts import (
    TRIED_HEADER,
    UNSURE,
    Bucket,
    Certainty,
    Verdict,
)
from effectonce.effect import running
from effectonce.errors import NotSent
from effectonce.http.server.problems import BrokenOff
from effectonce.http.server.profiles import Profile
from effectonce.http.server.responses import App, Message, Response, Scope, Send, stored
from effectonce.http.server.spooled_body import Spooled

# in a scope that is an effect already: a middleware inside another one would wait for itself
SEEN = "effectonce.seen"
# in the start of a response of an app of ours, which knows more than a status says
CERTAINTY = "effectonce.certainty"
UNSURE_HERE = (TRIED_HEADER.encode(), UNSURE.encode())
INTERNAL = Response(
    500, ((b"content-type", b"text/plain; charset=utf-8"),), b"Internal Server Error"
)


# it never leaves this package: the response itself is what the client gets
class Unstored(Exception):
    """The app's status is no outcome: nothing was done, or it is unknown whether anything was."""

    def __init__(self, status: int, certainty: Certainty) -> None:
        super().__init__(f"the app answered {status}")
        bucket = Bucket.SCHEMA if certainty is Certainty.NOT_SENT else Bucket.SERVER_ERROR
        self.effectonce_verdict = Verdict(bucket, certainty, str(self), retry=False)


class Undone(Exception):  # raised into the app, where it awaits the end of its response
    """What the app did was rolled back, or has another owner: its response was not delivered."""


class Keeping(Struct, frozen=True):
    """What is kept of responses, and in how much memory."""

    headers: frozenset[bytes]
    response_max: int
    memory_max: int


class ResponseRecorder:
    """One request, from the moment that the app may see it."""

    # As long as the app has not seen it: a request that is answered from its record pays for
    # none of this.
    began = False
    left = False  # some of the response has left
    _task: asyncio.Task[None] | None = None  # None: there is nothing to end
    _ended: asyncio.Future[None]  # the response is complete, or the app has ended without
    _delivered: asyncio.Future[None]
    _shown: dict[str, Any] | None = None  # what the scope had that the app may not see
    _read, _read_all = 0, False
    _start: Message | None = None
    _tape: Spooled | None  # None: it was more than we keep
    _held: Spooled
    _length_left: int | None = None  # None: the app did not say how long its response is
    _complete = _gone = False
    _certainty: Certainty | None = None  # None: the status tells

    def __init__(
        self,
        app: App,
        scope: Scope,
        body: Spooled,
        send: Send,
        profile: Profile,
        keeping: Keeping,
        *,
        in_transaction: bool,
    ) -> None:
        self._app, self._scope, self._body, self._client = app, scope, body, send
        self._profile, self._keeping, self._in_transaction = profile, keeping, in_transaction

    # ------------------------------------------------------------ the tool

    async def run(self) -> dict[str, Any]:
        """Run the app to the end of its response. A return is stored; the engine judges errors."""
        if self._task is not None:
            await self._begin_again(self._task)
        task = self._begin(asyncio.get_running_loop())
        try:
            await self._ended
        except asyncio.CancelledError:
            await self._stop(task)
            raise
        if not self._complete:
            return await self._not_answered(task)
        task.remove_done_callback(self._over)
        assert self._start is not None
        status = self._start["status"]
        certainty = self._certainty or self._no_outcome(status)
        if certainty is not None:
            raise Unstored(status, certainty)
        body = None if self._tape is None else self._tape.whole()
        return stored(status, self._start["headers"], body, self._keeping.headers)

    @property
    def kept(self) -> int:
        """How many bytes of the body are in the record."""
        return 0 if self._tape is None else self._tape.size

    def _no_outcome(self, status: int) -> Certainty | None:
        """What is known after a status that is no outcome. None: it is one."""
        if status in self._profile.not_stored:
            return Certainty.NOT_SENT
        if status >= 500 and (self._in_transaction or not self._profile.stores_5xx):
            return Certainty.AMBIGUOUS
        return None

    def _begin(self, loop: asyncio.AbstractEventLoop) -> asyncio.Task[None]:
        self._ended, self._delivered = loop.create_future(), loop.create_future()
        self._tape = Spooled(self._keeping.response_max)
        self._held = Spooled(self._keeping.memory_max)
        self._task, self.began = loop.create_task(self._call()), True
        self._task.add_done_callback(self._over)
        return self._task

    async def _begin_again(self, before: asyncio.Task[None]) -> None:
        """What the app did before was rolled back, and none of it has left: none of it counts."""
        self.withhold()
        await asyncio.wait([before])
        self._held.close()
        self._read, self._read_all, self._complete = 0, False, False
        self._start, self._length_left = None, None

    async def _call(self) -> None:
        if self._shown is None:
            self._shown = _hide(self._scope)
        await self._app(self._scope, self._receive, self._send)

    def _over(self, _: asyncio.Task[None]) -> None:
        """The app ended, even if it never began: a task can be cancelled before its first step."""
        if not self._ended.done():
            self._ended.set_result(None)

    async def _not_answered(self, task: asyncio.Task[None]) -> dict[str, Any]:
        """The app ended, its response did not. Its own error still goes to the server (`rest`)."""
        error = task.exception() if not task.cancelled() else asyncio.CancelledError()
        says_more = isinstance(error, asyncio.CancelledError | NotSent | BrokenOff)
        if says_more or self._in_transaction or not self._profile.stores_5xx:
            raise error or RuntimeError("the app returned without completing its response")
        if not self.left:
            status, headers = INTERNAL.status, list(INTERNAL.headers)
            self._start = {"type": "http.response.start", "status": status, "headers": headers}
            self._held, self._complete = Spooled(self._keeping.memory_max), True
            await self._held.add(INTERNAL.body)
        return stored(INTERNAL.status, INTERNAL.headers, INTERNAL.body, self._keeping.headers)

    # ------------------------------------------------------------ what the app sees

    async def _receive(self) -> Message:
        """The body that was read before; after it, nothing until the response is out."""
        if not self._read_all:
            body = self._body
            piece, self._read_all = body.whole(), True
            if not body.in_memory:
                piece, self._read_all = await body.piece(self._read)
            self._read += len(piece)
            return {"type": "http.request", "body": piece, "more_body": not self._read_all}
        await asyncio.wait([self._delivered])
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.body":
            if self._start is None:
                raise RuntimeError("the app sent a body before it started its response")
            if not self._complete:
                await self._take(message.get("body", b""), more=message.get("more_body", False))
        elif message["type"] == "http.response.start":
            # A copy of its own: a middleware outside may write into the list that it gets, and
            # that is not what the app sent.
            headers, length = [], None
            for name, value in message.get("headers", ()):
                headers.append((name, value))
                if length is None and name.lower() == b"content-length":
                    length = value
            self._start = dict(message, headers=headers)
            self._certainty = self._start.pop(CERTAINTY, None)
            self._length_left = None if length is None else int(length)
        # trailers, pushes, hints: we did not offer them

    async def _take(self, piece: bytes, *, more: bool) -> None:
        if self._tape is not None and not self._tape.takes(piece):
            self._tape = None
        if not self._held.takes(piece):
            await self._held.add(piece)
        if self._length_left is not None:
            self._length_left -= len(piece)
        if not more:
            self._complete = True
            self._ended.set_result(None)
            try:
                await self._delivered
            finally:
                _leave_transaction()
        elif not self._in_transaction and self._may_begin():
            await self._let_go(more=True)

    def _may_begin(self) -> bool:
        """May it leave? Only if the client will see that it is not all, or it may have no end."""
        if self._length_left is not None:
            return self._length_left > 0
        return self._scope.get("http_version") != "1.0" or self._tape is None

    # ------------------------------------------------------------ what the client gets

    async def _let_go(self, *, more: bool) -> None:
        held, self._held = self._held, Spooled(self._keeping.memory_max)
        if not self.left:
            assert self._start is not None
            self.left = True
            await self._tell(dict(self._start, headers=list(self._start["headers"])))
        sent, last = 0, False
        while not last:
            piece, last = (held.whole(), True) if held.in_memory else await held.piece(sent)
            sent += len(piece)
            goes_on = more or not last
            await self._tell({"type": "http.response.body", "body": piece, "more_body": goes_on})
        held.close()

    async def _tell(self, message: Message) -> None:
        if not self._gone:
            try:
                await self._client(message)
            except OSError:  # the client is gone: the outcome is the same
                self._gone = True

    async def deliver(self) -> None:
        """The outcome is recorded: the rest of the response may leave, and the app may go on."""
        if self._complete:
            await self._let_go(more=False)
        if not self._delivered.done():
            self._delivered.set_result(None)

    def doubt(self) -> None:
        """Whatever the status says, this run or one before it may have done something."""
        if self._start is not None and not self.left:
            self._start["headers"].append(UNSURE_HERE)

    def withhold(self) -> None:
        """The response is not true any more: the app gets an error where it awaits its end."""
        if self._complete and not self._delivered.done():
            why = "its response was not delivered: what it says did not become the outcome"
            self._delivered.set_exception(Undone(why))

    def raised(self, error: BaseException) -> bool:
        """Is this the app's own error? Then `rest` raises it, where the server expects it."""
        task = self._task
        if task is None or not task.done() or task.cancelled():
            return False
        return task.exception() is error

    async def rest(self) -> None:
        """Whatever the app does after its response: background tasks, and its errors."""
        if self._task is not None:
            try:
                await self._task
            except Undone:
                # raised where the app awaited the end of its response, and nothing more comes of it
                return

    async def _stop(self, task: asyncio.Task[None]) -> None:
        """Cancel the app; wait, even if cancelled: a thread goes on, perhaps in our transaction."""
        cancelled: asyncio.CancelledError | None = None
        task.cancel()
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled

    async def close(self) -> None:
        """Nothing of it stays: neither the task nor a file, and the scope is as it was."""
        if self._task is None:
            return
        try:
            self._delivered.cancel()  # if it is not known yet
            self._held.close()
            if not self._task.done():
                await self._stop(self._task)
        finally:
            if self._shown is not None:
                self._scope.pop(SEEN, None)
                self._scope.update(self._shown)


def _hide(scope: Scope) -> dict[str, Any]:
    """Make it as the app may see it: what it says is stored as it is, so it is not compressed
    for one client, and not sent past us.

    It is the same object, because layers outside read what a router finds; and it ends as it
    was, as this returns it: a layer that hands it on again, to us or to another app, hands on a
    request that no app has seen.
    """
    shown = {name: scope[name] for name in ("headers", "extensions") if name in scope}
    scope[SEEN] = True
    scope["headers"] = [pair for pair in scope["headers"] if pair[0] != b"accept-encoding"]
    given, ours = scope.get("extensions"), "http.response."
    if given:
        scope["extensions"] = {name: given[name] for name in given if not name.startswith(ours)}
    return shown


def _leave_transaction() -> None:
    """Where the app goes on: its transaction is over, another call may be using the connection."""
    effect = running.get()
    if effect is not None and effect.lent is not None:
        running.set(structs.replace(effect, lent=None))
