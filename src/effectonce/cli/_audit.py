"""The audit of a guard, read and never written, and the file of its anchors."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from effectonce.cli._app import made_here
from effectonce.cli._console import say
from effectonce.cli._exits import FAILED, NOT_ALLOWED, Stop
from effectonce.cli._settings import setting
from effectonce.observe._hash_chain import Entry
from effectonce.observe.audit import Audit
from effectonce.views.audit import is_there

if TYPE_CHECKING:
    from effectonce import Guard

SEALED = "This audit is sealed, and there is no key here."
KEYS = "Give --app, or the keys (EFFECTONCE_KEYS, keys_file)."


def audit_of(guard: Guard) -> Audit:
    """One to read with. What a guard with a secret wrote is verified by your guard alone."""
    return Audit(guard.store, keyring=guard.keyring) if made_here(guard) else Audit(guard)


def say_if_left_out(guard: Guard) -> None:
    """A decision made through a store alone is not in its audit: that is your guard's to write."""
    if made_here(guard) and is_there(guard):
        say(
            "The audit has no entry of this: it is on the record alone. With --app, your guard"
            " writes it there as well."
        )


def entries(guard: Guard, *, limit: int | None, **wanted: Any) -> list[Entry]:
    """The newest that fit, oldest first. One that cannot be opened is no empty one."""
    if not is_there(guard):
        return []
    audit, tenant = audit_of(guard), setting("tenant")
    found = audit.entries(limit=None if tenant else limit, **wanted)
    if not found and not audit.entries(limit=1):
        raise Stop(SEALED, NOT_ALLOWED, KEYS)
    if tenant:
        found = [entry for entry in found if entry.tenant == tenant]
    return found if limit is None else found[-limit:]


# ---------------------------------------------------------------- anchors


def append_line(file: Path, line: str) -> None:
    """One line more, on the disk before this returns. Half a line that a crash left stays one."""
    try:
        opened = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o600)
        try:
            there = os.fstat(opened)
            if not stat.S_ISREG(there.st_mode):
                raise Stop(f"{file} is no ordinary file: nothing was written.", FAILED)
            torn = there.st_size > 0 and os.pread(opened, 1, there.st_size - 1) != b"\n"
            os.write(opened, b"\n" * torn + line.encode() + b"\n")
            os.fsync(opened)
        finally:
            os.close(opened)
    except OSError as error:
        raise Stop(f"{file} cannot be written: {error.strerror}.", FAILED) from None


def anchors_in(file: Path) -> list[str]:
    """The lines of a file of anchors. One without any would agree with every audit."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    except (OSError, UnicodeDecodeError) as error:
        raise Stop(f"{file} cannot be read: {error}.", FAILED) from None
    if not any(line.strip() for line in lines):
        raise Stop(f"{file} has no anchor: there is nothing to compare with.", FAILED)
    return lines
