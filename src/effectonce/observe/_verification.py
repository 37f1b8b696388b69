"""Is an audit whole? What was cut, changed or put in is found by the marks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from effectonce.observe._hash_chain import UNREADABLE, EntryBatch, Head, Marks

SLACK_S = 3600.0  # clocks differ: what may have expired just now is no flaw


class Flaw(Struct, frozen=True):
    """Something in the audit that effectonce has not written like this."""

    what: str  # changed, missing, cut, removed, unreadable, lost
    stream: str
    batch: int | None
    entry: int | None
    found: str  # in a sentence


class Stream(Struct, frozen=True):
    """What one process wrote."""

    name: str
    first: int
    last: int
    batches: int
    started_at: float
    written_at: float
    # False: its process still runs, or was killed. Everything that it had written is there
    closed: bool


class Verified(Struct, frozen=True):
    """What came of looking at the whole audit."""

    streams: tuple[Stream, ...]
    flaws: tuple[Flaw, ...]
    # marks were checked with a secret. False: any process that can write to the store can make
    # all of them
    keyed: bool = False
    # streams whose marks are made with a secret that was not there to check them
    unchecked: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Everything was checked, and fits."""
        return not self.flaws and not self.unchecked

    @property
    def entries(self) -> int:
        return sum(stream.last - stream.first + 1 for stream in self.streams)


class AuditNote(Struct, frozen=True):
    """What is known about a stream from elsewhere: the mark of its last entry at some time."""

    stream: str
    entry: int
    mark: bytes
    until: float  # it is kept as long, and is not missed afterwards
    why: str
    # so long its first entry is kept, and with it all; 0: that is not known
    whole_until: float = 0.0


