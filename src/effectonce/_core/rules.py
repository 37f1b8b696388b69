"""THE transition table.

Theory of operation. A record is the whole truth about one effect. Nothing but a rule of `RULES`
may change it, and a store applies a rule in one atomic step or not at all. Each rule has the
number it has in the model (`make model` explores this very table):

 absent ─ T1 ─> claimed ─ T3 ─> dispatched ─ T5 ─> completed ─ T12 ─> tombstone ─ T12 ─> (forgotten)
                  │  ^             │  │  │                          ^
                  │  └ T4 not sent ┘  │  └─ T6 ─> failed ─ T12 ─────┘
                  └─── T2 stolen      └─ T7 ─> in doubt ─ T9 T10 T11 ─> completed | failed | claimed

 1. Safety uses no clock: `lease_over` only decides who may try next, never whether something was
    sent. The one delay that a tool may declare (`quiet`) is counted only while the clock is
    known to have made no step.
 2. Every write of an owner is fenced by token and epoch. A store that forgot hands out epoch 1
    twice; tokens differ.
 3. `dispatched` is written before the first byte leaves, and `sends` counts those writes.
 4. `sends == 1` means that an answer is about the only send there ever was. Only then is a
    rejection a failure (T6), and only then does a late answer settle a doubt (T10b): the dirty
    bit lives in the record, not in a worker that may die.
 5. A negative probe is proof only if no older send could land any more *before* the probe was
    asked (T9 notes it, T11 needs it).
 6. A record without an outcome never expires; a key whose window is over is refused, never run
    again.
 7. Where an approval is needed, a record is born without an owner (T1), and no claim holds it
    before a person has approved the arguments with its fingerprint (T14). Using the approval is
    that claim (T2), so it is used once, by one caller, and stays with this effect.
 8. Repeating a write with the same token is a success: see `_already` in transitions.py.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from effectonce._core.guarantees import Capability
from effectonce._core.guards import (
    another_wish,
    approved,
    as_seen,
    asked_when_quiet,
    by_another,
    done_unsent,
    ends_unsent,
    in_turn,
    late_only_send,
    lease_over,
    may_rerun,
    never_sent,
    next_send,
    not_resendable,
    of_a_send,
    owns,
    quiet,
    recognisable,
    rejection_is_final,
    remembered,
    resendable,
    same_request,
    sent_before,
    this_send,
    to_dispatch,
    to_hold,
    unapproved,
    unlatched,
    unremembered,
    window_over,
    wished,
)
from effectonce._core.ops import (
    Approve,
    Attest,
    Claim,
    Complete,
    Confirm,
    Dispatch,
    Doubt,
    Fail,
    Inquire,
    Rearm,
    RecordOp,
    Refute,
    Renew,
    Rerun,
    Sweep,
    Unsend,
)
from effectonce._core.record import (
    APPROVED,
    ASKED_BY,
    TERMINAL,
    Evidence,
    Record,
    Request,
    Scene,
    State,
)

EVIDENCE_MAX = 32  # entries; results that came too late are kept beyond it
KEPT = frozenset({ASKED_BY, APPROVED})

Guard: TypeAlias = Callable[[Record, Any, Scene], bool]
Change: TypeAlias = Callable[[Record, Any, Scene], "Record | None"]


class TransitionRule(Struct, frozen=True):
    name: str
    op: type[RecordOp | Sweep]
    start: State
    end: State
    when: tuple[Guard, ...]
    change: Change


def outcome_pending(r: Record) -> bool:
    """Was it sent, with no outcome so far? Then its step may run nothing else."""
    return r.state in (State.DISPATCHED, State.IN_DOUBT) or (
        r.state is State.CLAIMED and r.sends > 0
    )


_LOOKS_AROUND = frozenset({Claim, Dispatch, Complete})


def latch_of(r: Record | None, op: Any) -> str:
    """The latch this op has to look at, or "". Only the unsent waits (T1, T2, T3, T5b, T13)."""
    if type(op) not in _LOOKS_AROUND:
        return ""
    if r is None or r.state in TERMINAL:
        born = isinstance(op, Claim) and (r is None or op.request.terms.rerun)
        return op.request.latch if born else ""
    # a run's end sends nothing, beside whatever it is written
    written = isinstance(op, Complete) and r.request.terms.steps
    return r.request.latch if r.state is State.CLAIMED and not written else ""


# ---------------------------------------------------------------- changes


def _born(_r: Record | None, op: Claim, scene: Scene, epoch: int = 1) -> Record:
    now, token, lease_until = scene.now, op.token, scene.now + op.lease_s
    if op.dispatch:  # as `_sent` has it, in one go: this is every call's first write
        return Record(
            op.request, State.DISPATCHED, epoch, token, lease_until, now, 1, token, now, lease_until
        )
    if op.request.terms.approval:  # it has no owner while it waits for a person
        return Record(op.request, State.CLAIMED, epoch, "", now, now, reason=op.asked_by)
    return Record(op.request, State.CLAIMED, epoch, token, lease_until, now)


def _reborn(r: Record, op: Claim, scene: Scene) -> Record:
    return _born(None, op, scene, r.epoch + 1)


def _stolen(r: Record, op: Claim, scene: Scene) -> Record:
    lease_until = scene.now + op.lease_s
    record = replace(
        r,
        request=_as_asked(r, op),
        state=State.CLAIMED,
        epoch=r.epoch + 1,
        token=op.token,
        lease_until=lease_until,
    )
    return _sent(record, op, scene) if op.dispatch else record


def _as_asked(r: Record, op: Claim) -> Request:
    """While nothing was sent, nothing rests on the first caller's terms: those of today hold."""
    pinned, terms = r.request.terms, op.request.terms
    if r.sends > 0 or pinned.steps or pinned == terms:
        return r.request
    return replace(r.request, terms=terms)


