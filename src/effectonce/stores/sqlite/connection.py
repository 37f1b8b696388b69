"""One SQLite file: its schema, its statements, and a connection with a place in the queue of
writers.

Processes queue on a lock file before they ask SQLite for its write lock: SQLite's own busy
handler sleeps with growing pauses, and the unluckiest of eight processes waits more than a
second. A wait is bounded by `busy_s`; past it, nothing was written and that is raised.

What can go wrong with a file is checked before it can cost an effect: a connection never crosses
a fork, and a database or a log of it that was deleted or replaced underneath is noticed before
the next write (records written to an unlinked file protect nothing).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from effectonce._core.ops import Cell, Complete, ListCells, ReadCell, Recorded, WriteCell
from effectonce._core.record import Record, Request
from effectonce._core.transitions import TransitionResult
from effectonce.errors import StoreUnavailable
from effectonce.stores import _rows
from effectonce.stores._clock_steps import ClockNote, Steadiness
from effectonce.stores.base import DUE_SHOWN, Finding, StoreUnusable, due_finding, size_finding
from effectonce.stores.sqlite import faults
from effectonce.stores.sqlite.statements import (
    BIRTH,
    BIRTH_SENT,
    CELL,
    DELETE,
    DUE,
    FINISH,
    FORGET_CELLS,
    KEEP_CELL,
    LAST_SENT,
    LIST_CELLS,
    LIST_CELLS_BACKWARDS,
    LOOK,
    REPLACE,
    SCHEMA,
    SCHEMA_VERSION,
    UPDATE,
    WRITE_CELL,
)

Isolation: TypeAlias = Literal["IMMEDIATE"] | None
POLL_S, POLL_MAX_S = 0.0002, 0.01  # how often a process looks whether it is its turn
EAGER_S = 0.05  # with a dozen processes, no turn comes later
LOOKS = 25  # after that, in the time that it has waited so far
STEADY = "clock/steady"  # a cell that is never forgotten
_MINE = fcntl.LOCK_EX | fcntl.LOCK_NB
PAGES_KIB = 64 << 10  # of the file that a connection keeps in memory, at most


LOW_B = 100_000_000
MOUNTS = Path("/proc/mounts")
_SYNCHRONOUS = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_OVER_A_NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "afs", "ceph", "glusterfs"}
)


def _filesystem(path: Path) -> str:
    """The type of the filesystem that a file is on."""
    try:
        mounts = [line.split() for line in MOUNTS.read_text().splitlines()]
    except OSError:
        return "unknown filesystem"
    return max(
        (len(at), kind)
        for _, at, kind, *_ in mounts
        if path.is_relative_to(at.replace("\\040", " "))
    )[1]


class SqliteConnection:
    """One SQLite connection and its place in the queue of writers."""

    def __init__(
        self,
        path: Path,
        busy_s: float,
        kind: type[sqlite3.Connection] = sqlite3.Connection,
        isolation: Isolation = None,
    ) -> None:
        self.path, self._busy_s = path, busy_s
        self.file = faults.found(path)
        self._name, self._queue, self.at_rest = str(path), -1, False
        self._passes_by = False  # the queue is held by one who does not write
        self._closed = faults.closed_to_writers(self.file)
        if self._closed is not None:
            self._open_to_read(self._closed)
            return
        faults.make_private(self.file)
        self.db = sqlite3.connect(
            self.file,
            timeout=busy_s,
            isolation_level=isolation,
            check_same_thread=False,
            factory=kind,
        )
        try:
            prepared = self._is_prepared()
            self._queue = faults.open_queue(self.file)
            # two processes must not create the schema at once
            if not prepared and not self._entered_queue(busy_s):
                raise self._locked()
            self._prepare()
            self._inodes = self._look_at_files()
            fcntl.flock(self._queue, fcntl.LOCK_UN)
        except BaseException:
            self.close()
            raise

    def _open_to_read(self, closed: StoreUnusable) -> None:
        """This user may only read: whatever writes is refused."""
        self.db, self.at_rest = faults.connect_to_read(self.file, self._busy_s)
        try:
            if not self._is_prepared() and self._version() < SCHEMA_VERSION:
                what = (
                    f"{self.path} has schema {self._version()} of an older release, and this one"
                    f" needs {SCHEMA_VERSION}"
                )
                raise StoreUnusable(
                    f"{what}. It cannot be upgraded: {closed}",
                    corrective_action=closed.corrective_action,
                )
            self._refuse_newer(self._version())
        except BaseException:
            self.close()
            raise

    def _version(self) -> int:
        return int(self.db.execute("PRAGMA user_version").fetchone()[0])

    def _is_prepared(self) -> bool:
        """Nothing to write? Then opening waits for no writer. Raises if the file is not for us."""
        version, journal = self._version(), self.db.execute("PRAGMA journal_mode").fetchone()[0]
        if version == SCHEMA_VERSION and journal == "wal":
            return True
        other = faults.whose(self.db, version)
        if other:
            raise faults.of_another_application(self.path, other)
        return False

    def _refuse_newer(self, version: int) -> None:
        if version > SCHEMA_VERSION:
            raise StoreUnusable(
                f"{self.path} was written by a newer release (schema {version}, this one knows"
                f" {SCHEMA_VERSION}). Nothing was sent.",
                corrective_action="Upgrade effectonce here.",
            )

    def _prepare(self) -> None:
        version = self._version()
        self._refuse_newer(version)
        # A call changes a little on each of seven pages: small ones halve what is logged and
        # synced. Only a new file listens.
        self.db.execute("PRAGMA page_size = 2048")
        journal = self.db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        # some filesystems cannot have one
        self._log = f"{self.file}-wal" if journal == "wal" else self._name
        # An acknowledged claim must survive a power cut: with NORMAL it does not, and the effect
        # would run twice.
        self.db.execute("PRAGMA synchronous = FULL")
        # on macOS a plain sync leaves it in the memory of the disk
        self.db.execute("PRAGMA fullfsync = ON")
        self.db.execute(f"PRAGMA cache_size = -{PAGES_KIB}")
        # A log has an index of its pages, in which those that every call writes stand in each
        # other's way: the longer it is, the slower.
        self.db.execute("PRAGMA wal_autocheckpoint = 1000")
        if version < SCHEMA_VERSION:
            sqlite3.Connection.executescript(
                self.db,
                f"BEGIN IMMEDIATE; {SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;",
            )

    def close(self) -> None:
        """Close, as often as you like. What is not committed is gone; the next writer may come."""
        sqlite3.Connection.close(self.db)
        self.leave_queue()

    def leave_queue(self) -> None:
        if self._queue >= 0:
            # first: a signal may strike before it is closed
            fcntl.flock(self._queue, fcntl.LOCK_UN)
            queue, self._queue = self._queue, -1
            os.close(queue)

    def check_file(self) -> None:
        """Are the file at this path and its log still those that are open?"""
        self._refuse_closed()
        try:
            same = self._look_at_files() == self._inodes
        except FileNotFoundError:
            same = False
        if not same:
            raise StoreUnusable(
                f"{self.path} or its -wal was deleted or replaced while it was open. Nothing was"
                " sent.",
                corrective_action=("Restore the file, or restart to begin with what is there now."),
            )

    def _look_at_files(self) -> tuple[int, int]:
        # twice as fast, and on the path of every call
        return os.stat(self._name).st_ino, os.stat(self._log).st_ino  # noqa: PTH116

    # ------------------------------------------------------------ reading

    def rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return self.db.execute(sql, parameters).fetchall()

    def records(self, sql: str, *parameters: Any) -> Iterator[Record]:
        return map(_rows.read, self.rows(sql, *parameters))

    def record(self, sql: str, *parameters: Any) -> Record | None:
        row = self.db.execute(sql, parameters).fetchone()
        return None if row is None else _rows.read(row)

    def due(self, now: float, limit: int) -> tuple[list[Record], list[str]]:
        return _rows.read_due(self.rows(DUE, now, limit))

    def look(self, request: Request, now: float) -> Recorded | tuple[Any, ...] | None:
        """The outcome that answers this request; None: no record; its row: it is not so simple."""
        row: tuple[Any, ...] | None = self.db.execute(
            LOOK, (request.fingerprint, now, now, now, request.key)
        ).fetchone()
        if row is None or not row[0]:
            return row
        _, state, outcome, age_s, remaining_s, settled_by = row
        return Recorded(_rows.STATES[state], outcome, age_s, remaining_s, settled_by)

    def cell(self, name: str, now: float) -> Cell:
        row = self.db.execute(CELL, (name, now)).fetchone()
        return Cell(now) if row is None else Cell(now, *row)

    def shared(self, op: ReadCell | ListCells, now: float) -> Cell | tuple[tuple[str, bytes], ...]:
        """What processes share, as it stands now."""
        if isinstance(op, ReadCell):
            return self.cell(op.name, now)
        sql = LIST_CELLS_BACKWARDS if op.backwards else LIST_CELLS
        return tuple((name, value) for name, value in self.rows(sql, *op.bounds, now, op.limit))

    def examine(self, now: float) -> tuple[Finding, ...]:
        """What safety and speed rest on."""
        self.begin()  # is it writable?
        self.roll_back()
        kind, free = _filesystem(self.file), shutil.disk_usage(self.file.parent).free
        forgets, shared = kind in _IN_MEMORY, kind in _OVER_A_NETWORK
        place = (
            "it is in memory: a reboot forgets it"
            if forgets
            else "WAL does not work over a network"
            if shared
            else ""
        )
        journal, synchronous = (
            self.rows(f"PRAGMA {name}")[0][0] for name in ("journal_mode", "synchronous")
        )
        found, unreadable = self.due(now, DUE_SHOWN)
        return (
            Finding("durability", f"journal {journal}, synchronous {_SYNCHRONOUS[synchronous]}"),
            Finding(
                "disk",
                f"{kind}, {place}" if place else kind,
                "Put the file on a local disk." if place else "",
                bad=shared,
            ),
            Finding(
                "space",
                f"{free / 1e6:,.0f} MB free",
                "Make room: a full disk refuses every call." * (free < LOW_B),
                bad=free < LOW_B,
            ),
            size_finding(
                sum(file.stat().st_size for file in self.file.parent.glob(f"{self.file.name}*")),
                "in its files",
            ),
            faults.access_finding(self.file),
            Finding("schema", f"version {SCHEMA_VERSION}"),
            Finding("clock", "this machine's own"),
            due_finding(len(found) + len(unreadable), unreadable),
        )

    # ------------------------------------------------------------ writing

    def bear(self, record: Record) -> bool:
        """Insert a new record, unless another caller was faster or its step is latched."""
        sent = _rows.first_send(record)
        sql, row = (
            (BIRTH, (*_rows.birth(record), *_rows.life(record)))
            if sent is None
            else (BIRTH_SENT, sent)
        )
        return self.db.execute(sql, row).rowcount == 1

    def finish(self, op: Complete, now: float) -> bool:
        """Complete the record that this owner has dispatched."""
        return (
            self.db.execute(
                FINISH,
                (bytearray(op.outcome), now, now, now, now, op.by, op.key, op.token, op.epoch),
            ).rowcount
            == 1
        )

    def put(self, key: str, step: TransitionResult) -> None:
        before, after = step.before, step.after
        if after is None:
            self.db.execute(DELETE, (key,))
        elif before is not None and after.request is before.request:
            self.db.execute(UPDATE, (*_rows.life(after), key))
        else:  # born, or reduced to a tombstone
            self.db.execute(REPLACE, (*_rows.birth(after), *_rows.life(after)))

    def write_cell(self, op: WriteCell, now: float) -> Cell | None:
        written = (
            self.db.execute(
                WRITE_CELL, (op.name, op.revision, op.value, now + op.keep_s, now)
            ).rowcount
            == 1
        )
        return None if written else self.cell(op.name, now)

    def steady(self, steadiness: Steadiness) -> ClockNote:
        """The clock note, put right if untrue. In a transaction: the next sender relies on it."""
        noted = self.noted()
        note = steadiness.look(noted, self.last_sent)
        if note is not noted:
            self.db.execute(KEEP_CELL, (STEADY, msgspec.json.encode(note)))
        return note

    def noted(self) -> ClockNote | None:
        stored = self.cell(STEADY, 0.0).value
        return msgspec.json.decode(stored, type=ClockNote) if stored else None

    def last_sent(self) -> float:
        """When the last of what has no outcome was first sent; 0: there is none."""
        return self.db.execute(LAST_SENT).fetchone()[0]  # type: ignore[no-any-return]

    def forget_cells(self, now: float, limit: int) -> int:
        return self.db.execute(FORGET_CELLS, (now, limit)).rowcount

    def _refuse_closed(self) -> None:
        if self._closed is not None:
            raise StoreUnusable(str(self._closed), corrective_action=self._closed.corrective_action)

    def take_turn(self) -> bool:
        """Our turn for a one-statement transaction? False: `begin`. `roll_back` ends either."""
        return self._closed is None and not self._passes_by and self._entered_queue(0.0)

    def begin(self) -> None:
        self._refuse_closed()
        try:
            if self._entered_queue(0.0 if self._passes_by else self._busy_s):
                self._passes_by = False
                self.db.execute("BEGIN IMMEDIATE")
            else:
                self._pass_by()
        except BaseException:  # also a signal that was raised after BEGIN had succeeded
            self.roll_back()
            raise

    def commit(self) -> None:
        self.db.execute("COMMIT")

    def roll_back(self) -> None:
        """Undo what is not committed, and let the next writer in."""
        try:
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")
        finally:
            if self._closed is None:
                fcntl.flock(self._queue, fcntl.LOCK_UN)

    def _entered_queue(self, patience_s: float) -> bool:
        """Wait for our turn. Who waits longer looks less often: many who wait would otherwise
        take the processor from the one that writes, above all on a busy machine.
        """
        since: float | None = None  # another one is in the way
        while True:
            try:
                fcntl.flock(self._queue, _MINE)
            except BlockingIOError:
                now = time.monotonic()
                since = now if since is None else since
                waited_s = now - since
                if waited_s >= patience_s:
                    return False
                time.sleep(POLL_S if waited_s < EAGER_S else min(waited_s / LOOKS, POLL_MAX_S))
            else:
                return True

    def _pass_by(self) -> None:
        """Begin without a turn: a process that may open the queue may hold it and never write.
        Only the lock of the file counts.

        Having waited for a turn, we wait no longer; having passed by before, we wait for that
        lock alone.
        """
        patience_s = self._busy_s if self._passes_by else 0.0
        self._passes_by = False
        self.db.execute(f"PRAGMA busy_timeout = {int(patience_s * 1000)}")
        try:
            self.db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            raise self._locked() from None
        finally:
            self.db.execute(f"PRAGMA busy_timeout = {int(self._busy_s * 1000)}")
        self._passes_by = True

    def _locked(self) -> StoreUnavailable:
        return StoreUnavailable(
            f"{self.path} has been locked by another writer for {self._busy_s:g} s. Nothing was"
            " sent."
        )
