"""What went wrong with a SQLite file, as an error of ours.

Some faults last: the next call would meet them again, so it is not made. Each of them has words
of its own: what is wrong with which path, and what to do. A file that this user may only read is
not at fault as long as nothing is written.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sqlite3
import stat
from pathlib import Path

from effectonce.errors import StoreUnavailable
from effectonce.stores import _rows
from effectonce.stores.base import Finding, StoreUnusable, TooLarge

_CLOSED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_OURS = {
    "effects": frozenset(_rows.COLUMNS),
    "cells": frozenset({"name", "value", "revision", "forget_at"}),
}
_NOT_OURS = re.compile(r"no such table: (effects|cells)|no such column|has no column named")
_BESIDE = ("-queue", "-wal", "-shm")  # what is kept beside the file while it is used
TOO_LARGE = (sqlite3.DataError, OverflowError)  # more than SQLite, or the C below it, can count
NEW_FILE = (
    "Give the path of a new file, which is made by the first call, or of one that effectonce has"
    " made."
)
OWN_FILE = "Give effectonce a file of its own, such as sqlite:///effects.db."


def found(path: Path) -> Path:
    """The file of this name: SQLite's log and our queue are beside the file, not beside a link."""
    file = path.resolve()
    if path.is_symlink() and not file.exists():
        raise StoreUnusable(
            f"{path} is a link to {file}, which is not there. Nothing was sent.",
            corrective_action="Put the file back, or remove the link to begin a new one.",
        )
    if not file.parent.is_dir():
        raise StoreUnusable(
            f"{path}: there is no folder {file.parent}. Nothing was sent.",
            corrective_action=(
                f"Make it (mkdir -p {file.parent}), or give the path of another file."
            ),
        )
    if file.is_dir():
        action = f"Name a file in it, such as {file / 'effects.db'}."
        raise StoreUnusable(
            f"{path} is a folder, not a file. Nothing was sent.", corrective_action=action
        )
    names = file.stat().st_nlink if file.is_file() else 1
    if names > 1:
        raise StoreUnusable(
            f"{path} has {names} names (hard links). SQLite keeps a log for each, so what is"
            " written by one is not seen by another. Nothing was sent.",
            corrective_action="Remove the other names; symbolic links are fine.",
        )
    return file


# ---------------------------------------------------------------- permissions


def closed_to_writers(file: Path) -> StoreUnusable | None:
    """Why this user may not write to this file; None: it may. Raises if it may not be read."""
    there, folder = file.exists(), file.parent
    if not there and not _may(folder, os.W_OK):
        raise _closed(
            f"there is no file {file}, and the folder {folder} may not be written by this user",
            folder,
        )
    if there and not _may(file, os.R_OK):
        raise _closed(f"{file} may not be read by this user", file)
    if there and not _may(file, os.W_OK):
        return _closed(f"{file} may not be written by this user, only read", file)
    if _may(folder, os.W_OK) or all(_may(Path(f"{file}{end}"), os.W_OK) for end in _BESIDE):
        return None
    return _closed(
        f"{file} needs a log beside it, and the folder {folder} may not be written by this user",
        folder,
    )


def _may(path: Path, mode: int) -> bool:
    """Asked without opening it: closing a file again would drop the locks SQLite has on it."""
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def _closed(what: str, path: Path) -> StoreUnusable:
    return StoreUnusable(
        f"{what} (user id {os.geteuid()}; it belongs to {path.stat().st_uid}). Nothing was sent.",
        corrective_action=(
            f"Run this as the user who owns {path}, or give this user the right to write there."
        ),
    )


def make_private(file: Path) -> None:
    """Make a new file that its owner alone may use, or the group with which the owner shares the
    folder. SQLite gives its log the same mode.

    Not by opening it, if that can be helped: to close a file again would drop the locks that
    SQLite has on it meanwhile.
    """
    if file.exists():
        return  # its owner decides
    try:
        with contextlib.suppress(FileExistsError):  # another process was faster
            os.mknod(file, 0o600)
    except PermissionError:  # macOS wants root for that
        file.touch(0o600)
    shared = stat.S_ISGID | stat.S_IWGRP
    if file.parent.stat().st_mode & shared == shared:
        file.chmod(0o660)


