"""Calls that need an approval, and the person at the client who is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from msgspec import Struct

from effectonce.approvals._questions import Approving
from effectonce.errors import ApprovalNeeded
from effectonce.guard import Guard
from effectonce.mcp._calls import McpCall
from effectonce.mcp._elicitation import answer_of, form, input_required

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
                raise needed.because(why)
