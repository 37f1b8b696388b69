"""What a tool's first claims become. The table is asked once: only request and token differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar, cast

from msgspec import Struct

from effectonce._core.guarantees import Terms
from effectonce._core.ops import Claim, Held
from effectonce._core.record import Record, Scene
from effectonce._core.transitions import transition

P = TypeVar("P")
TERMS_MAX = 1024


class Birth(Struct, Generic[P], frozen=True):
    """The reply to such a claim, and what a store packed of its record, born at time zero."""

    lease_s: float
    reply: Held
    packed: P


class Births(Generic[P]):
    """The births of one store. Terms are found by identity first: hashing costs half of packing."""

    def __init__(self, pack: Callable[[Record], P]) -> None:
        self._pack = pack
        # it holds the terms, so that nothing else gets their identity
        self._same: dict[int, tuple[Terms, Birth[P]]] = {}
        self._equal: dict[tuple[Terms, float], Birth[P]] = {}

    def of(self, op: Claim) -> Birth[P]:
        """Only if it dispatches and waits for no effect: nothing else may matter to the table."""
        terms = op.request.terms
        known = self._same.get(id(terms))
        if known is not None and known[0] is terms and known[1].lease_s == op.lease_s:
            return known[1]
        birth = self._equal.get((terms, op.lease_s)) or self._ask(op)
        if len(self._same) >= TERMS_MAX:
            self._same.clear()
        self._same[id(terms)] = (terms, birth)
        return birth

    def _ask(self, op: Claim) -> Birth[P]:
        born = transition(None, op, Scene(0.0))
        birth = Birth(op.lease_s, cast(Held, born.reply), self._pack(cast(Record, born.after)))
        if len(self._equal) >= TERMS_MAX:
            self._equal.clear()
        self._equal[op.request.terms, op.lease_s] = birth
        return birth
