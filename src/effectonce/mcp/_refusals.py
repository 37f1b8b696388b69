"""A result with `isError` that says that the tool was never called: is it true?

The SDKs report unknown tools and invalid arguments as results, and so does a tool that did half
of its work. Words alone prove nothing: a tool can say anything. A refusal is believed if two
things agree:

 1. the text is, from its first letter, what an SDK writes before it calls a tool: the table below;
 2. the server's own list of tools, asked for at that moment, says the same: the tool is not on
    it, or the arguments that were sent do not fit its schema.

A tool that is listed and was called with arguments that fit is never believed, whatever it says:
it may have run.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from effectonce.mcp._jsonrpc import is_tool
from effectonce.mcp._schema import misfits

# The MCP SDK for Python and FastMCP say the first; that for TypeScript the others, with its code
# before them in version 1.
_UNKNOWN = ("Unknown tool: {0}", "Unknown tool: {0!r}", "Tool {0} not found", "Tool {0} disabled")
_CODE = "MCP error -32602: "
_INVALID = (
    r"Input validation error: Invalid arguments for tool {name}: ",  # TypeScript
    # Python, MCPServer
    r"Error executing tool {name}: \d+ validation errors? for [^\n]*Arguments\n",
    r"\d+ validation errors? for call\[[^\n]*\]\n",  # FastMCP
    r"Input validation error: ",  # Python, version 1, the low-level server
)
Request = Callable[[str, dict[str, Any]], Awaitable[Mapping[str, Any] | None]]
PAGES_MAX = 100  # a list that never ends does not hang us


async def was_refused(
    result: Mapping[str, Any], name: str, arguments: Mapping[str, Any], request: Request
) -> bool:
    """True: *result* came before the tool's call. *request* asks the server; None: no answer."""
    text = _only_text(result).removeprefix(_CODE)
    unknown = text in [words.format(name) for words in _UNKNOWN]
    invalid = any(re.match(words.format(name=re.escape(name)), text) for words in _INVALID)
    if result.get("isError") is not True or not (unknown or invalid):
        return False
    tools = await tools_listed(request)
    if tools is None:
        return False
    found = [tool for tool in tools if tool["name"] == name]
    if unknown:
        return not found
    return bool(found) and all(misfits(dict(arguments), tool.get("inputSchema")) for tool in found)


async def tools_listed(request: Request) -> list[dict[str, Any]] | None:
    """Every tool of a server, page by page. None: it did not say all of them."""
    found: list[dict[str, Any]] = []
    params: dict[str, Any] = {}
    for _ in range(PAGES_MAX):
        page = await request("tools/list", params)
        if page is None or not isinstance(page.get("tools"), list):
            return None
        found += [tool for tool in page["tools"] if is_tool(tool)]
        if not page.get("nextCursor"):
            return found
        params = {"cursor": page["nextCursor"]}
    return None


def _only_text(result: Mapping[str, Any]) -> str:
    """The text of a result that is one text and nothing else: so the SDKs refuse."""
    content = result.get("content")
    if not isinstance(content, list) or len(content) != 1 or not isinstance(content[0], dict):
        return ""
    text = content[0].get("text")
    return text if isinstance(text, str) else ""
