"""Clients that the tools of an app send through, and that are not protected.

Quiet on purpose: only what the code of a tool names is looked at, and only where the tool says
nothing about what it sends.
"""

from __future__ import annotations

from collections.abc import Iterator

from effectonce import Capability, Finding, Guard, Kind
from effectonce._tools.check_declaration import announces, names_of
from effectonce._tools.tool import GuardedTool
from effectonce.http.client.protect import is_bare
from effectonce.views.tools import tools_of


def bare_clients(guard: Guard) -> Iterator[Finding]:
    """A finding for each client that should be protected, with the line that does it."""
    used: dict[tuple[str, str], list[str]] = {}
    for name, tool in tools_of(guard).items():
        if _says_nothing(tool):
            for place, thing in names_of(tool.function).items():
                if is_bare(thing):
                    used.setdefault(place, []).append(name)
    for (module, variable), tools in used.items():
        who = f"{', '.join(tools)} send{'s' if len(tools) == 1 else ''}"
        unseen = "what leaves is not seen: more errors end in doubt than have to"
        found = f"{who} through it, and {unseen}"
        protected = f"{variable} = protect({variable}), of effectonce.http.client"
        advice = f"{protected}, and @guard.tool(through=[{variable}])."
        yield Finding(f"client {module}:{variable}", found, advice)


def _says_nothing(tool: GuardedTool) -> bool:
    """Is an error of it in doubt, although a protected client would have seen what left?"""
    contract = tool.contract
    writes = contract.kind in (Kind.WRITE, Kind.IRREVERSIBLE)
    unaided = contract.downstream.capability in (Capability.PROBE, Capability.NONE)
    if not (writes and unaided):
        return False
    return not (contract.through or contract.one_request or announces(tool.function))
