"""Exchanges as Redis commands, and their replies back. One generator for sync and async: it
yields batches and is sent their replies.

Everything of one conversation or stream lies in one bucket, which is one slot of a cluster: a
record, its latch, its predecessor and the indexes that they stand in. So each exchange about one
record is one script on one node. A script that a server does not know did nothing and is sent
again as text; a slot that has moved did nothing either, and is followed. Nothing else is ever
sent twice.
"""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from effectonce._core.keys import KEY_LENGTH
from effectonce._core.ops import Claim, Complete, ListCells, Recorded, WriteCell
from effectonce._core.record import Request
from effectonce._core.rules import due_at
from effectonce.errors import ContractViolation, StoreUnavailable
from effectonce.stores._roundtrip import (
    CompareAndSwap,
    Counted,
    Due,
    DueNow,
    Finish,
    Forget,
    InsertFinished,
    InsertNew,
    Listed,
    ListedCells,
    Paged,
    Pipeline,
    Read,
    RoundTrip,
    Searched,
    SeeCell,
    SwapAll,
    SwapCell,
)
from effectonce.stores.redis import records
from effectonce.stores.redis.connection import Batch, ReplyError, pack, pack_script, refused
from effectonce.stores.redis.lists import Command, Conversing, IndexBucket, Lists
from effectonce.stores.redis.replies import born, cell_written, node_address, seen_record
from effectonce.stores.redis.scripts import BEAR, DUE, ENTER, FINISH, SEE, SEE_CELL, SWAP, SWAP_CELL
from effectonce.stores.redis.url import Address, Target

REDIRECTS = 5
_TIME = pack(("TIME",))
_ELSEWHERE = "other"  # the bucket of keys that are not ours
_ADVICE = {  # nothing was written when a server answers with one of these
    "OOM": "Its memory is full: give it more, or sweep more often.",
    "READONLY": "It is a replica by now: connect to its primary.",
    "LOADING": "It is reading its data and will answer soon.",
    "MASTERDOWN": "It has lost its primary.",
    "MISCONF": "It cannot write to its disk: see its log.",
    "NOREPLICAS": "It has too few replicas for its min-replicas-to-write.",
    "CLUSTERDOWN": "The cluster has lost a part of its slots: see CLUSTER INFO.",
    "ASK": "The slot is on its way to another node; while it moves nothing can be decided.",
    "TRYAGAIN": "The slot is on its way to another node; while it moves nothing can be decided.",
    "NOAUTH": "Give the URL a user and a password.",
    "NOPERM": (
        "Its user needs evalsha, eval, get, set, del, mget, msetnx, zadd, zrem, zcard, zcount,"
        " zrange*, zrevrange*, zscore, time, info, wait."
    ),
    "BUSY": "A script of another client does not end.",
}


