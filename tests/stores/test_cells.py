"""Cells, as each backend keeps them: what no sequence of ops shows."""

import contextlib
import sqlite3
import threading
from itertools import pairwise

import psycopg
import pytest

from effectonce import Swept
from effectonce._core.ops import Browse, ListCells, ReadCell, Sweep, Tally, WriteCell
from effectonce._core.pages import Refer
from effectonce._core.record import State
from effectonce.stores.postgres import PostgresStore
from effectonce.stores.postgres import cell_statements as cells
from effectonce.stores.postgres import statements as sql
from effectonce.stores.redis import RedisStore
from effectonce.stores.sqlite import SqliteStore
from effectonce.testing.clock import FakeClock
from tests.servers.postgres import round_trips, through
from tests.servers.proxy import Proxy
from tests.stores.helpers import name_of, wait_for_a_lock


def write(store, value, name="cell", keep_s=60.0):
    assert store.apply(WriteCell(name, store.apply(ReadCell(name)).revision, value, keep_s)) is None


# ---------------------------------------------------------------- nothing stays for ever


def rows_of_sqlite(path):
    connection = sqlite3.connect(path)
    (count,) = connection.execute(
        "SELECT count(*) FROM cells WHERE name <> 'clock/steady'"
    ).fetchone()
    connection.close()
    return count


@pytest.fixture(params=["sqlite", "postgres"])
def kept(request, tmp_path, open_store):
    """A store, its clock, and how many cells lie in its table."""
    clock = FakeClock()
    store = open_store(request.param, clock)
    if request.param == "sqlite":
        return store, clock, lambda: rows_of_sqlite(tmp_path / "effects.db")
    postgres = request.getfixturevalue("postgres")
    counted = "SELECT count(*) FROM effectonce.cells"
    return store, clock, lambda: postgres.execute(counted, postgres._shared)[0][0]


def test_a_sweep_removes_cells_that_are_past_their_time_a_few_at_once(kept):
    store, clock, rows = kept
    for n in range(5):
        write(store, b"past", f"past {n}")
    clock.advance(60)
    write(store, b"kept")

    assert store.apply(Sweep(limit=3)) == Swept(0, 0, 0, 3)
    assert rows() == 3
    assert store.apply(Sweep(limit=3)) == Swept(0, 0, 0, 2)
    assert store.apply(Sweep(limit=3)) == Swept(0, 0, 0, 0)
    assert rows() == 1


def test_redis_forgets_cells_by_itself(server):
    store = RedisStore(server.url)

    write(store, b"one", "kept", keep_s=60.0)
    write(store, b"one", "over at once", keep_s=0.0)
    write(store, b"one", "for ever", keep_s=1e300)
    left_ms = {key.rpartition(b":")[2]: server.ask("PTTL", key) for key in server.ask("KEYS", "*")}

    assert 0 < left_ms[b"kept"] <= 60_000
    assert left_ms[b"for ever"] == -1
    assert left_ms.get(b"over at once", -2) in (-2, 0, 1)
    assert store.apply(ReadCell("over at once")).revision == 0
    store.close()


def test_redis_does_not_keep_the_names_of_listed_cells_that_are_over(server):
    clock = FakeClock()
    store = RedisStore(server.url, clock=clock)
    for n in range(100):
        store.apply(WriteCell(f"log/old/{n}", 0, b"", 5.0, listed=True))
    clock.advance(5)
    for n in range(1200):
        store.apply(WriteCell(f"log/new/{n}", 0, b"", 60.0, listed=True))

    names = [
        name
        for key in server.ask("KEYS", "*:[ix]")
        for name in server.ask("ZRANGE", key, "0", "-1")
    ]

    assert sorted(names) == sorted(2 * [f"log/new/{n}".encode() for n in range(1200)])
    assert len(store.apply(ListCells("log/", limit=5000))) == 1200
    store.close()


def test_redis_lists_past_a_page_of_names_that_are_over(server):
    clock = FakeClock()
    store = RedisStore(server.url, clock=clock)
    for n in range(150):
        store.apply(WriteCell(f"log/{n:03d}", 0, b"", 5.0, listed=True))
    store.apply(WriteCell("log/kept", 0, b"kept", 60.0, listed=True))
    store.apply(WriteCell("log/0", 0, b"kept", 60.0, listed=True))
    clock.advance(5)

    assert store.apply(ListCells("log/", "log/0", limit=1)) == (("log/kept", b"kept"),)
    assert store.apply(ListCells("log/", "log/kept", limit=1, backwards=True)) == (
        ("log/0", b"kept"),
    )
    store.close()


# ---------------------------------------------------------------- an older schema, a smaller role


def test_a_file_from_before_there_were_cells_gets_them(tmp_path):
    path = tmp_path / "effects.db"
    older = SqliteStore(path)
    older.apply(Tally())
    older.close()
    connection = sqlite3.connect(path)
    connection.executescript("DROP TABLE cells; PRAGMA user_version = 1")
    connection.close()

    store = SqliteStore(path)
    write(store, b"one")
    assert store.apply(ReadCell("cell")).value == b"one"
    store.close()


