"""Stores with the habits that real ones have: each breaks one promise."""

from __future__ import annotations

from itertools import count
from math import inf
from typing import Any, TypeVar

from msgspec.structs import replace

from effectonce._core import rules as records
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
from effectonce.stores.memory import MemoryStore
from effectonce.testing.clock import FakeClock

R = TypeVar("R")


class Wrapped:
    """The reference store with one habit."""

    def __init__(self, clock: FakeClock) -> None:
        self.inner = MemoryStore(clock=clock)
        self.capabilities = self.inner.capabilities

    def apply(self, op: Op[R], /) -> R:
        return self.inner.apply(op)

    async def aapply(self, op: Op[R], /) -> R:
        return self.apply(op)

    def close(self) -> None:
        """Nothing to give back."""


class DecidesOnAnOldRead(Wrapped):
    """A claim sees the store as it was one claim ago: a lagging replica, or a look that is not
    part of the write.
    """

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self._absent: set[str] = set()

    def apply(self, op: Op[R], /) -> R:
        if isinstance(op, Claim):
            if op.key in self._absent:
                self._absent.discard(op.key)
                # it writes what it decided before
                self.inner._records.pop(op.key, None)  # noqa: SLF001
            elif op.key not in self.inner._records:  # noqa: SLF001
                self._absent.add(op.key)
        return super().apply(op)


class ForgetsAcknowledgements(Wrapped):
    """A repeated write is refused, and a repeated claim is another owner's."""

    def apply(self, op: Op[R], /) -> R:
        before = self.inner._records.get(getattr(op, "key", ""))  # noqa: SLF001
        reply: Any = self.inner.apply(op)
        if before == self.inner._records.get(getattr(op, "key", "")) and before is not None:  # noqa: SLF001
            if isinstance(reply, Applied):
                return Refused(before.state)  # type: ignore[return-value]
            if isinstance(reply, Held):
                return Busy(30.0)  # type: ignore[return-value]
        return reply  # type: ignore[no-any-return]


class TestsPresenceByTruth(Wrapped):
    """`if outcome:` takes an empty one for none."""

    def apply(self, op: Op[R], /) -> R:
        reply = self.inner.apply(op)
        if isinstance(reply, Recorded) and not reply.outcome:
            return Held(9, 1, dispatched=True)  # type: ignore[return-value]
        return reply


class DropsEvidence(Wrapped):
    def apply(self, op: Op[R], /) -> R:
        if isinstance(op, Attest):
            return self.inner._records.get(op.key)  # type: ignore[return-value]  # noqa: SLF001
        return super().apply(op)


class KeepsTheLast(Wrapped):
    """A ring: whatever is oldest goes."""

    def apply(self, op: Op[R], /) -> R:
        before = self.inner._records.get(getattr(op, "key", ""))  # noqa: SLF001
        reply = super().apply(op)
        if (
            isinstance(op, Attest)
            and before is not None
            and len(before.evidence) == records.EVIDENCE_MAX
        ):
            after = self.inner._records[op.key]  # noqa: SLF001
            self.inner._records[op.key] = replace(  # noqa: SLF001
                after, evidence=(*before.evidence[1:], after.evidence[-1])
            )  # noqa: RUF100, SLF001
        return reply


class KeepsTheFirst(Wrapped):
    """Once it is full, nothing is added."""

    def apply(self, op: Op[R], /) -> R:
        record = self.inner._records.get(op.key) if isinstance(op, Attest) else None  # noqa: SLF001
        full = record is not None and len(record.evidence) >= records.EVIDENCE_MAX
        return record if full else super().apply(op)  # type: ignore[return-value]


class CompletesWithoutEvidence(Wrapped):
    """The short way to complete a record writes what it knows of it, and nothing else."""

    def apply(self, op: Op[R], /) -> R:
        reply = super().apply(op)
        if isinstance(op, Complete) and isinstance(reply, Applied):
            record = self.inner._records[op.key]  # noqa: SLF001
            self.inner._records[op.key] = replace(record, evidence=())  # noqa: SLF001
        return reply


class OneLatchForAll(Wrapped):
    """A lock for everything instead of one for each step."""

    def apply(self, op: Any, /) -> Any:
        if isinstance(op, Claim):
            op = replace(op, request=replace(op.request, latch="the one"))
        return super().apply(op)


class RepinsTerms(Wrapped):
    """The newest deploy's contract wins over the one that the effect was sent under."""

    def apply(self, op: Op[R], /) -> R:
        if isinstance(op, Claim) and op.key in self.inner._records:  # noqa: SLF001
            record = self.inner._records[op.key]  # noqa: SLF001
            request = replace(record.request, terms=op.request.terms)
            self.inner._records[op.key] = replace(record, request=request)  # noqa: SLF001
        return super().apply(op)


class NeverChangesTerms(Wrapped):
    def apply(self, op: Op[R], /) -> R:
        key, records = getattr(op, "key", ""), self.inner._records  # noqa: SLF001
        before, reply = records.get(key), super().apply(op)
        if before is not None and key in records:
            records[key] = replace(records[key], request=before.request)
        return reply


class StopsAtTheFirstRefusal(Wrapped):
    """One that is refused takes the later ones with it."""

    def apply(self, op: Any, /) -> Any:
        if not isinstance(op, Together):
            return super().apply(op)
        replies: list[Any] = []
        for each in op.ops:
            stopped = any(isinstance(reply, Refused) for reply in replies)
            replies.append(Refused(None) if stopped else super().apply(each))
        return tuple(replies)


