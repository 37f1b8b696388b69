"""The proxy between MCP client and server. `effectonce mcp -- COMMAND`; see `proxy.py` for how."""