def _sent(r: Record, op: Claim | Dispatch, scene: Scene) -> Record:
    lease_until = scene.now + op.lease_s
    return replace(
        r,
        state=State.DISPATCHED,
        sends=r.sends + 1,
        dtoken=op.token,
        first_dispatch_at=scene.now if r.sends == 0 else r.first_dispatch_at,
        lease_until=lease_until,
        sent_until=max(r.sent_until, lease_until),
    )


def _unsent(r: Record, op: Unsend, scene: Scene) -> Record:
    # The next dispatch makes the same count again. A repeat of this write that lands after it
    # must not take that one back.
    return replace(
        r,
        state=State.CLAIMED,
        epoch=r.epoch + 1,
        sends=r.sends - 1,
        lease_until=scene.now + op.lease_s,
    )


def _renewed(r: Record, op: Renew, scene: Scene) -> Record:
    lease_until = scene.now + op.lease_s
    sent_until = max(r.sent_until, lease_until) if r.state is State.DISPATCHED else r.sent_until
    return replace(r, lease_until=lease_until, sent_until=sent_until)


def _decided(r: Record, state: State, outcome: bytes, scene: Scene, **extra: Any) -> Record:
    return replace(
        r,
        state=state,
        outcome=outcome,
        lease_until=scene.now,
        decided_at=scene.now,
        dedup_until=scene.now + r.request.terms.window_s,
        **extra,
    )


def _completed(r: Record, op: Complete, scene: Scene) -> Record:
    return _decided(r, State.COMPLETED, op.outcome, scene, settled_by=op.by)


def _completed_late(r: Record, op: Complete, scene: Scene) -> Record:
    extra = {"settled_by": "late evidence", "epoch": r.epoch + 1, "token": ""}
    return _decided(r, State.COMPLETED, op.outcome, scene, **extra)


def _failed(r: Record, op: Fail, scene: Scene) -> Record:
    return _decided(r, State.FAILED, op.outcome, scene)


def _doubted(r: Record, op: Doubt, scene: Scene) -> Record:
    doubted = _lost(r, scene, op.reason)
    if not op.unaided:
        return doubted
    terms = replace(r.request.terms, downstream=Capability.NONE, resend_s=0.0)
    return replace(doubted, request=replace(r.request, terms=terms))


def _abandoned(r: Record, op: Claim | Sweep, scene: Scene) -> Record:
    changed = isinstance(op, Claim) and not recognisable(r.request.terms, op.request.terms)
    then = "; the contract has changed since, and would not recognise a repeat" if changed else ""
    return _lost(r, scene, f"its owner vanished after the request may have left{then}")


def _lost(r: Record, scene: Scene, reason: str) -> Record:
    return replace(
        r,
        state=State.IN_DOUBT,
        epoch=r.epoch + 1,
        token="",
        lease_until=scene.now,
        decided_at=scene.now,
        reason=reason,
    )


def _inquired(r: Record, op: Inquire, scene: Scene) -> Record:
    # A send that lands after the probe has looked and before its answer is used would run twice:
    # so it is judged now, not then.
    sent_until = 0.0 if quiet(r, op, scene) else r.sent_until
    return replace(
        r,
        epoch=r.epoch + 1,
        token=op.token,
        lease_until=scene.now + op.lease_s,
        sent_until=sent_until,
    )


