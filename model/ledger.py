"""The store of the model: one record, changed by the real transition table and by nothing else.

Theory of operation. There is no clock: `NOW` never moves. What time does to a record is done by
the environment instead, which moves the record's own times into the past: `lapse` ends its
lease, `age` the window in which it may be sent again, `calm` the delay bound of the last send,
`close` the window in which its key is honoured. So anything that depends on time may happen at
any moment.

Records are kept in one canonical form (evidence and reasons dropped, times either past or not),
and every (record, op) is computed once, by `effectonce._core.transitions.transition`.
"""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import Any, NamedTuple

from msgspec.structs import replace

from effectonce._core.guards import resendable
from effectonce._core.ops import Attest, Claim, Complete, Fail, Together
from effectonce._core.record import TERMINAL, Evidence, Record, Scene, State
from effectonce._core.rules import RULES, TransitionRule, index
from effectonce._core.transitions import transition

NOW = 1000.0
PAST = 1.0  # not 0: a record means something by that
LEASE_S = 10.0
SCENE = Scene(NOW)
ABSENT = 0  # the number of "no record"

STALE = "somebody else than the owner decided the outcome"
OVERWRITTEN = "a recorded outcome was changed"
UNAPPROVED = "a worker holds it for sending, and no person has approved it"
CONTRADICTED = "a record says that it failed, and evidence says that it happened"


class Written(NamedTuple):
    record: int
    reply: Any
    changed: bool
    flaw: str  # what was wrong about this change, "" if nothing


class Ledger:
    """Records and ops, numbered, and what the table makes of them."""

    def __init__(self, rules: tuple[TransitionRule, ...] = RULES) -> None:
        self._table = index(rules)
        self._numbers: dict[Record | None, int] = {}
        self._op_numbers: dict[Any, int] = {}
        self._written: dict[tuple[int, int], Written] = {}
        self.records: list[Record | None] = []
        self.ops: list[Any] = []
        self.fired: Counter[TransitionRule] = Counter()
        assert self.number(None) == ABSENT

    def number(self, record: Record | None) -> int:
        plain = None if record is None else _canonical(record)
        if plain not in self._numbers:
            self._numbers[plain] = len(self.records)
            self.records.append(plain)
        return self._numbers[plain]

    def op_number(self, op: Any) -> int:
        if op not in self._op_numbers:
            self._op_numbers[op] = len(self.ops)
            self.ops.append(op)
        return self._op_numbers[op]

    def apply(self, record: int, op: int) -> Written:
        known = self._written.get((record, op))
        if known is None:
            known = self._written[record, op] = self._apply(self.records[record], self.ops[op])
        return known

    def _apply(self, before: Record | None, op: Any) -> Written:
        if isinstance(op, Together):
            return self._apply_all(before, op.ops)
        step = transition(before, op, SCENE, self._table)
        if step.rule is not None:
            self.fired[step.rule] += 1
        return Written(
            self.number(step.after), step.reply, step.changed, _flaw(before, step.after, op)
        )

    def _apply_all(self, before: Record | None, ops: tuple[Any, ...]) -> Written:
        """One after the other, at once."""
        replies, changed, flaws = [], False, []
        for op in ops:
            written = self._apply(before, op)
            before = self.records[written.record]
            replies.append(written.reply)
            changed, flaws = changed or written.changed, [*flaws, written.flaw]
        return Written(self.number(before), tuple(replies), changed, next(filter(None, flaws), ""))

    # ------------------------------------------------------------ what time does

    def lapse(self, number: int) -> int:
        """The lease ends."""
        record = self.records[number]
        return number if record is None else self.number(replace(record, lease_until=PAST))

    def age(self, number: int) -> int:
        """The downstream no longer promises to honour our key: no more re-sends."""
        record = self.records[number]
        if record is None or record.sends == 0 or not resendable(record, None, SCENE):
            return number
        return self.number(replace(record, first_dispatch_at=PAST))

    def calm(self, number: int) -> int:
        """The declared delay bound has passed since the last sender's lease ended."""
        record = self.records[number]
        sender_lives = (
            record is not None and record.state is not State.IN_DOUBT and record.lease_until > NOW
        )
        if record is None or sender_lives:
            return number
        return self.number(replace(record, sent_until=PAST))

    def close(self, number: int) -> int:
        """The window in which the key is honoured ends, or that of an approval. A record without
        either has none.
        """
        record = self.records[number]
        if record is None or record.dedup_until == inf or record.state is State.TOMBSTONE:
            return number
        return self.number(replace(record, dedup_until=PAST))


def _canonical(record: Record) -> Record:
    lease_until = record.lease_until if record.lease_until > NOW else PAST
    return replace(record, lease_until=lease_until, reason="", evidence=())


def _flaw(before: Record | None, after: Record | None, op: Any) -> str:
    """Judge one change by what it did, not by the guards of the table."""
    if isinstance(op, Claim) and after is not None and _held_unapproved(before, after, op):
        return UNAPPROVED
    if before is None or after is None or before == after:
        return ""
    if (
        before.state in TERMINAL
        and before.dedup_until > NOW
        and _canonical(before) != _canonical(after)
    ):
        return OVERWRITTEN
    if isinstance(op, Complete | Fail) and not _may_decide(before, op):
        return STALE
    if (
        isinstance(op, Attest)
        and before.state is State.FAILED
        and Evidence(NOW, op.note, op.outcome).is_result
    ):
        return CONTRADICTED
    return ""


def _held_unapproved(before: Record | None, after: Record, op: Claim) -> bool:
    if not op.request.terms.approval or after.token != op.token or after == before:
        return False
    return before is None or (before.sends == 0 and not NOW < before.dedup_until < inf)


def _may_decide(before: Record, op: Complete | Fail) -> bool:
    """Only the owner, or a sender whose send is the only one there ever was."""
    only_sender = before.dtoken == op.token and before.sends == 1 and before.state is State.IN_DOUBT
    return before.token == op.token or only_sender
