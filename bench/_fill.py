"""Stores with as many records as one likes, each as a guarded call would have left it, written
in bulk by the store's own means.

One call is really made, in memory; its record is the template. Number n of a store is the same
call at step n, ten steps to a conversation: its key, its latch and its token are derived as the
guard derives them, so that a later call finds it. `check` makes sure that it does.
"""

from __future__ import annotations

import itertools
import random
import socket
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from math import ceil, inf
from typing import Any

import hiredis
import msgspec
import psycopg
from _stores import HOT

from effectonce import Guard, Stable
from effectonce._core.canonical import canonical
from effectonce._core.keys import AtStep, effect_key, latch_key
from effectonce._core.record import Record, Request, State
from effectonce._core.rules import due_at
from effectonce.stores import _rows
from effectonce.stores.redis import records as redis_records

SIZES = {"128 B": "x" * 126, "1 kB": "y" * 1022}  # with their quotation marks
TENANT, TOOL, ORDER = "main", "refund", {"order_id": "ord_17", "amount": 4200}
INTENT = canonical(ORDER)
Fate = Callable[[Record], Record]


def place_of(number: int) -> tuple[str, str]:
    """The conversation and the step of a call."""
    return f"conv_{number // 10}", f"step-{number}"


class Caller:
    """A guard on one store. `first` goes on where the records end; replays are of those that are
    there.
    """

    def __init__(
        self, store: str, records: int, result: str = SIZES["128 B"], *, start: int | None = None
    ) -> None:
        self.guard, self.records = Guard(store, cache=0), records
        self._numbers = itertools.count(records if start is None else start)
        self._hot, self._random, self._ran = itertools.count(), random.Random(records), 0

        @self.guard.tool(kind="write", downstream="key", identity=list(ORDER))
        def refund(order_id: str, amount: int, currency: str = "eur", note: str = "") -> str:
            self._ran += 1
            return result

        self._refund, self.result = refund, result

    def first(self) -> None:
        scope, step = place_of(next(self._numbers))
        with self.guard.step(scope, step):
            self._refund(**ORDER, note="arrived broken")

    def hot(self) -> str:
        scope, step = place_of(next(self._hot) % HOT)
        with self.guard.step(scope, step):
            return self._refund(**ORDER, note="arrived broken")

    def uniform(self) -> str:
        # `Stable`: otherwise this process would remember all requests of a small store and
        # derive those of a large one anew.
        scope, step = place_of(self._random.randrange(self.records))
        with self.guard.step(scope, Stable(step)):
            return self._refund(**ORDER, note="arrived broken")

    def check(self, sample: int = 100) -> None:
        """Calls of what was filled in are replayed: the tool does not run, and the answer is
        right.
        """
        for _ in range(sample):
            if self.uniform() != self.result or self._ran:
                raise SystemExit("a record that was filled in is not replayed as it should be")

    def close(self) -> None:
        self.guard.close()


# ---------------------------------------------------------------- what becomes of a record


def template(result: str) -> Record:
    caller = Caller("memory://", 0, result)
    caller.first()
    found = caller.guard.find(
        effect_key(TENANT, place_of(0)[0], TOOL, INTENT, AtStep(place_of(0)[1]))
    )
    assert found is not None
    return found


def kept(record: Record) -> Record:
    return record


def in_doubt(record: Record) -> Record:
    life = {
        "state": State.IN_DOUBT,
        "outcome": b"",
        "token": "",
        "epoch": 2,
        "dedup_until": inf,
        "reason": "nobody answered",
    }
    return msgspec.structs.replace(record, **life)


def expired(record: Record) -> Record:
    """Its window ended an hour ago. Its key is refused for ever: a sweep leaves a tombstone."""
    return msgspec.structs.replace(record, dedup_until=time.time() - 3600)


def forgettable(record: Record) -> Record:
    """Its window ended, and its key may be used again: a sweep removes it."""
    terms = msgspec.structs.replace(record.request.terms, tombstone_s=0.0)
    return expired(
        msgspec.structs.replace(
            record, request=msgspec.structs.replace(record.request, terms=terms)
        )
    )


# ---------------------------------------------------------------- by the store's own means

Varying = tuple[str, str, str, str, str]  # key, scope, step, latch, token
VARYING = ("key", "scope", "step", "latch", "token")


def varying(numbers: Iterable[int], *, token: bool) -> Iterator[Varying]:
    for number in numbers:
        scope, step = place_of(number)
        key = effect_key(TENANT, scope, TOOL, INTENT, AtStep(step))
        yield (
            key,
            scope,
            step,
            latch_key(TENANT, scope, step),
            f"0123456789abcdef0123456789abcdef-{number}" if token else "",
        )


