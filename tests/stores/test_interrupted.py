"""A signal whose handler raises (Ctrl-C, an alarm, the time limit of a task queue) strikes where some function begins. The store works on."""

import gc
import sqlite3
import sys
import threading
import warnings
from functools import partial

import pytest

from effectonce._core import ops
from effectonce.stores.postgres import PostgresStore
from effectonce.stores.redis import RedisStore
from effectonce.stores.sqlite import SqliteStore
from effectonce.testing.conformance.bench import request as asked
from tests.servers import redis


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def store(request, tmp_path):
    match request.param:
        case "sqlite":
            store = SqliteStore(tmp_path / "effects.db")
        case "postgres":
            store = PostgresStore(request.getfixturevalue("database"), connections=1)
        case "redis":
            store = RedisStore(redis.emptied(redis.server()).url, connections=1)
    yield store
    store.close()
    for lost in store._connections if request.param == "sqlite" else ():  # a signal kept them from being given back
        lost.close()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # or from being noted at all: since 3.13 Python tells
        gc.collect()


def struck(number, function):
    """Call *function*, and interrupt it where the function of a store that is called as the *number*-th begins. False: there are fewer."""
    called, before = 0, sys.gettrace()

    def trace(frame, event, _):
        nonlocal called
        if event == "call" and "/effectonce/stores/" in frame.f_code.co_filename:
            called += 1
            if called == number:
                sys.settrace(None)
                raise KeyboardInterrupt

    sys.settrace(trace)
    try:
        function()
    except (KeyboardInterrupt, sqlite3.DatabaseError):  # SQLite says "not authorized" where it was asking us
        pass
    finally:
        sys.settrace(before)
    return called == number


def claim(number):
    return ops.Claim(asked(f"effect {number}"), "t", 30, dispatch=True)


def elsewhere(function, *arguments):
    """What another thread gets; nothing, if it waits for ever."""
    got = []
    thread = threading.Thread(target=lambda: got.append(function(*arguments)), daemon=True)
    thread.start()
    thread.join(30)
    return got


def test_wherever_a_signal_strikes_every_thread_can_go_on(store):
    store.apply(ops.Tally())
    held, number = ops.Held(1, 1, dispatched=True), 1
    while struck(number, partial(store.apply, claim(number))):
        assert store.apply(claim(number)) == held, number
        assert elsewhere(store.apply, claim(number)) == [held], number
        number += 1
    assert number > 5


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_wherever_a_signal_strikes_in_a_transaction_the_file_is_not_left_locked(store):
    def transact():
        with store.transaction() as transaction:
            transaction.connection.execute("SELECT 1")

    transact()
    number = 1
    while struck(number, transact):
        assert store.apply(claim(number)) == ops.Held(1, 1, dispatched=True), number
        transact()
        number += 1
    assert number > 5
