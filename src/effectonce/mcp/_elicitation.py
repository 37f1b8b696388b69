"""A call that needs an approval, as an elicitation: the person at the client is asked.

In the older versions of the protocol we ask the client, while its call waits. Since 2026-07-28
the call is answered with the question, and the client makes it again with what the person said.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from effectonce.approvals._questions import Approving, Question
from effectonce.errors import ApprovalNeeded
from effectonce.guard import Guard
from effectonce.mcp._jsonrpc import UnreadableMessage, read

if TYPE_CHECKING:
    from effectonce.mcp._calls import McpCall

NAME = "dev.effectonce/approval"  # of our question, among those of a server
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
ELICIT = "elicitation/create"
T = TypeVar("T")


class InputRequired(Struct, frozen=True):
    """What answers a call of the newer versions: a question, which the client brings back."""

    result: dict[str, Any]


class PersonAtClient:
    """Asks the person at a client about a call that needs an approval, and decides by the answer.

    *approver* is the name of that person; "": the answer says it.
    """

    def __init__(self, guard: Guard, approver: str) -> None:
        self._names = approver == ""
        self._approving = Approving(guard.approvals, guard.store, approver or None, "MCP")

    async def around(
        self,
        call: McpCall,
        act: Callable[[], Awaitable[T]],
        elicit: Callable[[Mapping[str, Any]], Awaitable[Any]],
    ) -> T | InputRequired:
        """What *act* ends with, when the person was asked, if that is needed. *elicit* asks the
        client of an older version, and returns None if it cannot or did not answer.
        """
        while True:
            try:
                return await act()
            except ApprovalNeeded as error:
                needed = error
            question = await asyncio.to_thread(self._approving.question, needed)
            if question is None:
                continue
            if call.modern and call.elicits and call.answers != question.id:
                return InputRequired(input_required(question, names=self._names))
            given = call.given
            if not call.modern:
                given = await elicit(form(question, names=self._names))
            said, call.given = answer_of(given), None
            if said is None:
                raise needed
            why = await asyncio.to_thread(self._approving.decide, question, said, call)
            if why:
                raise ApprovalNeeded(f"{needed} {why}.", effect=needed.effect)


def elicits(capabilities: Any) -> bool:
    """Can the client show a form? Before there were others, it said so with nothing inside."""
    modes = capabilities.get("elicitation") if isinstance(capabilities, Mapping) else None
    return isinstance(modes, Mapping) and (not modes or "form" in modes)


def can_elicit(greeting: bytes) -> bool:
    """Does this `initialize` of an older version say so?"""
    try:
        params = read(greeting).get("params")
    except UnreadableMessage:
        return False
    return isinstance(params, dict) and elicits(params.get("capabilities"))


def form(question: Question, *, names: bool) -> dict[str, Any]:
    """What the person sees. *names*: the application does not say who it is."""
    shown = question.shown()
    asks = f" Asked for by {shown['asked_by']}." if shown["asked_by"] else ""
    again = " It was approved before, and that has expired." if shown["expired"] else ""
    what = json.dumps(shown["arguments"], ensure_ascii=False)
    properties: dict[str, Any] = {
        "approved": {"type": "boolean", "title": "Approve it, with these very arguments"},
        "reason": {"type": "string", "title": "Why"},
    }
    if names:
        properties["by"] = {"type": "string", "title": "Your name"}
    return {
        "message": f"{shown['tool']} ({shown['reference']}) waits for you: {what}.{asks}{again}",
        "requestedSchema": {
            "type": "object",
            "properties": properties,
            "required": [name for name in properties if name != "reason"],
        },
    }


def answer_of(result: Any) -> Mapping[str, Any] | None:
    """What the person said; None: nothing."""
    if not isinstance(result, Mapping):
        return None
    content = result.get("content")
    if result.get("action") == "accept" and isinstance(content, Mapping):
        return content
    return {"approved": False} if result.get("action") == "decline" else None


def input_required(question: Question, *, names: bool) -> dict[str, Any]:
    """The answer to a call of the newer versions: ask the person, and make the call again."""
    asked = {"method": ELICIT, "params": form(question, names=names) | {"mode": "form"}}
    return {
        "resultType": "input_required",
        "inputRequests": {NAME: asked},
        "requestState": f"{NAME} {question.id}",
    }


def taken_out(params: Mapping[str, Any]) -> tuple[dict[str, Any], str, Any]:
    """A call without what answers us, which is not for the server; which question it answers,
    and with what.
    """
    responses, state = params.get("inputResponses"), params.get("requestState")
    if not (isinstance(state, str) and state.startswith(f"{NAME} ")):
        return dict(params), "", None
    given = responses.get(NAME) if isinstance(responses, Mapping) else None
    kept = {k: v for k, v in params.items() if k not in ("inputResponses", "requestState")}
    return kept, state.removeprefix(f"{NAME} "), given
