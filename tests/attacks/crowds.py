"""Stores that were filled by a stranger, quickly: records of every state as calls left them,
copied in bulk.
"""

import socket
import sqlite3

import hiredis
import msgspec
import psycopg
from msgspec.structs import replace

from effectonce import EffectOnceError, Guard, NotSent, Rejected, Retry
from effectonce._core.allowances import CELLS, Account, Holding, SpendingWindow
from effectonce._core.keys import derive
from effectonce._core.ops import Claim, Search, Together, WriteCell
from effectonce._core.record import State
from effectonce.stores import _rows
from effectonce.stores.redis import records as redis_records

NAMES = (*_rows.BIRTH, *_rows.LIFE)


def one_of_each():
    """A record of each state, by its state."""
    guard = Guard("memory://")

    @guard.tool(kind="write", retry=Retry(attempts=1))
    def refund(payment: str) -> str:
        errors = {"lost": TimeoutError(), "refused": Rejected("no"), "away": NotSent("away")}
        if payment in errors:
            raise errors[payment]
        return payment

    for payment in ("lost", "done", "refused", "away"):
        with guard.step("chat", payment):
            try:
                refund(payment)
            except (EffectOnceError, Rejected):
                continue
    found = {record.state: record for record in guard.store.apply(Search())}
    sent = replace(found[State.COMPLETED].request, key=derive("sent"), latch="")
    guard.store.apply(Claim(sent, "token", 60.0, dispatch=True))
    return {record.state: record for record in guard.store.apply(Search())}


def crowd(shares):
    """As many records of each state as *shares* says, one second apart, the states mixed."""
    seeds = one_of_each()
    numbered = sorted((n / count, state) for state, count in shares.items() for n in range(count))
    for n, (_, state) in enumerate(numbered):
        seed = seeds[state]
        request = replace(seed.request, key=derive("crowd", n)[:40], latch="", scope=f"chat {n}")
        yield replace(seed, request=request, created_at=seed.created_at - len(numbered) + n)


def fill_sqlite(path, records):
    rows = ((*_rows.birth(record), *_rows.life(record)) for record in records)
    with sqlite3.connect(path) as db:
        db.executemany(
            f"INSERT INTO effects ({', '.join(NAMES)}) VALUES ({', '.join('?' * len(NAMES))})", rows
        )
    db.close()


def fill_postgres(url, records):
    with psycopg.connect(url, autocommit=True) as db:
        with db.cursor().copy(f"COPY effectonce.effects ({', '.join(NAMES)}) FROM STDIN") as copy:
            for record in records:
                copy.write_row((*_rows.birth(record), *map(_plain, _rows.life(record))))
        db.execute("VACUUM (ANALYZE) effectonce.effects")
        db.execute("VACUUM (ANALYZE) effectonce.cells")


def _plain(value):
    return str(value) if isinstance(value, State) else value


def fill_redis(path, records):
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        batch = []
        for record in records:
            key, member = (
                record.request.key,
                redis_records.member(record.created_at, record.request.key),
            )
            bucket, doubt = f"eo:{{{key[:2]}}}:".encode(), record.state is State.IN_DOUBT
            index, score = (b"d", "0") if doubt else (b"s", str(redis_records.score(record)))
            batch += [
                ("SET", bucket + b"r:" + key.encode(), redis_records.write(record, 7)),
                ("ZADD", bucket + index, score, member),
            ]
            if len(batch) >= 2000:
                _send(line, batch)
                batch = []
        _send(line, batch)


def _send(line, commands):
    line.sendall(b"".join(map(hiredis.pack_command, commands)))
    reader, left = hiredis.Reader(), len(commands)
    while left:
        reader.feed(line.recv(1 << 16))
        while (reply := reader.gets()) is not False:
            assert not isinstance(reply, hiredis.ReplyError), reply
            left -= 1


def fill_accounts(store, count):
    """Of an allowance for each customer, all of one tenant, each held by effects that are gone."""
    window = SpendingWindow("", 10 * 365 * 86_400)
    held = {derive("gone", str(n)): Holding(1, 2e9, "gone") for n in range(3)}
    value = msgspec.msgpack.encode(
        Account("mails", "customer", "", 9, window, {}, held, {}, "main")
    )
    names = [f"{CELLS}mails {derive('customer', str(n))}" for n in range(count)]
    for begin in range(0, count, 500):
        writes = [WriteCell(name, 0, value, 1e9, listed=True) for name in names[begin:][:500]]
        store.apply(Together(tuple(writes)))