class RedisClient:
    """What one store says to its servers."""

    def __init__(
        self,
        target: Target,
        prefix: str,
        *,
        clock: Callable[[], float] | None,
        replicas: int,
        timeout_s: float,
        hang_up: Callable[[Address], None],
    ) -> None:
        self._target, self._clock, self._replicas, self._hang_up = target, clock, replicas, hang_up
        self._wait_ms = str(int(timeout_s * 500))  # half of the time: the other half is for the way
        self._buckets = {
            tag: IndexBucket.of(prefix, tag)
            for tag in (*(f"{n:02x}" for n in range(256)), _ELSEWHERE)
        }
        self._elsewhere = self._buckets[_ELSEWHERE]
        self._lists = Lists(tuple(self._buckets.values()), self._bucket, self._ask)
        self._nodes: dict[int, Address] = {}  # by slot; in a cluster, once it is known
        self._sweep_from = 0  # the bucket where the next sweep begins to look
        # one node and nothing to wait for: a script is all there is to send
        self.simple = not (target.cluster or replicas)
        self.seeds: list[Address] = [target.address]

    # ------------------------------------------------------------ exchanges

    def single(self, exchange: RoundTrip[Any]) -> tuple[Command, Callable[[Any], Any]] | None:
        """The one script that does this exchange, and how its reply reads. None: it takes more."""
        match exchange:
            case InsertNew(record):
                request = record.request
                arguments = (
                    self._now(),
                    request.key,
                    request.latch,
                    *records.born(record, due_at(record)),
                )
                return Command(self._bucket(request.key, request.latch), BEAR, arguments), partial(
                    born, request
                )
            case InsertFinished(record):
                entered = (self._now(), record.request.key, *records.born(record, due_at(record)))
                return Command(self._bucket(record.request.key), ENTER, entered), bool
            case Finish(op):
                fenced = (self._now(), op.key, op.token, str(op.epoch), op.outcome, op.by)
                return Command(self._bucket(op.key), FINISH, fenced), bool
            case Read(key, latch, after):
                command = Command(
                    self._bucket(key, latch, after), SEE, (self._now(), key, latch, after)
                )
                return command, partial(seen_record, key, after)
            case CompareAndSwap():
                return self._swap(exchange), bool
            case SeeCell(name):
                return (
                    Command(self._bucket_of_cell(name), SEE_CELL, (self._now(), name)),
                    records.read_cell,
                )
            case SwapCell(write):
                return self._swap_cell(write), cell_written
            case _:
                return None

    def first(self, op: Claim, packed: records.PackedRecord) -> bytes:
        """`InsertNew` for the first claim of an ordinary call, as it goes over the wire."""
        key, latch = op.request.key, op.request.latch
        words = (self._now(), key.encode(), latch.encode(), *records.born_of(op, packed))
        return pack_script(BEAR.sha, self._bucket(key, latch).prefix, words)

    def finish(self, op: Complete) -> bytes:
        """`Finish`, as it goes over the wire."""
        words = (
            self._now(),
            op.key.encode(),
            op.token.encode(),
            b"%d" % op.epoch,
            op.outcome,
            op.by.encode(),
        )
        return pack_script(FINISH.sha, self._bucket(op.key).prefix, words)

    def look(self, request: Request) -> bytes:
        """A known outcome takes no script: the time, and the record."""
        return _TIME + pack(
            (b"GET", self._bucket(request.key).prefix + b"r:" + request.key.encode())
        )

    def known(self, request: Request, replies: Sequence[Any]) -> Recorded | None:
        """What these say about the request. The exchange that follows reports what went wrong."""
        time, written = replies
        if not isinstance(written, bytes) or not isinstance(time, list):
            return None
        now = int(time[0]) + int(time[1]) / 1e6 if self._clock is None else self._clock()
        return records.recorded(written, request.fingerprint, now)

    def converse(self, exchange: RoundTrip[Any]) -> Conversing:
        """Perform any exchange."""
        match exchange:
            case SwapAll(swaps):
                return self._ask([self._swap(swap) for swap in swaps], written=True)
            case Pipeline(exchanges):
                return self._volley(exchanges)
            case Due(limit):
                return self._due(limit)
            case Listed(op):
                return self._lists.listed(op)
            case Searched(op):
                return self._lists.searched(op)
            case Counted():
                return self._lists.counted()
            case Paged(asked):
                return self._lists.paged(asked)
            case Forget():
                return self._forget_nothing()
            case ListedCells(cells):
                return self._listed_cells(cells)
            case _:
                return self._one(exchange)

    def _one(self, exchange: RoundTrip[Any]) -> Conversing:
        command, read = cast(tuple[Command, Callable[[Any], Any]], self.single(exchange))
        (reply,) = yield from self._ask([command], written=True)
        return read(reply)

    def _volley(self, exchanges: Sequence[RoundTrip[Any]]) -> Conversing:
        singles = [
            cast(tuple[Command, Callable[[Any], Any]], self.single(exchange))
            for exchange in exchanges
        ]
        replies = yield from self._ask([command for command, _ in singles], written=True)
        return tuple([read(reply) for (_, read), reply in zip(singles, replies, strict=True)])

    def again(self, command: Command, refusal: Exception) -> Conversing:
        """What was refused did nothing. Ask in another way, if there is one."""
        (reply,) = yield from self._again([(command, refusal)])
        return reply

    def _swap(self, swap: CompareAndSwap) -> Command:
        key, after = swap.key, swap.after
        if after is None:
            return Command(
                self._bucket(key), SWAP, (key, str(swap.revision), b"", records.double(0.0))
            )
        written = records.write(
            after, swap.revision + 1 if swap.revision else records.first_revision()
        )
        due = records.double(due_at(after))
        return Command(
            self._bucket(key, after.request.latch), SWAP, (key, str(swap.revision), written, due)
        )

    def _swap_cell(self, op: WriteCell) -> Command:
        seen, keep = str(op.revision), records.double(op.keep_s)
        written = (
            self._now(),
            op.name,
            seen,
            records.revision_after(op.revision),
            op.value,
            keep,
            "1" if op.listed else "",
        )
        return Command(self._bucket_of_cell(op.name), SWAP_CELL, written)

    def _listed_cells(self, op: ListCells) -> Conversing:
        """Pages of names until enough cells are in time: an index learns later of a cell's end."""
        first, last, found, page = *op.bounds, list[tuple[str, bytes]](), max(op.limit, 100)
        while True:
            names = yield from self._lists.cells(
                first.encode(), last.encode(), page, backwards=op.backwards
            )
            replies = yield from self._ask(
                [Command(b, SEE_CELL, (self._now(), n)) for n, b in names]
            )
            cells = zip(names, map(records.read_cell, replies), strict=True)
            found += [(name.decode(), cell.value) for (name, _), cell in cells if cell.revision]
            if len(names) < page or len(found) >= op.limit:
                return tuple(found[: op.limit])
            first, last = (
                (first, names[-1][0].decode()) if op.backwards else (names[-1][0].decode(), last)
            )

    def _forget_nothing(self) -> Conversing:
        """Redis forgets cells by itself."""
        yield from ()
        return 0

    def _due(self, limit: int) -> Conversing:
        """From the last sweep's end, ever more buckets until enough: often the first has it."""
        buckets, now = list(self._buckets.values()), self._now()
        times, due = list[float](), list[tuple[bytes, IndexBucket]]()
        begin, asked, width = self._sweep_from, 0, 1
        while True:
            some = [
                buckets[(begin + n) % len(buckets)]
                for n in range(asked, min(asked + width, len(buckets)))
            ]
            replies = yield from self._ask(
                [Command(bucket, DUE, (now, str(limit - len(due)))) for bucket in some]
            )
            times += [records.number(reply[0]) for reply in replies]
            due += [
                (m, b)
                for b, reply in zip(some, replies, strict=True)
                for members in reply[1:]
                for m in members
            ]
            asked, width = asked + len(some), width * 2
            if asked == len(buckets) or len(due) >= limit:
                break
        taken = due[:limit]
        found, unreadable = records.read_due((yield from self._lists.written(taken)))
        # there may be more in that bucket; but members without a record must not hold up all others
        if taken:
            self._sweep_from = (buckets.index(taken[-1][1]) + (len(found) < len(taken))) % len(
                buckets
            )
        return DueNow(min(times), tuple(found), tuple(unreadable))

    # ------------------------------------------------------------ batches

    def _ask(self, commands: Sequence[Command], *, written: bool = False) -> Conversing:
        """Send each command to its node, those of one node together; replies in command order."""
        if self._target.cluster and not self._nodes:
            yield from self._discover()
        by_node: dict[Address, list[int]] = {}
        for n, command in enumerate(commands):
            by_node.setdefault(self._address(command.bucket), []).append(n)
        replies: list[Any] = [None] * len(commands)
        for address, numbers in by_node.items():
            asked = [commands[n] for n in numbers]
            got = yield from self._send(address, asked, written=written)
            failed = [n for n in range(len(asked)) if isinstance(got[n], ReplyError)]
            again = yield from self._again([(asked[n], got[n]) for n in failed], written=written)
            for n, reply in zip(failed, again, strict=True):
                got[n] = reply
            for n, reply in zip(numbers, got, strict=True):
                replies[n] = reply
        return replies

    def _again(
        self, refused: Sequence[tuple[Command, Any]], *, written: bool = False
    ) -> Conversing:
        """What was refused did nothing. What can be asked in another way is."""
        replies = []
        for command, reply in refused:
            known = True
            for _ in range(REDIRECTS):
                if not isinstance(reply, ReplyError):
                    break
                known = self._remedy(command, reply) and known
                (reply,) = yield from self._send(  # noqa: PLW2901
                    self._address(command.bucket), [command], known=known, written=written
                )  # noqa: PLW2901, RUF100
            else:
                raise StoreUnavailable(
                    f"{self._target} sent us from node to node {REDIRECTS} times. Nothing was"
                    " written."
                )
            replies.append(reply)
        return replies

    def _remedy(self, command: Command, refusal: Exception) -> bool:
        """Do what the refusal asks for. False: send the script as text."""
        code, _, rest = str(refusal).partition(" ")
        if code == "NOSCRIPT":
            return False
        if code == "MOVED":
            host, _, port = rest.split(" ")[1].rpartition(":")
            self._nodes[command.bucket.slot] = (host or self._address(command.bucket)[0], int(port))
            return True
        raise self._unavailable(command.bucket, str(refusal))

    def _send(
        self,
        address: Address,
        commands: Sequence[Command],
        *,
        known: bool = True,
        written: bool = False,
    ) -> Conversing:
        payload = b"".join(command.pack(known=known) for command in commands)
        if not (written and self._replicas and commands):
            got = yield Batch(address, payload, len(commands))
        else:
            # Without a write of its own, WAIT would not wait for what a lost acknowledgement was
            # about.
            mark = pack(("SET", commands[0].bucket.prefix + b"mark", ""))
            wait = pack(("WAIT", str(self._replicas), self._wait_ms))
            got = yield Batch(address, payload + mark + wait, len(commands) + 2)
        if isinstance(got, StoreUnavailable):
            self._nodes = {}  # its slots may be another node's by now
            raise got
        replies, confirmed = got[: len(commands)], got[len(commands) :]
        if confirmed and not any(isinstance(reply, ReplyError) for reply in replies):
            self._check_replicas(commands[0].bucket, *confirmed)
        return replies

    def _check_replicas(self, bucket: IndexBucket, marked: Any, confirmed: Any) -> None:
        for reply in (marked, confirmed):
            if isinstance(reply, ReplyError):
                raise self._unavailable(bucket, str(reply))
        if confirmed < self._replicas:
            raise StoreUnavailable(
                f"{self._target} wrote it, but only {confirmed} of {self._replicas} replicas"
                f" confirmed that within {self._wait_ms} ms. Repeating it is safe."
            )

    # ------------------------------------------------------------ where things lie

    def _now(self) -> bytes:
        return b"" if self._clock is None else records.double(self._clock())

    def _bucket(self, key: str, *beside: str) -> IndexBucket:
        """The bucket of a key, and of what must lie beside it."""
        bucket = self._bucket_of(key)
        for other in beside:
            if other and self._bucket_of(other) is not bucket:
                raise ContractViolation(
                    f"{other} and {key} must lie together, but do not begin with the same home."
                    " Nothing was written."
                )
        return bucket

    def _bucket_of_cell(self, name: str) -> IndexBucket:
        """Nothing has to lie beside a cell, so they are spread over all of them."""
        return self._buckets[f"{crc_hqx(name.encode(), 0) % 256:02x}"]

    def _bucket_of(self, key: str) -> IndexBucket:
        return (
            self._buckets.get(key[:2], self._elsewhere)
            if len(key) == KEY_LENGTH
            else self._elsewhere
        )

    def _address(self, bucket: IndexBucket) -> Address:
        if not self._target.cluster:
            return self._target.address
        address = self._nodes.get(bucket.slot)
        if address is None:
            raise StoreUnavailable(
                f"{self._target}: no node of the cluster has slot {bucket.slot}. Nothing was"
                " written."
            )
        return address

    def discover(self) -> Conversing:
        """Where the slots of a cluster are; the addresses of all nodes that have some."""
        if self._target.cluster:
            yield from self._discover()
        return list(dict.fromkeys(self._nodes.values())) or [self._target.address]

    def _discover(self) -> Conversing:
        trouble: StoreUnavailable | None = None
        for seed in list(self.seeds):
            got = yield Batch(seed, pack(("CLUSTER", "SLOTS")), 1)
            if isinstance(got, StoreUnavailable):
                trouble = got
            elif isinstance(got[0], ReplyError):
                raise StoreUnavailable(
                    f"{self._target} is no cluster: {got[0]}. Nothing was written. Use redis://"
                    " for it."
                )
            else:
                self._nodes = {
                    slot: a
                    for first, last, node, *_ in got[0]
                    for a in [node_address(node, seed)]
                    for slot in range(first, last + 1)
                }
                self.seeds = list(dict.fromkeys((*self._nodes.values(), *self.seeds)))
                return
        raise cast(StoreUnavailable, trouble)

    def _unavailable(self, bucket: IndexBucket, refusal: str) -> StoreUnavailable:
        code = refusal.partition(" ")[0]
        at = self._target.at(self._address(bucket))
        if code == "READONLY":
            # the next connection may find the new primary there, or learns what it found
            self._hang_up(at.address)
        known = (
            f"Nothing was written. {_ADVICE[code]}"
            if code in _ADVICE
            else "Whether anything was written is not known."
        )
        return refused(refusal)(f"{at} answered {refusal.rstrip('.')}. {known}")
