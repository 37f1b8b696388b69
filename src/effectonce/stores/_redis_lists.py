"""Many records of a Redis store at once: pages, lists and counts. One generator for both colours, as in `_redis_commands.py`.

Theory of operation. A bucket has its records by state and by when their sweep is due; those of one such moment, and those in doubt, oldest
first. A member of either index says when its record was born, and its key. Another order by age would cost every call, so pages go
through the one that there is: state by state, what is remembered longest first.
"""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Callable, Generator, Sequence
from heapq import nlargest, nsmallest
from operator import itemgetter
from typing import Any, TypeAlias

from msgspec import Struct

from effectonce._core.ops import Browse, Search
from effectonce._core.pages import Beside, Counts, Paging, Recent, Recently, Refer, newest_first
from effectonce._core.records import Record, State
from effectonce.errors import StoreUnavailable
from effectonce.stores import _redis_records as records
from effectonce.stores._redis_scripts import PAGE, Script
from effectonce.stores._redis_wire import Batch, pack

Conversing: TypeAlias = Generator[Batch, "list[Any] | StoreUnavailable", Any]
TOGETHER = 32  # buckets that are searched in one round trip
REFERRED = 40  # of each state in each bucket, for a reference
_SLOTS = 16384
_ORDER = (State.DISPATCHED, State.CLAIMED, State.COMPLETED, State.FAILED, State.IN_DOUBT, State.TOMBSTONE)
_first = itemgetter(0)


class Bucket(Struct, frozen=True):
    """One part of all records."""

    prefix: bytes
    slot: int

    @classmethod
    def of(cls, prefix: str, tag: str) -> Bucket:
        return cls(f"{prefix}:{{{tag}}}:".encode(), crc_hqx(tag.encode(), 0) % _SLOTS)


class Command(Struct, frozen=True):
    """One command about one bucket."""

    bucket: Bucket
    script: Script | None
    arguments: tuple[bytes | str, ...]

    def pack(self, *, known: bool = True) -> bytes:
        if self.script is None:
            return pack(self.arguments)
        call = ("EVALSHA", self.script.sha) if known else ("EVAL", self.script.source)
        prefix = self.bucket.prefix
        return pack((*call, "2", prefix, prefix + b"?", *self.arguments))


