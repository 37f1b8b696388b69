"""A proxy on stdin and stdout: every call of a tool lands once, however often it is repeated.

Theory of operation. Everything passes as the bytes that came, in both directions, whatever
version of the protocol they are of. Three things are looked at: the list of tools (what does the
server say about them, and which argument must the model not see?), calls of tools, and what the
client gives up. A call of a tool that is not a read is an effect, and the server is its tool:
claimed, sent, recorded and replayed by the same engine and in the same store as any other.

 1. What the client gives up goes on. It gets no answer any more, as the protocol demands, and
    the server does not learn of it: a result that comes late is recorded, and a client that
    makes the same call again gets it.
 2. A server that dies leaves doubts, not repeats: calls without an answer are in doubt, unless
    the server honours our key. It is started again when it is needed, and greeted as the client
    greeted it.
 3. A server that asks for more input has not given a result. The claim is kept until the client
    brings it.
 4. A client that is gone changes nothing: what was sent is waited for, and recorded. What has no
    answer after an hour is in doubt.
 5. A call that needs an approval is a question to the person at the client, if the client can ask:
    an elicitation. Otherwise its result is that it waits, with its reference.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import signal
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from effectonce._log import LOG
from effectonce.errors import EffectOnceError, StoreUnavailable
from effectonce.guard import Guard
from effectonce.mcp._calls import (
    BESIDE_S,
    McpCall,
    NotRecognised,
    ServerCall,
    ToolError,
    Unanswered,
    result_of,
    run,
    shown,
    too_large,
    tool_call,
)
from effectonce.mcp._contracts import CALLS_S, Contracts, hidden_in
from effectonce.mcp._effects import Effects
from effectonce.mcp._elicitation import ELICIT, InputRequired, PersonAtClient, can_elicit
from effectonce.mcp._jsonrpc import (
    ANSWER_MAX,
    BAD_ID,
    CALL_MAX,
    LINE_MAX,
    Envelope,
    answered,
    each,
    id_at_ends,
    name_of,
    outside,
    refused_in,
    written,
)
from effectonce.mcp._results import answer, failure, refused
from effectonce.mcp._stdio import ClientPipes, Cut, ServerNotStarted, ServerProcess

STARTS_MAX = 3  # in a row, of a server that ends without a word, and not over a call


class Proxy:
    """Stands between one client and one server, until one of them is done."""

    def __init__(
        self,
        guard: Guard,
        contracts: Contracts,
        command: Sequence[str],
        *,
        conversation: str = "",
        client: ClientPipes | None = None,
        linger_s: float = CALLS_S,
        call_max: int = CALL_MAX,
    ) -> None:
        """*linger_s* is how long calls are waited for when the client is gone: what has no
        answer then is in doubt.

        *call_max* is how many bytes a call may have.
        """
        self._contracts, self._command = contracts, command
        self._client = ClientPipes() if client is None else client
        self._conversation, self._linger_s, self._call_max = conversation, linger_s, call_max
        self._effects = Effects(
            guard, contracts, run, server=contracts.name or shlex.join(command), sees_client=True
        )
        self._listed: dict[str, Any] = {}  # what the server says about its tools
        # of the client, that are effects and have no answer yet
        self._calls: dict[str, McpCall] = {}
        # of them, those that a server has
        self._sent: dict[str, tuple[ServerProcess, asyncio.Future[bytes]]] = {}
        # other requests of the client, at a server
        self._passed: dict[str, tuple[ServerProcess, Any, str]] = {}
        self._open: dict[str, ServerCall] = {}  # effects whose server waits for input
        # answered; it is not known yet whether anybody heard it
        self._unproven: dict[str, McpCall] = {}
        self._asked: dict[str, ServerProcess] = {}  # requests of a server, at the client
        self._stale: set[str] = set()  # of them, those of a server that is dead
        # questions of ours, at the client
        self._questions: dict[str, asyncio.Future[bytes]] = {}
        self._elicits = False
        self._person = PersonAtClient(guard, contracts.approver)
        self._greeting: list[bytes] = []  # how the client greeted: initialize, initialized
        self._greeted: asyncio.Future[bytes] | None = None
        self._server: ServerProcess | None = None
        self._starting = asyncio.Lock()
        self._starts = 0
        self._requests = 0  # of our own, to any of them
        self._heard = False  # from any of its processes
        self._hearing: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()  # one for each call that is an effect
        self._ended: asyncio.Future[int]

    async def run(self) -> int:
        """Until the client closes its end, or the server cannot be started: the exit code."""
        self._ended = asyncio.get_running_loop().create_future()
        await self._at_server()
        listening = asyncio.create_task(self._listen())
        # a request to end: rule 4 is kept, for as long as we are let
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, listening.cancel)
        either: list[asyncio.Future[Any]] = [listening, self._ended]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        listening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await listening
        for exchange in list(self._open.values()):
            exchange.abandon()
        for said in self._questions.values():
            if not said.done():
                said.set_result(b"")
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._linger_s)
        if self._ended.done():
            return self._ended.result()
        assert self._server is not None
        assert self._hearing is not None
        self._ended.set_result(0)  # no other server is started from here on
        code = await self._server.stop()
        await self._hearing
        if self._tasks:  # they know now that there will be no answer
            await asyncio.wait(self._tasks)
        return code

    # ------------------------------------------------------------ from the client

    async def _listen(self) -> None:
        async for line, arrived in self._client.lines():
            batch = each(line)
            effects = batch != [line] and any(
                (message := outside(one)) and message.method == "tools/call" for one in batch
            )
            for one in batch if effects else [line]:
                await self._from_client(one, arrived)

    async def _from_client(self, line: bytes, arrived: float) -> None:
        if isinstance(line, Cut):
            why = f"A message has at most {LINE_MAX} bytes. Nothing was sent."
            return await self._tell(failure(id_at_ends(line), why))
        message = outside(line)
        if message is None:
            refusal = refused_in(line)
            if refusal is None:
                return await self._to_server(line)
            return await self._tell(failure(*refusal))
        if message.has_bad_id:
            return await self._tell(failure(None, BAD_ID))
        given_up = message.given_up
        self._passed.pop(given_up, None)
        await self._prove(given_up, arrived)
        if given_up in self._calls:
            self._calls[given_up].given_up = True  # rule 1
            return None
        if message.is_request and message.method == "tools/call":
            return await self._call(message, line, arrived)
        if message.is_response and message.name in self._questions:
            if not self._questions[message.name].done():
                self._questions[message.name].set_result(line)
            return None
        if message.is_response and message.name in self._stale:
            return self._stale.discard(message.name)
        if message.is_response:
            self._asked.pop(message.name, None)
        if message.method == "initialize":
            self._greeting, self._elicits = [line], can_elicit(line)
        elif message.method == "notifications/initialized":
            self._greeting.append(line)
        return await self._to_server(line, message)

    async def _prove(self, given_up: str, arrived: float) -> None:
        """The client lives: it has what was answered before this, unless it says it gave up."""
        self._unproven.pop(given_up, None)
        for name in [name for name, call in self._unproven.items() if call.answered_at < arrived]:
            call = self._unproven.pop(name)
            assert call.entry is not None
            # then it is not counted, and the same call is replayed
            with contextlib.suppress(StoreUnavailable):
                await self._effects.shown(call.entry, after_s=call.answered_at - call.asked_at)

    async def _call(self, message: Envelope, line: bytes, arrived: float) -> None:
        if len(line) > self._call_max:
            return await self._tell(failure(message.id, too_large(self._call_max)))
        if message.name in self._calls or message.name in self._passed:
            return await self._tell(_in_use(message))
        try:
            call = tool_call(line, self._contracts, self._listed)
        except NotRecognised as error:
            return await self._tell(failure(message.id, str(error)))
        if call.contract.passes:
            return await self._to_server(line, message)
        call.asked_at = arrived
        self._calls[message.name] = call
        self._do(self._once(call))
        return None

    # ------------------------------------------------------------ an effect

    async def _once(self, call: McpCall) -> None:
        try:
            line = await self._approved(call)
        except EffectOnceError as error:
            turn = call.turn
            line = written(answer(turn.id, refused(error, turn.contract, modern=turn.modern)))
        except ToolError as refused_by:  # nothing was done: the server's own message is the answer
            line = refused_by.line
        except Unanswered as error:
            line = written(failure(call.turn.id, f"{error}. Nothing was done."))
        if line is not None:
            await self._answer(call.turn, line)

    async def _approved(self, call: McpCall) -> bytes | None:
        """Its outcome, when the person at the client was asked, if that is needed: rule 5."""

        async def elicit(params: Mapping[str, Any]) -> Any:
            return await self._elicited(params, call.contract.input_s)

        line = await self._person.around(call, lambda: self._outcome(call), elicit)
        return written(answer(call.id, line.result)) if isinstance(line, InputRequired) else line

    async def _elicited(self, params: Mapping[str, Any], within_s: float) -> Any:
        """Ask the client. None: it cannot, or did not answer."""
        if not self._elicits:
            return None
        self._requests += 1
        message = {"jsonrpc": "2.0", "id": f"dev.effectonce/{self._requests}", "method": ELICIT}
        name, said = name_of(message["id"]), asyncio.get_running_loop().create_future()
        self._questions[name] = said
        try:
            await self._tell(message | {"params": params})
            async with asyncio.timeout(within_s):
                return result_of(await said)
        except (TimeoutError, ToolError):
            return None
        finally:
            del self._questions[name]

    async def _outcome(self, call: McpCall) -> bytes | None:
        """The line that answers it; None: it brought the input that another one waits for."""
        call.entry = entry = await self._effects.enter(
            call.name, call.arguments, call.contract, call.meta, conversation=self._conversation
        )
        waiting = self._open.get(entry.request.key)
        if waiting is not None and waiting.bring(call):
            return None
        call.exchange = ServerCall(
            call, entry.request.key, self._ask, self._answer, self._open, self._request
        )
        outcome, turn = await entry.run(call.exchange), call.turn
        turn.succeeded = outcome.status == "succeeded"
        if outcome.error is None and not outcome.replayed and call.exchange.line is not None:
            return call.exchange.line
        return written(answer(turn.id, shown(outcome, entry, modern=turn.modern)))

    async def _ask(self, call: McpCall, key: str) -> bytes:
        """Send a call on, under *key*, and wait for the answer."""
        if not await self._at_server():
            raise Unanswered("the server cannot be started", sent=False)
        assert self._server is not None
        return await self._exchanged(self._server, call.with_key(key))

    async def _exchanged(self, server: ServerProcess, message: Mapping[str, Any]) -> bytes:
        """A request of ours or of the client, and its answer."""
        name, answer_to_it = name_of(message["id"]), asyncio.get_running_loop().create_future()
        # the answer to one would be taken for that to the other
        if name in self._sent or name in self._passed:
            raise Unanswered(f"the id {name} is in use", sent=False)
        self._sent[name] = (server, answer_to_it)
        try:
            if not await server.send(written(message)):
                raise Unanswered("the server ended before it was asked", sent=False)
            return bytes(await answer_to_it)
        finally:
            self._sent.pop(name, None)

    async def _request(
        self, call: McpCall, method: str, params: dict[str, Any]
    ) -> dict[str, Any] | None:
        """Ask the server about *call*, beside it. None: it did not answer with a result."""
        assert self._server is not None
        self._requests += 1
        message = call.beside(f"dev.effectonce/{self._requests}", method, params)
        with contextlib.suppress(Unanswered, ToolError, TimeoutError):
            async with asyncio.timeout(BESIDE_S):
                return result_of(await self._exchanged(self._server, message))
        return None

    async def _answer(self, call: McpCall, line: bytes) -> None:
        if call.answered:
            return
        name, call.answered = name_of(call.id), True
        self._calls.pop(name, None)
        if call.given_up:
            return
        if call.succeeded:
            self._unproven[name] = call
        if not await self._client.send(line, call.leaves):
            self._unproven.pop(name, None)

    # ------------------------------------------------------------ from the server

    async def _from_server(self, server: ServerProcess, line: bytes) -> None:
        if isinstance(line, Cut):
            await self._cut_off(server, line)
            return
        message = outside(line)
        asked, waiting = self._sent.get(answered(line, message), (None, None))
        if waiting is not None and asked is server:
            if len(line) > ANSWER_MAX and not waiting.done():
                waiting.set_exception(_too_large(ANSWER_MAX))
            elif not waiting.done():
                waiting.set_result(line)
            return
        if message is not None and message.is_response:
            if server is self._server and self._greeted is not None and not self._greeted.done():
                self._greeted.set_result(line)
                return
            _, _, method = self._passed.pop(message.name, (None, None, ""))
            if method == "tools/list":
                line = hidden_in(line, self._contracts, self._listed) or line
        elif message is not None and message.is_request:
            self._asked[message.name] = server
        await self._client.send(line)

    async def _cut_off(self, server: ServerProcess, line: Cut) -> None:
        """A line that was too long. If it does not show which request it answers, it may be any."""
        if line.lstrip()[1:].lstrip().startswith((b'"jsonrpc":"2.0","method"', b'"method"')):
            why = "the server sent more than %d bytes in one message, which was dropped"
            LOG.warning(why, LINE_MAX)
            return
        name = name_of(id_at_ends(line))
        for each_name, (asked, waiting) in list(self._sent.items()):
            if asked is server and name in ("", each_name) and not waiting.done():
                waiting.set_exception(_too_large(LINE_MAX))
        for each_name, (asked, request_id, method) in list(self._passed.items()):
            if asked is server and name in ("", each_name):
                del self._passed[each_name]
                why = f"The answer to {method} is larger than {LINE_MAX} bytes."
                await self._tell(failure(request_id, why))

    # ------------------------------------------------------------ the server's life

    async def _to_server(self, line: bytes, message: Envelope | None = None) -> None:
        if not await self._at_server():
            return None
        assert self._server is not None
        if message is not None and message.is_request:
            if any(message.name in used for used in (self._sent, self._calls, self._passed)):
                return await self._tell(_in_use(message))
            self._passed[message.name] = (self._server, message.id, message.method)
        await self._server.send(line)
        return None

    async def _at_server(self) -> bool:
        """A server that can be written to: rule 2. False: there is none, and it is over."""
        async with self._starting:
            if self._server is not None and not self._server.broken:
                return True
            if self._ended.done():
                return False
            try:
                self._server = await ServerProcess.start(self._command)
            except ServerNotStarted:
                if self._server is None:
                    raise
                self._ended.set_result(1)
                return False
            self._starts += 1
            self._hearing = asyncio.create_task(self._hear(self._server))
            return await self._greet(self._server)

    async def _greet(self, server: ServerProcess) -> bool:
        """As the client greeted its predecessor; what it answers is known already."""
        if self._starts == 1 or not self._greeting:
            return True
        self._greeted = asyncio.get_running_loop().create_future()
        await server.send(self._greeting[0])
        await self._greeted
        self._greeted = None
        for line in self._greeting[1:]:
            await server.send(line)
        return not server.broken

    async def _hear(self, server: ServerProcess) -> None:
        async for line in server.lines():
            self._starts, self._heard = 1, True
            await self._from_server(server, line)
        code = await server.wait()  # by now it may have a successor, which has calls of its own
        if server is self._server and self._greeted is not None and not self._greeted.done():
            self._greeted.set_result(b"")
        its_calls = [waiting for asked, waiting in self._sent.values() if asked is server]
        lost_calls = [waiting for waiting in its_calls if not waiting.done()]
        for waiting in lost_calls:
            why = f"the server ended (exit code {code}) before it answered"
            waiting.set_exception(Unanswered(why, sent=True))
        lost = [name for name, (asked, _, _) in self._passed.items() if asked is server]
        self._stale |= {name for name, asked in self._asked.items() if asked is server}
        self._asked = {name: asked for name, asked in self._asked.items() if asked is not server}
        for _, request_id, method in [self._passed.pop(name) for name in lost]:
            await self._tell(failure(request_id, f"The server ended before it answered {method}."))
        in_vain = self._starts >= STARTS_MAX or not self._heard
        hopeless = not server.spoke and not lost_calls and in_vain
        if server is self._server and hopeless and not self._ended.done():
            self._ended.set_result(code)

    async def _tell(self, message: Mapping[str, Any]) -> None:
        await self._client.send(written(message))

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            LOG.error("a call was not answered", exc_info=task.exception())


def _in_use(message: Envelope) -> dict[str, Any]:
    return failure(message.id, f"The id {message.name} is in use. Nothing was sent.")


def _too_large(size_max: int) -> Unanswered:
    return Unanswered(f"the server's answer is larger than {size_max} bytes", sent=True)
