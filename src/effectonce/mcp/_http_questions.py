"""Questions of the proxy to clients over HTTP, in the older versions of the protocol.

A question is an event in the stream that answers the call. Its answer is a request of its own, by
the same caller in the same session: an answer from anywhere else is not one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from effectonce.mcp._calls import ToolError, result_of
from effectonce.mcp._credentials_of_callers import Credentials
from effectonce.mcp._elicitation import ELICIT
from effectonce.mcp._http_client import STREAM, HttpClient
from effectonce.mcp._jsonrpc import name_of, written

Session = tuple[Credentials, bytes]
SESSIONS_MAX = 10_000  # that can ask; of the oldest it is forgotten, and their calls wait


class Questions:
    """What clients are asked, and which of them can ask a person."""

    def __init__(self) -> None:
        self._sessions: dict[Session, None] = {}
        self._waiting: dict[tuple[Session, str], asyncio.Future[bytes]] = {}
        self._count = 0

    def can_ask(self, session: Session) -> None:
        self._sessions[session] = None
        if len(self._sessions) > SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]

    def forget(self, session: Session) -> None:
        self._sessions.pop(session, None)

    async def ask(
        self, session: Session, client: HttpClient, params: Mapping[str, Any], within_s: float
    ) -> Any:
        """What the client answers. None: it cannot ask, is gone, or did not answer in time."""
        if session not in self._sessions or not _takes_stream(client):
            return None
        self._count += 1
        name = f"dev.effectonce/{self._count}"
        message = {"jsonrpc": "2.0", "id": name, "method": ELICIT, "params": params}
        said = asyncio.get_running_loop().create_future()
        self._waiting[session, name_of(name)] = said
        gone = asyncio.ensure_future(client.until_gone())
        try:
            await client.begin(200, STREAM)
            await client.event(written(message).rstrip(), more=True)
            either: list[asyncio.Future[Any]] = [said, gone]
            await asyncio.wait(either, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
            return result_of(said.result()) if said.done() else None
        except ToolError:
            return None
        finally:
            gone.cancel()
            del self._waiting[session, name_of(name)]

    def answer(self, session: Session, name: str, line: bytes) -> bool:
        """Hand an answer to the call that waits for it. False: it is for the server."""
        said = self._waiting.get((session, name))
        if said is None:
            return False
        if not said.done():
            said.set_result(line)
        return True


def _takes_stream(client: HttpClient) -> bool:
    return any(b"text/event-stream" in value for value in client.header_values(b"accept"))
