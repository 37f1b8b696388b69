"""Stores with the habits that real ones have: each breaks one promise."""

from __future__ import annotations

from itertools import count
from typing import Any

from msgspec.structs import replace

from effectonce._core.ops import (
    Applied,
    Attest,
    Busy,
    Claim,
    Complete,
    Held,
    ListCells,
    Op,
    ReadCell,
    Recorded,
    Refused,
    Search,
    Sweep,
    Together,
    WriteCell,
)
from effectonce._core.rules import EVIDENCE_MAX
from effectonce.stores.memory import MemoryStore
from effectonce.testing.clock import FakeClock


class FaultyStore(MemoryStore):
    """The reference store with one habit."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)


def taken_with(kind: type[Op[Any]], **changes: Any) -> type[FaultyStore]:
    """A store that takes every op of *kind* for one with these *changes*."""

    class ChangesTheOp(FaultyStore):
        def apply(self, op: Any, /) -> Any:
            return super().apply(replace(op, **changes) if isinstance(op, kind) else op)

    return ChangesTheOp


class DecidesOnAnOldRead(FaultyStore):
    """A claim sees the store as it was one claim ago: a lagging replica, or a look that is not
    part of the write.
    """

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self._absent: set[str] = set()

    def apply(self, op: Any, /) -> Any:
        if isinstance(op, Claim):
            if op.key in self._absent:
                self._absent.discard(op.key)
                # it writes what it decided before
                self._records.pop(op.key, None)
            elif op.key not in self._records:
                self._absent.add(op.key)
        return super().apply(op)


class ForgetsAcknowledgements(FaultyStore):
    """A repeated write is refused, and a repeated claim is another owner's."""

    def apply(self, op: Any, /) -> Any:
        before = self._records.get(getattr(op, "key", ""))
        reply: Any = super().apply(op)
        if before == self._records.get(getattr(op, "key", "")) and before is not None:
            if isinstance(reply, Applied):
                return Refused(before.state)
            if isinstance(reply, Held):
                return Busy(30.0)
        return reply


class TestsPresenceByTruth(FaultyStore):
    """`if outcome:` takes an empty one for none."""

    def apply(self, op: Any, /) -> Any:
        reply = super().apply(op)
        if isinstance(reply, Recorded) and not reply.outcome:
            return Held(9, 1, dispatched=True)
        return reply


class DropsEvidence(FaultyStore):
    def apply(self, op: Any, /) -> Any:
        if isinstance(op, Attest):
            return self._records.get(op.key)
        return super().apply(op)


class KeepsTheLast(FaultyStore):
    """A ring: whatever is oldest goes."""

    def apply(self, op: Any, /) -> Any:
        before = self._records.get(getattr(op, "key", ""))
        reply = super().apply(op)
        if isinstance(op, Attest) and before is not None and len(before.evidence) == EVIDENCE_MAX:
            after = self._records[op.key]
            evidence = (*before.evidence[1:], after.evidence[-1])
            self._records[op.key] = replace(after, evidence=evidence)
        return reply


class KeepsTheFirst(FaultyStore):
    """Once it is full, nothing is added."""

    def apply(self, op: Any, /) -> Any:
        record = self._records.get(op.key) if isinstance(op, Attest) else None
        full = record is not None and len(record.evidence) >= EVIDENCE_MAX
        return record if full else super().apply(op)


class CompletesWithoutEvidence(FaultyStore):
    """The short way to complete a record writes what it knows of it, and nothing else."""

    def apply(self, op: Any, /) -> Any:
        reply = super().apply(op)
        if isinstance(op, Complete) and isinstance(reply, Applied):
            record = self._records[op.key]
            self._records[op.key] = replace(record, evidence=())
        return reply


class OneLatchForAll(FaultyStore):
    """A lock for everything instead of one for each step."""

    def apply(self, op: Any, /) -> Any:
        if isinstance(op, Claim):
            op = replace(op, request=replace(op.request, latch="the one"))
        return super().apply(op)


class RepinsTerms(FaultyStore):
    """The newest deploy's contract wins over the one that the effect was sent under."""

    def apply(self, op: Any, /) -> Any:
        if isinstance(op, Claim) and op.key in self._records:
            record = self._records[op.key]
            request = replace(record.request, terms=op.request.terms)
            self._records[op.key] = replace(record, request=request)
        return super().apply(op)


class NeverChangesTerms(FaultyStore):
    def apply(self, op: Any, /) -> Any:
        key, records = getattr(op, "key", ""), self._records
        before, reply = records.get(key), super().apply(op)
        if before is not None and key in records:
            records[key] = replace(records[key], request=before.request)
        return reply


class StopsAtTheFirstRefusal(FaultyStore):
    """One that is refused takes the later ones with it."""

    def apply(self, op: Any, /) -> Any:
        if not isinstance(op, Together):
            return super().apply(op)
        replies: list[Any] = []
        for each in op.ops:
            stopped = any(isinstance(reply, Refused) for reply in replies)
            replies.append(Refused(None) if stopped else super().apply(each))
        return tuple(replies)


