"""A server over stdio, made with the official SDK, whose tools pay at a bank in another process.
Run as a file: `server.py PORT`.
"""

import os
import sys

import anyio
from mcp import MCPError
from mcp.server.mcpserver import MCPServer
from mcp_types import INTERNAL_ERROR, ToolAnnotations

from effectonce.testing.bank import find, pay

PORT = int(sys.argv[1])
mcp = MCPServer("bank")


@mcp.tool()
async def refund(payment_id: str, amount_minor: int, slow_s: float = 0.0, reason: str = "") -> dict:
    """Refund a payment."""
    entry = await anyio.to_thread.run_sync(lambda: pay(PORT, payment_id, amount_minor))
    await anyio.sleep(slow_s)
    return {"receipt": entry["receipt"]}


@mcp.tool()
async def refund_when_told(payment_id: str, gate: str) -> str:
    """Refund at once, and answer when the file *gate* is there."""
    entry = await anyio.to_thread.run_sync(lambda: pay(PORT, payment_id, 1))
    while not await anyio.Path(gate).exists():  # noqa: ASYNC110  # another process makes it
        await anyio.sleep(0.01)
    return entry["receipt"]


@mcp.tool()
def refund_and_die(payment_id: str) -> str:
    """Refund, and end before anybody is told."""
    pay(PORT, payment_id, 1)
    os._exit(3)


@mcp.tool()
def refund_and_fail(payment_id: str) -> str:
    """Refund, and report an error."""
    pay(PORT, payment_id, 1)
    raise RuntimeError("the bank's answer was lost")


@mcp.tool()
def refund_and_break(payment_id: str) -> str:
    """Refund, and answer with an error of the protocol."""
    pay(PORT, payment_id, 1)
    raise MCPError(INTERNAL_ERROR, "the bank's answer was lost")


@mcp.tool(annotations=ToolAnnotations(read_only_hint=True))
def look(payment_id: str) -> dict:
    """How often was it paid?"""
    return find(PORT, payment_id) or {"effects": 0}


if __name__ == "__main__":
    mcp.run()
