"""What pages and lists ask of a store: reads that look at a bounded part of it, however much it
holds.

`Browse`, `Search` and `Tally` are exact, and may take a look at every record. These are for a
person who waits for a page: each says where its look ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import inf
from typing import TypeAlias, TypeVar

from msgspec import Struct

from effectonce._core.keys import HOME_LENGTH, REFERENCE_LENGTH
from effectonce._core.ops import LAST, Op
from effectonce._core.record import Record, State

T = TypeVar("T")
LOOKED_AT, COUNTED = 2_000, 10_000


class Counts(Struct, frozen=True):
    """How many records there are in each state."""

    numbers: dict[State, int]
    more: frozenset[State] = frozenset()  # of these there are at least so many


class Count(Op[Counts], frozen=True):
    """How many records there are in each state, up to *limit* of each."""

    limit: int = COUNTED


class Recently(Struct, frozen=True):
    records: tuple[Record, ...]
    # where the look ended, for the next page; None: there are no more
    further: Record | None = None


class Recent(Op[Recently], frozen=True):
    """Records that fit, newest first, among the next *looked_at* that come after one of an
    earlier page.

    A store without an order by age has its own: every record comes once, and those of one state
    and one window newest first.
    """

    tool: str | None = None
    state: State | None = None
    tenant: str | None = None
    scope: str | None = None
    since: float = 0.0
    after: Record | None = None
    limit: int = 50
    looked_at: int = LOOKED_AT

    @property
    def looks(self) -> int:
        """How many records are looked at. Where all fit, no more than are shown."""
        chosen = {self.tool, self.state, self.tenant, self.scope} != {None} or self.since > 0
        return max(self.limit, self.looked_at) if chosen else self.limit

    def fits(self, record: Record) -> bool:
        request = record.request
        return (
            self.since <= record.created_at
            and self.tool in (None, request.terms.tool)
            and self.tenant in (None, request.tenant)
            and self.scope in (None, request.scope)
        )

    def shown(self, looked_at: Iterable[tuple[T, bool]], looks: int) -> tuple[list[T], T | None]:
        """Of *looks* that were asked for, each with whether it fits: what is shown, and where to
        go on. If they are fewer, nowhere.
        """
        found, seen = list[T](), 0
        last: T | None = None
        for each, fits in looked_at:
            seen, last = seen + 1, each
            if fits:
                found.append(each)
                if len(found) == self.limit:
                    return found, last
        return found, last if seen == looks else None


class Refer(Op["tuple[Record, ...]"], frozen=True):
    """Records whose reference begins like this, as far as they are found quickly; a whole
    reference is found wherever it is.

    Among those that wait, failed, are in doubt or are past their window, a store may find all of
    them; among others, the *looked_at* newest. If a whole reference is not among these, all keys
    are looked at, and nothing but keys. With the *beginning* of its key, which is a home or
    more, only those that begin like it.
    """

    reference: str
    tenant: str | None = None
    limit: int = 2
    looked_at: int = LOOKED_AT
    beginning: str = ""

    @property
    def is_whole(self) -> bool:
        return len(self.reference) == REFERENCE_LENGTH

    @property
    def bounds(self) -> tuple[str, str]:
        """Between which keys they lie."""
        return self.beginning, self.beginning + LAST

    def fits_key(self, key: str) -> bool:
        return key[-REFERENCE_LENGTH:].startswith(self.reference) and key.startswith(self.beginning)


class Beside(Op["tuple[Record, ...]"], frozen=True):
    """Records of the same conversation, run or stream as this key: their keys begin like it."""

    key: str
    limit: int

    @property
    def bounds(self) -> tuple[str, str]:
        """Between which keys they lie."""
        return self.key[:HOME_LENGTH], self.key[:HOME_LENGTH] + LAST


Paging: TypeAlias = Count | Recent | Refer | Beside


def look(op: Paging, records: Sequence[Record]) -> Counts | Recently | tuple[Record, ...]:
    """The answer of a store that has all its records at hand."""
    match op:
        case Count(limit):
            numbers = Counter(record.state for record in records)
            more = frozenset(state for state, number in numbers.items() if number > limit)
            return Counts({state: min(number, limit) for state, number in numbers.items()}, more)
        case Recent():
            last = (inf, "") if op.after is None else (op.after.created_at, op.after.request.key)
            older = (
                r
                for r in records
                if op.state in (None, r.state) and (r.created_at, r.request.key) < last
            )
            found, further = op.shown(
                ((r, op.fits(r)) for r in newest_first(older)[: op.looks]), op.looks
            )
            return Recently(tuple(found), further)
        case Refer():
            there = (
                r
                for r in records
                if op.fits_key(r.request.key) and op.tenant in (None, r.request.tenant)
            )
            return tuple(newest_first(there)[: op.limit])
        case _:
            first, beyond = op.bounds
            return tuple(
                [record for record in records if first <= record.request.key < beyond][: op.limit]
            )


def newest_first(records: Iterable[Record]) -> list[Record]:
    return sorted(records, key=lambda record: (record.created_at, record.request.key), reverse=True)
