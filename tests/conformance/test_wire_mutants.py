"""What a store does in one statement of its own is sabotaged, one part at a time: the suite must
notice each.
"""

from itertools import count

import pytest
from tests.conformance.sabotage import sabotage_postgres, sabotage_redis, sabotage_sqlite
from tests.servers import redis
from tests.stores.test_exchanges import FACTS

from effectonce import StoreUnavailable
from effectonce.stores.postgres import PostgresStore
from effectonce.stores.postgres import cell_statements as cells
from effectonce.stores.postgres import statements as sql
from effectonce.stores.redis import RedisStore
from effectonce.stores.sqlite import SqliteStore, connection
from effectonce.testing.clock import FakeClock
from effectonce.testing.conformance import CHECKS, Bench

pytestmark = pytest.mark.long
POSTGRES = {  # statement, what is taken out of it, what stands there instead
    "a completion is not fenced by its token": ("FINISH", " AND token = $3", " AND $3 <> ''"),
    "a completion is not fenced by its epoch": ("FINISH", " AND epoch = $4", " AND $4 > 0"),
    "a completion takes any state": ("FINISH", " AND state = 'dispatched'", ""),
    "a completion forgets its window": (
        "FINISH",
        "dedup_until = {now} + window_s",
        "dedup_until = {now}",
    ),
    "a completion does not say who": ("FINISH", "settled_by = $6", "settled_by = left($6, 0)"),
    "a swap does not look at the revision": ("UPDATE", " AND revision = ", " AND 0 < "),
    "a swap makes no new revision": ("UPDATE", "revision = revision + 1", "revision = revision"),
    "a record that is forgotten is not looked at": ("DELETE", " AND revision = $2", " AND $2 > 0"),
    "evidence about a completed effect waits for its step": (
        "LIFT",
        "CASE state WHEN 'completed' THEN state ELSE 'dispatched' END",
        "'dispatched'",
    ),
    "a birth does not look for its step": (
        "BEAR_UNSENT",
        "NOT EXISTS (SELECT FROM effectonce.effects WHERE",
        "NOT EXISTS (SELECT FROM effectonce.effects WHERE false AND",
    ),
    "a birth has no time": ("BEAR", "{now} + $11", "$11"),
    "a birth with its end has no time": ("ENTER", "{now} + $11", "$11"),
    "a birth with its end forgets its window": ("ENTER", "{now} + $25", "{now}"),
    "a birth with its end is never swept": ("ENTER", "{now} + $22", "'infinity'"),
    "a replay comes from any request": (
        "BEAR",
        "SELECT fingerprint, state",
        "SELECT $3 AS fingerprint, state",
    ),
    "a look sees nothing but outcomes that are over": (
        "LOOK",
        "dedup_until, settled_by",
        "'infinity'::float8, settled_by",
    ),
    "what is due is not seen": ("DUE", "due_at <= {now}", "due_at <= 0"),
    "a rival is not seen": ("SEE", "key <> $2", "false"),
    "a predecessor is not seen": ("SEE", "key = $4", "false"),
    "a cell that is gone is replaced": (
        "WRITE_CELL",
        "coalesce((SELECT revision FROM stands), 0) = $3",
        "$3 >= 0",
    ),
    "a cell is not forgotten when it is read": ("CELL", " AND forget_at > {now}", ""),
    "a cell is not forgotten when it is written": ("WRITE_CELL", "$2 AND forget_at > {now}", "$2"),
    "a write does not keep a cell any longer": (
        "WRITE_CELL",
        ", forget_at = excluded.forget_at",
        "",
    ),
    "a write to a cell makes no new revision": (
        "WRITE_CELL",
        "revision = cell.revision + 1",
        "revision = cell.revision",
    ),
    "a sweep forgets every cell": ("FORGET", "forget_at <= {now}", "true"),
}
REDIS = {
    "a completion is not fenced by its token": (
        "FINISH",
        "record:sub(103, 102 + token) ~= ARGV[3] or ",
        "",
    ),
    "a completion is not fenced by its epoch": ("FINISH", " or epoch ~= tonumber(ARGV[4])", ""),
    "a completion takes any state": ("FINISH", " or record:byte(2) ~= DISPATCHED", ""),
    "a completion keeps its latch": (
        "FINISH",
        "'DEL', latch > 0 and base .. 'l:'",
        "'DEL', latch > 0 and base .. 'none:'",
    ),
    "a completion is due when it was claimed": ("FINISH", "redis.call('ZADD'", "tostring('ZADD'"),
    "a swap does not look at the revision": ("SWAP", "~= seen then", "== -1 then"),
    "a swap does not look at its step": ("SWAP", "if rival then return 0 end", ""),
    "a birth does not look for its step": ("BEAR", "if rival then return", "if false then return"),
    "a birth writes over what is there": (
        "BEAR",
        "'MSETNX', base .. 'r:' .. key, record, base .. 'l:' .. latch, key) == 1",
        "'MSET', base .. 'r:' .. key, record)",
    ),
    "a birth is not in its index": (
        "BEAR",
        "redis.call('ZADD', base .. 's', DISPATCHED",
        "tostring(DISPATCHED",
    ),
    "a birth has no time": ("BEAR", "lease_until + now", "lease_until"),
    "a birth with its end writes over what is there": (
        "ENTER",
        "key) then return 0 end",
        "key) then end",
    ),
    "a birth with its end has no time": ("ENTER", "created_at + now", "created_at"),
    "a birth with its end forgets its window": ("ENTER", "dedup_until + now", "now"),
    "a birth with its end is never swept": ("ENTER", "due + now", "math.huge"),
    "what is due is not seen": ("DUE", "from, from + math.floor(now * TICKS),", "from, from,"),
    "a rival is not seen": (
        "SEE",
        "local holder, rival = rival_of(latch, key)",
        "local holder, rival = false, false",
    ),
    "a predecessor is not seen": ("SEE", "after ~= '' and ", "false and "),
    "an effect that leaves is not taken from its index": (
        "SWAP",
        "if old then forget(old, key) end",
        "",
    ),
    "a cell is replaced by who did not see it": ("SWAP_CELL", "~= seen then", "== -1 then"),
    "a cell is not forgotten when it is read": (
        "SEE_CELL",
        "struct.unpack('<d', cell, 9) > now and cell",
        "cell",
    ),
    "a cell is not forgotten when it is written": (
        "SWAP_CELL",
        "struct.unpack('<d', cell, 9) > now and cell",
        "cell",
    ),
    "a write does not keep a cell any longer": (
        "SWAP_CELL",
        "struct.pack('<d', now + keep)",
        "(cell and cell:sub(9, 16) or struct.pack('<d', now + keep))",
    ),
    "a write to a cell makes no new revision": (
        "SWAP_CELL",
        "ARGV[4] ..",
        "(cell and cell:sub(1, 8) or ARGV[4]) ..",
    ),
}
SQLITE = {
    "a cell is replaced by who did not see it": (
        "WRITE_CELL",
        "WHERE ?2 = coalesce(",
        "WHERE ?2 >= 0 OR 0 = coalesce(",
    ),
    "a cell is not forgotten when it is read": ("CELL", "forget_at > ?", "? > 0"),
    "a cell is not forgotten when it is written": ("WRITE_CELL", "forget_at > ?5", "?5 > 0"),
    "a write does not keep a cell any longer": (
        "WRITE_CELL",
        ", forget_at = excluded.forget_at",
        "",
    ),
    "a write to a cell makes no new revision": ("WRITE_CELL", ", revision = revision + 1", ""),
    "a cell's revision comes back": ("WRITE_CELL", "1 + abs(random() % 1000000000000000)", "1"),
    "a sweep forgets every cell": ("FORGET_CELLS", "forget_at <= ?", "? > 0"),
}