class TakesThemFromTheEnd(Wrapped):
    """The next step begins before the last one has ended."""

    def apply(self, op: Any, /) -> Any:
        if not isinstance(op, Together):
            return super().apply(op)
        return tuple(
            reversed([super(TakesThemFromTheEnd, self).apply(each) for each in reversed(op.ops)])
        )


class FindsByTheBeginning(Wrapped):
    """It looks for what a reference says at the beginning of the key: `key LIKE 'x%'`."""

    def apply(self, op: Any, /) -> Any:
        if not isinstance(op, Search) or op.reference == "":
            return super().apply(op)
        found = self.inner.apply(replace(op, reference=""))
        return tuple(record for record in found if record.request.key.startswith(op.reference))


class FindsTheOldestFirst(Wrapped):
    def apply(self, op: Any, /) -> Any:
        reply = super().apply(op)
        return tuple(reversed(reply)) if isinstance(op, Search) else reply


class FindsWhatOthersHave(Wrapped):
    """Whose it is does not matter to a search."""

    def apply(self, op: Any, /) -> Any:
        return super().apply(replace(op, tenant=None) if isinstance(op, Search) else op)


class ReplacesCellsUnseen(Wrapped):
    """The last one to write wins."""

    def apply(self, op: Any, /) -> Any:
        if isinstance(op, WriteCell):
            op = replace(op, revision=self.inner.apply(ReadCell(op.name)).revision)
        return super().apply(op)


class BringsCellsBack(Wrapped):
    """It writes what is not there any more, for a process that saw it once."""

    def apply(self, op: Any, /) -> Any:
        if isinstance(op, WriteCell) and self.inner.apply(ReadCell(op.name)).revision == 0:
            op = replace(op, revision=0)
        return super().apply(op)


class NeverForgetsCells(Wrapped):
    def apply(self, op: Any, /) -> Any:
        return super().apply(replace(op, keep_s=inf) if isinstance(op, WriteCell) else op)


class ForgetsCellsAsAtFirst(Wrapped):
    """How long a cell is kept is counted from its first write, not from the last."""

    def apply(self, op: Any, /) -> Any:
        before = self.inner._cells.get(op.name) if isinstance(op, WriteCell) else None  # noqa: SLF001
        reply = super().apply(op)
        if before is not None:
            value, revision, _ = self.inner._cells[op.name]  # noqa: SLF001
            self.inner._cells[op.name] = (value, revision, before[2])  # noqa: SLF001
        return reply


class NumbersCellsFromOne(Wrapped):
    """A name that was forgotten begins again."""

    def apply(self, op: Any, /) -> Any:
        if isinstance(op, WriteCell) and self.inner.apply(ReadCell(op.name)).revision == 0:
            self.inner._revisions = count(1)  # noqa: SLF001
        return super().apply(op)


class KeepsRevisions(Wrapped):
    """A write leaves the revision as it is."""

    def apply(self, op: Any, /) -> Any:
        if isinstance(op, WriteCell) and op.revision:
            self.inner._revisions = count(op.revision)  # noqa: SLF001
        return super().apply(op)


class SweepsAllCells(Wrapped):
    def apply(self, op: Any, /) -> Any:
        if isinstance(op, Sweep):
            self.inner._cells.clear()  # noqa: SLF001
        return super().apply(op)


class KeepsCellsAsRecords(Wrapped):
    """One table for both."""

    def apply(self, op: Any, /) -> Any:
        if isinstance(op, Claim):
            self.inner._cells.pop(op.key, None)  # noqa: SLF001
        return super().apply(op)


class ListsInTheOrderOfWriting(Wrapped):
    def apply(self, op: Any, /) -> Any:
        if not isinstance(op, ListCells):
            return super().apply(op)
        found = dict(self.inner.apply(replace(op, limit=10**9)))
        return tuple((name, found[name]) for name in self.inner._cells if name in found)[: op.limit]  # noqa: SLF001


class ListsWithTheLastOneAgain(Wrapped):
    """`>=` instead of `>`: a page begins where the one before ended."""

    def apply(self, op: Any, /) -> Any:
        listed = super().apply(op)
        if isinstance(op, ListCells) and op.after in self.inner._cells:  # noqa: SLF001
            return ((op.after, self.inner._cells[op.after][0]), *listed)[: op.limit]  # noqa: SLF001
        return listed


class ListsWhatIsOver(Wrapped):
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


class ListsPrefixesAsWords(Wrapped):
    """`LIKE` without a care: an upper-case letter is the same, too."""

    def apply(self, op: Any, /) -> Any:
        if not isinstance(op, ListCells):
            return super().apply(op)
        names = (n for n in self.inner._cells if n.lower().startswith(op.prefix) and n != op.prefix)  # noqa: SLF001
        found = {
            name: self.inner.apply(ReadCell(name)) for name in sorted(names, reverse=op.backwards)
        }
        beyond = {
            n: c
            for n, c in found.items()
            if not op.after or (n < op.after if op.backwards else n > op.after)
        }
        return tuple((name, cell.value) for name, cell in beyond.items() if cell.revision)[
            : op.limit
        ]


class ListsForwardsOnly(Wrapped):
    def apply(self, op: Any, /) -> Any:
        return super().apply(replace(op, backwards=False) if isinstance(op, ListCells) else op)
