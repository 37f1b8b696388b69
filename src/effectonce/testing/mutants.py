"""Stores that are broken on purpose, each in one way. The conformance suite must catch every one
of them.

A mutant is the reference store with one rule of the table sabotaged, or with one habit that real
stores have. If you write a store, you do not need this file; if you write a check, it tells you
what the check is for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
from effectonce._core.record import Record, Scene, State
from effectonce._core.rules import RULES, Guard, TransitionRule, index
from effectonce.stores.base import Store
from effectonce.stores.memory import MemoryStore
from effectonce.testing.clock import FakeClock

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Mutant:
    """A store with one fault, and the rule of the protocol that the fault breaks."""

    name: str
    breaks: int  # rule 1 to 11 of the protocol; 0: what any record store must do
    open: Callable[[FakeClock], Store]


# ---------------------------------------------------------------- sabotaged tables


def _with_rules(rules: tuple[TransitionRule, ...]) -> Callable[[FakeClock], Store]:
    return lambda clock: MemoryStore(clock=clock, table=index(rules))


def _with_guard(guard: Guard, instead: Callable[..., bool]) -> Callable[[FakeClock], Store]:
    """Every rule that asks *guard* asks *instead*."""
    swap = {guard: instead}
    return _with_rules(
        tuple(replace(rule, when=tuple(swap.get(g, g) for g in rule.when)) for rule in RULES)
    )


def _yes(*_: Any) -> bool:
    return True


def _no(*_: Any) -> bool:
    return False


def _owns_by_token(r: Record, op: Any, _: Scene) -> bool:
    return bool(r.token == op.token)


def _owns_by_epoch(r: Record, op: Any, _: Scene) -> bool:
    return bool(r.epoch == op.epoch)


def _resendable_since_the_last_send(r: Record, _op: Any, scene: Scene) -> bool:
    return r.sends == 0 or scene.now < r.sent_until - 30 + r.request.terms.resend_s


def _quiet_even_if_irreversible(r: Record, _op: Any, scene: Scene) -> bool:
    return (
        r.request.terms.delay_s is not None and scene.now > r.sent_until + r.request.terms.delay_s
    )


def _quiet_when_the_answer_is_used(r: Record, op: Any, scene: Scene) -> bool:
    return r.sent_until == 0 or records.quiet(r, op, scene)


def _late_any_send(r: Record, op: Complete, _: Scene) -> bool:
    return r.dtoken == op.token


def _expires_open_records(op: type[Sweep], start: State) -> TransitionRule:
    return TransitionRule(
        "!", op, start, State.ABSENT, (records.lease_over,), lambda _r, _op, _scene: None
    )


def _without_latch_at_dispatch() -> tuple[TransitionRule, ...]:
    late = ("T3", "T5b")
    return tuple(
        (
            replace(r, when=tuple(g for g in r.when if g is not records.unlatched))
            if r.name in late
            else r
        )
        for r in RULES
    )


def _claims_without_dispatching(r: Record | None, op: Claim, scene: Scene) -> Record:
    return Record(op.request, State.CLAIMED, 1, op.token, scene.now + op.lease_s, scene.now)


# ---------------------------------------------------------------- habits of real stores


class _Wrapped:
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


class _DecidesOnAnOldRead(_Wrapped):
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


class _ForgetsAcknowledgements(_Wrapped):
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


class _TestsPresenceByTruth(_Wrapped):
    """`if outcome:` takes an empty one for none."""

    def apply(self, op: Op[R], /) -> R:
        reply = self.inner.apply(op)
        if isinstance(reply, Recorded) and not reply.outcome:
            return Held(9, 1, dispatched=True)  # type: ignore[return-value]
        return reply


class _DropsEvidence(_Wrapped):
    def apply(self, op: Op[R], /) -> R:
        if isinstance(op, Attest):
            return self.inner._records.get(op.key)  # type: ignore[return-value]  # noqa: SLF001
        return super().apply(op)


class _KeepsTheLast(_Wrapped):
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


class _KeepsTheFirst(_Wrapped):
    """Once it is full, nothing is added."""

    def apply(self, op: Op[R], /) -> R:
        record = self.inner._records.get(op.key) if isinstance(op, Attest) else None  # noqa: SLF001
        full = record is not None and len(record.evidence) >= records.EVIDENCE_MAX
        return record if full else super().apply(op)  # type: ignore[return-value]


class _CompletesWithoutEvidence(_Wrapped):
    """The short way to complete a record writes what it knows of it, and nothing else."""

    def apply(self, op: Op[R], /) -> R:
        reply = super().apply(op)
        if isinstance(op, Complete) and isinstance(reply, Applied):
            record = self.inner._records[op.key]  # noqa: SLF001
            self.inner._records[op.key] = replace(record, evidence=())  # noqa: SLF001
        return reply


class _OneLatchForAll(_Wrapped):
    """A lock for everything instead of one for each step."""

    def apply(self, op: Any, /) -> Any:
        if isinstance(op, Claim):
            op = replace(op, request=replace(op.request, latch="the one"))
        return super().apply(op)


class _RepinsTerms(_Wrapped):
    """The newest deploy's contract wins over the one that the effect was sent under."""

    def apply(self, op: Op[R], /) -> R:
        if isinstance(op, Claim) and op.key in self.inner._records:  # noqa: SLF001
            record = self.inner._records[op.key]  # noqa: SLF001
            request = replace(record.request, terms=op.request.terms)
            self.inner._records[op.key] = replace(record, request=request)  # noqa: SLF001
        return super().apply(op)


