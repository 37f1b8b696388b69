"""What happened while the store could not be reached: kept in a folder of this machine, and
written when the store is back.

An entry is one write with its token and epoch, in a file of its own, on the disk before the
caller is answered. Settling repeats that write: if the record still waits for it, it is
completed; if it was decided elsewhere meanwhile, what we know is added as evidence. Either way
nothing is run again. Writes may be repeated, so several processes may settle one folder. An
entry that the store refuses again and again holds up no other: each round begins behind the one
at which the last round failed.

What is read here is believed, so the folder and its files have to be this user's own, and no
links; with a secret, each entry is signed.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import stat
import threading
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from effectonce._core.backoff import full_jitter
from effectonce._core.codec import excuse
from effectonce._core.effect_ref import reference_of
from effectonce._core.keys import derive
from effectonce._core.ops import Applied, Attest, Complete, Fail
from effectonce._forks import anew_in_a_fork
from effectonce._log import LOG
from effectonce._random import rng
from effectonce.errors import StoreUnavailable
from effectonce.stores.base import Finding, Store, TooLarge
from effectonce.stores.keyring import Keyring, NotOpened

FIRST_S, MAX_S = 1.0, 60.0  # how long to wait for the store between two rounds
_KEPT = "kept while the store could not be reached"
# What no round can write, by the name that its file is given.
LEFT = {
    ".toolarge": "are recorded without their results, which are too large for it",
    ".unknown": "are of effects that it does not know",
    ".unreadable": "cannot be read",
}


class SpooledWrite(Struct, frozen=True, tag_field="version", tag=1):
    """One write as a file."""

    write: str
    key: str
    token: str
    epoch: int
    outcome: bytes
    by: str = ""
    signature: str = ""  # with a secret

    def signed(self, secret: bytes) -> SpooledWrite:
        parts = ("spool", self.write, self.key, self.token, self.epoch, self.outcome, self.by)
        return msgspec.structs.replace(
            self, signature=derive(*parts, secret=secret) if secret else ""
        )

    @classmethod
    def of(cls, op: Complete | Fail) -> SpooledWrite:
        by = op.by if isinstance(op, Complete) else ""
        return cls(type(op).__name__, op.key, op.token, op.epoch, op.outcome, by)

    def op(self) -> Complete | Fail:
        if self.write == "Fail":
            return Fail(self.key, self.token, self.epoch, self.outcome)
        return Complete(self.key, self.token, self.epoch, self.outcome, self.by)


class Settled(Struct, frozen=True):
    """What a round came to."""

    written: int  # the store has them now, as outcomes
    attested: int  # decided elsewhere before: added as evidence
    left: int


class Spool:
    """A folder of writes that could not be written to one store."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        store: Store,
        keyring: Keyring | None = None,
        secret: bytes = b"",
    ) -> None:
        self.folder, self._store, self._keyring, self._secret = Path(folder), store, keyring, secret
        self.after_fork()
        anew_in_a_fork(self)
        self._failed_at = Path()  # where the last round ended early
        self._reported: set[Path] = set()  # entries that cannot be opened here, or not now
        if self.distrusted():
            LOG.warning(
                "outcomes that cannot be written to the store will be lost: %s", self.distrusted()
            )
        if self.waiting():
            self._settle_in_the_background()  # an earlier process left them

    def distrusted(self) -> str:
        """Why nothing is read from this folder or put into it; "" if it is used."""
        try:
            found = self.folder.lstat()
        except OSError:
            above = [folder for folder in self.folder.absolute().parents if folder.exists()]
        else:
            if not stat.S_ISDIR(found.st_mode):
                return f"{self.folder} is not a folder, but a link or a file"
            if found.st_uid != os.geteuid():
                return f"{self.folder} belongs to another user (id {found.st_uid})"
            if found.st_mode & 0o022:
                mode = f"{stat.S_IMODE(found.st_mode):o}"
                return f"{self.folder} may be written by other users (mode {mode})"
            above = list(self.folder.absolute().parents)
        for folder in above[:-1]:
            owner = folder.stat().st_uid
            if owner not in (0, os.geteuid()):
                return f"{self.folder} is in a folder of another user, {folder} (id {owner})"
        return ""

    def after_fork(self) -> None:
        """A child starts a thread of its own, when it has something to keep."""
        self._thread: threading.Thread | None = None
        self._lock = threading.RLock()

    def waiting(self) -> int:
        """How many writes the store does not have yet."""
        return len(self._files())

    def _files(self) -> list[Path]:
        if self.distrusted():
            return []
        try:
            return sorted(
                Path(entry) for entry in os.scandir(self.folder) if entry.name.endswith(".json")
            )
        except OSError:  # it is not there, or not ours: nothing of ours is in it
            return []

    def keep(self, op: Complete | Fail) -> None:
        """Write it to local disk. If even that fails, say so: only the caller's answer is left."""
        # Not the key, which errors and logs would quote; and not the token, with which another
        # user could write in its place.
        reference = reference_of(op.key)
        name = f"{reference}-{derive('spool', op.token, op.epoch)[:16]}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if self.distrusted():
                raise PermissionError(self.distrusted())
            with open(self.folder / f"{name}.part", "wb", opener=_only_ours) as file:
                entry = self._sealed(SpooledWrite.of(op)).signed(self._secret)
                file.write(msgspec.json.encode(entry))
                file.flush()
                os.fsync(file.fileno())
            (self.folder / f"{name}.part").rename(self.folder / f"{name}.json")
            _sync_folder(self.folder)
        except OSError:
            lost = "the outcome of %s could be written neither to the store nor to %s"
            LOG.exception(lost, reference, self.folder)
            return
        LOG.warning(
            "the outcome of %s could not be written to the store; it is kept in %s until it can",
            reference,
            self.folder,
        )
        self._drop_older(op, name)
        self._settle_in_the_background()

    def _drop_older(self, op: Complete | Fail, name: str) -> None:
        """A later call of this effect ended the same: keep one file, that of the current owner."""
        for file in self._files():
            if file.stem != name and file.name.startswith(f"{reference_of(op.key)}-"):
                older = self._read(file)
                if type(older) is type(op) and (older.key, older.outcome) == (op.key, op.outcome):
                    file.unlink(missing_ok=True)

    def settle(self) -> Settled:
        """Give the store what is kept. Raises `StoreUnavailable` if out of reach; none is lost."""
        written = attested = 0
        for file in sorted(self._files(), key=lambda file: (file <= self._failed_at, file)):
            op = self._read(file)
            if op is None:
                continue
            self._failed_at = file  # unless it goes well
            too_large = ""
            try:
                reply = self._store.apply(op)
            except TooLarge as error:
                too_large = str(error)
                op = msgspec.structs.replace(
                    op, outcome=excuse(f"it is too large for the store: {error}")
                )
                reply = self._store.apply(op)
            if isinstance(reply, Applied):
                written += 1
            elif self._store.apply(Attest(op.key, _KEPT, op.outcome)) is not None:
                attested += 1
            else:
                LOG.error(
                    "the store knows nothing of %s, whose outcome is left to you in %s as .unknown",
                    reference_of(op.key),
                    self.folder,
                )
                _leave(file, ".unknown")
                continue
            if too_large:
                self._leave_result(op, file, too_large)
            file.unlink(missing_ok=True)
        self._failed_at = Path()
        return Settled(written, attested, self.waiting())

    def _leave_result(self, op: Complete | Fail, file: Path, why: str) -> None:
        """That it happened is recorded, without its result: that would be refused each time."""
        about = (reference_of(op.key), file.with_suffix(".toolarge"), why)
        LOG.error(
            "the outcome of %s is too large for the store, and is left to you as %s: %s", *about
        )
        _leave(file, ".toolarge")

    def finding(self) -> Finding:
        """What waits here, and what is left to a person."""
        if self.distrusted():
            advice = (
                "Give it to this user alone (chown, chmod 700), or name another folder:"
                " Guard(spool=...), EFFECTONCE_SPOOL."
            )
            return Finding("spool", f"not used: {self.distrusted()}", advice, bad=True)
        waiting = self.waiting()
        left = {suffix: len(list(self.folder.glob(f"*{suffix}"))) for suffix in LEFT}
        found = f"{waiting:,} outcomes wait for the store" + "".join(
            f"; {count:,} {LEFT[suffix]} ({suffix})" for suffix, count in left.items() if count
        )
        advice = "They are written as soon as it answers." * (waiting > 0)
        if any(left.values()):
            advice = f"{advice} Look at what is left in {self.folder}, then remove it.".strip()
        return Finding("spool", found, advice)

    def _read(self, file: Path) -> Complete | Fail | None:
        try:
            return self._opened(msgspec.json.decode(_read_ours(file), type=SpooledWrite)).op()
        except FileNotFoundError:
            return None  # another process was faster
        except (OSError, NotOpened) as error:
            # later, or by a process that may read it and has the key
            if file not in self._reported:
                self._reported.add(file)
                LOG.warning(
                    "an outcome in %s waits for a process that can open it: %s", self.folder, error
                )
            return None
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            # half a character, or a depth, that we never write
            LOG.exception("%s cannot be read, and is left to you as .unreadable", file)
            _leave(file, ".unreadable")
            return None

    def _sealed(self, entry: SpooledWrite) -> SpooledWrite:
        """A disk of ours is no place for what the store may not read either."""
        if self._keyring is None:
            return entry
        return msgspec.structs.replace(
            entry, outcome=self._keyring.seal(entry.outcome, entry.key, "outcome")
        )

    def _opened(self, entry: SpooledWrite) -> SpooledWrite:
        right = entry.signed(self._secret).signature.encode()
        if self._secret and not hmac.compare_digest(entry.signature.encode(), right):
            raise NotOpened("it is not signed with the secret of this guard")
        if self._keyring is None:
            return entry
        return msgspec.structs.replace(
            entry, outcome=self._keyring.open(entry.outcome, entry.key, "outcome")
        )

    def _settle_in_the_background(self) -> None:
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                thread = threading.Thread(target=self._live, name="effectonce-spool", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    # no room for a thread, or the interpreter ends: what is kept waits for the
                    # next process
                    LOG.warning("what is kept in %s is not settled now: %s", self.folder, error)
                    return
                self._thread = thread

    def _live(self) -> None:
        pause, rounds = threading.Event(), 0
        while self.waiting():
            try:
                if self.settle().left == 0:
                    return
            except StoreUnavailable as error:
                LOG.debug("what is kept in %s waits: %s", self.folder, error)
            except Exception:
                # whatever a store makes of one entry, the others wait for this thread
                LOG.exception(
                    "an outcome in %s could not be settled; the next round still comes", self.folder
                )
            rounds += 1
            pause.wait(full_jitter(rounds, FIRST_S, MAX_S, rng))


def _leave(file: Path, suffix: str) -> None:
    """To a person: no round reads it again."""
    with contextlib.suppress(OSError):  # another process was faster
        file.rename(file.with_suffix(suffix))


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _only_ours(path: str, flags: int) -> int:
    """It holds a result: in whatever folder it lies, no other user reads it."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _read_ours(path: Path) -> bytes:
    with open(path, "rb", opener=_as_it_is) as file:
        found = os.fstat(file.fileno())
        if found.st_uid != os.geteuid() or not stat.S_ISREG(found.st_mode):
            raise PermissionError(f"{path.name} is no file of this user")
        return file.read()


def _as_it_is(path: str, flags: int) -> int:
    """No link is followed, and a pipe is not waited for."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


_NAMES_A_STORE = frozenset({"host", "hostaddr", "port", "dbname", "service", "db", "prefix"})


def default_folder(url: str, environ: Mapping[str, str]) -> Path | None:
    """One folder for each store, among the user's state, if this user has a home; no other
    folder would be his alone.

    Who connects and how does not matter: a new password is the same store.
    """
    scheme, _, rest = url.partition("://")
    place, _, query = rest.rpartition("@")[2].partition("?")
    if scheme == "sqlite":
        # the same relative path is another file in another folder
        place = os.path.abspath(place[1:])  # noqa: PTH100
    named = sorted(pair for pair in query.split("&") if pair.partition("=")[0] in _NAMES_A_STORE)
    store = derive("spool", scheme, place, *named)[:16]
    if chosen := environ.get("EFFECTONCE_SPOOL"):
        return Path(chosen) / store
    if state := environ.get("XDG_STATE_HOME"):
        return Path(state) / "effectonce" / "spool" / store
    home = environ.get("HOME")
    return Path(home) / ".local" / "state" / "effectonce" / "spool" / store if home else None
