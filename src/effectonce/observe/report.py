"""What effectonce prevented, as the store has counted it: `guard.report()`.

Every figure is what happened at least. A process adds what it counted every few seconds, and
one that is killed before that loses it. Days are those of UTC.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from effectonce._core.counters import (
    FIELDS,
    SETTLE_BOUNDS,
    SETTLE_FIRST,
    CountedDay,
    Numbers,
    Whose,
    counted_days,
    summed,
)
from effectonce._core.ops import Flow
from effectonce.errors import ContractViolation

DAYS_MAX = 400  # that one report reads


class PreventedCounts(Struct, frozen=True, kw_only=True):
    """What was counted. `prevented` are the calls that did not become a second effect."""

    landed: int = 0  # effects that happened
    replayed: int = 0  # calls that got the result of an effect that had happened before
    joined: int = 0  # calls that waited for another call of the same effect, and got its result
    refused_running: int = 0  # another call of the same effect ran, and this one did not wait
    refused_in_doubt: int = 0  # the effect may have happened, so it was not sent again
    replayed_failures: int = 0  # calls that got the failure that was recorded before
    conflicts: int = 0  # calls that used the key of another request
    doubts: int = 0  # effects that went in doubt
    probe_happened: int = 0  # doubts that a probe settled
    probe_not_happened: int = 0
    person_happened: int = 0  # doubts that a person settled
    person_not_happened: int = 0
    person_retried: int = 0
    resent: int = 0  # effects that were sent again under their key and happened
    retries_withheld: int = 0  # attempts that were not made after one that failed
    settle_ms: int = 0  # how long doubts were open, all together
    settle_times: tuple[int, ...] = ()  # how many were settled within each of SETTLE_BOUNDS

    @property
    def prevented(self) -> int:
        return self.replayed + self.joined + self.refused_running + self.refused_in_doubt

    @property
    def settled(self) -> int:
        by_probe = self.probe_happened + self.probe_not_happened
        return by_probe + self.person_happened + self.person_not_happened + self.person_retried

    def settled_within_s(self, share: float) -> float | None:
        """In this time, or less, so many of the doubts were settled: 0.5 is the median. None: no
        time is known. It is the upper bound of a range; infinite if that was a week or more.
        """
        count = sum(self.settle_times)
        if count == 0:
            return None
        reached = 0
        for bound_s, number in zip((*SETTLE_BOUNDS, float("inf")), self.settle_times, strict=True):
            reached += number
            if reached >= share * count:
                return bound_s
        return float("inf")


class PreventionReport(Struct, frozen=True, kw_only=True):
    """What was counted from one day on, to today."""

    first: str  # the first day, such as 2026-11-12
    last: str
    total: PreventedCounts
    days: Mapping[str, PreventedCounts]  # each day, the oldest first
    tools: Mapping[str, PreventedCounts]  # the one with most duplicates prevented first
    tenants: Mapping[str, PreventedCounts]


def report_of(
    now: float, since_s: float, tool: str | None = None, tenant: str | None = None
) -> Flow[PreventionReport]:
    """What was counted in the last *since_s* seconds: in all days of UTC that these touch, but
    the day on which they began if it is whole days. One day is today.
    """
    days = _days(now, since_s)
    counted: dict[str, CountedDay] = yield from counted_days(days)
    chosen = {day: _chosen(counted.get(day, CountedDay()), tool, tenant) for day in days}
    rows = [pair for each in chosen.values() for pair in each.items()]
    return PreventionReport(
        first=days[0],
        last=days[-1],
        total=counts_of(numbers for _, numbers in rows),
        days={day: counts_of(each.values()) for day, each in chosen.items()},
        tools=_by((whose[0], numbers) for whose, numbers in rows),
        tenants=_by((whose[1], numbers) for whose, numbers in rows),
    )


def _days(now: float, since_s: float) -> tuple[str, ...]:
    count = -(-since_s // 86_400)
    if not 1 <= count <= DAYS_MAX:
        raise ContractViolation(f"a report is about 1 to {DAYS_MAX} days, not {count:,.0f}")
    today = datetime.fromtimestamp(now, UTC).date()
    return tuple(str(today - timedelta(days=back)) for back in reversed(range(int(count))))


def _chosen(day: CountedDay, tool: str | None, tenant: str | None) -> dict[Whose, Numbers]:
    return {
        whose: numbers
        for whose, numbers in day.by_whose().items()
        if tool in (None, whose[0]) and tenant in (None, whose[1])
    }


def _by(rows: Iterable[tuple[str, Numbers]]) -> dict[str, PreventedCounts]:
    groups: dict[str, list[Numbers]] = {}
    for name, numbers in rows:
        groups.setdefault(name, []).append(numbers)
    counts = {name: counts_of(each) for name, each in groups.items()}
    return dict(
        sorted(counts.items(), key=lambda item: (-item[1].prevented, -item[1].landed, item[0]))
    )


def counts_of(rows: Iterable[Numbers]) -> PreventedCounts:
    """Rows of the store, added up."""
    total = summed(rows)
    named = {name: total.get(place, 0) for place, name in enumerate(FIELDS)}
    times = range(SETTLE_FIRST, SETTLE_FIRST + len(SETTLE_BOUNDS) + 1)
    return PreventedCounts(**named, settle_times=tuple(total.get(place, 0) for place in times))
