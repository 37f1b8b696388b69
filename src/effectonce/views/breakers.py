"""How the dependencies behind a guard's tools stand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from effectonce._core.breaker.votes import votes_of
from effectonce._core.ops import ReadCell
from effectonce.retries.circuit import Circuit
from effectonce.views.times import span
from effectonce.views.tools import tools_of

if TYPE_CHECKING:
    from effectonce import Guard
    from effectonce.stores import Store


def circuits_of(guard: Guard) -> dict[str, tuple[Circuit, list[str]]]:
    """The breakers of its tools by name, and whose they are."""
    found: dict[str, tuple[Circuit, list[str]]] = {}
    for name, tool in tools_of(guard).items():
        circuit = tool.retrying.circuit
        if isinstance(circuit, Circuit):
            found.setdefault(circuit.name, (circuit, []))[1].append(name)
    return found


ALONE = "not shared: each process has its own, and this is another process"
NOT_SHARED: dict[str, Any] = {
    "state": "not_shared",
    "why": ALONE,
    "probe_in_s": None,
    "processes": [],
}


def standing(store: Store, name: str) -> dict[str, Any]:
    """What the votes in the store say, without casting one."""
    cell = store.apply(ReadCell(f"breaker/{name}"))
    votes = votes_of(cell)
    against = [vote.until - cell.now for vote in votes.values() if vote.until > cell.now]
    if not votes:
        state, why = "unknown", "no process has reported anything lately"
    elif against:
        probe = f"the next probe in {span(min(against))}"
        state, why = "open", f"open in {len(against)} of {len(votes)} processes; {probe}"
    else:
        state, why = "closed", f"closed in all {len(votes)} processes"
    processes = [
        {
            "process": node,
            "state": "open" if vote.until > cell.now else "closed",
            "seen_s": round(cell.now - vote.seen, 3),
        }
        for node, vote in sorted(votes.items())
    ]
    return {
        "state": state,
        "why": why,
        "probe_in_s": round(min(against), 3) if against else None,
        "processes": processes,
    }
