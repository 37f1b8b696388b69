"""The world as an MCP server, as little of the protocol as a client needs: one tool, `pay`."""

from __future__ import annotations

from collections.abc import Callable
from types import EllipsisType
from typing import Any

TOOL = {
    "name": "pay",
    "description": "Pay an amount for an order. Each call pays.",
    "inputSchema": {
        "type": "object",
        "properties": {"order": {"type": "string"}, "amount": {"type": "integer"}},
        "required": ["order", "amount"],
    },
    "annotations": {"readOnlyHint": False, "idempotentHint": False},
}


class UnknownMethod(Exception):
    def __init__(self, message: Any) -> None:
        super().__init__(str(message))
        identity = message.get("id") if isinstance(message, dict) else None
        error = {"code": -32601, "message": "unknown method"}
        self.reply = {"jsonrpc": "2.0", "id": identity, "error": error}


def reply_to(message: Any, call: Callable[[Any], None]) -> dict[str, Any] | EllipsisType | None:
    """The reply; None for a notification; ... where *call* has answered by itself."""
    method = message.get("method") if isinstance(message, dict) else None
    match method:
        case "initialize":
            asked = message["params"].get("protocolVersion", "2025-06-18")
            result: dict[str, Any] = {
                "protocolVersion": asked,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "oncebench", "version": "1"},
            }
        case "tools/list":
            result = {"tools": [TOOL]}
        case "ping":
            result = {}
        case "tools/call":
            call(message["params"].get("arguments"))
            return ...
        case str() if method.startswith("notifications/"):
            return None
        case _:
            raise UnknownMethod(message)
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}
