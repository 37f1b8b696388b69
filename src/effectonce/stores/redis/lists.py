"""Many records of a Redis store at once: pages, lists and counts. One generator for sync and
async, as in `_redis_commands.py`.

Theory of operation. A bucket has its records by state and by when their sweep is due; those of
one such moment, and those in doubt, oldest first. A member of either index says when its record
was born, and its key. Another order by age would cost every call, so pages go through the one
that there is: state by state, what is remembered longest first. The first of all buckets are
merged from a few of each, and more are asked for only where the last ones that came are still
among the first.
"""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Callable, Generator, Sequence
from heapq import nlargest, nsmallest
from operator import itemgetter
from typing import Any, TypeAlias

from msgspec import Struct

from effectonce._core.keys import KEY_LENGTH
from effectonce._core.ops import Browse, Search
from effectonce._core.pages import Beside, Counts, Paging, Recent, Recently, Refer, newest_first
from effectonce._core.record import Record, State
from effectonce.errors import StoreUnavailable
from effectonce.stores.redis import records
from effectonce.stores.redis.connection import Batch, pack
from effectonce.stores.redis.scripts import ALIKE, BIRTHS, PAGE, Script

Conversing: TypeAlias = Generator[Batch, "list[Any] | StoreUnavailable", Any]
Place: TypeAlias = tuple[float, bytes]  # a score, and the member that has it
TOGETHER = 32  # buckets that are searched in one round trip
SCANNED = "1000"  # members that one script looks at
_SLOTS = 16384
_ORDER = (
    State.DISPATCHED,
    State.CLAIMED,
    State.COMPLETED,
    State.FAILED,
    State.IN_DOUBT,
    State.TOMBSTONE,
)
_first = itemgetter(0)


class IndexBucket(Struct, frozen=True):
    """One part of all records."""

    prefix: bytes
    slot: int

    @classmethod
    def of(cls, prefix: str, tag: str) -> IndexBucket:
        return cls(f"{prefix}:{{{tag}}}:".encode(), crc_hqx(tag.encode(), 0) % _SLOTS)


class Command(Struct, frozen=True):
    """One command about one bucket."""

    bucket: IndexBucket
    script: Script | None
    arguments: tuple[bytes | str, ...]

    def pack(self, *, known: bool = True) -> bytes:
        if self.script is None:
            return pack(self.arguments)
        call = ("EVALSHA", self.script.sha) if known else ("EVAL", self.script.source)
        prefix = self.bucket.prefix
        return pack((*call, "2", prefix, prefix + b"?", *self.arguments))


class Order(Struct, frozen=True):
    """One index of every bucket, in one direction."""

    after: Callable[[IndexBucket, Place | None, int], Command]  # the next ones of a bucket
    read: Callable[[list[Any]], list[Place]]
    first: Callable[..., list[tuple[Place, IndexBucket]]]  # nsmallest or nlargest


