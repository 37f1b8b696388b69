"""Applying the table: one op to one record, and the reply that the caller gets."""

from __future__ import annotations

from math import inf
from typing import Any

from msgspec import Struct

from effectonce._core.guards import (
    approved,
    lease_over,
    leased,
    may_rerun,
    same_request,
    window_over,
)
from effectonce._core.ops import (
    Applied,
    Approve,
    Attest,
    Busy,
    Claim,
    Complete,
    Confirm,
    Dispatch,
    Doubt,
    Doubtful,
    Early,
    Fail,
    Held,
    Inquire,
    KeyExpired,
    Latched,
    Mismatch,
    Rearm,
    Recorded,
    RecordOp,
    Refused,
    Refute,
    Rerun,
    Sweep,
    Together,
    Unapproved,
    Unsend,
)
from effectonce._core.record import GAVE_UP, TERMINAL, TRIED, Record, Scene, State
from effectonce._core.rules import TABLE, Table, TransitionRule

_RERUN_FROM = (State.COMPLETED, State.FAILED)
_HOLDS = frozenset({Claim, Inquire})


class TransitionResult(Struct, frozen=True):
    """What one op did: record before and after, whether to write it, the reply, and the rule."""

    before: Record | None
    after: Record | None
    changed: bool
    reply: Any
    rule: TransitionRule | None = None


def transition(
    record: Record | None, op: RecordOp | Sweep, scene: Scene, table: Table = TABLE
) -> TransitionResult:
    """Apply *op* by the table: only here a record changes. Only the model passes another table."""
    state = State.ABSENT if record is None else record.state
    for rule in table.get((type(op), state), ()):
        for guard in rule.when:  # not `all(...)`: a generator costs more than the guards
            # absent: guards of T1 do not look
            if not guard(record, op, scene):  # type: ignore[arg-type]
                break
        else:
            after = rule.change(record, op, scene)  # type: ignore[arg-type]
            return TransitionResult(record, after, True, _reply(record, after, op, scene), rule)
    return TransitionResult(record, record, False, _refusal(record, op, scene))


def born_and_ended(op: Together, scene: Scene, table: Table = TABLE) -> TransitionResult | None:
    """A claim and its end at once: one record, one write, both replies. None: something else."""
    first, last = op.ops[0], op.ops[-1]
    if len(op.ops) != 2 or type(first) is not Claim or type(last) is not Complete:
        return None
    if first.request.key != last.key or first.request.latch or not first.dispatch:
        return None
    born = transition(None, first, scene, table)
    ended = transition(born.after, last, scene, table)
    return (
        TransitionResult(None, ended.after, True, (born.reply, ended.reply))
        if born.changed and ended.changed
        else None
    )


def _reply(before: Record | None, after: Record | None, op: RecordOp | Sweep, scene: Scene) -> Any:
    """The reply to an op that a rule allowed."""
    asked = type(op)
    if after is None:
        return Applied(0)
    if asked is Claim and after.state is State.IN_DOUBT:
        return Doubtful(0.0, after.reason)
    if asked in _HOLDS:
        if not after.token:
            changed = before is not None and before.state is State.CLAIMED
            if changed and before.request.fingerprint != after.request.fingerprint:  # type: ignore[union-attr]
                return Mismatch(after.request.terms.tool)
            return Unapproved(0.0, fingerprint=after.request.fingerprint)
        taken_over = before is not None and asked is Claim and _vanished(before, scene)
        return Held(after.epoch, after.sends, after.state is State.DISPATCHED, taken_over)
    return after if asked is Attest else Applied(after.epoch)


def _vanished(r: Record, scene: Scene) -> bool:
    """Its owner ended without a word: it decides nothing for those who count. A call that gives
    up says so after its lease is let go.
    """
    under_way = r.state in (State.DISPATCHED, State.CLAIMED) and (
        r.sends > 0 or r.request.terms.steps
    )
    if not under_way or r.token == "" or r.lease_until >= scene.now:
        return False
    return not any(
        entry.note in (TRIED, GAVE_UP) and entry.at >= r.lease_until for entry in r.evidence
    )