class _NeverChangesTerms(_Wrapped):
    def apply(self, op: Op[R], /) -> R:
        key, records = getattr(op, "key", ""), self.inner._records  # noqa: SLF001
        before, reply = records.get(key), super().apply(op)
        if before is not None and key in records:
            records[key] = replace(records[key], request=before.request)
        return reply


def _resendable_by_the_shorter_window(r: Record, op: Any, scene: Scene) -> bool:
    resend_s = min(
        r.request.terms.resend_s, op.request.terms.resend_s if isinstance(op, Claim) else inf
    )
    return r.sends == 0 or scene.now < r.first_dispatch_at + resend_s


# ---------------------------------------------------------------- several at once


class _StopsAtTheFirstRefusal(_Wrapped):
    """One that is refused takes the later ones with it."""

    def apply(self, op: Any, /) -> Any:
        if not isinstance(op, Together):
            return super().apply(op)
        replies: list[Any] = []
        for each in op.ops:
            stopped = any(isinstance(reply, Refused) for reply in replies)
            replies.append(Refused(None) if stopped else super().apply(each))
        return tuple(replies)


class _TakesThemFromTheEnd(_Wrapped):
    """The next step begins before the last one has ended."""

    def apply(self, op: Any, /) -> Any:
        if not isinstance(op, Together):
            return super().apply(op)
        return tuple(
            reversed([super(_TakesThemFromTheEnd, self).apply(each) for each in reversed(op.ops)])
        )


# ---------------------------------------------------------------- searching


class _FindsByTheBeginning(_Wrapped):
    """It looks for what a reference says at the beginning of the key: `key LIKE 'x%'`."""

    def apply(self, op: Any, /) -> Any:
        if not isinstance(op, Search) or op.reference == "":
            return super().apply(op)
        found = self.inner.apply(replace(op, reference=""))
        return tuple(record for record in found if record.request.key.startswith(op.reference))


class _FindsTheOldestFirst(_Wrapped):
    def apply(self, op: Any, /) -> Any:
        reply = super().apply(op)
        return tuple(reversed(reply)) if isinstance(op, Search) else reply


class _FindsWhatOthersHave(_Wrapped):
    """Whose it is does not matter to a search."""

    def apply(self, op: Any, /) -> Any:
        return super().apply(replace(op, tenant=None) if isinstance(op, Search) else op)


# ---------------------------------------------------------------- cells


class _ReplacesCellsUnseen(_Wrapped):
    """The last one to write wins."""

    def apply(self, op: Any, /) -> Any:
        if isinstance(op, WriteCell):
            op = replace(op, revision=self.inner.apply(ReadCell(op.name)).revision)
        return super().apply(op)


class _BringsCellsBack(_Wrapped):
    """It writes what is not there any more, for a process that saw it once."""

    def apply(self, op: Any, /) -> Any:
        if isinstance(op, WriteCell) and self.inner.apply(ReadCell(op.name)).revision == 0:
            op = replace(op, revision=0)
        return super().apply(op)


class _NeverForgetsCells(_Wrapped):
    def apply(self, op: Any, /) -> Any:
        return super().apply(replace(op, keep_s=inf) if isinstance(op, WriteCell) else op)


