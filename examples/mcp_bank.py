"""A server for MCP that refunds each time that it is asked to. See docs/howto/mcp.md.

    pip install 'effectonce[mcp]'

Each refund is a line of refunds.log.
"""

from pathlib import Path

from mcp.server.mcpserver import MCPServer

server = MCPServer("bank")


@server.tool()
def refund(payment_id: str, amount_minor: int) -> str:
    """Refund a payment."""
    with Path("refunds.log").open("a") as ledger:
        ledger.write(f"{payment_id} {amount_minor}\n")
    return f"refunded {amount_minor} of {payment_id}"


if __name__ == "__main__":
    server.run()
