"""What only a file can do: be locked, full, read-only, deleted, shared by forks, or written by a
newer release.
"""

import os
import re
import sqlite3
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import msgspec
import pytest

from effectonce import (
    ContractViolation,
    GaveUp,
    Guard,
    InFlight,
    Rejected,
    ResultUnavailable,
    Retry,
    StoreUnavailable,
    current_effect,
)
from effectonce._core import ops
from effectonce.stores.sqlite import SqliteStore
from effectonce.stores.sqlite import statements as sqlite_file
from effectonce.stores.sqlite import store as sqlite
from effectonce.testing.clock import FakeClock
from effectonce.testing.conformance.bench import request


@pytest.fixture
def path(tmp_path):
    (tmp_path / "test_store").mkdir()
    return tmp_path / "test_store" / "effects.db"


@pytest.fixture
def store(path):
    store = SqliteStore(path, busy_s=0.05)
    yield store
    store.close()


def guarded(store, calls):
    guard = Guard(store, cache=0)

    @guard.tool(kind="write", retry=Retry(attempts=3, deadline_s=0.2), wait_s=0)
    def pay(invoice: str = "inv_1"):
        calls.append(invoice)
        return {"receipt": len(calls)}

    def call(invoice="inv_1"):
        with guard.step("chat", f"pay {invoice}"):
            return pay(invoice)

    return guard, call


def refused(call, reason, *, lasting=False):
    calls = []
    _, pay = call(calls)
    with pytest.raises(StoreUnavailable, match=reason) as caught:
        pay("inv_2")
    assert calls == [], "nothing may be sent"
    assert caught.value.retriable is not lasting
    return pay


# ---------------------------------------------------------------- round trips


def test_a_first_call_is_two_statements_that_commit_and_a_replay_is_one_read(store):
    calls, statements = [], []
    _, pay = guarded(store, calls)
    pay("warm up")
    store._connect().db.set_trace_callback(statements.append)

    pay()
    first = list(statements)
    statements.clear()
    pay()

    assert [s.split()[0] for s in first] == ["SELECT", "INSERT", "UPDATE"]
    assert not store._connect().db.in_transaction, "each of them was committed by itself"
    assert [s.split()[0] for s in statements] == ["SELECT"]


def test_the_file_is_synced_before_a_claim_is_acknowledged(store):
    store.apply(ops.Tally())
    db = store._connect().db

    assert db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    assert db.execute("PRAGMA synchronous").fetchone()[0] == 2
    assert db.execute("PRAGMA fullfsync").fetchone()[0] == 1