def open_queue(file: Path) -> int:
    """Open the writers' queue file: those who may write to the database may, and no others."""
    queue = os.open(f"{file}-queue", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    writers = file.stat().st_mode & 0o222
    with contextlib.suppress(PermissionError):  # its owner does it
        os.fchmod(queue, writers | writers << 1)
    return queue


def access_finding(file: Path) -> Finding:
    """Who may use it."""
    mode = stat.S_IMODE(file.stat().st_mode)
    others = mode & 0o007
    return Finding(
        "access",
        f"mode {mode:o}"
        + ": every user of this machine may read what is not sealed, and stop its writers"
        * bool(others),
        f"chmod {mode & 0o770:o} {file}*" * bool(others),
    )


def connect_to_read(file: Path, busy_s: float) -> tuple[sqlite3.Connection, bool]:
    """A connection that only reads, and whether the file was at rest: then it shows the file as
    it was, and nothing that came later.

    SQLite reads the log of a file that is in use. Without a log it would make one, unless it is
    promised that the file stays as it is.
    """
    log = Path(f"{file}-wal")
    at_rest = not log.exists() or log.stat().st_size == 0
    db = sqlite3.connect(
        f"{file.as_uri()}?mode=ro{'&immutable=1' * at_rest}",
        timeout=busy_s,
        uri=True,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        db.execute("SELECT count(*) FROM sqlite_master")
    except sqlite3.Error as error:
        db.close()
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_CANTOPEN:
            raise _closed(
                f"{file} is in use, and its log {log} may not be read by this user", log
            ) from None
        raise
    return db, at_rest


# ---------------------------------------------------------------- what is in the file


def whose(db: sqlite3.Connection, version: int) -> str:
    """What shows that another application owns this database; "" if ours, or nothing in the way."""
    tables = {
        table: {row[1] for row in db.execute(f"PRAGMA table_info({table})")} for table in _OURS
    }
    for table, columns in tables.items():
        if columns and not columns >= _OURS[table]:
            return f"its table {table} has other columns"
    return f"its user_version is {version}" if version and not tables["effects"] else ""


def of_another_application(path: Path, why: str) -> StoreUnusable:
    return StoreUnusable(
        f"{path} belongs to another application: {why}. Nothing was sent.",
        corrective_action=OWN_FILE,
    )


def unavailable(path: Path, error: BaseException) -> StoreUnavailable:
    """The error raised to the caller. Its cause is *error*, unless the message says all of that."""
    if isinstance(error, TOO_LARGE):
        return TooLarge(
            f"{path}: SQLite refuses a value for its size ({error}). Nothing of it was written."
        )
    if isinstance(error, StoreUnavailable):  # as another caller found who wrote for this one
        same = type(error)(str(error), corrective_action=error.corrective_action)
        same.__cause__ = error.__cause__
        return same
    fault = _lasting(path, error)
    if fault is None:
        fault = StoreUnavailable(f"{path}: {error}. Nothing was sent.")
        fault.__cause__ = error
    return fault


def _lasting(path: Path, error: BaseException) -> StoreUnavailable | None:
    """What SQLite, or the system, says about this file, if it will say the same next time."""
    if isinstance(error, OSError) and error.errno in _CLOSED:
        return StoreUnusable(
            f"{path} may not be used by this user (user id {os.geteuid()}): {error}. Nothing was"
            " sent.",
            corrective_action=f"Give this user the right to read and write {path} and its folder.",
        )
    match getattr(error, "sqlite_errorcode", 0) & 0xFF:
        case sqlite3.SQLITE_NOTADB:
            return StoreUnusable(
                f"{path} is not a SQLite database. Nothing was sent.", corrective_action=NEW_FILE
            )
        case sqlite3.SQLITE_CORRUPT:
            return StoreUnusable(
                f"{path} is damaged ({error}). Nothing was sent.",
                corrective_action=(
                    "Restore it from a backup. What was done since that was made is not in it: look"
                    " downstream first."
                ),
            )
        case sqlite3.SQLITE_READONLY:
            return StoreUnusable(
                f"{path} may not be written by this user ({error}). Nothing was sent.",
                corrective_action=f"Give this user the right to write {path} and its folder.",
            )
        case sqlite3.SQLITE_ERROR if _NOT_OURS.search(str(error)):
            return of_another_application(path, str(error))
        case _:
            return None
