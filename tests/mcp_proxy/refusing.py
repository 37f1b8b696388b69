"""A server over stdio whose SDK checks the arguments: `refusing.py mcp|fastmcp PORT`."""

import sys

from effectonce.testing.bank import pay

if sys.argv[1] == "mcp":
    from mcp.server.mcpserver import MCPServer as Server
else:
    from fastmcp import FastMCP as Server

server = Server("bank")


@server.tool()
def refund(payment_id: str, amount_minor: int) -> str:
    """Refund a payment."""
    return pay(int(sys.argv[2]), payment_id, amount_minor)["receipt"]


if __name__ == "__main__":
    server.run()