# The room of the suite that speaks of a statement: its checks come first, which saves the others.
ROOMS = {
    "BEAR_UNSENT": "neighbours",
    "LIFT": "neighbours",
    "SEE": "neighbours",
    "ENTER": "together",
    "DELETE": "promises",
    "CELL": "cells",
    "SEE_CELL": "cells",
    "WRITE_CELL": "cells",
    "SWAP_CELL": "cells",
    "FORGET": "cells",
    "FORGET_CELLS": "cells",
}


def caught(open_store, statement):
    """The first check that fails on this store."""
    room = ROOMS.get(statement, "")
    for check in sorted(CHECKS, key=lambda check: not check.__module__.endswith(room)):
        with Bench(open_store, "sync") as bench:
            try:
                check(bench)
            except StoreUnavailable as error:
                # a decision that can never be written is one that is wrong
                assert "changed 100 times" in str(error), error  # noqa: PT017
                return check.__name__
            except (AssertionError, KeyError, TypeError, ValueError):
                return check.__name__
    return caught_by_an_exchange(open_store)


def caught_by_an_exchange(open_store):
    for fact in FACTS:
        store = open_store(FakeClock())
        try:
            fact(store)
        except AssertionError:
            return fact.__name__
        finally:
            store.close()
    return None


def caught_on_sqlite(fault, folder, monkeypatch):
    name, part, instead = SQLITE[fault]
    sabotage_sqlite(monkeypatch, connection, name, part, instead)
    numbers = count()
    return caught(lambda clock: SqliteStore(folder / f"{next(numbers)}.db", clock=clock), name)


def caught_on_postgres(fault, server, monkeypatch):
    name, part, instead = POSTGRES[fault]
    home = sql if hasattr(sql, name) else cells
    sabotage_postgres(monkeypatch, home, name, part, instead)
    return caught(lambda clock: PostgresStore(server.emptied(), clock=clock), name)


def caught_on_redis(fault, monkeypatch):
    name, part, instead = REDIS[fault]
    sabotage_redis(monkeypatch, name, part, instead)
    return caught(lambda clock: RedisStore(redis.emptied(redis.server()).url, clock=clock), name)


@pytest.mark.parametrize("fault", SQLITE)
def test_the_suite_catches_on_sqlite(fault, tmp_path, monkeypatch):
    assert caught_on_sqlite(fault, tmp_path, monkeypatch)


@pytest.mark.parametrize("fault", POSTGRES)
def test_the_suite_catches_on_postgres(fault, postgres, monkeypatch):
    assert caught_on_postgres(fault, postgres, monkeypatch)


@pytest.mark.parametrize("fault", REDIS)
def test_the_suite_catches_on_redis(fault, monkeypatch):
    assert caught_on_redis(fault, monkeypatch)
