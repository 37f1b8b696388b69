"""Faults of a SQLite file that last: each is named in words of its own, and the call is not
repeated.
"""

import asyncio
import contextlib
import re
import sqlite3

import pytest

from effectonce import Guard, StoreUnavailable
from effectonce._core import ops
from effectonce.stores.sqlite import SqliteStore
from effectonce.stores.sqlite.statements import SCHEMA_VERSION
from tests.privileges import file_permissions_count


@pytest.fixture
def path(tmp_path):
    return tmp_path / "shop" / "effects.db"


def made(path):
    """A store with one effect in it."""
    path.parent.mkdir(exist_ok=True)
    guard, pay = paying(path)
    pay()
    guard.close()
    return path


def paying(path):
    guard = Guard(SqliteStore(path), cache=0)

    @guard.tool(kind="write")
    def pay(invoice: str):
        return {"paid": invoice}

    def call(invoice="inv_1"):
        with guard.step("chat", f"pay {invoice}"):
            return pay(invoice)

    return guard, call


def fault(path, invoice="inv_1"):
    """What a call says about this file."""
    with pytest.raises(StoreUnavailable) as caught:
        paying(path)[1](invoice)
    return caught.value


def a_text(path):
    path.parent.mkdir()
    path.write_text("dear aunt, " * 100)


def a_table_of_our_name(path):
    path.parent.mkdir()
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.executescript("CREATE TABLE effects (id INTEGER, volume REAL)")


def another_cells(path):
    path.parent.mkdir()
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.executescript("CREATE TABLE cells (row INTEGER, prisoner TEXT)")


def a_version_of_its_own(path):
    path.parent.mkdir()
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.executescript("CREATE TABLE songs (title TEXT); PRAGMA user_version = 2")


def our_version_by_chance(path):
    path.parent.mkdir()
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.executescript(
            "PRAGMA journal_mode = WAL; CREATE TABLE songs (title TEXT); PRAGMA user_version ="
            f" {SCHEMA_VERSION}"
        )


def damaged(path):
    made(path)
    content = bytearray(path.read_bytes())
    content[2048:] = b"\xff" * (len(content) - 2048)
    path.write_bytes(content)


FAULTS = {
    a_text: (r"is not a SQLite database\.", "Give the path of a new file"),
    a_table_of_our_name: (
        r"belongs to another application: its table effects has other columns",
        "a file of its own",
    ),
    another_cells: (
        r"belongs to another application: its table cells has other columns",
        "a file of its own",
    ),
    a_version_of_its_own: (
        r"belongs to another application: its user_version is 2",
        "a file of its own",
    ),
    our_version_by_chance: (
        r"belongs to another application: no such table: cells",
        "a file of its own",
    ),
    damaged: (r"is damaged \(database disk image is malformed\)", "Restore it from a backup"),
    lambda path: None: (r"there is no folder .*/shop\.", "mkdir -p "),
    lambda path: path.mkdir(parents=True): (r"is a folder, not a file\.", "Name a file in it"),
}


@pytest.mark.parametrize("spoil", FAULTS)
def test_a_fault_that_lasts_is_not_called_temporary(path, spoil):
    spoil(path)
    before = path.read_bytes() if path.is_file() else b""

    error = fault(path)

    happened, to_do = FAULTS[spoil]
    assert error.code == "STORE_UNUSABLE"
    assert not error.retriable
    assert re.search(happened, str(error)), str(error)
    assert to_do in error.corrective_action
    assert error.__notes__ == [error.corrective_action]
    assert "Nothing was sent" in str(error)
    assert (path.read_bytes() if path.is_file() else b"") == before


def test_a_table_of_the_users_own_may_stand_beside_ours(path):
    path.parent.mkdir()
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.executescript("CREATE TABLE bookings (amount INTEGER)")

    assert paying(path)[1]() == {"paid": "inv_1"}


@pytest.mark.parametrize("spoil", [a_text, lambda path: None])
def test_a_fault_that_lasts_says_so_once_in_a_traceback(path, spoil):
    """The driver's error and ours would say the same thing three times, with a page of frames."""
    spoil(path)

    error = fault(path)

    assert error.__cause__ is None
    assert error.__suppress_context__


class Counted(SqliteStore):
    """It counts how often it was asked."""

    asked = 0

    def apply(self, op, /):
        self.asked += 1
        return super().apply(op)


def test_a_fault_that_lasts_is_not_asked_about_again(path):
    store = Counted(path)
    guard = Guard(store)

    @guard.tool(kind="write")
    def pay():
        return "paid"

    with pytest.raises(StoreUnavailable), guard.step("chat", "pay"):
        pay()

    assert store.asked == 1


