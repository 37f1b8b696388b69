"""A signal whose handler raises (Ctrl-C, an alarm, the time limit of a task queue) strikes where
some function begins. The store works on.
"""

import gc
import sqlite3
import subprocess
import sys
import threading
import warnings
from functools import partial
from pathlib import Path

import pytest

from effectonce import StoreUnavailable
from effectonce._core import ops
from effectonce.stores.memory import MemoryStore
from effectonce.stores.postgres import PostgresStore
from effectonce.stores.sqlite import SqliteStore
from tests.servers import redis
from tests.stores.helpers import claim


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def store(request, open_store):
    options = {} if request.param == "sqlite" else {"connections": 1}
    store = open_store(request.param, **options)
    yield store
    store.close()
    # a signal kept them from being given back
    for lost in store._connections if request.param == "sqlite" else ():
        lost.close()
    with warnings.catch_warnings():
        # or from being noted at all: since 3.13 Python tells
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def struck(number, function):
    """Call *function*, and interrupt it where the function of a store that is called as the
    *number*-th begins. False: there are fewer.
    """
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
    except (KeyboardInterrupt, sqlite3.DatabaseError):
        # SQLite says "not authorized" where it was asking us
        pass
    finally:
        sys.settrace(before)
    return called == number


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
    while struck(number, partial(store.apply, claim(f"effect {number}"))):
        assert store.apply(claim(f"effect {number}")) == held, number
        assert elsewhere(store.apply, claim(f"effect {number}")) == [held], number
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
        assert store.apply(claim(f"effect {number}")) == ops.Held(1, 1, dispatched=True), number
        transact()
        number += 1
    assert number > 5


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres", "redis"])
def test_a_guarded_call_in_a_signal_handler_works_or_is_refused_at_once(kind, request, tmp_path):
    """Whatever operation of the store its own thread was in the middle of: waiting for that
    would never end.
    """
    url = {
        "memory": lambda: "memory://",
        "sqlite": lambda: f"sqlite:///{tmp_path / 'effects.db'}",
        "postgres": lambda: request.getfixturevalue("database"),
        "redis": lambda: redis.emptied(redis.server()).url,
    }[kind]()
    script = Path(__file__).with_name("calls_in_handlers.py")

    ended = subprocess.run(
        [sys.executable, script, url], capture_output=True, text=True, timeout=120, check=False
    )

    assert ended.returncode == 0, ended.stderr
    struck, handled = ended.stdout.split()[:2]
    assert struck == handled
    assert int(struck) > 2


def test_what_an_operation_has_not_finished_is_not_looked_at_from_a_signal_handler(tmp_path):
    memory, sqlite, postgres = (
        MemoryStore(),
        SqliteStore(tmp_path / "effects.db"),
        PostgresStore("postgresql://nowhere/none"),
    )
    sqlite.apply(claim("effect 1"))
    sqlite.apply(ops.Complete(claim("effect 1").key, "t", 1, b"done"))
    asked_now = claim("effect 1").request
    assert sqlite.look(asked_now) is not None

    for store, lock in (
        (memory, memory._lock),
        (sqlite, sqlite._lock),
        (postgres, postgres._crew._lock),
    ):
        with lock, pytest.raises(StoreUnavailable, match="signal handler"):
            store.apply(ops.Tally())
    with sqlite._lock:
        assert sqlite.look(asked_now) is None
        with pytest.raises(StoreUnavailable, match="signal handler"):
            sqlite.examine()

    assert sqlite.look(asked_now) is not None
    sqlite.close()