def test_waiting_callers_share_one_commit(store):
    store.apply(ops.Tally())
    statements, gate = [], threading.Barrier(9)
    store._connect().db.set_trace_callback(statements.append)

    def claim(n):
        gate.wait()
        store.apply(ops.Claim(request(f"k{n}"), f"t{n}", 30, dispatch=True))

    threads = [threading.Thread(target=claim, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    with store._lock:  # everybody is in the queue before anybody may work
        gate.wait()
        while len(store._jobs) < 8:
            threading.Event().wait(0.001)
    for thread in threads:
        thread.join()

    assert sum(s == "COMMIT" for s in statements) == 1
    assert store.apply(ops.Tally()) == {"dispatched": 8}


# ---------------------------------------------------------------- files that fail


def test_a_locked_database_sends_nothing(path, store):
    store.apply(ops.Tally())
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    pay = refused(lambda calls: guarded(store, calls), "locked")
    other.execute("ROLLBACK")
    other.close()

    assert pay() == {"receipt": 1}


def test_a_writer_that_never_ends_is_told_from_a_queue(path, store):
    other = SqliteStore(path)
    with other.transaction():
        pay = refused(lambda calls: guarded(store, calls), "locked by another writer for 0.05 s")
    assert pay() == {"receipt": 1}
    other.close()


def test_a_full_disk_sends_nothing(store):
    store.apply(ops.Tally())
    db = store._connect().db
    pages = db.execute("PRAGMA page_count").fetchone()[0]
    db.execute(f"PRAGMA max_page_count = {pages}")
    calls = []
    guard, pay = guarded(store, calls)

    filler = 0
    with pytest.raises(StoreUnavailable, match="full"):
        while True:
            filler += 1
            store.apply(
                ops.Claim(
                    request(f"filler {filler}", arguments=b"x" * 3000), "t", 30, dispatch=True
                )
            )
    with pytest.raises(StoreUnavailable, match="full"):
        while True:
            pay(f"inv {len(calls)}")
    sent = len(calls)
    db.execute("PRAGMA max_page_count = 1073741823")
    pay("inv again")

    assert len(calls) == sent + 1
    # the disk may have been full when the last one ended
    assert guard.counts()["completed"] in (sent, sent + 1)


def test_a_disk_that_fills_up_while_the_tool_runs_loses_no_effect(path):
    clock = FakeClock()
    store = SqliteStore(path, clock=clock)
    guard, calls = Guard(store, cache=0), []

    @guard.tool(kind="write", retry=Retry(attempts=3, deadline_s=0.1))
    def pay():
        calls.append(1)
        db = store._connect().db
        db.execute(f"PRAGMA max_page_count = {db.execute('PRAGMA page_count').fetchone()[0]}")
        return "x" * 100_000

    with guard.step("chat", "pay"):
        outcome = guard.call(pay, {})
        assert (len(outcome.value), outcome.recorded) == (100_000, True)
        store._connect().db.execute("PRAGMA max_page_count = 1073741823")
        clock.advance(31)
        with pytest.raises(ResultUnavailable, match="could not take its 100,008 bytes"):
            pay()
    assert calls == [1]
    store.close()


def replace(path):
    path.rename(path.with_suffix(".old"))
    path.touch()


def delete_log(path):
    """As somebody does who restores a backup: no other process would see our writes."""
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda path: path.unlink(), "deleted or replaced"),
        (replace, "deleted or replaced"),
        (delete_log, "-wal was deleted or replaced"),
    ],
    ids=["deleted", "replaced", "without its log"],
)
def test_a_database_that_is_not_the_one_that_was_opened_sends_nothing(path, store, spoil, said):
    _, pay = guarded(store, [])
    pay()
    spoil(path)
    refused(lambda calls: guarded(store, calls), said, lasting=True)


@pytest.mark.parametrize(
    ("make", "said", "lasting"),
    [
        (lambda path: path.parent.rmdir(), "there is no folder", True),
        (lambda path: path.with_name(f"{path.name}-queue").mkdir(), "Is a directory", False),
        (lambda path: path.write_bytes(b"a letter to my aunt" * 99), "not a SQLite database", True),
    ],
    ids=["no folder", "no queue", "no database"],
)
def test_a_file_that_cannot_be_used_is_named(path, make, said, lasting):
    make(path)
    refused(lambda calls: guarded(SqliteStore(path), calls), said, lasting=lasting)


def test_a_newer_schema_is_refused_not_guessed(path, store):
    store.apply(ops.Tally())
    store._connect().db.execute("PRAGMA user_version = 99")
    refused(lambda calls: guarded(SqliteStore(path), calls), "newer release", lasting=True)


def test_no_write_of_a_call_makes_sqlite_build_a_table_of_its_own(store):
    store.apply(ops.Tally())
    for statement in (
        sqlite_file.BIRTH,
        sqlite_file.BIRTH_SENT,
        sqlite_file.FINISH,
        sqlite_file.UPDATE,
    ):
        program = store._connect().db.execute(f"EXPLAIN {statement}", nothing(statement))
        assert "OpenEphemeral" not in {opcode for _, opcode, *_ in program}, statement


def nothing(statement):
    """A parameter for each place of a statement."""
    numbered = [int(number) for number in re.findall(r"\?(\d+)", statement)]
    return [None] * (max(numbered) if numbered else statement.count("?"))


OPEN = {name: getattr(sqlite_file, name) for name in ("BIRTH", "BIRTH_SENT", "RIVAL", "DUE")} | {
    "BROWSE": sqlite_file.BROWSE["dispatched"]
}


@pytest.mark.parametrize("statement", OPEN)
def test_nobody_walks_through_all_that_is_in_doubt_to_find_what_is_not(store, statement):
    store.apply(ops.Tally())
    sql = OPEN[statement]
    steps = [
        row[3] for row in store._connect().db.execute(f"EXPLAIN QUERY PLAN {sql}", nothing(sql))
    ]
    looks = [step for step in steps if "effects_open" in step]
    assert looks
    assert all(step.startswith("SEARCH effects") and "(state=?" in step for step in looks), steps


