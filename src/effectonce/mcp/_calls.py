"""One call of a tool, and the exchange with the server that it may need."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from math import inf
from typing import Any

from msgspec import Struct

from effectonce._core.classification.verdicts import Bucket, Certainty, Verdict
from effectonce.effect import current_effect
from effectonce.errors import ContractViolation, EffectOnceError
from effectonce.mcp._call_identity import KEY
from effectonce.mcp._contracts import Contracts, ToolContract
from effectonce.mcp._effects import HeldCall
from effectonce.mcp._elicitation import CAPABILITIES, elicits, taken_out
from effectonce.mcp._jsonrpc import UnreadableMessage, loosely, read, tool_called
from effectonce.mcp._refusals import Request, was_refused
from effectonce.mcp._results import MODERN, NOT_CALLED, doubtful, refused, replayed
from effectonce.outcome import Outcome

BESIDE_S = 10.0  # a question of ours about a call is answered by then, or it has no answer


class McpCall(Struct, kw_only=True, eq=False):
    """A `tools/call` of the client."""

    message: dict[str, Any]
    name: str
    contract: ToolContract
    modern: bool
    asked_at: float = inf  # on the monotonic clock, as is `answered_at`
    entry: HeldCall | None = None
    exchange: ServerCall | None = None
    given_up: bool = False  # the client does not wait any more
    answered: bool = False
    answered_at: float = inf
    succeeded: bool = False
    answers: str = ""  # the question that it brings an answer to, if it does
    given: Any = None  # that answer

    @property
    def turn(self) -> McpCall:
        """The call that is to be answered now: this one, or the one that brought input for it."""
        return self if self.exchange is None else self.exchange.call

    @property
    def id(self) -> Any:
        return self.message["id"]

    @property
    def arguments(self) -> dict[str, Any]:
        arguments: dict[str, Any] = self.message["params"].get("arguments") or {}
        return arguments

    @property
    def meta(self) -> Any:
        return self.message["params"].get("_meta")

    @property
    def elicits(self) -> bool:
        """Can its client ask a person? Since 2026-07-28 each call says so."""
        return self.modern and elicits(self.meta.get(CAPABILITIES))

    def leaves(self, now: float) -> None:
        self.answered_at = now

    def with_key(self, key: str) -> dict[str, Any]:
        meta = self.meta if isinstance(self.meta, dict) else {}
        params = self.message["params"] | {"_meta": meta | {KEY: key}}
        if self.contract.key_argument:
            params["arguments"] = self.sent_arguments(key)
        return self.message | {"params": params}

    def sent_arguments(self, key: str) -> dict[str, Any]:
        argument = self.contract.key_argument
        return self.arguments | {argument: key} if argument else self.arguments

    async def judged(
        self, result: dict[str, Any], line: bytes, key: str, request: Request
    ) -> dict[str, Any]:
        """A result that says what was done, or raises. *request* asks about a possible refusal."""
        nothing_done = self.contract.errors == "nothing_done"
        if not nothing_done:
            nothing_done = await was_refused(result, self.name, self.sent_arguments(key), request)
        return judged(result, line, nothing_done=nothing_done)

    def beside(self, request_id: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Another request to the call's server, in the protocol version of the call."""
        meta, theirs = self.meta if isinstance(self.meta, dict) else {}, "io.modelcontextprotocol/"
        passed_on = {name: value for name, value in meta.items() if name.startswith(theirs)}
        params = params | ({"_meta": passed_on} if passed_on else {})
        return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def tool_call(line: bytes, contracts: Contracts, listed: Mapping[str, Any]) -> McpCall:
    """What *line* calls, under its contract. Raises why it cannot be protected."""
    try:
        message, name = tool_called(line)
        contract = contracts.of(name, listed.get(name, {}))
    except (UnreadableMessage, ContractViolation) as error:
        # what not every parser reads alike cannot be recognised
        raise NotRecognised(f"This call cannot be protected: {error}. Nothing was sent.") from None
    params, answers, given = taken_out(message["params"])
    modern = isinstance(params.get("_meta"), dict) and MODERN in params["_meta"]
    return McpCall(
        message=message | {"params": params},
        name=name,
        contract=contract,
        modern=modern,
        answers=answers,
        given=given,
    )


def too_large(call_max: int) -> str:
    most = f"A call has at most {call_max} bytes"
    return f"{most}, unless --call-max says otherwise. Nothing was sent."


class NotRecognised(Exception):
    """A call that is refused, because it cannot be recognised when it is repeated."""


class ToolError(Exception):
    """The server answered, and it is no result. *line* is its message."""

    def __init__(
        self, why: str, line: bytes, certainty: Certainty, result: dict[str, Any] | None = None
    ) -> None:
        super().__init__(why)
        self.line, self.result = line, result
        bucket = Bucket.SCHEMA if certainty is Certainty.NOT_SENT else Bucket.SERVER_ERROR
        self.effectonce_verdict = Verdict(bucket, certainty, why, retry=False)


