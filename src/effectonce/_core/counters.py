"""What effectonce was worth, counted: per day, tool and tenant, in one small cell for each day.
Pure.

Processes count by themselves and add to the day's cell now and then. An addition has a number of
its writer, and the cell knows the last numbers of its last writers: one whose acknowledgement
was lost is not added twice. If the cell cannot tell any more, it is left out. So the figures are
never too high, and too low by what a killed process had not added yet. Nothing is decided by them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

from effectonce._core.guarantees import DAY_S
from effectonce._core.ops import Cell, Flow, ReadCell, Together, WriteCell

NAMES = "counted "  # how the names of the cells begin; the day follows
OTHER = "_OTHER"  # all further tools or tenants of a day
ROWS_MAX, FURTHER_MAX = 200, 50  # of a day; and so many tools whose further tenants are one
NAME_MAX = 120  # characters of a tool's or a tenant's name
WRITERS = 64  # whose last addition a cell knows
KEEP_DAYS = 90

FIELDS = (
    "landed",
    "replayed",
    "joined",
    "refused_running",
    "refused_in_doubt",
    "replayed_failures",
    "conflicts",
    "doubts",
    "probe_happened",
    "probe_not_happened",
    "person_happened",
    "person_not_happened",
    "person_retried",
    "resent",
    "retries_withheld",
    "settle_ms",
)
(
    LANDED,
    REPLAYED,
    JOINED,
    REFUSED_RUNNING,
    REFUSED_IN_DOUBT,
    REPLAYED_FAILURES,
    CONFLICTS,
    DOUBTS,
    PROBE_HAPPENED,
    PROBE_NOT_HAPPENED,
    PERSON_HAPPENED,
    PERSON_NOT_HAPPENED,
    PERSON_RETRIED,
    RESENT,
    RETRIES_WITHHELD,
    SETTLE_MS,
) = range(len(FIELDS))
# seconds that doubts were open, at most; one more for all that were open longer
SETTLE_BOUNDS = (1.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0, 604_800.0)
SETTLE_FIRST = 32  # the number of the first of them: room for more fields before it
ROW = SETTLE_FIRST + len(SETTLE_BOUNDS) + 1  # how many numbers there are

Whose = tuple[str, str]  # a tool and a tenant
Numbers = dict[int, int]  # by their places in FIELDS, or after SETTLE_FIRST; without zeros


class CountedRow(Struct, array_like=True, frozen=True):
    tool: str
    tenant: str
    numbers: Numbers


class CountedDay(Struct, array_like=True, frozen=True):
    """What the cell of a day holds."""

    rows: tuple[CountedRow, ...] = ()
    writers: tuple[tuple[str, int], ...] = ()  # the last one last

    def by_whose(self) -> dict[Whose, Numbers]:
        return {(row.tool, row.tenant): row.numbers for row in self.rows}


class Addition(Struct):
    """What a process adds to a day, once."""

    day: str
    writer: str
    number: int
    rows: dict[Whose, Numbers]
    sent: bool = False  # it may have been added already


def settle_bucket(age_s: float) -> int:
    """The number that a doubt of this age adds to."""
    return SETTLE_FIRST + bisect_left(SETTLE_BOUNDS, age_s)


def cell_of(day: str) -> str:
    return f"{NAMES}{day}"


def read_day(value: bytes) -> CountedDay:
    """Raises `msgspec.MsgspecError` for what another release has written."""
    return msgspec.msgpack.decode(value, type=CountedDay) if value else CountedDay()


def plus(day: CountedDay, more: Addition) -> CountedDay:
    """The day with an addition. What does not fit any more goes to `_OTHER`."""
    rows = {whose: dict(numbers) for whose, numbers in day.by_whose().items()}
    for (tool, tenant), numbers in more.rows.items():
        _add(rows.setdefault(_place(rows, tool[:NAME_MAX], tenant[:NAME_MAX]), {}), numbers)
    others = tuple(known for known in day.writers if known[0] != more.writer)
    return CountedDay(
        tuple(CountedRow(*whose, numbers) for whose, numbers in rows.items()),
        (*others, (more.writer, more.number))[-WRITERS:],
    )


def _place(rows: Mapping[Whose, Numbers], tool: str, tenant: str) -> Whose:
    if (tool, tenant) in rows or len(rows) < ROWS_MAX:
        return tool, tenant
    if (tool, OTHER) in rows or len(rows) < ROWS_MAX + FURTHER_MAX:
        return tool, OTHER
    return OTHER, OTHER


def _add(numbers: Numbers, more: Mapping[int, int]) -> None:
    for place, number in more.items():
        numbers[place] = numbers.get(place, 0) + number


def summed(rows: Iterable[Mapping[int, int]]) -> Numbers:
    total: Numbers = {}
    for numbers in rows:
        _add(total, numbers)
    return total


def added(more: Addition, keep_s: float, tries: int) -> Flow[bool]:
    """Add it. False: others were faster each time; it can be tried again later."""
    name = cell_of(more.day)
    stands: Cell | None = yield from ReadCell(name)
    for _ in range(tries):
        assert stands is not None
        day = read_day(stands.value)
        if more.sent and _done_or_unknown(day, more):
            return True
        more.sent = True
        value = msgspec.msgpack.encode(plus(day, more))
        stands = yield from WriteCell(name, stands.revision, value, keep_s)
        if stands is None:
            return True
    return False


def _done_or_unknown(day: CountedDay, more: Addition) -> bool:
    last = dict(day.writers).get(more.writer)
    return len(day.writers) >= WRITERS if last is None else last >= more.number


def counted_days(days: tuple[str, ...]) -> Flow[dict[str, CountedDay]]:
    """What was counted on these days, in one round trip where the store can."""
    cells = yield from Together(tuple(ReadCell(cell_of(day)) for day in days))
    found: dict[str, CountedDay] = {}
    for day, cell in zip(days, cells, strict=True):
        try:
            found[day] = read_day(cell.value)
        except msgspec.MsgspecError:
            continue  # of another release
    return found


def keep_s(days: int) -> float:
    return days * DAY_S
