"""The audit: what happened to every effect and who decided it, append-only, in the guard's own
store. The form of it is in `_hash_chain.py`.

Calls only put entries aside; a thread writes them, many at once. What a person decides is
written before the answer is shown. A full buffer is written by the call that fills it, so
nothing is dropped while the store answers; while it does not, entries wait, and should even that
be too many, how many were lost is written down.
"""

from __future__ import annotations

import atexit
import math
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec

from effectonce._core.guarantees import DAY_S
from effectonce._core.ops import ListCells, ReadCell, Together, WriteCell
from effectonce._log import LOG
from effectonce._validate import seconds
from effectonce.effect import running
from effectonce.errors import ContractViolation, StoreUnavailable
from effectonce.observe._anchor import anchor_line, notes_of
from effectonce.observe._hash_chain import (
    BATCHES,
    HEADS,
    KEYED,
    START,
    Entry,
    EntryBatch,
    Head,
    Marks,
    entry_of,
    read_batch,
    read_head,
)
from effectonce.observe._symptoms import Symptom, symptoms
from effectonce.observe._verification import AuditNote, Examination, Verified
from effectonce.observe.events import EVENTS, Event
from effectonce.stores.base import Store
from effectonce.stores.keyring import Keyring, NotOpened

R = TypeVar("R")
NOT_AUDITED = frozenset({"calling", "attempting", "store", "call"})
# these calls are reported by no other event
REPORTED_BY_CALL = frozenset({"refused", "gave_up", "cancelled"})
OPENED, CLOSED, LOST, HEAD = "opened", "closed", "lost", "head"
NOTED_MAX = 256  # heads that a new stream notes, the newest first
PAGE = 32
WAITING_MAX = 65_536  # entries that wait for a store that does not answer