class Lists:
    """What one store says to its servers about many records."""

    def __init__(
        self,
        buckets: Sequence[IndexBucket],
        bucket_of: Callable[[str], IndexBucket],
        ask: Callable[[Sequence[Command]], Conversing],
    ) -> None:
        self._buckets, self._bucket_of, self._ask = buckets, bucket_of, ask

    def listed(self, op: Browse) -> Conversing:
        """Pages of members, oldest first, until enough fit: a record's state may have changed."""
        after, found, page = records.member(*op.after), list[Record](), max(op.limit, 100)
        while True:
            members = yield from (
                self._page(after, page)
                if op.state is State.IN_DOUBT
                else self._sorted_page(op.state, after, page)
            )
            for record, _ in (yield from self.records(members)):
                if record.state is op.state and op.tenant in (None, record.request.tenant):
                    found.append(record)
            if len(members) < page or len(found) >= op.limit:
                return tuple(found[: op.limit])
            after = members[-1][0]

    def _page(self, after: bytes, page: int) -> Conversing:
        """What is in doubt is never due: these have one score, and so are in order already."""
        return self._members(_DOUBTS, (0.0, after), page)

    def _sorted_page(self, state: State, after: bytes, page: int) -> Conversing:
        """Those never swept are in order. The others are in sweep order: all keys are looked at."""
        lowest, never = records.scores(state)
        found = yield from self._members(_births(never), (0.0, after), page)
        for n in range(0, len(self._buckets), TOGETHER):
            some = self._buckets[n : n + TOGETHER]
            due = [
                Command(b, None, ("ZRANGEBYSCORE", b.prefix + b"s", lowest, f"({never}"))
                for b in some
            ]
            for bucket, members in zip(some, (yield from self._ask(due)), strict=True):
                found = nsmallest(
                    page, (*found, *((m, bucket) for m in members if m > after)), _first
                )
        return found

    def _members(self, order: Order, after: Place | None, page: int) -> Conversing:
        return [
            (member, bucket)
            for (_, member), bucket in (yield from self._merged(order, after, page))
        ]

    def _merged(self, order: Order, after: Place | None, page: int) -> Conversing:
        """The first of all buckets, each time twice as many from those that may have more."""
        each, found = page // len(self._buckets) + 1, list[tuple[Place, IndexBucket]]()
        asked: dict[IndexBucket, Place | None] = dict.fromkeys(self._buckets, after)
        while asked:
            replies = yield from self._ask(
                [order.after(bucket, place, each) for bucket, place in asked.items()]
            )
            ends: dict[IndexBucket, Place] = {}
            for bucket, reply in zip(asked, replies, strict=True):
                places = order.read(reply)
                found += [(place, bucket) for place in places]
                if len(places) == each:
                    ends[bucket] = places[-1]
            found, each = order.first(page, found, key=_first), each * 2
            inside = {place for place, _ in found[: page - 1]}
            asked = {bucket: place for bucket, place in ends.items() if place in inside}
        return found

    def cells(self, first: bytes, last: bytes, page: int, *, backwards: bool) -> Conversing:
        """The next names of listed cells between two names."""
        order, begin = (_names_backwards(first), last) if backwards else (_names(last), first)
        return (yield from self._members(order, (0.0, begin), page))

    def searched(self, op: Search) -> Conversing:
        """A member has a record's age and key; for the rest, the newest are read until enough."""
        fitting = sorted((yield from self._fitting(op)), key=_first, reverse=True)
        found, page = list[Record](), max(op.limit, 100)
        for at in range(0, len(fitting), page):
            found += [
                record
                for record, _ in (yield from self.records(fitting[at : at + page]))
                if op.fits(record)
            ]
            if len(found) >= op.limit:
                break
        return tuple(found[: op.limit])

    def _fitting(self, op: Search) -> Conversing:
        """Fitting members, some buckets at a time: all at once could be too much for a reply."""
        since, before = records.member(op.since, ""), records.member(*op.before)
        doubts = ("ZRANGE", b"d", "0", "-1")
        decided = (
            ("ZRANGE", b"s", "0", "-1")
            if op.state is None
            else ("ZRANGEBYSCORE", b"s", *records.scores(op.state))
        )
        asked = (
            [doubts]
            if op.state is State.IN_DOUBT
            else [decided]
            if op.state is not None
            else [doubts, decided]
        )
        commands = [
            Command(b, None, (name, b.prefix + at, *rest))
            for b in self._buckets
            for name, at, *rest in asked
        ]
        found: list[tuple[bytes, IndexBucket]] = []
        for n in range(0, len(commands), TOGETHER):
            some = commands[n : n + TOGETHER]
            for command, members in zip(some, (yield from self._ask(some)), strict=True):
                found += [
                    (m, command.bucket)
                    for m in members
                    if since <= m < before and op.fits_key(m[8:].decode())
                ]
        return found

    def records(self, members: Sequence[tuple[bytes, IndexBucket]]) -> Conversing:
        return [records.read(key, written) for key, written in (yield from self.written(members))]

    def written(self, members: Sequence[tuple[bytes, IndexBucket]]) -> Conversing:
        found = yield from self._ask(
            [Command(b, None, ("GET", b.prefix + b"r:" + m[8:])) for m, b in members]
        )
        return [
            (m[8:].decode(), written)
            for (m, _), written in zip(members, found, strict=True)
            if written is not None
        ]

    def counted(self) -> Conversing:
        places = [(state, bucket) for bucket in self._buckets for state in records.CODES]
        asked = [Command(bucket, None, _count(state, bucket)) for state, bucket in places]
        counts: dict[State, int] = {}
        for (state, _), count in zip(places, (yield from self._ask(asked)), strict=True):
            if count:
                counts[state] = counts.get(state, 0) + count
        return counts

    # ------------------------------------------------------------ pages

    def paged(self, op: Paging) -> Conversing:
        match op:
            case Recent():
                return self._recent(op)
            case Refer():
                return self._referred(op)
            case Beside():
                return self._beside(op)
            case _:
                return self._numbers()

    def _numbers(self) -> Conversing:
        return Counts((yield from self.counted()))

    def _recent(self, op: Recent) -> Conversing:
        """State after state, each a few at first, until enough fit or enough were looked at."""
        states: tuple[State, ...] = _ORDER if op.state is None else (op.state,)
        if op.after is not None and op.after.state in states:
            states = states[states.index(op.after.state) :]
        found, after, looks, page = list[Record](), op.after, op.looks, op.limit
        for state in states:
            full = True
            while full:
                asked = min(page, looks)
                members = yield from self._last(state, after, asked)
                for record, _ in (yield from self.records(members)):
                    if record.state is not state:  # it changed in between
                        continue
                    after = record
                    if op.fits(record):
                        found.append(record)
                    if len(found) == op.limit:
                        return Recently(tuple(newest_first(found)), record)
                looks, page, full = looks - len(members), page * 2, len(members) == asked
                if looks == 0:
                    return Recently(tuple(newest_first(found)), after)
            after = None
        return Recently(tuple(newest_first(found)))

    def _last(self, state: State, after: Record | None, page: int) -> Conversing:
        """The last members of one state, those before a given one."""
        last = None if after is None else records.member(after.created_at, after.request.key)
        if state is State.IN_DOUBT:
            return self._members(_DOUBTS_BACKWARDS, None if last is None else (0.0, last), page)
        return self._members(
            _sweeps(state),
            None if last is None or after is None else (records.score(after), last),
            page,
        )

    def _beside(self, op: Beside) -> Conversing:
        """They lie in one bucket: its members tell which they are."""
        members = yield from self._scanned([self._bucket_of(op.key)], op.bounds[0], "")
        return tuple([record for record, _ in (yield from self.records(members[: op.limit]))])

    def _referred(self, op: Refer) -> Conversing:
        there = [] if op.beginning else (yield from self._quickly(op))
        if not there and op.is_whole:
            ours, elsewhere = (
                self._bucket_of(op.beginning.ljust(KEY_LENGTH, "0")),
                self._bucket_of(""),
            )
            buckets = (ours, elsewhere) if op.beginning else self._buckets
            there = yield from self._scanned(buckets, op.beginning, op.reference)
        found = [
            record
            for record, _ in (yield from self.records(there))
            if op.tenant in (None, record.request.tenant)
        ]
        return tuple(newest_first(found)[: op.limit])

    def _quickly(self, op: Refer) -> Conversing:
        """The last of each state in each bucket, and of these what fits. Members have the key."""
        each = op.looked_at // len(self._buckets)
        asked = [
            Command(b, None, ("ZREVRANGE", b.prefix + b"d", "0", str(each))) for b in self._buckets
        ]
        for state in (state for state in _ORDER if state is not State.IN_DOUBT):
            lowest, highest = records.scores(state)
            asked += [
                Command(
                    b,
                    None,
                    (
                        "ZREVRANGEBYSCORE",
                        b.prefix + b"s",
                        highest,
                        lowest,
                        "LIMIT",
                        "0",
                        str(each + 1),
                    ),
                )
                for b in self._buckets
            ]
        pages = yield from self._ask(asked)
        return [
            (m, command.bucket)
            for command, some in zip(asked, pages, strict=True)
            for m in some
            if op.fits_key(m[8:].decode())
        ]

    def _scanned(self, buckets: Sequence[IndexBucket], beginning: str, end: str) -> Conversing:
        """Members whose keys begin and end so. Redis scans buckets in parts, sending only these."""
        left: dict[tuple[IndexBucket, str], tuple[bytes | str, bytes]] = {
            (b, index): ("+inf", b"") for b in buckets for index in "ds"
        }
        found: dict[bytes, IndexBucket] = {}
        while left:
            some = list(left)[:TOGETHER]
            asked = [
                Command(b, ALIKE, (index, *left[b, index], SCANNED, beginning, end))
                for b, index in some
            ]
            for place, (members, *further) in zip(some, (yield from self._ask(asked)), strict=True):
                found |= dict.fromkeys(members, place[0])
                del left[place]
                if further:
                    left[place] = (further[0], further[1])
        return list(found.items())