class _ForgetsCellsAsAtFirst(_Wrapped):
    """How long a cell is kept is counted from its first write, not from the last."""

    def apply(self, op: Any, /) -> Any:
        before = self.inner._cells.get(op.name) if isinstance(op, WriteCell) else None  # noqa: SLF001
        reply = super().apply(op)
        if before is not None:
            value, revision, _ = self.inner._cells[op.name]  # noqa: SLF001
            self.inner._cells[op.name] = (value, revision, before[2])  # noqa: SLF001
        return reply


class _NumbersCellsFromOne(_Wrapped):
    """A name that was forgotten begins again."""

    def apply(self, op: Any, /) -> Any:
        if isinstance(op, WriteCell) and self.inner.apply(ReadCell(op.name)).revision == 0:
            self.inner._revisions = count(1)  # noqa: SLF001
        return super().apply(op)


class _KeepsRevisions(_Wrapped):
    """A write leaves the revision as it is."""

    def apply(self, op: Any, /) -> Any:
        if isinstance(op, WriteCell) and op.revision:
            self.inner._revisions = count(op.revision)  # noqa: SLF001
        return super().apply(op)


class _SweepsAllCells(_Wrapped):
    def apply(self, op: Any, /) -> Any:
        if isinstance(op, Sweep):
            self.inner._cells.clear()  # noqa: SLF001
        return super().apply(op)


class _KeepsCellsAsRecords(_Wrapped):
    """One table for both."""

    def apply(self, op: Any, /) -> Any:
        if isinstance(op, Claim):
            self.inner._cells.pop(op.key, None)  # noqa: SLF001
        return super().apply(op)


class _ListsInTheOrderOfWriting(_Wrapped):
    def apply(self, op: Any, /) -> Any:
        if not isinstance(op, ListCells):
            return super().apply(op)
        found = dict(self.inner.apply(replace(op, limit=10**9)))
        return tuple((name, found[name]) for name in self.inner._cells if name in found)[: op.limit]  # noqa: SLF001


class _ListsWithTheLastOneAgain(_Wrapped):
    """`>=` instead of `>`: a page begins where the one before ended."""

    def apply(self, op: Any, /) -> Any:
        listed = super().apply(op)
        if isinstance(op, ListCells) and op.after in self.inner._cells:  # noqa: SLF001
            return ((op.after, self.inner._cells[op.after][0]), *listed)[: op.limit]  # noqa: SLF001
        return listed


class _ListsWhatIsOver(_Wrapped):
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


class _ListsPrefixesAsWords(_Wrapped):
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


class _ListsForwardsOnly(_Wrapped):
    def apply(self, op: Any, /) -> Any:
        return super().apply(replace(op, backwards=False) if isinstance(op, ListCells) else op)