class Audit:
    """An observer that writes everything down: `guard.observe(Audit(guard))`.

    It is kept in the guard's store, under its secret and its keyring, for *keep*. `entries()`
    reads it, `verify()` finds what was changed or removed, and `scan()` looks for calls that
    should have been one. A store of your own may be given instead of a guard, with *secret* and
    *keyring*. *flush_s* is how long an entry may wait, *buffer* how many may.
    """

    events = frozenset(EVENTS) - (NOT_AUDITED - {"call"})
    digests = True

    def __init__(
        self,
        home: Any,
        *,
        keep: float | timedelta = 400 * DAY_S,
        flush_s: float = 1.0,
        batch: int = 256,
        buffer: int = 4096,
        secret: bytes = b"",
        keyring: Keyring | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        house = getattr(home, "_house", None)  # of a guard
        self._store: Store = home if house is None else home.store
        if not callable(getattr(self._store, "apply", None)):
            raise ContractViolation(f"{home!r} can keep no audit: give a guard, or a store")
        self._keyring = keyring if house is None else home.keyring
        self._marks = Marks(secret if house is None else house.secret)
        self._keep_s, self._flush_s = seconds(keep, "keep"), flush_s
        self._batch, self._buffer = batch, buffer
        if not (self._keep_s > 0 and flush_s > 0 and 0 < batch <= buffer <= WAITING_MAX):
            raise ContractViolation(
                f"keep={keep}, flush_s={flush_s}, batch={batch}, buffer={buffer}: an audit keeps"
                " something"
            )
        self._clock = clock
        self._start()
        _AUDITS.add(self)

    def _start(self) -> None:
        """Everything that must not cross a fork, and nothing that outlives a stream."""
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._waiting: deque[dict[str, Any]] = deque()
        self._lost = 0
        self._away = False  # the store did not answer to the last flush
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._begin()

    def _own(self) -> None:
        """After a fork: stream and buffer are the parent's; a thread not here may hold the lock."""
        if self._pid != os.getpid():
            self._start()

    def _begin(self) -> None:
        self._began = self._clock()
        began_ms, end = int(self._began * 1000), KEYED * self._marks.keyed
        self.stream = f"{began_ms:012x}-{os.urandom(6).hex()}{end}"
        self._number, self._last, self._mark, self._at = 0, 0, START, 0.0
        self._head = 0  # the revision that it stands at
        self._unwritten: EntryBatch | None = None  # whether the store has it is not known

    # ------------------------------------------------------------ writing

    def __call__(self, event: Event) -> None:
        """Put it aside; at once to the store, if a person has decided something."""
        if event.name == "call" and event.outcome not in REPORTED_BY_CALL:
            return
        self._own()
        if len(self._waiting) >= WAITING_MAX:
            self._lost += 1
            return
        self._waiting.append(entry_of(event))
        decided = event.by not in ("", "probe")
        # the thread asks again, and no call waits for that
        full = len(self._waiting) >= self._buffer and not self._away
        if (decided or full) and not _in_transaction():
            self.flush()
        elif self._thread is None:
            self._hire()

    def _hire(self) -> None:
        with self._lock:
            if self._thread is None:
                self._stopped = threading.Event()  # the one before may still have to be noticed
                args = (weakref.ref(self), self._stopped, self._flush_s)
                self._thread = threading.Thread(
                    target=_live, args=args, name="effectonce-audit", daemon=True
                )
                self._thread.start()

    def flush(self) -> bool:
        """Write everything that waits. False: the store did not answer, and it goes on waiting."""
        self._own()
        with self._lock:
            try:
                while self._waiting or self._unwritten is not None or self._lost:
                    self._write(closed=False)
            except StoreUnavailable:
                self._away = True
                return False
            self._away = False
        return True

    def close(self) -> None:
        """Write what waits, and say that this stream ends here. A later event begins another."""
        self._own()
        self._stopped.set()
        with self._lock:
            self._thread = None
            if not (self.flush() and self._number):
                return
            try:
                self._waiting.append({"event": CLOSED, "at": self._clock()})
                self._write(closed=True)
                self._begin()
            except StoreUnavailable:
                return

    def head(self) -> str:
        """Note how far every stream has come, and get a line to keep elsewhere:
        `verify(expect=...)` finds whether it still holds.
        """
        self._own()
        with self._lock:
            heads = self._heads_there(limit=None)
            self._waiting.append({"event": HEAD, "at": self._clock(), "heads": heads})
            while self._waiting or self._unwritten is not None:
                self._write(closed=False)
            return f"{self.stream}:{self._last}:{self._mark.hex()}"

    def anchor(self) -> str:
        """How far every stream has come, as a line of JSON to keep elsewhere:
        `verify(anchors=[line])` finds what was rewritten or cut since.

        Nothing is written, and no secret is needed: it can be made by any process that may read
        the store.
        """
        self.flush()
        heads = self._heads(None)
        unreadable = [stream for stream, head in heads.items() if head is None]
        if unreadable:
            raise ContractViolation(
                f"there is no anchor: the heads of {len(unreadable)} streams cannot be read, such"
                f" as {unreadable[0]}. They were changed, or they are not sealed, or sealed with a"
                " key that this process does not have"
            )
        return anchor_line((head for head in heads.values() if head is not None), self._clock())

    def _write(self, *, closed: bool) -> None:
        """One batch and how far that comes, in one round trip. The lock is held."""
        batch = self._unwritten or self._next(closed=closed)
        name, head_name = f"{BATCHES}{self.stream}/{batch.number:08d}", HEADS + self.stream
        head = Head(
            self.stream, batch.number, batch.last, batch.mark, batch.at, self._keep_s, batch.closed
        )
        value = self._sealed(self._marks.batch(batch), name)
        head_value = self._sealed(self._marks.head(head), head_name)
        self._unwritten = batch
        writes = (
            self._cell(name, 0, value),
            self._cell(head_name, self._head, head_value),
            ReadCell(head_name),
        )
        stands, _, now = self._store.apply(Together(writes))
        self._unwritten, self._head = None, now.revision
        # it stood at another revision: an acknowledgement was lost, or it is not ours alone
        if now.value != head_value:
            self._store.apply(self._cell(head_name, now.revision, head_value))
        if stands is None or stands.value == value:
            self._number, self._last = batch.number + 1, batch.last
            self._mark, self._at = batch.mark, batch.at
        else:  # another process writes under our name: this stream is not ours any more
            ours = [entry for entry in batch.entries() if entry.event != OPENED]
            self._waiting.extendleft(_content_of(entry) for entry in reversed(ours))
            self._begin()

    def _cell(self, name: str, revision: int, value: bytes) -> WriteCell:
        return WriteCell(name, revision, value, self._keep_s, listed=True)

    def _next(self, *, closed: bool) -> EntryBatch:
        data: list[dict[str, Any]] = []
        if self._number == 0:
            heads = self._heads_there(limit=NOTED_MAX)
            data.append({"event": OPENED, "at": self._began, "heads": heads})
        if self._lost:
            data.append({"event": LOST, "at": self._clock(), "count": self._lost})
        while self._waiting and len(data) < self._batch:
            data.append(self._waiting.popleft())
        self._lost = 0
        first = self._last + 1
        entries = (Entry(number=n, **entry) for n, entry in enumerate(data, first))
        lines, now, at = self._marks.lines(self._mark, entries), self._clock(), self._at
        return EntryBatch(
            1, self.stream, self._number, first, self._mark, now, at, self._keep_s, closed, lines
        )

    def _heads_there(self, limit: int | None) -> dict[str, tuple[int, bytes, float]]:
        newest = sorted(
            self._heads(limit).values(), key=lambda head: "" if head is None else head.stream
        )
        return {
            h.stream: (h.last, h.mark, h.at)
            for h in newest
            if h is not None and self._marks.head_fits(h)
        }

    # ------------------------------------------------------------ reading

    def entries(
        self,
        *,
        effect: str | None = None,
        since: float | datetime | None = None,
        event: str | None = None,
        actor: str | None = None,
        tool: str | None = None,
        limit: int | None = 100,
    ) -> list[Entry]:
        """The newest *limit* entries that fit, oldest first. *effect* is a reference (`eff_…`)
        or a key, *actor* who decided.

        What waits in this process is written first. Streams that ended before *since* are passed
        over; all others are read.
        """
        self.flush()
        at = since.timestamp() if isinstance(since, datetime) else since
        reference = effect if effect is None or effect.startswith("eff_") else f"eff_{effect[-12:]}"
        wanted = {"effect": reference, "event": event, "by": actor, "tool": tool}
        asked = {name: value for name, value in wanted.items() if value is not None}
        found = [
            entry
            for entry in self._all(at)
            if (at is None or entry.at >= at)
            and all(getattr(entry, name) == value for name, value in asked.items())
        ]
        found.sort(key=lambda entry: (entry.at, entry.stream, entry.number))
        return found if limit is None else found[-limit:]

    def scan(
        self,
        *,
        within_s: float = 10.0,
        deploy_s: float = 120.0,
        since: float | datetime | None = None,
    ) -> list[Symptom]:
        """Calls that were probably one and had two keys: same tool, same arguments, *within_s*
        seconds; or after a deploy, *deploy_s*.
        """
        return symptoms(self.entries(event="reserved", since=since, limit=None), within_s, deploy_s)

    def verify(self, *, expect: str | None = None, anchors: Iterable[str] = ()) -> Verified:
        """Look at everything. *expect* is what `head()` returned at some time, *anchors* what
        `anchor()` did. Nothing is written.
        """
        notes = [*([] if expect is None else [_expected(expect)]), *notes_of(anchors)]
        examination = Examination(self._marks, self._clock())
        for batch in self._batches():
            examination.look(*batch)
        heads, last = self._heads(None), examination.last
        # Others go on writing while we read. What they say, here or of each other, that they had
        # written by then is read as well; only then how far they have come meanwhile.
        for stream, head in heads.items():
            if head is not None and head.batch > last.get(stream, -1):
                self._look_on(examination, stream)
        for stream in examination.behind():
            self._look_on(examination, stream)
        newer: dict[str, Head | None] = {}
        for stream, number in last.items():
            head = heads.get(stream)
            if head is None or head.batch < number:
                newer |= self._heads_of(stream)
        return examination.end(heads, newer, notes)

    def _look_on(self, examination: Examination, stream: str) -> None:
        """What a stream has beyond the last batch that was looked at."""
        after = f"{BATCHES}{stream}/{examination.last.get(stream, -1):08d}"
        for batch in self._batches(f"{BATCHES}{stream}/", after):
            examination.look(*batch)

    def _all(self, since: float | None) -> Iterator[Entry]:
        over = {
            s
            for s, head in self._heads(None).items()
            if since is not None and head is not None and head.at < since
        }
        for stream, _, batch in self._batches(over=over):
            for entry in [] if batch is None else batch.entries():
                yield msgspec.structs.replace(entry, stream=stream)

    def _batches(
        self, prefix: str = BATCHES, after: str = "", over: set[str] | frozenset[str] = frozenset()
    ) -> Iterator[tuple[str, int, EntryBatch | None]]:
        while page := self._store.apply(ListCells(prefix, after, PAGE)):
            for name, value in page:
                stream, _, number = name.removeprefix(BATCHES).rpartition("/")
                after = name
                if stream in over:
                    after = f"{BATCHES}{stream}/~"  # behind all numbers
                    break
                batch = self._opened(value, name, read_batch)
                yield stream, int(number) if number.isdigit() else -1, batch

    def _heads(self, limit: int | None) -> dict[str, Head | None]:
        found, after = dict[str, Head | None](), ""
        while page := self._store.apply(ListCells(HEADS, after, limit or 1000, backwards=True)):
            for name, value in page:
                found[name.removeprefix(HEADS)] = self._opened(value, name, read_head)
            after = page[-1][0]
            if limit is not None:
                break
        return found

    def _heads_of(self, stream: str) -> dict[str, Head | None]:
        """The head of one stream, as it is now."""
        cell = self._store.apply(ReadCell(HEADS + stream))
        if not cell.revision:
            return {}
        return {stream: self._opened(cell.value, HEADS + stream, read_head)}

    def _sealed(self, data: bytes, name: str) -> bytes:
        return data if self._keyring is None else self._keyring.seal(data, name, "audit")

    def _opened(self, data: bytes, name: str, read: Callable[[bytes], R | None]) -> R | None:
        try:
            return read(data if self._keyring is None else self._keyring.open(data, name, "audit"))
        except NotOpened:
            return None


def _in_transaction() -> bool:
    """Inside a tool's transaction of the store a write would wait for that one to end."""
    effect = running.get()
    return effect is not None and effect.lent is not None


def _content_of(entry: Entry) -> dict[str, Any]:
    """All that an entry says, but for where it stands."""
    said = msgspec.structs.asdict(entry)
    del said["number"], said["stream"]
    return said


def _expected(line: str) -> AuditNote:
    stream, _, rest = line.strip().partition(":")
    number, _, mark = rest.partition(":")
    try:
        return AuditNote(stream, int(number), bytes.fromhex(mark), math.inf, "it is expected")
    except ValueError:
        raise ContractViolation(f"expect={line!r} is not a line that head() gave") from None


def _live(audit: weakref.ref[Audit], stopped: threading.Event, flush_s: float) -> None:
    """The thread that writes: it lives as long as its audit does."""
    went_well = True
    while not stopped.wait(flush_s):
        this = audit()
        if this is None:
            return
        try:
            this.flush()
            went_well = True
        except Exception as error:
            # a store of the user's own: without this thread entries would wait without end
            if went_well:
                LOG.warning(
                    "the audit could not be written, which is logged once; it is tried again: %r",
                    error,
                    exc_info=error,
                )
            went_well = False
        del this


_AUDITS: weakref.WeakSet[Audit] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for audit in list(_AUDITS):
        audit.close()