# ---------------------------------------------------------------- orders


def _births(score: str) -> Order:
    """Members of one score, the oldest first."""

    def after(bucket: IndexBucket, place: Place | None, page: int) -> Command:
        return Command(bucket, BIRTHS, ("s", score, b"" if place is None else place[1], str(page)))

    return Order(after, _alike, nsmallest)


def _sweeps(state: State) -> Order:
    """Members of one state, what is due last before the others."""
    lowest, highest = records.scores(state)

    def after(bucket: IndexBucket, place: Place | None, page: int) -> Command:
        score, member = (highest, b"") if place is None else (str(int(place[0])), place[1])
        return Command(bucket, PAGE, ("s", score, member, str(page)))

    def read(reply: list[Any]) -> list[Place]:
        places = (
            (float(score), member) for member, score in zip(reply[::2], reply[1::2], strict=True)
        )
        return [place for place in places if place[0] >= float(lowest)]

    return Order(after, read, nlargest)


def _doubts(bucket: IndexBucket, place: Place | None, page: int) -> Command:
    first = b"-" if place is None else b"(" + place[1]
    return Command(
        bucket, None, ("ZRANGEBYLEX", bucket.prefix + b"d", first, b"+", "LIMIT", "0", str(page))
    )


def _doubts_backwards(bucket: IndexBucket, place: Place | None, page: int) -> Command:
    last = b"+" if place is None else b"(" + place[1]
    return Command(
        bucket, None, ("ZREVRANGEBYLEX", bucket.prefix + b"d", last, b"-", "LIMIT", "0", str(page))
    )


