"""Calls of tools as effects of the engine: what the proxy and the extensions of a server share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from effectonce._core.canonical import NotCanonical, canonical, fingerprint
from effectonce._core.codec import encode_or_excuse
from effectonce._core.effect_ref import EffectRef
from effectonce._core.keys import AtStep
from effectonce._core.record import Request
from effectonce._runtime.performers import Prepared
from effectonce._runtime.step import flagged
from effectonce._tools.context import Hosting
from effectonce._tools.identity import Identity
from effectonce._tools.tool import GuardedTool
from effectonce.errors import ContractViolation
from effectonce.guard import Guard
from effectonce.mcp._call_identity import CallPlaces, Placed, ToolRequest, asked
from effectonce.mcp._contracts import Contracts, ToolContract
from effectonce.outcome import Outcome

_HOSTING = Hosting(
    stays="only its client can ask for it. Let the client make the same call again: it has the same"
    " key, and is done once"
)
TOOLS_MAX = 256


class HeldCall(Struct, frozen=True):
    """A call that has its place, and its key."""

    tool: GuardedTool
    contract: ToolContract
    asked: ToolRequest
    placed: Placed
    request: Request
    ref: EffectRef

    async def run(self, argument: Any) -> Outcome[Any]:
        """Run it once: the function of its tool, with *argument*, or the outcome that is known."""
        return await self.tool.acall(Prepared(self.request, self.ref, (argument,), {}))

    @property
    def again(self) -> str:
        """How another one is asked for, where the place of a call is its ordinal."""
        if not self.placed.counter:
            return ""
        if self.placed.at_once:
            return "If another one is meant, make the same call again."
        after = f"{self.contract.again_s:.0f} s after this"
        return f"If another one is meant, make the same call again {after}."


class Effects:
    """The tools of one server, each with its contract. *function* is what runs a call."""

    def __init__(
        self,
        guard: Guard,
        contracts: Contracts,
        function: Callable[..., Any],
        *,
        server: str,
        sees_client: bool,
    ) -> None:
        self._guard, self._function, self._server = guard, function, server
        self._named = contracts.name or "mcp"
        house = guard._house  # noqa: SLF001  # it stands above the guard
        self._tenant, self._secret = house.tenant, house.secret
        self.places = CallPlaces(guard.store, house.secret, sees_client=sees_client)
        self._sees_client = sees_client
        self._tools: dict[tuple[str, ToolContract], GuardedTool] = {}

    async def enter(
        self,
        name: str,
        arguments: Mapping[str, Any],
        contract: ToolContract,
        meta: Any,
        *,
        conversation: str = "",
        tenant: str = "",
    ) -> HeldCall:
        """Which effect this call is. Nothing is claimed yet."""
        whose = flagged(tenant, "tenant") if tenant else self._tenant
        tool_name, server = f"{self._named}/{name}", self._server
        try:
            call = asked(tool_name, server, arguments, contract, meta, conversation, whose)
        except NotCanonical as error:
            raise ContractViolation(f"{name}: {error}. Nothing was sent.") from None
        tool = self._tool(name, contract)
        placed = await self.places.put(call, contract)
        step = placed.place.step if isinstance(placed.place, AtStep) else ""
        identity = Identity(call.tenant, call.scope, call.tool, call.intent, self._secret)
        # a person approves all that is sent, also what need not be the same in a repeat
        matched = canonical(dict(arguments)) if contract.approval else call.matched
        wanted = fingerprint(call.tool.encode() + b"\n" + matched, self._secret)
        stored = encode_or_excuse(dict(arguments))
        request = identity.at(placed.place, wanted, tool.terms, stored, shown=(call.scope, step))
        ref = EffectRef(call.tool, request.key, call.tenant, call.scope, step)
        return HeldCall(tool, contract, call, placed, request, ref)

    async def shown(self, entry: HeldCall, *, after_s: float = 0.0) -> None:
        """The model has the result of this call, *after_s* seconds after it asked."""
        keep_s = entry.contract.counted_s
        await self.places.shown(entry.placed, entry.asked.call, keep_s, after_s=after_s)

    def _tool(self, name: str, contract: ToolContract) -> GuardedTool:
        known = self._tools.get((name, contract))
        if known is not None:
            return known
        made = contract.contract(f"{self._named}/{name}", hosted=not self._sees_client)
        kept = len(self._tools) < TOOLS_MAX
        # A client may make up names without end. What is not kept is made for each call, and the
        # guard does not list it. for rooms like this one
        tool = self._guard._host(made, self._function, hosting=_HOSTING, listed=kept)  # noqa: SLF001
        if kept:
            self._tools[name, contract] = tool
        return tool