class TakesThemFromTheEnd(FaultyStore):
    """The next step begins before the last one has ended."""

    def apply(self, op: Any, /) -> Any:
        if not isinstance(op, Together):
            return super().apply(op)
        replies: list[Any] = []
        for each in reversed(op.ops):
            replies.insert(0, super().apply(each))
        return tuple(replies)


class FindsByTheBeginning(FaultyStore):
    """It looks for what a reference says at the beginning of the key: `key LIKE 'x%'`."""

    def apply(self, op: Any, /) -> Any:
        if not isinstance(op, Search) or op.reference == "":
            return super().apply(op)
        found = super().apply(replace(op, reference=""))
        return tuple(record for record in found if record.request.key.startswith(op.reference))


class FindsTheOldestFirst(FaultyStore):
    def apply(self, op: Any, /) -> Any:
        reply = super().apply(op)
        return tuple(reversed(reply)) if isinstance(op, Search) else reply


class ReplacesCellsUnseen(FaultyStore):
    """The last one to write wins."""

    def apply(self, op: Any, /) -> Any:
        if isinstance(op, WriteCell):
            op = replace(op, revision=super().apply(ReadCell(op.name)).revision)
        return super().apply(op)


class BringsCellsBack(FaultyStore):
    """It writes what is not there any more, for a process that saw it once."""

    def apply(self, op: Any, /) -> Any:
        if isinstance(op, WriteCell) and super().apply(ReadCell(op.name)).revision == 0:
            op = replace(op, revision=0)
        return super().apply(op)


class ForgetsCellsAsAtFirst(FaultyStore):
    """How long a cell is kept is counted from its first write, not from the last."""

    def apply(self, op: Any, /) -> Any:
        before = self._cells.get(op.name) if isinstance(op, WriteCell) else None
        reply = super().apply(op)
        if before is not None:
            value, revision, _ = self._cells[op.name]
            self._cells[op.name] = (value, revision, before[2])
        return reply


class NumbersCellsFromOne(FaultyStore):
    """A name that was forgotten begins again."""

    def apply(self, op: Any, /) -> Any:
        if isinstance(op, WriteCell) and super().apply(ReadCell(op.name)).revision == 0:
            self._revisions = count(1)
        return super().apply(op)


class KeepsRevisions(FaultyStore):
    """A write leaves the revision as it is."""

    def apply(self, op: Any, /) -> Any:
        if isinstance(op, WriteCell) and op.revision:
            self._revisions = count(op.revision)
        return super().apply(op)


class SweepsAllCells(FaultyStore):
    def apply(self, op: Any, /) -> Any:
        if isinstance(op, Sweep):
            self._cells.clear()
        return super().apply(op)


class KeepsCellsAsRecords(FaultyStore):
    """One table for both."""

    def apply(self, op: Any, /) -> Any:
        if isinstance(op, Claim):
            self._cells.pop(op.key, None)
        return super().apply(op)


class ListsInTheOrderOfWriting(FaultyStore):
    def apply(self, op: Any, /) -> Any:
        if not isinstance(op, ListCells):
            return super().apply(op)
        found = dict(super().apply(replace(op, limit=10**9)))
        return tuple((name, found[name]) for name in self._cells if name in found)[: op.limit]


class ListsWithTheLastOneAgain(FaultyStore):
    """`>=` instead of `>`: a page begins where the one before ended."""

    def apply(self, op: Any, /) -> Any:
        listed = super().apply(op)
        if isinstance(op, ListCells) and op.after in self._cells:
            return ((op.after, self._cells[op.after][0]), *listed)[: op.limit]
        return listed


class ListsWhatIsOver(FaultyStore):
    """Its index never learns that a cell was forgotten."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self._names: dict[str, bytes] = {}

    def apply(self, op: Any, /) -> Any:
        if isinstance(op, WriteCell) and op.listed:
            self._names[op.name] = op.value
        if isinstance(op, ListCells):
            first, last = op.bounds
            names = sorted((n for n in self._names if first < n < last), reverse=op.backwards)
            return tuple((name, self._names[name]) for name in names[: op.limit])
        return super().apply(op)


class ListsPrefixesAsWords(FaultyStore):
    """`LIKE` without a care: an upper-case letter is the same, too."""

    def apply(self, op: Any, /) -> Any:
        if not isinstance(op, ListCells):
            return super().apply(op)
        if op.backwards:
            there = (n for n in self._cells if not op.after or n < op.after)
        else:
            there = (n for n in self._cells if n > op.after)
        names = (n for n in there if n.lower().startswith(op.prefix) and n != op.prefix)
        found = [(n, self._cell(n)) for n in sorted(names, reverse=op.backwards)]
        return tuple((n, cell.value) for n, cell in found if cell.revision)[: op.limit]
