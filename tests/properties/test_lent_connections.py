"""Whatever a tool does to the connection that it was lent: the outcome is true, and the next
caller goes on.
"""

import contextlib
import os
import sqlite3
import tempfile
import threading
from pathlib import Path

import psycopg
from hypothesis import example
from hypothesis import strategies as st
from tests.core.examples import examples

from effectonce import EffectOnceError, Guard, Retry, current_effect
from effectonce.stores.postgres import PostgresStore
from effectonce.stores.sqlite import SqliteStore

KEPT = []  # what tools keep after their call
# the same each time, unless it is to find something new
LONG = 20 if "EFFECTONCE_SOAK" in os.environ else 1
ROW = "INSERT INTO ledger VALUES (1)"
TABLE = "CREATE TABLE IF NOT EXISTS ledger (amount int)"


def in_a_thread(connection):
    def write():
        with contextlib.suppress(Exception):
            connection.execute(ROW)

    thread = threading.Thread(target=write)
    thread.start()
    thread.join()


def closing(connection):
    with contextlib.closing(connection):
        connection.execute("SELECT 1")


def block(connection):
    with connection:
        connection.execute("SELECT 1")


def failing_block(connection):
    with connection:
        raise KeyError("inside the block")


COMMON = {
    "close": lambda connection: connection.close(),
    "closing": closing,
    "commit": lambda connection: connection.commit(),
    "rollback": lambda connection: connection.rollback(),
    "block": block,
    "failing block": failing_block,
    "COMMIT": lambda connection: connection.execute("COMMIT"),
    "ROLLBACK": lambda connection: connection.execute("ROLLBACK"),
    "BEGIN": lambda connection: connection.execute("BEGIN"),
    "END": lambda connection: connection.execute("END"),
    "savepoint": lambda connection: connection.execute("SAVEPOINT mine"),
    "rolled back to": lambda connection: connection.execute("ROLLBACK TO SAVEPOINT mine"),
    "open cursor": lambda connection: KEPT.append(connection.execute("SELECT 1 UNION SELECT 2")),
    "kept": KEPT.append,
    "thread": in_a_thread,
    "isolation": lambda connection: setattr(connection, "isolation_level", None),
    "autocommit": lambda connection: setattr(connection, "autocommit", True),
    "rows": lambda connection: setattr(connection, "row_factory", dict),
    "bad statement": lambda connection: connection.execute("SELECT nothing FROM nowhere"),
}
SQLITE = COMMON | {
    "or rollback": lambda connection: connection.execute("INSERT OR ROLLBACK INTO once VALUES (1)"),
    "after the end": lambda connection: connection.execute("CREATE TABLE leftover (a)"),
    "script": lambda connection: connection.executescript("COMMIT; SELECT 1"),
    "authorizer": lambda connection: connection.set_authorizer(None),
    "deserialize": lambda connection: connection.deserialize(b""),
    "dicts": lambda connection: setattr(
        connection, "row_factory", lambda cursor, row: {"row": row}
    ),
    "bytes": lambda connection: setattr(connection, "text_factory", bytes),
    "locking": lambda connection: connection.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall(),
    "progress": lambda connection: connection.set_progress_handler(lambda: 1, 1),
    "half read write": lambda connection: KEPT.append(
        connection.execute("INSERT INTO twice VALUES (1), (2) RETURNING a")
    ),
}
POSTGRES = COMMON | {
    "set isolation": lambda connection: connection.execute(
        "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"
    ),
    "chain": lambda connection: connection.execute("ROLLBACK AND CHAIN"),
    "prepare": lambda connection: connection.execute("PREPARE TRANSACTION 'x'"),
    "time out": lambda connection: connection.execute("SET LOCAL statement_timeout = '1ms'"),
    "pipeline": lambda connection: connection.pgconn.enter_pipeline_mode(),
    "half a copy": lambda connection: connection.pgconn.exec_(b"COPY ledger FROM STDIN"),
    "server cursor": lambda connection: connection.execute(
        "DECLARE named CURSOR FOR SELECT generate_series(1, 9)"
    ),
    "finish": lambda connection: connection.pgconn.finish(),
    "terminate": lambda connection: connection.execute(
        "SELECT pg_terminate_backend(pg_backend_pid())"
    ),
}


def misuse(ways):
    """A few of these, the last of which may take psycopg's own lock for ever: whatever came
    after it would wait inside of psycopg.
    """
    endless = {"half a copy", "pipeline"}
    actions = st.lists(st.sampled_from(sorted(set(ways) - endless)), max_size=4)
    return st.tuples(
        actions
        | st.tuples(actions, st.sampled_from(sorted(ways))).map(lambda both: [*both[0], both[1]]),
        st.booleans(),
    )


def obey(open_store, ways, actions, raises):
    """One call that misuses its connection; then what is true of it, and whether others get on."""
    store, runs = open_store(), []
    guard = Guard(store, cache=0, spool=None)
    with store.transaction() as transaction:
        transaction.connection.execute("DROP TABLE IF EXISTS ledger")
        transaction.connection.execute(TABLE)
        transaction.commit()

    @guard.tool(kind="write", downstream="transaction", retry=Retry(attempts=2, base_s=0, cap_s=0))
    def book(place: int):
        connection = current_effect().connection
        connection.execute(ROW)
        if place == 1:
            runs.append(place)
            for action in actions:
                with contextlib.suppress(
                    sqlite3.Error,
                    psycopg.Error,
                    EffectOnceError,
                    KeyError,
                    AttributeError,
                    TypeError,
                ):
                    ways[action](connection)
            if raises:
                raise KeyError("the tool fails")
        return place

    def call(place):
        with guard.step("chat", place):
            return book(place)

    KEPT.clear()
    done = False
    with contextlib.suppress(sqlite3.Error, psycopg.Error, EffectOnceError, KeyError, TypeError):
        done = call(1) == 1
    written = count(open_store())
    assert (written > 0) == done, f"{written} rows, and the caller got {done}"

    for kept in KEPT:
        with contextlib.suppress(Exception):
            kept.execute(ROW)
    assert count(open_store()) == written, "what a tool keeps writes nothing more"
    if done:
        assert (call(1), len(runs)) == (1, 1), "it is replayed"
    assert call(2) == 2, "the next one goes on in this process"
    assert count(open_store()) == written + 1
    store.close()


def count(store):
    try:
        with store.transaction() as transaction:
            return transaction.connection.execute("SELECT count(*) FROM ledger").fetchone()[0]
    finally:
        store.close()


@examples(misuse(SQLITE), smoke=20, full=80 * LONG, derandomize=LONG == 1)
@example((["half read write", "progress"], True))
@example((["or rollback"], False))
def test_a_tool_can_neither_end_nor_keep_nor_lock_what_it_was_lent_by_sqlite(plan):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "effects.db"
        store = SqliteStore(file)
        with store.transaction() as transaction:
            transaction.connection.execute("CREATE TABLE once (a UNIQUE)")
            transaction.connection.execute("INSERT INTO once VALUES (1)")
            transaction.connection.execute("CREATE TABLE twice (a)")
            transaction.commit()
        store.close()
        obey(lambda: SqliteStore(file, busy_s=0.3), SQLITE, *plan)


@examples(plan=misuse(POSTGRES), smoke=10, full=40 * LONG, derandomize=LONG == 1)
@example(plan=(["pipeline"], False))
def test_a_tool_can_neither_end_nor_keep_nor_lock_what_it_was_lent_by_postgres(postgres, plan):
    database = postgres.database()
    obey(lambda: PostgresStore(database, transactions=1), POSTGRES, *plan)