class Examination:
    """Walks through each stream's batches in order, then compares the notes with what is there."""

    def __init__(self, marks: Marks, now: float) -> None:
        self._marks, self._now = marks, now
        self.last: dict[str, int] = {}  # the number of the last batch of each stream
        self.flaws: list[Flaw] = []
        self.streams: dict[str, Stream] = {}
        # of each batch: number and mark of its last entry
        self._ends: dict[str, dict[int, bytes]] = {}
        # what streams say about others that should still be there
        self._notes: list[tuple[str, int, bytes]] = []
        self._noting = True
        # the last one of each stream, if it could be read
        self._before: dict[str, EntryBatch | None] = {}

    def _flaw(
        self, what: str, stream: str, found: str, batch: int | None = None, entry: int | None = None
    ) -> None:
        self.flaws.append(Flaw(what, stream, batch, entry, found))

    def look(self, stream: str, number: int, batch: EntryBatch | None) -> None:
        """The next batch."""
        expected = self.last.get(stream, -1) + 1
        self.last[stream] = number
        if batch is None or (batch.stream, batch.number) != (stream, number):
            found = UNREADABLE if batch is None else "is another one"
            self._flaw("unreadable", stream, f"batch {number} {found}", number)
            self._gap(stream, expected, number, None)
            self._before[stream] = None
            return
        self._gap(stream, expected, number, batch)
        before = self._before.get(stream) if number == expected else None
        if before is not None and (batch.before, batch.first) != (before.mark, before.last + 1):
            found = f"batch {number} does not follow the one before it"
            self._flaw("changed", stream, found, number, batch.first)
        if self._marks.can_check(stream):
            self._check(batch)
        self._take(batch)

    def _check(self, batch: EntryBatch) -> None:
        for entry in self._marks.changed(batch):
            self._flaw("changed", batch.stream, f"entry {entry} was changed", batch.number, entry)
        if not self._marks.fits(batch):
            found = f"what batch {batch.number} says about itself was changed"
            self._flaw("changed", batch.stream, found, batch.number)

    def _gap(self, stream: str, expected: int, number: int, batch: EntryBatch | None) -> None:
        if number == expected:
            return
        begins = expected == 0 and stream not in self.streams
        if begins and batch is not None and batch.before_at + batch.keep_s < self._now + SLACK_S:
            return  # what came before is past its time
        verb = "is" if number == expected + 1 else "are"
        found = f"{_batches(expected, number - 1)} {verb} missing"
        self._flaw("missing", stream, found, expected)

    def _take(self, batch: EntryBatch) -> None:
        self._before[batch.stream] = batch
        self._ends.setdefault(batch.stream, {})[batch.last] = batch.mark
        seen = self.streams.get(batch.stream)
        first, count, started = (
            (batch.first, 1, batch.entries()[0].at)
            if seen is None
            else (seen.first, seen.batches + 1, seen.started_at)
        )
        self.streams[batch.stream] = Stream(
            batch.stream, first, batch.last, count, started, batch.at, batch.closed
        )
        for entry in batch.entries():
            for stream, (last, mark, at) in entry.heads.items():
                if self._noting and at + batch.keep_s > self._now + SLACK_S:
                    self._notes.append((stream, last, mark))
            if entry.event == "lost":
                found = (
                    f"{entry.count} entries before this one could not be written: the store did not"
                    " answer for too long"
                )
                self._flaw("lost", batch.stream, found, batch.number, entry.number)

    def behind(self) -> list[str]:
        """Streams of which others say more than was read. What is noted from now on is too new."""
        self._noting = False
        further = (stream for stream, number, _ in self._notes if not self._reaches(stream, number))
        return list(dict.fromkeys(further))

    def _reaches(self, stream: str, number: int) -> bool:
        seen = self.streams.get(stream)
        return seen is not None and seen.last >= number

    def end(
        self,
        heads: Mapping[str, Head | None],
        newer: Mapping[str, Head | None],
        notes: Iterable[AuditNote] = (),
    ) -> Verified:
        """All batches were looked at, at least as far as *heads* go. *newer* was read after all."""
        for stream in dict.fromkeys((*heads, *newer)):
            head = heads.get(stream)
            self._compare(stream, head, newer.get(stream, head), self.last.get(stream))
        for stream, number in self.last.items():
            headless = stream not in heads and stream not in newer
            if headless and number > 0 and not self._past(stream):
                found = "its head is gone: how far it had come is not known any more"
                self._flaw("removed", stream, found)
        for stream, number, mark in self._notes:
            self._noted(stream, number, mark, "another stream had seen it")
        for note in notes:
            if note.until > self._now + SLACK_S:
                self._noted(note.stream, note.entry, note.mark, note.why)
                self._begun(note)
        known = dict.fromkeys((*self.last, *heads))
        unchecked = tuple(stream for stream in known if not self._marks.can_check(stream))
        flaws = tuple(dict.fromkeys(self.flaws))
        return Verified(tuple(self.streams.values()), flaws, self._marks.keyed, unchecked)

    def _past(self, stream: str) -> bool:
        """Is the time of its last batch, and so that of its head, over, or nearly?"""
        batch = self._before.get(stream)
        return batch is not None and batch.at + batch.keep_s < self._now + SLACK_S

    def _compare(
        self, stream: str, head: Head | None, newest: Head | None, last: int | None
    ) -> None:
        """The head read before the batches is how far they must go; the newest how far they may."""
        if newest is None:
            self._flaw("unreadable", stream, f"its head {UNREADABLE}")
        elif newest.stream != stream or (
            self._marks.can_check(stream) and not self._marks.head_fits(newest)
        ):
            self._flaw("changed", stream, "its head was changed")
        elif last is None:
            if newest.at + newest.keep_s > self._now + SLACK_S:
                found = f"the whole stream is gone: it had {newest.last} entries"
                self._flaw("removed", stream, found)
        elif head is not None and head.batch > last:
            which = _batches(last + 1, head.batch)
            found = f"its end is missing: {which}, up to entry {head.last}"
            self._flaw("cut", stream, found, last + 1)
        elif newest.batch < last - 1 or (
            newest.batch == last
            and newest.mark != self._ends.get(stream, {}).get(newest.last, newest.mark)
        ):
            self._flaw("changed", stream, "its head is not the one that was written last")

    def _begun(self, note: AuditNote) -> None:
        """A batch can forge the time of earlier ones; not how long they are kept, if noted."""
        seen = self.streams.get(note.stream)
        kept_from = 1 if note.whole_until > self._now + SLACK_S else note.entry
        if seen is not None and note.whole_until and seen.first > kept_from:
            found = (
                f"its beginning is missing: {note.why}, when entry {kept_from} was to be kept until"
                " later than now"
            )
            self._flaw("missing", note.stream, found, entry=kept_from)

    def _noted(self, stream: str, number: int, mark: bytes, why: str) -> None:
        ends, seen = self._ends.get(stream, {}), self.streams.get(stream)
        if seen is None:
            found = f"the whole stream is gone: {why} with {number} entries"
            self._flaw("removed", stream, found)
        elif number > seen.last:
            found = f"its end is missing: {why} up to entry {number}"
            self._flaw("cut", stream, found, entry=seen.last + 1)
        # what is known from elsewhere was the end of a batch, and still is
        elif number >= seen.first and ends.get(number) != mark:
            found = f"entry {number} is not the one that was written: {why} otherwise"
            self._flaw("changed", stream, found, entry=number)


def _batches(first: int, last: int) -> str:
    return f"batch {first}" if first == last else f"batches {first} to {last}"