@pytest.mark.parametrize("before", [3, 4])
def test_a_file_from_before_pages_had_indexes_gets_them(tmp_path, before):
    path = tmp_path / "effects.db"
    older = SqliteStore(path)
    older.apply(Tally())
    older.close()
    connection = sqlite3.connect(path)
    of_doubts = (
        "CREATE INDEX effects_in_doubt ON effects (created_at, key) WHERE state = 'in_doubt';"
        * (before == 4)
    )
    connection.executescript(
        "DROP INDEX effects_rare; DROP INDEX effects_rare_of; DROP INDEX effects_named;"
    )
    connection.executescript(f"{of_doubts} PRAGMA user_version = {before}")
    connection.close()

    store = SqliteStore(path)
    assert store.apply(Browse(State.IN_DOUBT)) == store.apply(Refer("abc")) == ()
    store.close()
    with contextlib.closing(sqlite3.connect(path)) as upgraded:
        names = {
            name
            for (name,) in upgraded.execute("SELECT name FROM sqlite_master WHERE type = 'index'")
        }
    assert {"effects_rare", "effects_rare_of", "effects_named"} <= names
    assert "effects_in_doubt" not in names


def test_a_role_that_was_let_at_effects_before_there_were_cells_goes_on_working(database, postgres):
    store = PostgresStore(database)
    store.apply(Tally())
    role = f"old_{name_of(database)}"
    postgres.execute(
        f"CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA effectonce TO {role}; GRANT SELECT ON"
        f" effectonce.migrations TO {role};GRANT SELECT, INSERT, UPDATE, DELETE ON"
        f" effectonce.effects TO {role}",
        database,
    )
    theirs = PostgresStore(database.replace("://test@", f"://{role}@"))
    write(theirs, b"one")
    assert store.apply(ReadCell("cell")).value == b"one"
    assert theirs.apply(Sweep()) == Swept(0, 0, 0)
    for opened in (store, theirs):
        opened.close()


# ---------------------------------------------------------------- round trips


@pytest.mark.parametrize("kind", ["postgres", "redis"])
def test_a_cell_is_read_and_written_in_one_round_trip_each(kind, request, server):
    if kind == "postgres":
        postgres, database = (request.getfixturevalue(each) for each in ("postgres", "database"))
    with Proxy(postgres.socket if kind == "postgres" else server.socket) as proxy:
        if kind == "postgres":
            store = PostgresStore(through(proxy, database))
        else:
            store = RedisStore(f"redis://127.0.0.1:{proxy.port}")
        write(store, b"warm up")
        seen, counted = store.apply(ReadCell("cell")).revision, []
        for op in (
            ReadCell("cell"),
            WriteCell("cell", seen, b"two", 60.0),
            WriteCell("cell", seen, b"late", 60.0),
        ):
            store.apply(op)
            counted.append(round_trips(proxy.sent[0]) if kind == "postgres" else proxy.round_trips)
        store.close()
    assert [after - before for before, after in pairwise(counted)] == [1, 1]


# ---------------------------------------------------------------- the race that PostgreSQL decides


def told_who_was_faster(postgres, database):
    """Two saw the same revision; what the second one is told, who began while the first one's
    write was not committed yet.
    """
    store, replies = PostgresStore(database), []
    write(store, b"seen")
    seen = store.apply(ReadCell("cell")).revision
    with psycopg.connect(database) as faster:
        faster.execute("UPDATE effectonce.cells SET value = 'faster', revision = revision + 1")
        slower = threading.Thread(
            target=lambda: replies.append(store.apply(WriteCell("cell", seen, b"slower", 60.0)))
        )
        slower.start()
        wait_for_a_lock(postgres, database)
    slower.join()
    stands = store.apply(ReadCell("cell"))
    store.close()
    return replies[0], stands, seen


def test_who_waited_for_a_faster_one_is_told_what_that_wrote(postgres, database):
    reply, stands, seen = told_who_was_faster(postgres, database)

    assert (reply.value, reply.revision) == (stands.value, stands.revision) == (b"faster", seen + 1)


def test_a_cell_that_is_written_over_after_a_wait_is_noticed(postgres, database, monkeypatch):
    part = f"   WHERE CASE WHEN cell.forget_at > {sql.NOW} THEN cell.revision ELSE 0 END = $3\n"
    right = cells.WRITE_CELL.sql.decode()
    assert part in right, "the statement has changed: sabotage it anew"
    monkeypatch.setattr(
        cells, "WRITE_CELL", sql.statement(right.replace(part, ""), *cells.WRITE_CELL.types)
    )

    reply, stands, _ = told_who_was_faster(postgres, database)

    assert (reply, stands.value) == (None, b"slower"), "the test above would not have noticed"
