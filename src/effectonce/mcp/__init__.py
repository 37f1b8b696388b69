"""The proxy between any MCP client and any MCP server. `effectonce mcp -- COMMAND` runs it;
`proxy.py` says how it works.
"""