def _names(last: bytes) -> Order:
    def after(bucket: IndexBucket, place: Place | None, page: int) -> Command:
        begin = b"-" if place is None else b"(" + place[1]
        ends = (bucket.prefix + b"i", begin, b"(" + last)
        return Command(bucket, None, ("ZRANGEBYLEX", *ends, "LIMIT", "0", str(page)))

    return Order(after, _alike, nsmallest)


def _names_backwards(first: bytes) -> Order:
    def after(bucket: IndexBucket, place: Place | None, page: int) -> Command:
        begin = b"+" if place is None else b"(" + place[1]
        ends = (bucket.prefix + b"i", begin, b"(" + first)
        return Command(bucket, None, ("ZREVRANGEBYLEX", *ends, "LIMIT", "0", str(page)))

    return Order(after, _alike, nlargest)


def _alike(members: list[Any]) -> list[Place]:
    """Members that have one score."""
    return [(0.0, member) for member in members]


_DOUBTS, _DOUBTS_BACKWARDS = (
    Order(_doubts, _alike, nsmallest),
    Order(_doubts_backwards, _alike, nlargest),
)


def _count(state: State, bucket: IndexBucket) -> tuple[bytes | str, ...]:
    if state is State.IN_DOUBT:
        return ("ZCARD", bucket.prefix + b"d")
    return ("ZCOUNT", bucket.prefix + b"s", *records.scores(state))
