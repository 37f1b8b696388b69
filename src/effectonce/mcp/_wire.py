"""JSON-RPC lines, read as little as possible. What is not changed is handed on as the bytes that came."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from effectonce._core.exact_json import read_exactly

UNREADABLE = "This call cannot be protected: not everybody reads it alike. Nothing was sent."
_write = msgspec.json.Encoder(decimal_format="number").encode


class Unreadable(ValueError):
    """Not JSON that everybody reads alike."""


class Envelope(Struct, frozen=True):
    """The outside of a message: enough to know where it goes."""

    id: Any = msgspec.UNSET
    method: Any = msgspec.UNSET
    params: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET

    @property
    def is_request(self) -> bool:
        return isinstance(self.method, str) and self.id is not msgspec.UNSET

    @property
    def is_response(self) -> bool:
        return self.method is msgspec.UNSET and self.id is not msgspec.UNSET

    @property
    def name(self) -> str:
        """The id as text that tells 1 and "1" apart."""
        return name_of(self.id)

    @property
    def given_up(self) -> str:
        """The request that its sender does not want to hear of any more; "" if it says no such thing."""
        if self.method != "notifications/cancelled" or not isinstance(self.params, msgspec.Raw):
            return ""
        try:
            params = msgspec.json.decode(self.params)
        except (msgspec.DecodeError, RecursionError):  # a number, or a depth, that nobody names a request with
            return ""
        return name_of(params["requestId"]) if isinstance(params, dict) and "requestId" in params else ""


_envelope = msgspec.json.Decoder(Envelope).decode


def name_of(request_id: Any) -> str:
    """A JSON-RPC id as text."""
    return _write(None if request_id is msgspec.UNSET else request_id).decode()


def outside(line: bytes) -> Envelope | None:
    """None: it is no message, or not one that everybody reads alike."""
    try:
        return _envelope(line)
    except (msgspec.DecodeError, RecursionError):
        return None


def loosely(line: bytes) -> Any:
    """What the most patient reader would see: NaN as nothing, broken encodings with gaps. Raises ValueError or RecursionError."""
    return json.loads(line.decode(json.detect_encoding(line), "replace"), parse_constant=lambda _: None)


def answered(line: bytes, message: Envelope | None) -> str:
    """The request that a line answers, of which *message* is the outside; "" if it is no answer. It may be written in any way."""
    if message is not None:
        return message.name if message.is_response else ""
    try:
        found = loosely(line)
    except (ValueError, RecursionError):
        return ""
    named = found.get("id") if isinstance(found, dict) and "method" not in found else None
    nameable = isinstance(named, str) or (isinstance(named, int) and abs(named) < 1 << 63)
    return name_of(named) if nameable else ""


def calls_in(line: bytes) -> list[Any]:
    """The ids of the calls of tools in what is no message to us. Others read NaN, broken encodings and batches."""
    try:
        found = loosely(line)
    except (ValueError, RecursionError):
        return [None] if b"tools/call" in line else []
    messages = found if isinstance(found, list) else [found]
    return [each.get("id") for each in messages if isinstance(each, dict) and each.get("method") == "tools/call"]


def each(line: bytes) -> list[bytes]:
    """The messages of a line: of a batch, those that are in it."""
    if not line.lstrip().startswith(b"["):
        return [line]
    try:
        return [bytes(part) + b"\n" for part in msgspec.json.decode(line, type=list[msgspec.Raw])]
    except (msgspec.DecodeError, RecursionError):
        return [line]


def written(message: Mapping[str, Any]) -> bytes:
    """A message as a line."""
    return _write(message) + b"\n"


def read(line: bytes) -> dict[str, Any]:
    """A whole message, without losing a digit of it."""
    try:
        message = read_exactly(line.decode())
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise Unreadable(str(error)) from None
    if not isinstance(message, dict):
        raise Unreadable("it is no object")
    return message


def tool_called(line: bytes) -> tuple[dict[str, Any], str]:
    """A whole `tools/call`, and which tool it names."""
    whole = read(line)
    params = whole.get("params")
    name = params.get("name") if isinstance(params, dict) else None
    if not isinstance(params, dict) or not isinstance(name, str) or not isinstance(params.get("arguments") or {}, dict):
        raise Unreadable("it names no tool")
    return whole, name
