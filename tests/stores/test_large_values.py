"""Values that a store refuses for their size: it says so, once, and others get on."""

import asyncio
import sqlite3
import threading

import pytest

from effectonce import StoreUnavailable
from effectonce._core import ops
from effectonce.stores.base import LARGE_B, TooLarge
from effectonce.stores.postgres import PostgresStore
from effectonce.stores.redis import RedisStore, connection
from effectonce.stores.sqlite import SqliteStore
from effectonce.testing.conformance.bench import request

MB = 1 << 20
BOTH = pytest.mark.parametrize("mode", ["sync", "async"])


def apply(store, mode, op):
    if mode == "sync":
        return store.apply(op)

    async def main():
        return await store.aapply(op)

    return asyncio.run(main())


def claimed(store, key="k"):
    store.apply(ops.Claim(request(key), "t", 30, dispatch=True))


def complete(size_b, key="k"):
    return ops.Complete(key, "t", 1, b"x" * size_b)


@BOTH
def test_sqlite_says_that_a_value_is_too_large(tmp_path, mode):
    store = SqliteStore(tmp_path / "effects.db")
    claimed(store)
    store._connect().db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MB)

    with pytest.raises(TooLarge, match="string or blob too big"):
        apply(store, mode, complete(2 * MB))

    assert apply(store, mode, complete(MB // 2)) == ops.Applied(1)
    store.close()


def test_a_value_that_is_too_large_does_not_spoil_the_commit_of_others(tmp_path):
    store = SqliteStore(tmp_path / "effects.db")
    for key in ("large", "small", "other"):
        claimed(store, key)
    store._connect().db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MB)
    answers = {}

    def call(op):
        try:
            answers[op.key] = store.apply(op)
        except StoreUnavailable as error:
            answers[op.key] = error

    threads = [
        threading.Thread(target=call, args=(op,))
        for op in (complete(2 * MB, "large"), complete(10, "small"), complete(10, "other"))
    ]
    with store._lock:
        for thread in threads:
            thread.start()
        while len(store._jobs) < len(threads):
            pass
    for thread in threads:
        thread.join(30)

    assert isinstance(answers["large"], TooLarge)
    assert answers["small"] == answers["other"] == ops.Applied(1)
    store.close()


@BOTH
def test_redis_says_that_a_value_is_too_large(private, mode):
    private.ask("CONFIG", "SET", "proto-max-bulk-len", str(MB))
    store = RedisStore(private.url)
    claimed(store)

    with pytest.raises(TooLarge, match="proto-max-bulk-len is 1 MB"):
        apply(store, mode, complete(2 * MB))

    assert apply(store, mode, complete(MB // 2)) == ops.Applied(1)
    store.close()


@BOTH
def test_a_large_value_reaches_redis_within_its_time(private, mode):
    store = RedisStore(private.url)
    claimed(store)
    assert apply(store, mode, complete(64 * MB)) == ops.Applied(1)
    store.close()


def test_the_largest_word_of_several_commands_counts_and_not_their_sum():
    payload = connection.pack(("SET", "k", b"x" * 300)) + connection.pack(
        ("SET", b"$999\r\n", b"x" * 200)
    )
    assert connection.largest_b(payload) == 300


@BOTH
def test_postgres_says_that_a_value_is_too_large_for_its_time_limit(database, postgres, mode):
    store = PostgresStore(database)
    claimed(store)
    store.close()
    postgres.execute("ALTER ROLE test SET statement_timeout = '20ms'", database)
    try:
        with pytest.raises(
            TooLarge,
            match="a value of 34 MB was refused: canceling statement due to statement timeout",
        ):
            apply(store, mode, complete(32 * MB))
        assert apply(store, mode, complete(10)) == ops.Applied(1)
    finally:
        postgres.execute("ALTER ROLE test RESET statement_timeout", database)
        store.close()


@BOTH
def test_a_large_value_that_takes_too_long_is_named_as_the_cause(database, mode):
    store = PostgresStore(database)
    claimed(store)
    store._timeout_s = 0.05
    with pytest.raises(
        StoreUnavailable, match=r"a value of 67 MB was not written.*Give it more time"
    ):
        apply(store, mode, complete(64 * MB))
    assert LARGE_B < 64 * MB
    store.close()


def test_the_log_of_a_sqlite_file_is_copied_into_the_file_before_it_grows_long(tmp_path):
    store = SqliteStore(tmp_path / "effects.db")

    for number in range(400):
        claimed(store, f"k{number}")
        store.apply(complete(1000, f"k{number}"))

    assert (tmp_path / "effects.db-wal").stat().st_size < 3 * MB
    store.close()