def test_the_indexes_of_an_older_file_are_made_anew(path, store):
    _, pay = guarded(store, [])
    pay()
    store.close()
    older = sqlite3.connect(path)
    older.executescript(
        "DROP INDEX effects_open; DROP INDEX effects_due; PRAGMA user_version = 2;CREATE INDEX"
        " effects_open ON effects (state, latch, key) WHERE state IN ('claimed', 'dispatched',"
        " 'in_doubt');CREATE INDEX effects_due ON effects (due_at) WHERE state IN ('completed',"
        " 'failed', 'tombstone') AND due_at < 9e999"
    )
    older.close()

    again = SqliteStore(path)
    assert again.apply(ops.Tally()) == {"completed": 1}
    assert not again._connect().rows(
        "SELECT sql FROM sqlite_master WHERE type = 'index' AND sql LIKE '% IN (%'"
    )
    again.close()


def test_an_outcome_that_is_not_ours_is_unreadable_not_run_again(store):
    calls = []
    _, pay = guarded(store, calls)
    pay()
    for blob in (
        b"\x80\x04\x95pickle",
        b"v9 ok 1",
        b"v1 ok {",
        b'v1 tagged {"$": "int"}',
        b"v1 unheard 1",
        b"",
    ):
        store._connect().db.execute("UPDATE effects SET outcome = ?", (blob,))
        with pytest.raises(Exception, match="was done"):
            pay()
    assert len(calls) == 1


def test_a_read_only_database_sends_nothing(path):
    made = SqliteStore(path)
    made.apply(ops.Tally())
    made.close()
    script = f"""
        import os, sys
        from effectonce import Guard, StoreUnavailable
        from effectonce.stores.sqlite import connection, store
        if os.getuid() == 0:
            os.setgid(65534); os.setuid(65534)
        guard = Guard("sqlite:///{path}")
        @guard.tool(kind="write")
        def pay(): sys.exit("it must not run")
        try:
            with guard.step("chat", "pay"): pay()
        except StoreUnavailable as error:
            print(error)
    """
    for file in path.parent.iterdir():
        file.chmod(0o444)
    for folder in (path.parent, *path.parent.parents):
        if (
            folder != folder.parent
            and folder.stat().st_uid == os.getuid()
            and folder.name.startswith(("pytest", "test", "popen"))
        ):
            folder.chmod(0o555 if folder == path.parent else 0o755)
    try:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script)],
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        path.parent.chmod(0o755)
    assert "Nothing was sent" in done.stdout, done


# ---------------------------------------------------------------- processes and threads


FORK = """
    import os, sys
    from effectonce import Guard, current_effect
    guard = Guard("sqlite:///{path}", cache=0)
    ran = []
    @guard.tool(kind="write", lease_s=0.2)
    def pay(who: str):
        ran.append(current_effect().epoch)
        return who
    def call(who):
        with guard.step("chat", "pay " + who):
            return pay(who)
    assert call("parent before") == "parent before"
    with guard.store.transaction(): pass
    pid = os.fork()
    if pid == 0:
        assert call("parent before") == "parent before" and len(ran) == 1
        assert call("child") == "child" and len(ran) == 2
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert call("parent after") == "parent after"
    assert call("child") == "child" and len(ran) == 2, ran
    print(guard.counts())
"""


