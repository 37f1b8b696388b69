"""Which effect a call is: by the best that its host tells us.

    a key           in `_meta`: the client that sends it says what is the same
    a step          in `_meta`, of a conversation: the same call in the same step is the same effect
    a conversation  named by the host; the place is the ordinal: how many results of this very call
                    the model was shown
    nothing         the same, for all who use this server; and for a while after a result the same
                    call is taken for a retry

A result counts as shown when it was handed to a client that lived on and did not give up on it.
A server does not see that, and a client may give up without a word: there, and after a result
that came late, the same call is taken for a retry for a while in a conversation as well. The
count is kept in the store, in a cell for each intent, so it outlives this process. The id of a
call proves a retry if it comes again, and nothing if it does not: a model that decides again has
a new one. Ids of requests, sessions of a transport and traces are not looked at: each may be new
for a retry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from effectonce._core.canonical import canonical
from effectonce._core.keys import AtOrdinal, AtStep, ByName, Place, derive
from effectonce._core.ops import Cell, ReadCell, WriteCell
from effectonce._runtime.step import named
from effectonce.errors import ContractViolation
from effectonce.mcp._contracts import ToolContract
from effectonce.stores.base import Store

KEY = "dev.effectonce/idempotency-key"
STEP = "dev.effectonce/step"
CONVERSATION = "dev.effectonce/conversation"
KEYS = (KEY, "idempotency-key", "idempotencyKey")
CONVERSATIONS = (  # as hosts name those that they keep
    "vscode.conversationId",
    "threadId",
    "ai.opencode/sessionID",
    "openai/session",
    "antigravity.google/conversation_id",
)
CALLS = ("claudecode/toolUseId",)
ENVIRONMENT = ("EFFECTONCE_CONVERSATION", "CLAUDE_CODE_SESSION_ID")
TEXT_MAX = 512
LATE_S = 30.0  # clients wait for at least a minute, unless they are configured otherwise


class ToolRequest(Struct, frozen=True, kw_only=True):
    """A call as its place is derived from it."""

    tenant: str
    tool: str
    server: str
    intent: bytes
    matched: bytes
    scope: str = ""  # the conversation; "": it is not given
    key: str = ""
    step: str = ""
    call: str = ""  # the host's own id of this call


def asked(
    tool: str,
    server: str,
    arguments: Mapping[str, Any],
    contract: ToolContract,
    meta: Any,
    conversation: str,
    tenant: str,
) -> ToolRequest:
    """What *meta* says about a call; *conversation* is what is known without it."""
    meta = meta if isinstance(meta, Mapping) else {}
    ignored = {*contract.volatile, contract.key_argument}
    identity = matched = {name: each for name, each in arguments.items() if name not in ignored}
    if contract.identity is not None:
        identity = {name: arguments.get(name) for name in contract.identity}
    return ToolRequest(
        tenant=tenant,
        tool=tool,
        server=server,
        intent=canonical([server, identity]),
        matched=canonical([server, matched]),
        scope=_named_in(meta, CONVERSATION) or _first(meta, CONVERSATIONS) or conversation,
        key=_first(meta, KEYS),
        step=_named_in(meta, STEP),
        call=_first(meta, CALLS),
    )


def _named_in(meta: Mapping[str, Any], name: str) -> str:
    """What a client says to us alone is checked, as in `guard.step`: it may be the id of a call."""
    value = _first(meta, (name,))
    return named(value, f"_meta {name!r}") if value else ""


def _first(meta: Mapping[str, Any], names: tuple[str, ...]) -> str:
    for name in names:
        value = meta.get(name)
        if value is None or value == "":
            continue
        if not isinstance(value, str) or len(value) > TEXT_MAX:
            raise ContractViolation(
                f"_meta {name!r} is a text of at most {TEXT_MAX} characters. Nothing was sent."
            )
        return value
    return ""


class _Shown(Struct, frozen=True, array_like=True):
    """The last of the same calls: its ordinal, when its result was shown, and the host's id."""

    ordinal: int = 0
    at: float | None = None  # by the store's clock; None: not yet
    call: str = ""
    late: bool = False  # so late that a client may have given up without a word


_encode, _decode = msgspec.json.encode, msgspec.json.Decoder(_Shown).decode


class Placed(Struct, frozen=True):
    """Where a call was put, and how to say that its result was shown."""

    place: Place
    counter: str = ""  # the cell; "": the place has no ordinal
    at_once: bool = False  # once its result is shown, the same call is another wish


class CallPlaces:
    """Counts what was shown, in the store."""

    def __init__(self, store: Store, secret: bytes, *, sees_client: bool) -> None:
        self._store, self._secret, self._sees_client = store, secret, sees_client

    async def put(self, call: ToolRequest, contract: ToolContract) -> Placed:
        """The place of this call. A wish that is seen for the first time takes the next ordinal."""
        if call.key:
            return Placed(ByName((call.server, call.key)))
        if call.step:
            return Placed(AtStep(call.step))
        intent = (call.tenant, call.scope, call.tool, call.intent)
        name = "mcp/" + derive("shown", *intent, secret=self._secret)
        at_once = self._sees_client and bool(call.scope)
        cell: Cell | None = await self._store.aapply(ReadCell(name))
        while cell is not None:
            last = _of(cell)
            again_s = 0.0 if at_once and not last.late else contract.again_s
            if not _is_wish(last, call.call, again_s, cell.now):
                return Placed(AtOrdinal(last.ordinal), name, at_once)
            following = _Shown(last.ordinal + 1)
            write = WriteCell(name, cell.revision, _encode(following), contract.counted_s)
            cell = await self._store.aapply(write)
            if cell is None:
                return Placed(AtOrdinal(following.ordinal), name, at_once)
        raise AssertionError("there is a cell until one is written")

    async def shown(
        self, placed: Placed, call: str, keep_s: float, *, after_s: float = 0.0
    ) -> None:
        """The model has the result, *after_s* seconds after it asked."""
        if not placed.counter:
            return
        assert isinstance(placed.place, AtOrdinal)
        cell: Cell | None = await self._store.aapply(ReadCell(placed.counter))
        while cell is not None:
            last = _of(cell)
            if last.ordinal != placed.place.ordinal or last.at is not None:
                return
            value = _encode(_Shown(last.ordinal, cell.now, call, after_s > LATE_S))
            write = WriteCell(placed.counter, cell.revision, value, keep_s)
            cell = await self._store.aapply(write)


def _of(cell: Cell) -> _Shown:
    return _decode(cell.value) if cell.value else _Shown()


def _is_wish(last: _Shown, call: str, again_s: float, now: float) -> bool:
    """Was the last result shown, so that this is not a retry?"""
    if last.at is None or (call and call == last.call):
        return False
    return now - last.at >= again_s
