"""Asks a server once which tools it has."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

from effectonce.mcp._jsonrpc import UnreadableMessage, read, written
from effectonce.mcp._refusals import tools_listed
from effectonce.mcp._stdio import ServerNotStarted, ServerProcess

ANSWERS_WITHIN_S = 60.0
GREETING = {
    # every server of the older era knows it, and those of the newer one speak both
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "effectonce", "version": "1"},
}


async def tools_of(command: Sequence[str]) -> list[dict[str, Any]]:
    server = await ServerProcess.start(command)
    try:
        async with asyncio.timeout(ANSWERS_WITHIN_S):
            await _ask(server, 1, "initialize", GREETING)
            await server.send(written({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            number = itertools.count(2)
            found = await tools_listed(lambda *asked: _ask(server, next(number), *asked))
            if found is None:
                raise ServerNotStarted(f"{command[0]} did not say which tools it has")
            return found
    except TimeoutError:
        within = f"within {ANSWERS_WITHIN_S:.0f} s"
        raise ServerNotStarted(f"{command[0]} did not say {within} which tools it has") from None
    finally:
        await server.stop()


async def _ask(
    server: ServerProcess, number: int, method: str, params: dict[str, Any]
) -> dict[str, Any]:
    await server.send(written({"jsonrpc": "2.0", "id": number, "method": method, "params": params}))
    async for line in server.lines():
        try:
            message = read(line)
        except UnreadableMessage:
            continue
        if message.get("id") == number and "method" not in message:
            result = message.get("result")
            if not isinstance(result, dict):
                raise ServerNotStarted(f"the server answered {method} with {message.get('error')}")
            return result
    raise ServerNotStarted(f"the server ended before it answered {method}")
