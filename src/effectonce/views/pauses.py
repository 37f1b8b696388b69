"""Which tools there are to pause, and which are paused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from effectonce._core.counters import OTHER
from effectonce._core.guarantees import DAY_S, Kind
from effectonce._core.ops import Search
from effectonce.views.times import iso
from effectonce.views.tools import tools_of

if TYPE_CHECKING:
    from effectonce import Guard

COUNTED_S = 7 * DAY_S  # a tool that was not called for so long is listed only where its code is


def pauses_of(guard: Guard, now: float) -> list[dict[str, Any]]:
    """The tools that are paused, by name."""
    return [
        {
            "tool": tool,
            "by": pause.by,
            "reason": pause.reason,
            "at": iso(pause.at),
            "for_s": round(max(0.0, now - pause.at), 3),
        }
        for tool, pause in guard.paused_tools().items()
    ]


def pausable_tools(guard: Guard, now: float, tenant: str | None) -> list[dict[str, Any]]:
    """The tools of a guard, and those whose effects its store has counted lately."""
    paused = {each["tool"]: each for each in pauses_of(guard, now)}
    mine = {name: tool.contract for name, tool in tools_of(guard).items()}
    lately = guard.report(COUNTED_S, tenant=tenant).tools
    names = {name for name, contract in mine.items() if contract.kind is not Kind.READ}
    return [
        {
            "name": name,
            "promise": f"{mine[name].kind}, {mine[name].downstream.capability}"
            if name in mine
            else None,
            "landed": lately[name].landed if name in lately else 0,
            "pause": paused.get(name),
        }
        for name in sorted(names | paused.keys() | (lately.keys() - {OTHER}))
    ]


def why_not_paused(guard: Guard, name: str) -> str:
    """Why nothing would be stopped by a pause of this name; "": it is the name of a tool."""
    tools = tools_of(guard)
    if name in tools:
        reads = tools[name].contract.kind is Kind.READ
        return f"{name} only reads: a pause stops effects." if reads else ""
    if name in guard.paused_tools() or guard.store.apply(Search(tool=name, limit=1)):
        return ""
    known = f" Its guard has {', '.join(tools)}." if tools else ""
    return f"no tool {name!r} is known here: the store has no effect of it.{known}"