def _rerun(r: Record, op: Rerun, scene: Scene) -> Record:
    return replace(r, state=State.CLAIMED, sends=0, lease_until=scene.now + op.lease_s)


def _person(r: Record, state: State, op: Confirm | Refute, scene: Scene) -> Record:
    return _decided(
        r, state, op.outcome, scene, epoch=r.epoch + 1, token="", settled_by=op.by, reason=op.reason
    )


def _confirmed(r: Record, op: Confirm, scene: Scene) -> Record:
    return _person(r, State.COMPLETED, op, scene)


def _refuted(r: Record, op: Refute, scene: Scene) -> Record:
    return _person(r, State.FAILED, op, scene)


def _rearmed(r: Record, op: Rearm, scene: Scene) -> Record:
    return replace(
        r,
        state=State.CLAIMED,
        epoch=r.epoch + 1,
        token="",
        lease_until=scene.now,
        settled_by=op.by,
        reason=op.reason,
    )


def _wished_anew(r: Record, op: Claim, scene: Scene) -> Record:
    """What was approved before is void, and so is a claim of it: it has no owner any more."""
    now = scene.now
    return Record(op.request, State.CLAIMED, r.epoch, "", now, now, reason=op.asked_by)


def _approved(r: Record, op: Approve, scene: Scene) -> Record:
    said: tuple[Evidence, ...] = (Evidence(scene.now, APPROVED, f"{op.by}: {op.reason}".encode()),)
    if r.settled_by == "":
        said = (Evidence(r.created_at, ASKED_BY, r.reason.encode()), *said)
    return replace(
        r,
        decided_at=scene.now,
        dedup_until=scene.now + op.valid_s,
        settled_by=op.by,
        reason=op.reason,
        evidence=(*r.evidence, *said),
    )


def _attested(r: Record, op: Attest, scene: Scene) -> Record:
    evidence = [*r.evidence, Evidence(scene.now if op.at is None else op.at, op.note, op.outcome)]
    # the oldest entry that can be spared makes room; if there is none, there is room
    if len(evidence) > EVIDENCE_MAX:
        spare = next((e for e in evidence if not e.is_result and e.note not in KEPT), None)
        if spare is not None:
            evidence.remove(spare)
    return replace(r, evidence=tuple(evidence))


def _buried(r: Record, _op: Sweep, _scene: Scene) -> Record:
    bare = Request(r.request.key, r.request.fingerprint, r.request.terms, r.request.tenant)
    return replace(
        r,
        request=bare,
        state=State.TOMBSTONE,
        outcome=b"",
        token="",
        dtoken="",
        reason="",
        evidence=(),
    )


def _forgotten(_r: Record, _op: Sweep, _scene: Scene) -> None:
    return None


# ---------------------------------------------------------------- the table


def _claims(
    name: str, start: State, when: tuple[Guard, ...], change: Change
) -> tuple[TransitionRule, TransitionRule]:
    """A claim only holds the record or, in the same write, dispatches it (T1 and T3 merged)."""
    return (
        TransitionRule(name, Claim, start, State.DISPATCHED, (*when, to_dispatch), change),
        TransitionRule(name, Claim, start, State.CLAIMED, (*when, to_hold), change),
    )