_OVERWRITING = tuple(
    TransitionRule("!", r.op, State.COMPLETED, r.end, (), r.change)
    for r in RULES
    if r.name == "T11b"
)
MUTANTS: tuple[Mutant, ...] = (
    Mutant("a live lease can be stolen", 1, _with_guard(records.lease_over, _yes)),
    Mutant("a dead lease is never stolen", 1, _with_guard(records.lease_over, _no)),
    Mutant("nothing is fenced", 2, _with_guard(records.owns, _yes)),
    Mutant("fenced by the token only", 2, _with_guard(records.owns, _owns_by_token)),
    Mutant("fenced by the epoch only", 2, _with_guard(records.owns, _owns_by_epoch)),
    Mutant(
        "a claim that was to dispatch does not",
        3,
        _with_rules(
            (
                TransitionRule(
                    "T1",
                    Claim,
                    State.ABSENT,
                    State.CLAIMED,
                    (records.in_turn, records.unlatched),
                    _claims_without_dispatching,
                ),
                *RULES,
            )
        ),
    ),
    Mutant("a send is not counted", 3, _with_guard(records.next_send, _yes)),
    Mutant("any send can be taken back", 4, _with_guard(records.this_send, _yes)),
    Mutant("a lost effect is sent again without a key", 4, _with_guard(records.resendable, _yes)),
    Mutant(
        "a lost effect is never sent again",
        4,
        _with_guard(records.resendable, lambda r, *_: r.sends == 0),
    ),
    Mutant(
        "the downstream window starts anew with each send",
        4,
        _with_guard(records.resendable, _resendable_since_the_last_send),
    ),
    Mutant("a claim completes without having been sent", 4, _with_guard(records.ends_unsent, _yes)),
    Mutant("a rejection is always a failure", 5, _with_guard(records.rejection_is_final, _yes)),
    Mutant("a rejection is never a failure", 5, _with_guard(records.rejection_is_final, _no)),
    Mutant("not found is proof", 6, _with_guard(records.asked_when_quiet, _yes)),
    Mutant(
        "not found is proof when it is used",
        6,
        _with_guard(records.asked_when_quiet, _quiet_when_the_answer_is_used),
    ),
    Mutant(
        "an irreversible effect is re-run",
        6,
        _with_guard(records.asked_when_quiet, _quiet_even_if_irreversible),
    ),
    Mutant("an expired key runs again", 7, _with_guard(records.may_rerun, records.window_over)),
    Mutant("a swept key is forgotten", 7, _with_guard(records.remembered, _no)),
    Mutant("a tombstone is forgotten at once", 7, _with_guard(records.unremembered, _yes)),
    Mutant("a window ends at once", 7, _with_guard(records.window_over, _yes)),
    Mutant(
        "a sweep removes claims",
        7,
        _with_rules((*RULES, _expires_open_records(Sweep, State.CLAIMED))),
    ),
    Mutant(
        "a sweep removes doubts",
        7,
        _with_rules((*RULES, _expires_open_records(Sweep, State.IN_DOUBT))),
    ),
    Mutant("a step has no latch", 8, _with_guard(records.unlatched, _yes)),
    Mutant(
        "the latch is looked at when claiming only", 8, _with_rules(_without_latch_at_dispatch())
    ),
    Mutant("one latch for all", 8, _OneLatchForAll),
    Mutant("a lost acknowledgement is a refusal", 9, _ForgetsAcknowledgements),
    Mutant("it decides on an old read", 10, _DecidesOnAnOldRead),
    Mutant("an empty outcome is none", 11, _TestsPresenceByTruth),
    Mutant(
        "late evidence of any send settles", 5, _with_guard(records.late_only_send, _late_any_send)
    ),
    Mutant("late evidence never settles", 11, _with_guard(records.late_only_send, _no)),
    Mutant("late evidence is dropped", 11, _DropsEvidence),
    Mutant("a completion forgets the evidence", 0, _CompletesWithoutEvidence),
    Mutant("a late result makes room for attempts", 11, _KeepsTheLast),
    Mutant("evidence stays as it was when it is full", 0, _KeepsTheFirst),
    Mutant("what was never sent cannot be discarded", 0, _with_guard(records.never_sent, _no)),
    Mutant("what was sent can be discarded", 4, _with_guard(records.never_sent, _yes)),
    Mutant("another request inherits the key", 0, _with_guard(records.same_request, _yes)),
    Mutant("a sequence has no order", 0, _with_guard(records.in_turn, _yes)),
    Mutant("terms follow the newest deploy", 0, _RepinsTerms),
    Mutant("terms never change, though nothing was sent", 0, _NeverChangesTerms),
    Mutant(
        "a key helps what was sent without it",
        4,
        _with_guard(records.resendable, _resendable_by_the_shorter_window),
    ),
    Mutant("a person overwrites an outcome", 0, _with_rules((*RULES, *_OVERWRITING))),
    Mutant("a reference is the beginning of a key", 0, _FindsByTheBeginning),
    Mutant("a search begins with the oldest", 0, _FindsTheOldestFirst),
    Mutant("a search shows what other tenants have", 0, _FindsWhatOthersHave),
    Mutant("a cell is replaced by who did not see it", 0, _ReplacesCellsUnseen),
    Mutant("a cell that is gone is replaced", 0, _BringsCellsBack),
    Mutant("a cell is never forgotten", 0, _NeverForgetsCells),
    Mutant("a write does not keep a cell any longer", 0, _ForgetsCellsAsAtFirst),
    Mutant("a cell's revision comes back", 0, _NumbersCellsFromOne),
    Mutant("a write to a cell makes no new revision", 0, _KeepsRevisions),
    Mutant("a sweep forgets every cell", 0, _SweepsAllCells),
    Mutant("a record takes the place of a cell", 0, _KeepsCellsAsRecords),
    Mutant("cells are listed in the order of their writing", 0, _ListsInTheOrderOfWriting),
    Mutant("a page of cells begins with the last one again", 0, _ListsWithTheLastOneAgain),
    Mutant("cells that are over are listed", 0, _ListsWhatIsOver),
    Mutant("a prefix of cells has no case", 0, _ListsPrefixesAsWords),
    Mutant("cells are listed forwards only", 0, _ListsForwardsOnly),
    Mutant("several ops stop at the first refusal", 9, _StopsAtTheFirstRefusal),
    Mutant("several ops are applied from the end", 3, _TakesThemFromTheEnd),
)
