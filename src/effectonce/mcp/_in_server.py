"""The same inside a server: its code is the tool, and a cancelled call goes on to its end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from effectonce.effect import is_running
from effectonce.errors import EffectOnceError, StoreUnavailable
from effectonce.guard import Guard
from effectonce.mcp._calls import ToolError, judged, shown
from effectonce.mcp._contracts import Contracts
from effectonce.mcp._credentials_of_callers import Callers
from effectonce.mcp._effects import Effects, HeldCall
from effectonce.mcp._results import refused

Wire = dict[str, Any]  # a result as it is on the wire


class ServerRun:
    """One run of the server's own handler."""

    def __init__(
        self,
        proceed: Callable[[], Awaitable[Any]],
        wire: Callable[[Any], Wire],
        *,
        nothing_done: bool,
    ) -> None:
        self._proceed, self._wire, self._nothing_done = proceed, wire, nothing_done
        self.own: Any = None  # what the handler returned, as it did

    async def run(self) -> Wire:
        self.own = await self._proceed()
        return judged(self._wire(self.own), b"", nothing_done=self._nothing_done)


async def _run(leg: ServerRun) -> Wire:
    return await leg.run()


class Hosted:
    """The calls of one server's tools."""

    def __init__(
        self,
        guard: Guard,
        name: str,
        contracts: Mapping[str, Mapping[str, Any]],
        defaults: Mapping[str, Any],
    ) -> None:
        tools = {tool: dict(options) for tool, options in contracts.items()}
        self._contracts = Contracts(name=name, tools=tools, defaults=dict(defaults))
        self._effects = Effects(guard, self._contracts, _run, server=name, sees_client=False)
        self._callers = Callers(
            guard, all_one='let the server say protect(..., tenant=lambda context: "")'
        )
        self._going: set[asyncio.Task[Any]] = set()

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None,
        meta: Any,
        whose: Callable[[], Awaitable[str]],
        proceed: Callable[[], Awaitable[Any]],
        wire: Callable[[Any], Wire],
    ) -> tuple[Any, Wire | None]:
        """What the handler returned, if it is the answer; otherwise the answer as on the wire."""
        contract = self._contracts.of(name, {})
        if contract.passes:
            return await proceed(), None
        leg = ServerRun(proceed, wire, nothing_done=contract.errors == "nothing_done")
        try:
            tenant = await whose()
            entry = await self._effects.enter(name, arguments or {}, contract, meta, tenant=tenant)
            if is_running(entry.request.key):
                return await proceed(), None
            outcome = await self._to_its_end(entry, leg)
        except ToolError:
            return leg.own, None
        except EffectOnceError as error:
            return None, refused(error, contract, modern=False)
        if outcome.error is None:
            # then it is not counted, and the same call is replayed
            with contextlib.suppress(StoreUnavailable):
                await self._effects.shown(entry)
            if not outcome.replayed and leg.own is not None:
                return leg.own, None
        return None, shown(outcome, entry, modern=False)

    async def caller(self, token: Any, request: Any) -> str:
        """By access token; without one, by who sends it over HTTP; else the guard's own tenant."""
        if token is not None:
            return await self._callers.principal(token)
        if request is None:
            return ""
        return await self._callers.tenant(self._callers.credentials(request.scope))

    async def _to_its_end(self, entry: HeldCall, leg: ServerRun) -> Any:
        """A caller that gives up does not end it: its outcome is recorded for the next caller."""
        task = asyncio.ensure_future(entry.run(leg))
        self._going.add(task)
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._going.discard(task)
        if not task.cancelled():
            task.exception()  # looked at: the caller that waited got it, and no other needs it