class Lists:
    """What one store says to its servers about many records."""

    def __init__(
        self, buckets: Sequence[Bucket], bucket_of: Callable[[str], Bucket], ask: Callable[[Sequence[Command]], Conversing]
    ) -> None:
        self._buckets, self._bucket_of, self._ask = buckets, bucket_of, ask

    def listed(self, op: Browse) -> Conversing:
        """Pages of members, oldest first, until enough of their records are what was asked for: a state may change in between."""
        after, found, page = records.member(*op.after), list[Record](), max(op.limit, 100)
        while True:
            members = yield from (
                self._page(after, page) if op.state is State.IN_DOUBT else self._sorted_page(op.state, after, page)
            )
            for record, _ in (yield from self.records(members)):
                if record.state is op.state and op.tenant in (None, record.request.tenant):
                    found.append(record)
            if len(members) < page or len(found) >= op.limit:
                return tuple(found[: op.limit])
            after = members[-1][0]

    def _page(self, after: bytes, page: int) -> Conversing:
        """What is in doubt is never due: these have one score, and so are in order already."""
        buckets = self._buckets
        asked = [
            Command(b, None, ("ZRANGEBYLEX", b.prefix + b"d", b"(" + after, b"+", "LIMIT", "0", str(page))) for b in buckets
        ]
        pages = yield from self._ask(asked)
        return nsmallest(page, ((m, b) for b, members in zip(buckets, pages, strict=True) for m in members), _first)

    def _sorted_page(self, state: State, after: bytes, page: int) -> Conversing:
        """These are in the order of their sweep. To keep them in two orders would cost every caller; to look at all costs who browses."""
        found, scores = list[tuple[bytes, Bucket]](), records.scores(state)
        for bucket in self._buckets:
            (members,) = yield from self._ask([Command(bucket, None, ("ZRANGEBYSCORE", bucket.prefix + b"s", *scores))])
            found = nsmallest(page, (*found, *((m, bucket) for m in members if m > after)), _first)
        return found

    def searched(self, op: Search) -> Conversing:
        """A member says how old a record is and what its key is; for the rest, the newest are read until there are enough."""
        fitting = sorted((yield from self._fitting(op)), key=_first, reverse=True)
        found, page = list[Record](), max(op.limit, 100)
        for at in range(0, len(fitting), page):
            found += [record for record, _ in (yield from self.records(fitting[at : at + page])) if op.fits(record)]
            if len(found) >= op.limit:
                break
        return tuple(found[: op.limit])

    def _fitting(self, op: Search) -> Conversing:
        """Members that fit, some buckets at a time: all at once could be more than a reply should hold."""
        since, before = records.member(op.since, ""), records.member(*op.before)
        doubts = ("ZRANGE", b"d", "0", "-1")
        decided = ("ZRANGE", b"s", "0", "-1") if op.state is None else ("ZRANGEBYSCORE", b"s", *records.scores(op.state))
        asked = [doubts] if op.state is State.IN_DOUBT else [decided] if op.state is not None else [doubts, decided]
        commands = [Command(b, None, (name, b.prefix + at, *rest)) for b in self._buckets for name, at, *rest in asked]
        found: list[tuple[bytes, Bucket]] = []
        for n in range(0, len(commands), TOGETHER):
            some = commands[n : n + TOGETHER]
            for command, members in zip(some, (yield from self._ask(some)), strict=True):
                found += [(m, command.bucket) for m in members if since <= m < before and op.fits_key(m[8:].decode())]
        return found

    def records(self, members: Sequence[tuple[bytes, Bucket]]) -> Conversing:
        return [records.read(key, written) for key, written in (yield from self.written(members))]

    def written(self, members: Sequence[tuple[bytes, Bucket]]) -> Conversing:
        found = yield from self._ask([Command(b, None, ("GET", b.prefix + b"r:" + m[8:])) for m, b in members])
        return [(m[8:].decode(), written) for (m, _), written in zip(members, found, strict=True) if written is not None]

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
        """State after state, until enough records were looked at."""
        states: tuple[State, ...] = _ORDER if op.state is None else (op.state,)
        if op.after is not None and op.after.state in states:
            states = states[states.index(op.after.state) :]
        looked_at, after, looks = list[Record](), op.after, 0
        for state in states:
            if looks < op.looks:
                members = yield from self._last(state, after, op.looks - looks)
                looked_at += [record for record, _ in (yield from self.records(members)) if record.state is state]
                looks += len(members)
            after = None
        lost = looks - len(looked_at)  # they changed in between
        found, further = op.shown(((record, op.fits(record)) for record in looked_at), op.looks - lost)
        return Recently(tuple(newest_first(found)), further)

    def _last(self, state: State, after: Record | None, page: int) -> Conversing:
        """The last members of one state, those before a given one."""
        if state is State.IN_DOUBT:
            end = b"+" if after is None else b"(" + records.member(after.created_at, after.request.key)
            asked = [
                Command(b, None, ("ZREVRANGEBYLEX", b.prefix + b"d", end, b"-", "LIMIT", "0", str(page))) for b in self._buckets
            ]
            pages = yield from self._ask(asked)
            return nlargest(page, ((m, b) for b, members in zip(self._buckets, pages, strict=True) for m in members), _first)
        lowest, highest = records.scores(state)
        score, member = (highest, b"") if after is None else (
            str(records.score(after)), records.member(after.created_at, after.request.key)
        )  # fmt: skip
        pages = yield from self._ask([Command(b, PAGE, (score, member, str(page))) for b in self._buckets])
        found = (
            (float(at), member, bucket)
            for bucket, some in zip(self._buckets, pages, strict=True)
            for member, at in zip(some[::2], some[1::2], strict=True)
            if float(at) >= float(lowest)
        )
        return [(member, bucket) for _, member, bucket in nlargest(page, found, itemgetter(0, 1))]

    def _beside(self, op: Beside) -> Conversing:
        """They lie in one bucket: its members tell which they are."""
        bucket, (first, last) = self._bucket_of(op.key), op.bounds
        pages = yield from self._ask(
            [Command(bucket, None, ("ZRANGE", bucket.prefix + index, "0", "-1")) for index in (b"d", b"s")]
        )
        members = [(m, bucket) for some in pages for m in some if first <= m[8:].decode() < last]
        return tuple([record for record, _ in (yield from self.records(members[: op.limit]))])

    def _referred(self, op: Refer) -> Conversing:
        """The last of each state in each bucket, and of these what fits. The key is in the member."""
        asked = [Command(b, None, ("ZREVRANGE", b.prefix + b"d", "0", str(REFERRED - 1))) for b in self._buckets]
        for state in (state for state in _ORDER if state is not State.IN_DOUBT):
            lowest, highest = records.scores(state)
            asked += [
                Command(b, None, ("ZREVRANGEBYSCORE", b.prefix + b"s", highest, lowest, "LIMIT", "0", str(REFERRED)))
                for b in self._buckets
            ]
        pages = yield from self._ask(asked)
        there = [
            (m, command.bucket) for command, some in zip(asked, pages, strict=True) for m in some if op.fits_key(m[8:].decode())
        ]
        found = [record for record, _ in (yield from self.records(there)) if op.tenant in (None, record.request.tenant)]
        return tuple(newest_first(found)[: op.limit])


def _count(state: State, bucket: Bucket) -> tuple[bytes | str, ...]:
    if state is State.IN_DOUBT:
        return ("ZCARD", bucket.prefix + b"d")
    return ("ZCOUNT", bucket.prefix + b"s", *records.scores(state))