RULES: tuple[TransitionRule, ...] = (
    *_claims("T1", State.ABSENT, (in_turn, unlatched), _born),
    *_claims(
        "T2", State.CLAIMED, (same_request, lease_over, resendable, unlatched, approved), _stolen
    ),
    TransitionRule(
        "T14", Claim, State.CLAIMED, State.CLAIMED, (another_wish, lease_over), _wished_anew
    ),
    TransitionRule(
        "T14",
        Approve,
        State.CLAIMED,
        State.CLAIMED,
        (wished, by_another, unapproved, lease_over),
        _approved,
    ),
    TransitionRule(
        "T7",
        Claim,
        State.CLAIMED,
        State.IN_DOUBT,
        (same_request, lease_over, not_resendable),
        _abandoned,
    ),
    *_claims("T8", State.DISPATCHED, (same_request, lease_over, resendable), _stolen),
    TransitionRule(
        "T7",
        Claim,
        State.DISPATCHED,
        State.IN_DOUBT,
        (same_request, lease_over, not_resendable),
        _abandoned,
    ),
    *_claims("T13", State.COMPLETED, (may_rerun, unlatched), _reborn),
    *_claims("T13", State.FAILED, (may_rerun, unlatched), _reborn),
    TransitionRule(
        "T3",
        Dispatch,
        State.CLAIMED,
        State.DISPATCHED,
        (owns, next_send, resendable, unlatched),
        _sent,
    ),
    TransitionRule(
        "T3", Dispatch, State.DISPATCHED, State.DISPATCHED, (owns, next_send, resendable), _sent
    ),
    TransitionRule("T4", Unsend, State.DISPATCHED, State.CLAIMED, (owns, this_send), _unsent),
    TransitionRule("T5", Complete, State.DISPATCHED, State.COMPLETED, (owns,), _completed),
    TransitionRule(
        "T5b", Complete, State.CLAIMED, State.COMPLETED, (owns, done_unsent, unlatched), _completed
    ),
    TransitionRule("T6", Fail, State.DISPATCHED, State.FAILED, (owns, rejection_is_final), _failed),
    TransitionRule("T6b", Fail, State.CLAIMED, State.FAILED, (owns, ends_unsent), _failed),
    TransitionRule("T7", Doubt, State.DISPATCHED, State.IN_DOUBT, (owns,), _doubted),
    TransitionRule("T9", Inquire, State.IN_DOUBT, State.IN_DOUBT, (lease_over,), _inquired),
    TransitionRule("T10", Complete, State.IN_DOUBT, State.COMPLETED, (owns,), _completed),
    TransitionRule(
        "T10b", Complete, State.IN_DOUBT, State.COMPLETED, (late_only_send,), _completed_late
    ),
    TransitionRule("T11", Rerun, State.IN_DOUBT, State.CLAIMED, (owns, asked_when_quiet), _rerun),
    TransitionRule("T11b", Confirm, State.IN_DOUBT, State.COMPLETED, (), _confirmed),
    TransitionRule("T11b", Confirm, State.DISPATCHED, State.COMPLETED, (lease_over,), _confirmed),
    TransitionRule(
        "T11b", Confirm, State.CLAIMED, State.COMPLETED, (lease_over, sent_before), _confirmed
    ),
    TransitionRule("T11b", Refute, State.IN_DOUBT, State.FAILED, (of_a_send,), _refuted),
    *(
        TransitionRule(
            "T11b", Refute, s, State.FAILED, (of_a_send, lease_over, not_resendable), _refuted
        )
        for s in (State.DISPATCHED, State.CLAIMED)
    ),
    TransitionRule(
        "T11c", Refute, State.CLAIMED, State.FAILED, (as_seen, lease_over, never_sent), _refuted
    ),
    TransitionRule("T11b", Rearm, State.IN_DOUBT, State.CLAIMED, (resendable,), _rearmed),
    *(
        TransitionRule("T7", Sweep, s, State.IN_DOUBT, (lease_over, not_resendable), _abandoned)
        for s in (State.DISPATCHED, State.CLAIMED)
    ),
    TransitionRule(
        "T12", Sweep, State.COMPLETED, State.TOMBSTONE, (window_over, remembered), _buried
    ),
    TransitionRule("T12", Sweep, State.FAILED, State.TOMBSTONE, (window_over, remembered), _buried),
    *(
        TransitionRule("T12", Sweep, s, State.ABSENT, (window_over, unremembered), _forgotten)
        for s in (State.COMPLETED, State.FAILED)
    ),
    TransitionRule("T12", Sweep, State.TOMBSTONE, State.ABSENT, (unremembered,), _forgotten),
    *(
        TransitionRule("H", Renew, s, s, (owns,), _renewed)
        for s in (State.CLAIMED, State.DISPATCHED, State.IN_DOUBT)
    ),
    *(TransitionRule("E", Attest, s, s, (), _attested) for s in State if s is not State.ABSENT),
)


def due_at(r: Record) -> float:
    """When a sweep has something to do with this record; infinity: never, as it is now."""
    terms = r.request.terms
    match r.state:
        case State.DISPATCHED | State.CLAIMED if r.sends > 0:
            return (
                max(r.lease_until, r.first_dispatch_at + terms.resend_s)
                if terms.resend_s > 0
                else r.lease_until
            )
        case State.COMPLETED | State.FAILED:
            return r.dedup_until
        case State.TOMBSTONE:
            return r.dedup_until + terms.tombstone_s
        case _:
            return inf


Table: TypeAlias = dict[tuple[type, State], tuple[TransitionRule, ...]]


def index(rules: tuple[TransitionRule, ...]) -> Table:
    """The rules by where they apply: what `transition` looks things up in."""
    places = {(rule.op, rule.start) for rule in rules}
    return {place: tuple(r for r in rules if (r.op, r.start) == place) for place in places}


TABLE = index(RULES)