def test_an_async_call_is_told_the_same(path):
    guard = Guard(SqliteStore(path))

    @guard.tool(kind="write")
    async def pay():
        return "paid"

    with (
        pytest.raises(StoreUnavailable, match="there is no folder") as caught,
        guard.step("chat", "pay"),
    ):
        asyncio.run(pay())

    assert not caught.value.retriable


# ---------------------------------------------------------------- permissions


def readable_only(path):
    path.chmod(0o444)


def in_a_closed_folder(path):
    path.parent.chmod(0o555)


def both(path):
    path.chmod(0o444)
    path.parent.chmod(0o555)


@pytest.mark.parametrize("close", [readable_only, in_a_closed_folder, both])
def test_a_file_that_may_only_be_read_answers_readers_and_refuses_writers(path, close):
    made(path)
    (path.parent / f"{path.name}-queue").unlink()
    close(path)

    with file_permissions_count():
        guard, pay = paying(path)
        counted = guard.counts()
        replayed = pay()
        error = fault(path, "inv_2")
        guard.close()

    assert sum(counted.values()) == 1
    assert replayed == {"paid": "inv_1"}
    assert error.code == "STORE_UNUSABLE"
    assert "may not be written by this user" in str(error)
    assert "Nothing was sent" in str(error)
    assert not list(path.parent.glob("*-queue"))


def test_a_file_in_use_that_may_only_be_read_shows_what_was_written_last(path):
    made(path)
    writer, pay = paying(path)
    pay("inv_2")  # it is in the log, and not in the file
    both(path)

    with file_permissions_count():
        counted = paying(path)[0].counts()

    writer.close()
    assert sum(counted.values()) == 2


def test_a_log_that_may_not_be_read_is_not_left_out(path):
    made(path)
    writer, pay = paying(path)
    pay("inv_2")
    both(path)
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).chmod(0)

    with (
        file_permissions_count(),
        pytest.raises(StoreUnavailable, match=r"its log .*-wal") as caught,
    ):
        paying(path)[0].counts()

    writer.close()
    assert not caught.value.retriable


def a_text_that_may_only_be_read(path):
    a_text(path)
    readable_only(path)


@pytest.mark.parametrize(
    ("close", "said"),
    [
        (lambda path: made(path).chmod(0), "{path} may not be read by this user"),
        (a_text_that_may_only_be_read, "is not a SQLite database"),
        (
            lambda path: path.parent.mkdir(mode=0o555),
            "the folder {path.parent} may not be written by this user",
        ),
        (lambda path: made(path).parent.chmod(0), "may not be"),
    ],
    ids=["a file", "a text", "a folder", "a folder that may not be entered"],
)
def test_what_may_not_be_read_or_made_is_named(path, close, said):
    close(path)

    with file_permissions_count():
        error = fault(path)

    assert said.format(path=path) in str(error)
    assert not error.retriable


def test_a_file_of_an_older_release_that_may_only_be_read_says_what_it_lacks(path):
    made(path)
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.executescript("PRAGMA user_version = 2")
    readable_only(path)

    with (
        file_permissions_count(),
        pytest.raises(StoreUnavailable, match=r"schema 2.*may not be written") as caught,
    ):
        paying(path)[0].counts()

    assert not caught.value.retriable


def test_health_of_a_file_that_may_only_be_read_says_that_no_call_can_be_made(path):
    made(path)
    readable_only(path)

    with file_permissions_count():
        health = paying(path)[0].health()

    assert not health.ok
    assert "may not be written by this user" in health.error


def test_a_transaction_in_a_file_that_may_only_be_read_is_refused(path):
    store = SqliteStore(made(path))
    readable_only(path)

    with (
        file_permissions_count(),
        pytest.raises(StoreUnavailable, match="may not be written") as caught,
        store.transaction(),
    ):
        pytest.fail("it must not begin")

    assert not caught.value.retriable


def test_sweeping_a_file_that_may_only_be_read_is_refused(path):
    store = SqliteStore(made(path))
    readable_only(path)

    with file_permissions_count(), pytest.raises(StoreUnavailable, match="may not be written"):
        store.apply(ops.Sweep(10))


def test_a_file_that_becomes_read_only_is_refused_as_one(path):
    store = SqliteStore(made(path))
    store.apply(ops.Tally())
    store._connect().db.execute("PRAGMA query_only = ON")

    with pytest.raises(StoreUnavailable, match="may not be written") as caught:
        store.apply(ops.Sweep(10))

    assert not caught.value.retriable
