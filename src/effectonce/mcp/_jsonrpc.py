"""JSON-RPC lines, read as little as possible. What is unchanged is handed on as the same bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from effectonce._core.strict_json import read_exactly

UNREADABLE = "This call cannot be protected: not every parser reads it alike. Nothing was sent."
BAD_ID = "The id of a request is a text or a whole number of 64 bits. Nothing was sent."
CALL_MAX = 4 << 20  # bytes of a call: to recognise a larger one would hold others up
ANSWER_MAX = 16 << 20  # bytes of an answer that is recorded
LINE_MAX = 64 << 20  # bytes of any other line
_write = msgspec.json.Encoder(decimal_format="number").encode


class UnreadableMessage(ValueError):
    """Not JSON that every parser reads alike."""


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
    def has_bad_id(self) -> bool:
        """A request whose answer could not be distinguished from others."""
        return self.is_request and not is_id(self.id)

    @property
    def name(self) -> str:
        """The id as text that tells 1 and "1" apart; "" if it is none."""
        return name_of(self.id)

    @property
    def given_up(self) -> str:
        """The request that its sender does not want to hear of any more; "": there is none."""
        if self.method != "notifications/cancelled" or not isinstance(self.params, msgspec.Raw):
            return ""
        try:
            params = msgspec.json.decode(self.params)
        except (msgspec.DecodeError, ValueError, RecursionError):
            # a text, number or depth that names no request
            return ""
        return name_of(params.get("requestId")) if isinstance(params, dict) else ""


_envelope = msgspec.json.Decoder(Envelope).decode


def is_id(value: Any) -> bool:
    """Can it be the id of a request, and come back as it was sent?"""
    if isinstance(value, str):
        return value.isascii() or not any("\ud800" <= char <= "\udfff" for char in value)
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63


def name_of(request_id: Any) -> str:
    """A JSON-RPC id as text; "" for what is none."""
    return _write(request_id).decode() if is_id(request_id) else ""


_ID = rb'"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)\s*'
_ID_FIRST = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID + rb",")
_ID_LAST = re.compile(_ID + rb'(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')


def id_at_ends(line: bytes) -> Any:
    """The id of a message without its middle, if it is where SDKs write it; None: it is not."""
    found = _ID_FIRST.match(line) or _ID_LAST.search(line)
    message = None if found is None else outside(b'{"id":' + found.group(1) + b"}")
    return message.id if message is not None and is_id(message.id) else None


def outside(line: bytes) -> Envelope | None:
    """None: it is no message, or not one that every parser reads alike."""
    try:
        return _envelope(line)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def loosely(line: bytes) -> Any:
    """Most lenient: NaN is None, bad bytes are gaps. Raises ValueError or RecursionError."""
    text = line.decode(json.detect_encoding(line), "replace")
    return json.loads(text, parse_constant=lambda _: None)


def answered(line: bytes, message: Envelope | None) -> str:
    """The request that a line answers, however it is written; "": none. *message*: its outside."""
    if message is not None:
        return message.name if message.is_response else ""
    try:
        found = loosely(line)
    except (ValueError, RecursionError):
        return ""
    named = found.get("id") if isinstance(found, dict) and "method" not in found else None
    return name_of(named)


def refused_in(line: bytes) -> tuple[Any, str] | None:
    """Of what is no message to us: the id of a call of a tool in it, or of no request at all,
    and why it is refused; None: it may pass.

    Others read NaN, broken encodings and batches.
    """
    try:
        found = loosely(line)
    except (ValueError, RecursionError):
        return (None, UNREADABLE) if b"tools/call" in line else None
    batch = found if isinstance(found, list) else [found]
    messages = [each for each in batch if isinstance(each, dict)]
    calls = [each.get("id") for each in messages if each.get("method") == "tools/call"]
    if calls:
        return calls[0] if _is_whole(calls[0]) else None, UNREADABLE
    asked = [each["id"] for each in messages if "method" in each and "id" in each]
    return None if all(_is_whole(each) for each in asked) else (None, BAD_ID)


def _is_whole(request_id: Any) -> bool:
    """An id, and not one with gaps where its encoding was broken."""
    return is_id(request_id) and "\ufffd" not in str(request_id)


def each(line: bytes) -> list[bytes]:
    """The messages of a line: of a batch, those that are in it."""
    if not line.lstrip().startswith(b"["):
        return [line]
    try:
        return [bytes(part) + b"\n" for part in msgspec.json.decode(line, type=list[msgspec.Raw])]
    except (msgspec.DecodeError, ValueError, RecursionError):
        return [line]


def written(message: Mapping[str, Any]) -> bytes:
    """A message as a line. Half a surrogate pair (broken JSON) is written as it was: escaped."""
    try:
        return _write(message) + b"\n"
    except UnicodeEncodeError:
        return json.dumps(message, default=str).encode() + b"\n"


def read(line: bytes) -> dict[str, Any]:
    """A whole message, without losing a digit of it."""
    try:
        message = read_exactly(line.decode())
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise UnreadableMessage(str(error)) from None
    if not isinstance(message, dict):
        raise UnreadableMessage("it is no object")
    return message


def is_tool(listed: Any) -> bool:
    """Is it a tool, as a server lists them?"""
    return isinstance(listed, dict) and isinstance(listed.get("name"), str)


def tool_called(line: bytes) -> tuple[dict[str, Any], str]:
    """A whole `tools/call`, and which tool it names."""
    whole = read(line)
    params: Any = whole.get("params")
    if not is_tool(params) or not isinstance(params.get("arguments") or {}, dict):
        raise UnreadableMessage("it names no tool")
    return whole, params["name"]