def test_a_fork_gets_its_own_connection(path):
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore::DeprecationWarning",
            "-c",
            textwrap.dedent(FORK.format(path=path)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "3" in done.stdout


def test_a_closed_store_opens_again(store):
    calls = []
    _, pay = guarded(store, calls)
    pay()
    with store.transaction():
        pass
    store.close()
    assert pay() == {"receipt": 1}


def test_an_interrupted_writer_leaves_nobody_waiting(store):
    """Whoever works for all may be interrupted; each of the others hears of it."""
    store.apply(ops.Tally())
    job_error = []

    def claim():
        try:
            store.apply(ops.Claim(request("other"), "t", 30, dispatch=True))
        except StoreUnavailable as error:
            job_error.append(error)

    connection = store._connect()
    check_file = connection.check_file
    thread = threading.Thread(target=claim)

    def interrupted():
        connection.check_file = check_file
        raise KeyboardInterrupt

    connection.check_file = interrupted
    with store._lock:
        thread.start()
        while not store._jobs:
            threading.Event().wait(0.001)
        store._jobs.rotate()
        with pytest.raises(KeyboardInterrupt):
            store._work()
    thread.join()
    assert "interrupted" in str(job_error[0])


# ---------------------------------------------------------------- transactions


def ledger(store):
    with store.transaction() as transaction:
        return [
            row[0]
            for row in transaction.connection.execute("SELECT amount FROM ledger ORDER BY rowid")
        ]


def booking(store, **contract):
    guard = Guard(store, cache=0, counters=0)

    @guard.tool(
        kind="irreversible",
        downstream="transaction",
        retry=Retry(attempts=3, base_s=0, cap_s=0),
        **contract,
    )
    def book(amount: int):
        connection = current_effect().connection
        connection.execute("CREATE TABLE IF NOT EXISTS ledger (amount INTEGER)")
        connection.execute("INSERT INTO ledger VALUES (?)", (amount,))
        if amount < 0:
            raise ValueError("a bug after the insert")
        if amount == 0:
            raise Rejected("nothing to book")
        return amount

    return guard, book


def test_effect_and_record_commit_together(store):
    guard, book = booking(store)
    with guard.step("chat", "book"):
        assert [book(5), book(5), book(7)] == [5, 5, 7]
        for _ in range(2):
            with pytest.raises(ValueError, match="a bug"):
                book(-1)
        with pytest.raises(Rejected):
            book(0)
        assert guard.call(book, {"amount": 0}).replayed
    assert ledger(store) == [5, 7]


def test_a_transaction_of_an_owner_that_lost_its_record_is_rolled_back(path):
    clock = FakeClock()
    store = SqliteStore(path, clock=clock)
    guard, book = booking(store)
    begin, thefts = store._begin, []

    def stolen_before_it_begins():
        if not thefts:
            clock.advance(31)
            request = store.apply(ops.Browse("claimed"))[0].request
            thefts.append(store.apply(ops.Claim(request, "thief", 30, dispatch=False)))
            clock.advance(31)
        return begin()

    store._begin = stolen_before_it_begins
    with guard.step("chat", "book"):
        assert book(5) == 5
    assert thefts[0].epoch == 2
    assert ledger(store) == [5]
    store.close()


def test_a_transaction_that_another_call_of_its_step_came_before_does_not_keep_its_claim(path):
    store = SqliteStore(path)
    guard, book = booking(store, wait_s=0)
    begin, rivals = store._begin, []

    def overtaken_before_it_begins():
        if not rivals:
            mine = store.apply(ops.Browse("claimed"))[0].request
            rivals.append(
                msgspec.structs.replace(
                    mine, key="0" * 40, terms=msgspec.structs.replace(mine.terms, tool="mail")
                )
            )
            store.apply(ops.Claim(rivals[0], "rival", 30, dispatch=True))
        return begin()

    store._begin = overtaken_before_it_begins
    with guard.step("chat", "book"):
        with pytest.raises(InFlight, match="mail is in flight in the same step"):
            book(5)
        store.apply(ops.Complete(rivals[0].key, "rival", 1, b"v1 ok 1"))
        assert book(5) == 5
    assert ledger(store) == [5]
    store.close()


@contextmanager
def second_booking(store, **contract):
    """A tool that has booked 1, in its step; in the end 2 is booked as well, once."""
    guard, book = booking(store, **contract)
    with guard.step("chat", "book"):
        book(1)
        yield guard, book
    assert ledger(store) == [1, 2]


def commits(store, *fates):
    """What becomes of the next COMMITs of transactions: "lost" never happened, "unanswered" did."""
    begin, fates = store._begin, list(fates)

    def begun():
        lent = begin()
        commit = lent.held.commit

        def fateful():
            fate = fates.pop(0) if fates else "well"
            if fate != "lost":
                commit()
            if fate != "well":
                raise sqlite3.OperationalError("disk I/O error")

        lent.held.commit = fateful
        return lent

    store._begin = begun


def test_a_commit_whose_answer_was_lost_is_resolved_by_the_record(store):
    with second_booking(store) as (guard, book):
        commits(store, "unanswered")
        outcome = guard.call(book, {"amount": 2})
    assert (outcome.value, outcome.replayed) == (2, False)


def test_a_transaction_that_cannot_begin_leaves_no_connection_behind(store, path):
    with second_booking(store) as (_, book):
        before = len(store._connections)
        with SqliteStore(path).transaction():
            for _ in range(3):
                with (
                    pytest.raises(StoreUnavailable, match="locked by another writer"),
                    store.transaction(),
                ):
                    pass
        assert len(store._connections) <= before
        assert book(2) == 2


def test_a_commit_that_did_not_happen_is_tried_again(store):
    with second_booking(store) as (_, book):
        commits(store, "lost", "unanswered")
        assert book(2) == 2


def test_commits_that_never_happen_end_as_a_store_failure_and_leave_the_key_free(store):
    with second_booking(store) as (_, book):
        commits(store, *["lost"] * 3)
        with pytest.raises(StoreUnavailable, match="disk I/O error"):
            book(2)
        assert book(2) == 2


def test_a_lease_that_ended_before_a_lost_commit_is_taken_again_at_once(path):
    clock = FakeClock()
    store = SqliteStore(path, clock=clock)
    with second_booking(store, wait_s=0) as (_, book):
        begin = store._begin

        def begun():
            lent, store._begin = begin(), begin

            def slow_and_lost():
                clock.advance(31)
                raise sqlite3.OperationalError("disk I/O error")

            lent.held.commit = slow_and_lost
            return lent

        store._begin = begun
        assert book(2) == 2
    store.close()


def test_a_commit_that_lands_while_it_is_looked_for_is_found(store):
    with second_booking(store) as (_, book):
        commits(store, "lost")
        apply = store.apply

        def late(op):
            if isinstance(op, ops.Renew):
                with store.transaction() as landed:
                    landed.connection.execute("INSERT INTO ledger VALUES (2)")
                    landed.complete(ops.Complete(op.key, op.token, op.epoch, b"v1 ok 2"))
                    landed.commit()
                store.apply = apply
            return apply(op)

        store.apply = late
        assert book(2) == 2


def test_the_record_cannot_be_read_after_a_lost_commit(store):
    with second_booking(store) as (_, book):
        commits(store, "unanswered")
        apply = store.apply
        asked = []

        def deaf(op):
            asked.append(op)
            if len(asked) > 1:
                raise StoreUnavailable("gone")
            return apply(op)

        store.apply = deaf
        with pytest.raises(GaveUp, match="may have run"):
            book(2)
        store.apply = apply
        assert book(2) == 2


def test_a_transaction_of_an_older_run_that_landed_late_is_not_repeated(store):
    """The first COMMIT is under way when its answer is given up; the record is not done yet, and
    then it is.
    """
    with second_booking(store) as (_, book):
        begin, late = store._begin, []

        def after_the_older_one_landed():
            if not late:
                late.append(begin())
                record = store.apply(ops.Browse("claimed"))[0]
                done = ops.Complete(record.request.key, record.token, record.epoch, b"v1 ok 2")
                late[0].connection.execute("INSERT INTO ledger VALUES (2)")
                assert isinstance(late[0].complete(done), ops.Applied)
                late[0].commit()
                store._end(late[0])
            return begin()

        store._begin = after_the_older_one_landed
        assert book(2) == 2


def test_a_statement_that_fails_inside_a_transaction_is_a_store_failure(store):
    with store.transaction() as transaction:
        transaction.connection.execute("DROP TABLE effects")
        with pytest.raises(StoreUnavailable, match="no such table"):
            transaction.complete(ops.Complete("k", "t", 1, b""))


def test_a_store_that_is_gone_takes_its_writer_thread_along(path):
    import asyncio
    import gc

    store = SqliteStore(path)
    asyncio.run(store.aapply(ops.Tally()))
    writer = store._writer
    store._hire_writer()
    assert store._writer is writer
    store.close()
    del store
    gc.collect()
    writer.join(30)
    assert not writer.is_alive()


def test_a_machine_that_has_no_thread_left_for_async_callers_is_told_and_asked_again(
    store, monkeypatch
):
    import asyncio

    def no_room(_):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as machine:
        machine.setattr(threading.Thread, "start", no_room)
        with pytest.raises(StoreUnavailable, match=r"can't start new thread\. Nothing was sent"):
            asyncio.run(store.aapply(ops.Tally()))
        with pytest.raises(StoreUnavailable, match=r"can't start new thread\. Nothing was sent"):
            asyncio.run(begun(store))
    assert asyncio.run(store.aapply(ops.Tally())) == {}
    assert asyncio.run(begun(store))


async def begun(store):
    async with store.atransaction():
        return True


def test_whoever_has_been_served_waits_for_nobody(store):
    job = sqlite.PendingWrite(ops.Tally())
    job.answer({})
    store._follow(job)
    assert store._together(job) == {}
    job.error = StoreUnavailable("the one who led could not")
    with pytest.raises(StoreUnavailable, match="could not"):
        store._together(job)
    store._jobs.clear()


def test_a_tool_cannot_end_the_transaction_that_it_shares(store, guard):
    ways = {
        "with": lambda connection: connection.__exit__(None, None, None),
        "commit": lambda connection: connection.commit(),
        "rollback": lambda connection: connection.rollback(),
        "close": lambda connection: connection.close(),
        "script": lambda connection: connection.executescript("SELECT 1"),
        "authorizer": lambda connection: connection.set_authorizer(None),
        "begin": lambda connection: connection.execute("BEGIN"),
        "isolation": lambda connection: setattr(connection, "isolation_level", None),
    }

    @guard.tool(
        kind="irreversible", downstream="transaction", retry=Retry(attempts=3, base_s=0, cap_s=0)
    )
    def book(way: str):
        connection = current_effect().connection
        connection.row_factory = sqlite3.Row
        connection.execute("CREATE TABLE IF NOT EXISTS ledger (amount INTEGER)")
        connection.execute("INSERT INTO ledger VALUES (1)")
        if way in ways:
            ways[way](connection)
        return way

    with guard.step("chat", "book"):
        for way in ways:
            with pytest.raises(
                (ContractViolation, sqlite3.DatabaseError),
                match=r"not the tool's to end|not authorized",
            ):
                book(way)
        assert book("none") == "none"
    assert ledger(store) == [1]


def test_a_relative_path_is_the_same_file_wherever_the_process_goes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = SqliteStore("effects.db")
    calls = []
    _, pay = guarded(store, calls)
    pay()
    store.close()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert pay() == {"receipt": 1}
    assert calls == ["inv_1"]
    store.close()


def test_a_signal_that_strikes_while_a_transaction_begins_leaves_nothing_open(store):
    store.apply(ops.Tally())
    connection = store._connect()
    execute = connection.db.execute

    class Struck:
        def __getattr__(self, name):
            return getattr(connection_db, name)

        def execute(self, sql, *parameters):
            result = execute(sql, *parameters)
            if sql == "BEGIN IMMEDIATE":
                raise KeyboardInterrupt
            return result

    connection_db = connection.db
    connection.db = Struck()
    with pytest.raises(KeyboardInterrupt):
        store.apply(ops.Claim(request("k"), "t", 30, dispatch=True))
    connection.db = connection_db
    assert not connection_db.in_transaction
    assert isinstance(store.apply(ops.Claim(request("k"), "t", 30, dispatch=True)), ops.Held)


def test_a_signal_that_strikes_while_the_lock_is_taken_does_not_keep_it(store):
    class Struck:
        def __init__(self, lock):
            self.lock, self.strikes = lock, 2

        def acquire(self, *args, **kwargs):
            taken = self.lock.acquire(*args, **kwargs)
            if taken and self.strikes:
                self.strikes -= 1
                raise KeyboardInterrupt
            return taken

        def __getattr__(self, name):
            return getattr(self.lock, name)

    lock = store._lock
    store._lock = Struck(lock)
    with pytest.raises(KeyboardInterrupt):
        store.apply(ops.Tally())
    with pytest.raises(KeyboardInterrupt):
        store._together(sqlite.PendingWrite(ops.Tally()))
    store._lock = lock
    threads = [threading.Thread(target=store.apply, args=(ops.Tally(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)


def test_a_signal_that_strikes_while_a_transaction_ends_leaves_nothing_locked(store):
    strikes = [KeyboardInterrupt()]

    with pytest.raises(KeyboardInterrupt), store.transaction() as transaction:
        connection, close = transaction.held, transaction.held.close

        def struck():
            if strikes:
                raise strikes.pop()
            close()

        connection.close = struck
    store._end(transaction)  # struck when it was all but done

    assert connection not in store._connections
    assert isinstance(store.apply(ops.Claim(request("effect"), "t", 30, dispatch=True)), ops.Held)


def test_a_job_that_an_interrupted_caller_lost_is_answered(store):
    job = sqlite.PendingWrite(ops.Tally())
    with store._lock:
        store._lead(job)
    assert "lost it" in str(job.error)


INHERITED = """
    import os, signal, sys
    from effectonce.stores.sqlite import SqliteStore
    store = SqliteStore("{path}", busy_s=2)
    reader, writer = os.pipe()
    if os.fork() == 0:
        transaction = store.transaction()
        transaction.__enter__()
        if os.fork() == 0:
            signal.pause()  # a worker that never touches the store
        os.write(writer, b"held")
        os.kill(os.getpid(), signal.SIGKILL)
    os.read(reader, 4)
    os.wait()
    with store.transaction():
        print("free", flush=True)  # the next line ends this process, too
    os.killpg(0, signal.SIGTERM)
"""


def test_a_lock_does_not_outlive_its_owner_in_a_forked_child(path):
    command = [
        sys.executable,
        "-W",
        "ignore::DeprecationWarning",
        "-c",
        textwrap.dedent(INHERITED.format(path=path)),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, start_new_session=True
    )
    assert done.stdout == "free\n", done.stderr


def test_a_look_never_waits_and_none_says_nothing(store):
    guard, book = booking(store)
    with guard.step("chat", "book"):
        request = book.__effectonce_tool__.prepare((5,), {}).request
        assert store.look(request) is None  # no connection yet
        book(5)
        assert store.look(request).outcome == b"v1 ok 5"
        with ThreadPoolExecutor(1) as elsewhere, store._lock:
            assert elsewhere.submit(store.look, request).result() is None
        store.apply(ops.Tally())
        store._main.db.close()
        assert store.look(request) is None  # whatever it is, the claim will tell
        with pytest.raises(StoreUnavailable):
            store.apply(ops.Tally())


def test_a_call_whose_transaction_cannot_begin_sends_nothing(path):
    store, other = SqliteStore(path, busy_s=0.05), SqliteStore(path)
    guard, book = booking(store, wait_s=0)
    begin = store._begin

    def behind_another_writer():
        with other.transaction():
            return begin()

    store._begin = behind_another_writer
    with guard.step("chat", "book"):
        with pytest.raises(StoreUnavailable, match="locked by another writer"):
            book(2)
        store._begin = begin
        assert book(2) == 2  # and nobody has to wait for a lease
    store.close()
    other.close()


def test_a_commit_that_was_lost_while_somebody_else_took_over_starts_from_the_claim(path):
    clock = FakeClock()
    store = SqliteStore(path, clock=clock)
    guard, book = booking(store, wait_s=0)
    with guard.step("chat", "book"):
        book(1)
        commits(store, "lost")

        def then_stolen(transaction):
            end(transaction)
            store._end = end
            clock.advance(31)
            record = store.apply(ops.Browse("claimed"))[0]
            assert isinstance(
                store.apply(ops.Claim(record.request, "thief", 30, dispatch=False)), ops.Held
            )

        end, store._end = store._end, then_stolen
        with pytest.raises(InFlight):
            book(2)
    assert ledger(store) == [1]
    store.close()


def test_a_state_of_a_newer_release_is_refused_not_guessed(store):
    guard, book = booking(store)
    with guard.step("chat", "book"):
        book(5)
        store._main.db.execute("UPDATE effects SET state = 'parked'")
        with pytest.raises(
            StoreUnavailable, match=r"does not know \('parked'\).*Upgrade effectonce here"
        ):
            book(5)
    assert ledger(store) == [5]


def test_a_file_that_cannot_be_opened_is_told_with_what_to_look_at(tmp_path):
    with pytest.raises(StoreUnavailable, match="is a folder, not a file"):
        Guard(f"sqlite:///{tmp_path}").counts()