class Unanswered(Exception):
    """There is no server that could answer."""

    def __init__(self, why: str, *, sent: bool) -> None:
        super().__init__(why)
        certainty = Certainty.AMBIGUOUS if sent else Certainty.NOT_SENT
        self.effectonce_verdict = Verdict(
            Bucket.NO_ANSWER if sent else Bucket.UNREACHABLE, certainty, why, retry=sent
        )


class ServerCall:
    """An effect at the server, round by round until there is a result."""

    def __init__(
        self,
        call: McpCall,
        key: str,
        ask: Callable[[McpCall, str], Awaitable[bytes]],
        answer: Callable[[McpCall, bytes], Awaitable[None]],
        open_: dict[str, ServerCall],
        request: Callable[[McpCall, str, dict[str, Any]], Awaitable[dict[str, Any] | None]],
    ) -> None:
        self.call, self._key, self._ask, self._answer, self._open = call, key, ask, answer, open_
        self._request = request
        self.line: bytes | None = None  # the result, as the server wrote it
        self._input: asyncio.Future[McpCall | None] | None = None

    async def run(self) -> dict[str, Any]:
        """Ask the server. What is returned is recorded; what is raised is judged by the engine."""
        key = current_effect().downstream_key
        while True:
            line = await self._ask(self.call, key)
            result = result_of(line)
            if result.get("resultType") != "input_required":
                self.line = line
                return await self.call.judged(result, line, key, partial(self._request, self.call))
            self.call = await self._more(line)

    async def _more(self, line: bytes) -> McpCall:
        """The server needs input: the client learns it, and the same call again goes on with it."""
        self._input, self._open[self._key] = asyncio.get_running_loop().create_future(), self
        try:
            await self._answer(self.call, line)
            async with asyncio.timeout(self.call.contract.input_s):
                following = await self._input
        except TimeoutError:
            following = None
        finally:
            del self._open[self._key]
        if following is None:
            # A server that asks does nothing before it knows: it is called anew with what it
            # asked for.
            raise ToolError(
                "the server asked for input, and no client brought it", line, Certainty.NOT_SENT
            )
        return following

    def bring(self, call: McpCall) -> bool:
        """The next round. False: another call was faster."""
        if self._input is None or self._input.done():
            return False
        self._input.set_result(call)
        return True

    def abandon(self) -> None:
        """The input will not come any more."""
        if self._input is not None and not self._input.done():
            self._input.set_result(None)


async def run(exchange: ServerCall) -> dict[str, Any]:
    return await exchange.run()


def result_of(line: bytes) -> dict[str, Any]:
    """The result in an answer. An error is raised: was the tool called, or may it have been?"""
    try:
        message = _message(line)
    except (ValueError, RecursionError) as unread:
        why = f"the server's answer cannot be read: {unread}"
        raise ToolError(why, line, Certainty.AMBIGUOUS) from None
    result = message.get("result")
    if isinstance(result, dict):
        return result
    error = message.get("error")
    if not isinstance(error, dict):
        error = {"message": "neither result nor error"}
    code = error.get("code")
    certainty = Certainty.NOT_SENT if code in NOT_CALLED else Certainty.AMBIGUOUS
    raise ToolError(f"the server answered {code}: {error.get('message')}", line, certainty)


def _message(line: bytes) -> dict[str, Any]:
    """Without losing a digit, or as well as it can be read: what was done stays done."""
    try:
        return read(line)
    except UnreadableMessage:
        message: dict[str, Any] = loosely(line)
        return message


def judged(result: dict[str, Any], line: bytes, *, nothing_done: bool) -> dict[str, Any]:
    """A result that says what was done; else raises. *nothing_done*: what a tool's error means."""
    if result.get("resultType") == "input_required":
        raise ToolError(
            "the tool asks for input, and has done nothing yet", line, Certainty.NOT_SENT, result
        )
    if result.get("isError") is True:
        certainty = Certainty.NOT_SENT if nothing_done else Certainty.AMBIGUOUS
        raise ToolError(f"the tool reports an error: {_text(result)}", line, certainty, result)
    return result


def _text(result: dict[str, Any]) -> str:
    content = result.get("content")
    if not isinstance(content, list):
        return ""
    texts = [part.get("text", "") for part in content if isinstance(part, dict)]
    return " ".join(text for text in texts if isinstance(text, str))[:200]


def shown(outcome: Outcome[Any], entry: HeldCall, *, modern: bool) -> dict[str, Any]:
    """The result that the client of a call is shown. Raises a definite error of the tool's own."""
    error = outcome.error
    if error is None:
        return replayed(outcome.value, outcome.effect, entry.again)
    if not isinstance(error, EffectOnceError):
        raise error
    cause = error.__cause__
    if isinstance(cause, ToolError) and cause.result is not None:
        return doubtful(cause.result, error, entry.contract)
    return refused(error, entry.contract, modern=modern)