def fill(store: str, numbers: range, fate: Fate = kept, result: str = SIZES["128 B"]) -> None:
    """Write the records of these numbers into a store that exists."""
    record = fate(template(result))
    each = varying(numbers, token=record.token != "")
    kind, _, path = store.partition("://")
    {"sqlite": _fill_sqlite, "postgresql": _fill_postgres, "redis+unix": _fill_redis}[kind](
        store, path, record, each
    )


def _fill_sqlite(_: str, path: str, record: Record, each: Iterator[Varying]) -> None:
    names = _rows.BIRTH + _rows.LIFE
    db = sqlite3.connect(path.removeprefix("/"), isolation_level=None)
    for pragma in ("synchronous = OFF", "cache_size = -1000000", "wal_autocheckpoint = 100000"):
        db.execute(f"PRAGMA {pragma}")
    db.execute(f"CREATE TEMP TABLE template ({', '.join(names)})")
    db.execute(
        f"INSERT INTO template VALUES ({', '.join('?' * len(names))})",
        (*_rows.birth(record), *_rows.life(record)),
    )
    place = {name: f"?{VARYING.index(name) + 1}" for name in VARYING}
    own = ", ".join(place.get("token" if name == "dtoken" else name, name) for name in names)
    # In one transaction the log would grow as large as the file, and push it out of memory.
    while batch := list(itertools.islice(each, 100_000)):
        db.execute("BEGIN")
        db.executemany(
            f"INSERT INTO main.effects ({', '.join(names)}) SELECT {own} FROM temp.template", batch
        )
        db.execute("COMMIT")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()


def _fill_postgres(url: str, _: str, record: Record, each: Iterator[Varying]) -> None:
    names = _rows.BIRTH + _rows.LIFE
    row = dict(zip(names, map(_copied, (*_rows.birth(record), *_rows.life(record))), strict=True))
    row |= {name: f"{{{VARYING.index(name)}}}" for name in VARYING}
    line = (
        "\t".join(
            (row | {"dtoken": row["token"], "terms": "{5}", "arguments": "{6}", "outcome": "{7}"})[
                name
            ]
            for name in names
        )
        + "\n"
    )
    fixed = (row["terms"], row["arguments"], row["outcome"])  # they may hold braces of their own
    with psycopg.connect(url, autocommit=True) as db:
        with db.cursor().copy(f"COPY effectonce.effects ({', '.join(names)}) FROM STDIN") as copy:
            for some in chunks(each, 1000):
                copy.write("".join([line.format(*one, *fixed) for one in some]))
        db.execute("VACUUM (ANALYZE) effectonce.effects")
        db.execute("CHECKPOINT")


def _copied(value: Any) -> str:
    """A value as COPY reads it."""
    if isinstance(value, bytes):
        return f"\\\\x{value.hex()}"
    return str(value).replace("\\", "\\\\")


def _fill_redis(_: str, path: str, record: Record, each: Iterator[Varying]) -> None:
    r, open_, pack = record.request, record.state is State.IN_DOUBT, hiredis.pack_command
    index, score = (
        (b"d", "0")
        if open_
        else (b"s", str((redis_records.CODES[record.state] << 50) + ceil(due_at(record) * 1024)))
    )
    fields = [getattr(record, name) for name in Record.__struct_fields__]
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        for some in chunks(each, 1000):
            asked = []
            for key, scope, step, latch, token in some:
                request = Request(
                    key, r.fingerprint, r.terms, r.tenant, scope, step, r.arguments, latch, r.after
                )
                fields[0], fields[3], fields[7] = request, token, token
                own, bucket = Record(*fields), b"eo:{%b}:" % key[:2].encode()
                written = redis_records.write(own, redis_records.first_revision())
                asked.append(pack(("SET", bucket + b"r:" + key.encode(), written)))
                asked.append(
                    pack(
                        (
                            "ZADD",
                            bucket + index,
                            score,
                            redis_records.member(record.created_at, key),
                        )
                    )
                )
                if open_:
                    asked.append(pack(("SET", bucket + b"l:" + latch.encode(), key)))
            _ask(line, b"".join(asked), len(asked))


def _ask(line: socket.socket, asked: bytes, replies: int) -> None:
    line.sendall(asked)
    reader = hiredis.Reader()
    for _ in range(replies):
        while (reply := reader.gets()) is False:
            reader.feed(line.recv(1 << 16))
        if isinstance(reply, hiredis.ReplyError):
            raise reply


def chunks(each: Iterator[Varying], size: int) -> Iterator[list[Varying]]:
    while some := list(itertools.islice(each, size)):
        yield some
