"""What the client gets from us: replays say so, errors say what to do. Nothing in it is a key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from effectonce._core.effect_ref import EffectRef
from effectonce.errors import EffectOnceError, InDoubt
from effectonce.mcp._call_identity import KEY
from effectonce.mcp._contracts import ToolContract
from effectonce.mcp._jsonrpc import is_id

REPLAYED, OPERATION = "dev.effectonce/replayed", "dev.effectonce/operation"
ERROR = "dev.effectonce/error"
# in the `_meta` of every request since 2026-07-28
MODERN = "io.modelcontextprotocol/protocolVersion"
# what has no content may have
_OTHER_RESULTS = frozenset({"resultType", "structuredContent", "task", "toolResult"})
INTERNAL_ERROR = -32603
# A server that says one of these did not call the tool: parse error, invalid request, no such
# method or tool, invalid parameters, a header or a version or a capability that does not fit, a
# page that the user has to visit first.
NOT_CALLED = frozenset({-32700, -32600, -32601, -32602, -32020, -32021, -32022, -32042})


def replayed(result: Any, effect: EffectRef, again: str) -> dict[str, Any]:
    """A recorded result, and the words that it is one: in the content, because not every host
    shows `_meta` to the model.

    *again* says how another effect is asked for. What a person settled need not be the result of
    a tool: it is returned as text and as data.
    """
    if not _is_result(result):
        text = result
        if not isinstance(result, str):
            text = msgspec.json.encode(result, enc_hook=str).decode()
        structured = {"structuredContent": result} if isinstance(result, dict) else {}
        result = {"content": [{"type": "text", "text": text}], **structured}
    note = (
        f"This is the recorded result of {effect.reference}: the same call was made before, and"
        " nothing was done again now."
    )
    meta = _meta(result) | {REPLAYED: True, OPERATION: effect.reference}
    return _noted(result, f"{note} {again}".rstrip()) | {"_meta": meta}


def _is_result(result: Any) -> bool:
    if not isinstance(result, dict):
        return False
    return isinstance(result.get("content"), list) or bool(_OTHER_RESULTS & result.keys())


def doubtful(
    result: Mapping[str, Any], error: EffectOnceError, contract: ToolContract
) -> dict[str, Any]:
    """The tool's own answer, and that its outcome is unknown."""
    shown = _as_error(error, contract)
    noted = _noted(result, msgspec.json.encode(shown).decode())
    return noted | {"isError": True, "_meta": _meta(result) | {ERROR: shown}}


def refused(error: EffectOnceError, contract: ToolContract, *, modern: bool) -> dict[str, Any]:
    """An error as the result of a tool, so that the model sees it."""
    shown = _as_error(error, contract)
    text = {"type": "text", "text": msgspec.json.encode(shown).decode()}
    made: dict[str, Any] = {"content": [text], "isError": True, "_meta": {ERROR: shown}}
    return made | {"resultType": "complete"} if modern else made


def answer(request_id: Any, result: Mapping[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def failure(request_id: Any, message: str) -> dict[str, Any]:
    """An error for one message. An id that is none cannot be repeated: null, as JSON-RPC has it."""
    error = {"code": INTERNAL_ERROR, "message": message}
    return {"jsonrpc": "2.0", "id": request_id if is_id(request_id) else None, "error": error}


def _as_error(error: EffectOnceError, contract: ToolContract) -> dict[str, Any]:
    shown = error.as_model_error()
    if contract.verify and isinstance(error, InDoubt):
        shown["corrective_action"] = (
            f"Call {contract.verify} to see whether it happened, before anything else. Do not call"
            " it again."
        )
    return shown


def _noted(result: Mapping[str, Any], note: str) -> dict[str, Any]:
    """A result with one more text. A task has no content: it is what it is."""
    content = result.get("content")
    if not isinstance(content, list):
        return dict(result)
    return {**result, "content": [*content, {"type": "text", "text": note}]}


def _meta(result: Mapping[str, Any]) -> dict[str, Any]:
    meta = result.get("_meta")
    if not isinstance(meta, Mapping):
        return {}
    return {name: value for name, value in meta.items() if name != KEY}