def _refusal(r: Record | None, op: RecordOp | Sweep, scene: Scene) -> Any:
    """The reply to an op that no rule allowed. The record stays as it is."""
    match op:
        case Claim():
            return _claim_refusal(r, op, scene)
        case Attest():
            return r
        case Inquire() if r is not None and r.state is State.IN_DOUBT:
            if r.token == op.token:
                return Held(r.epoch, r.sends, dispatched=False)
            return Busy(r.lease_until - scene.now)
        case _ if r is not None and _already(r, op):
            return Applied(r.epoch)
        case _:
            return Refused(None if r is None else r.state)


def _claim_refusal(r: Record | None, op: Claim, scene: Scene) -> Any:
    """Why this claim holds nothing: the first true reason, the caller's own mistakes first."""
    if r is None or (
        scene.rival is not None and r.state in _RERUN_FROM and may_rerun(r, op, scene)
    ):
        return _wait_for_others(op, scene)
    if r.state is State.TOMBSTONE or (r.state in TERMINAL and window_over(r, op, scene)):
        return KeyExpired(scene.now - r.dedup_until)
    if not same_request(r, op, scene):
        return Mismatch(r.request.terms.tool)
    match r.state:
        case State.COMPLETED | State.FAILED:
            age_s, remaining_s = scene.now - r.decided_at, r.dedup_until - scene.now
            return Recorded(r.state, r.outcome, age_s, remaining_s, r.settled_by)
        case State.IN_DOUBT:
            return Doubtful(scene.now - r.decided_at, r.reason)
        case _ if r.token == op.token:
            return Held(r.epoch, r.sends, r.state is State.DISPATCHED)
        case _ if lease_over(r, op, scene) and not approved(r, op, scene):
            expired, fingerprint = r.dedup_until != inf, r.request.fingerprint
            return Unapproved(scene.now - r.created_at, expired, fingerprint)
        case _ if lease_over(r, op, scene):
            return _wait_for_others(op, scene)
        case _:
            return Busy(r.lease_until - scene.now)


def _wait_for_others(op: Claim, scene: Scene) -> Latched | Early:
    rival = scene.rival
    if rival is None:
        return Early(op.request.after)
    alive = rival.state is not State.IN_DOUBT and leased(rival, scene.now)
    return Latched(
        rival.request.key,
        rival.request.terms.tool,
        rival.lease_until - scene.now if alive else None,
    )


def _already(r: Record, op: RecordOp | Sweep) -> bool:
    """Was this very write applied before, and only its acknowledgement lost?"""
    match op:
        case Dispatch():
            return (
                r.state is State.DISPATCHED
                and r.epoch == op.epoch
                and r.dtoken == op.token
                and r.sends == op.send
            )
        case Unsend():
            return (
                r.state is State.CLAIMED
                and r.epoch == op.epoch + 1
                and r.token == op.token
                and r.sends == op.send - 1
            )
        case Complete():
            mine = (r.token == op.token and r.epoch == op.epoch) or (
                r.dtoken == op.token and r.sends == 1
            )
            return r.state is State.COMPLETED and mine and r.outcome == op.outcome
        case Fail():
            return r.state is State.FAILED and r.token == op.token and r.epoch == op.epoch
        case Doubt():
            return r.state is State.IN_DOUBT and r.dtoken == op.token and r.epoch == op.epoch + 1
        case Rerun():
            return (
                r.state is State.CLAIMED
                and r.token == op.token
                and r.epoch == op.epoch
                and r.sends == 0
            )
        case Confirm():
            return r.state is State.COMPLETED and r.settled_by == op.by and r.outcome == op.outcome
        case Refute():
            return r.state is State.FAILED and r.settled_by == op.by and r.outcome == op.outcome
        case Approve():
            return (
                r.state in (State.CLAIMED, State.DISPATCHED)
                and r.request.fingerprint == op.fingerprint
                and r.settled_by == op.by
                and r.reason == op.reason
            )
        case Rearm():
            return (
                r.state is State.CLAIMED
                and r.token == ""
                and r.settled_by == op.by
                and r.reason == op.reason
            )
        case _:
            return False
