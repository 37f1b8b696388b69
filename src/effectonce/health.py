"""How a store is: can it be reached, does it keep its promises, what waits in it, and which
tools it may hold.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from msgspec import Struct

from effectonce._core.guarantees import Capability, Kind
from effectonce._core.ops import Find, Tally
from effectonce._core.record import State
from effectonce.errors import StoreUnavailable
from effectonce.policy import Contract
from effectonce.stores.base import Capabilities, ExaminableStore, Finding, Store

SAMPLES = 5
NOT_MADE_YET = "The first call makes it; there is nothing to look at yet."


class Health(Struct, frozen=True, kw_only=True):
    """What was found. `ok` is what a load balancer wants to know."""

    reachable: bool
    findings: tuple[Finding, ...]
    latency_s: float | None = None  # of one read, the median of a few
    capabilities: Capabilities | None = None
    counts: dict[State, int] = {}  # msgspec copies it
    error: str = ""

    @property
    def ok(self) -> bool:
        return self.reachable and not any(finding.bad for finding in self.findings)

    def unfit_for(self, kind: Kind, downstream: Capability) -> str:
        """Why this store may not hold such a tool; "" if it may."""
        return (
            self.error
            if self.capabilities is None
            else self.capabilities.unfit_for(kind, downstream)
        )


def examine(store: Store, contracts: Sequence[Contract] = ()) -> Health:
    """Look at a store. Whatever is wrong with it is reported, not raised."""
    notes = tuple(Finding("contract", note) for contract in contracts for note in contract.notes)
    try:
        findings = store.examine() if isinstance(store, ExaminableStore) else ()
        latency_s = sorted(_read_s(store) for _ in range(SAMPLES))[SAMPLES // 2]
        counts, capabilities = store.apply(Tally()), store.capabilities
    except StoreUnavailable as error:
        new = isinstance(error.__cause__, FileNotFoundError)
        advice = NOT_MADE_YET if new else "Until this is put right, nothing is sent."
        sick = Finding("store", str(error), advice, bad=True)
        return Health(reachable=False, findings=(sick, *notes), error=str(error))
    return Health(
        reachable=True,
        findings=(*findings, *notes),
        latency_s=latency_s,
        capabilities=capabilities,
        counts=counts,
    )


def _read_s(store: Store) -> float:
    start = time.perf_counter()
    store.apply(Find("a key that no effect has"))
    return time.perf_counter() - start
