"""An effect's story, for a person with a customer on the phone: what it is, what happened when."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING

from effectonce._core.failed_attempts import failure_of
from effectonce._core.guarantees import GUARANTEES
from effectonce._core.guards import leased
from effectonce._core.record import TERMINAL, Record, State
from effectonce.approvals._standing import apart, standing_of
from effectonce.views.approvals import WAITING, approval_facts, approval_moments
from effectonce.views.effects import (
    abandoned,
    arguments_of,
    is_sealed,
    may_resend,
    outcome_of,
    place_of,
)
from effectonce.views.history import (
    describe,
    describe_attempt,
    entry_of,
    gave_up,
    is_run,
    partial_of,
    run_of,
)
from effectonce.views.text import Screen, dumps
from effectonce.views.times import instant, later, span

if TYPE_CHECKING:
    from effectonce.observe import Entry

OURSELVES = ("probe", "late evidence")  # they settle a doubt, and leave the reason of it as it was
BESIDE_MAX = 20
ONLY_IN_THE_AUDIT = {
    "dedup_hit": "a repeated call got its outcome",
    "coalesced": "a call that had waited for it got its outcome",
    "in_flight": "a repeated call came while it ran, and did not wait",
    "conflict": "a call with other arguments used its key, and was refused",
    "expired": "a repeated call came after its window, and was refused",
    "attempt": "",
    "taken_over": "another caller went on with it, because its owner had vanished",
    "probed": "",
    "fenced_out": "an owner that had lost it reported success",
}
MARK: dict[str, str] = {
    WAITING: "?",
    "given_up": "!",
    State.COMPLETED: "✓",
    State.FAILED: "✗",
    State.IN_DOUBT: "?",
    State.TOMBSTONE: "·",
}


def facts_of(record: Record, now: float, screen: Screen) -> list[tuple[str, str]]:
    """What it is, and how it stands."""
    standing, record = standing_of(record, now), apart(record)
    rejected = standing is not None and standing.state == "rejected"
    request, terms = record.request, record.request.terms
    promise = GUARANTEES[terms.kind, terms.downstream].promise
    help_ = f"{terms.downstream}{f' ({terms.provider})' if terms.provider else ''}"
    contract = f"{terms.kind}, downstream {help_}, version {terms.version}: {promise}"
    if is_run(record):
        contract = f"workflow, version {terms.version}: each step by its own"
    reason = "was in doubt" if record.settled_by in OURSELVES else "reason"
    why = screen.shorten(record.reason)
    arguments = arguments_of(record, reveal=screen.reveal).words(screen)
    rows = [
        ("where", _where(record, screen)),
        ("step of", f"the run {run_of(record)}" if run_of(record) else ""),
        ("tenant", request.tenant),
        ("contract", contract),
        ("begun", f"{record.epoch} time{'s' * (record.epoch != 1)}" if is_run(record) else ""),
        ("sends", "" if is_run(record) else _sends(record, now)),
        ("owner", _owner(record, now)),
        *approval_facts(standing, screen),
        ("settled by", "" if rejected else record.settled_by),
        (reason, "" if record.state is State.IN_DOUBT or rejected else why),
        ("arguments", "" if record.state is State.TOMBSTONE else arguments),
        ("outcome", _outcome(record.outcome, screen)),
        ("done", _done(record, screen)),
        ("key", request.key if screen.reveal else ""),
        ("sealed", screen.keys if is_sealed(record) else ""),
    ]
    return [(name, text) for name, text in rows if text]


def _where(record: Record, screen: Screen) -> str:
    if record.state is State.TOMBSTONE or is_run(record):
        return place_of(record)
    anywhere = "anywhere: the same tool and arguments, for as long as its window"
    return screen.shorten(place_of(record)) or anywhere


def _outcome(data: bytes, screen: Screen) -> str:
    text = outcome_of(data, reveal=screen.reveal).words(screen) if data else ""
    return text if screen.reveal else screen.shorten(text)


def _done(record: Record, screen: Screen) -> str:
    """What of it happened, if not all of it did."""
    report = partial_of(record)
    if report is None:
        return ""
    return dumps(report["done"]) if screen.reveal else screen.hidden("a part", "it")


def _sends(record: Record, now: float) -> str:
    if record.sends == 0:
        return "none" if record.state is not State.COMPLETED else "none that this record counts"
    if record.state in TERMINAL:
        return f"{record.sends}"
    if not may_resend(record, now):
        return f"{record.sends}; may not be sent again"
    until_s = record.first_dispatch_at + record.request.terms.resend_s - now
    return f"{record.sends}; may be sent again for {span(until_s)}"


def _owner(record: Record, now: float) -> str:
    left_s = record.lease_until - now
    alive = leased(record, now)
    if record.state in TERMINAL or (
        not alive and (record.state is State.IN_DOUBT or not record.token)
    ):
        return ""  # the process that asked about a doubt last does not own it
    if alive:
        lease = f"its lease runs {span(left_s)} more"
    elif left_s > 0:
        lease = "its lease was written by a wrong clock, and counts as over"
    else:
        lease = f"its lease ended {span(-left_s)} ago"
    return f"{record.token[:8] or 'none'}, epoch {record.epoch}; {lease}"


def timeline(
    record: Record, now: float, screen: Screen, audit: Sequence[Entry] = ()
) -> list[tuple[str, str, str]]:
    """What happened, in the order of time to the millisecond, and how long after the claim. From
    the *audit* comes what no record keeps.
    """
    rows = []
    moments = [*_moments(record, now, screen), *_beside(audit)]
    for at, what in sorted(moments, key=lambda moment: moment[0]):
        since = later(at - record.created_at) if at > record.created_at else ""
        rows.append((instant(at), f"in {span(at - now)}" if at > now else since, what))
    return rows


def not_kept(record: Record, *, audited: bool) -> str:
    """What a timeline cannot show, because it is written down nowhere."""
    repeats = (
        "Calls that got its result again, and attempts that went well, are shown as the audit has"
        " them, by the clocks of the processes that made them."
        if audited
        else "Only an audit keeps the calls that got its result again: guard.observe(Audit(guard))."
    )
    asked = (
        ""
        if record.request.terms.approval or standing_of(record, inf) is not None
        else " For whom a call was made is kept where it needed an approval."
    )
    return repeats + asked


def _beside(audit: Sequence[Entry]) -> list[tuple[float, str]]:
    """What the audit has and the record has not. Of many repeats, the last."""
    found = [
        (entry.at, _in_words(entry))
        for entry in audit
        # the record has those that failed
        if entry.event in ONLY_IN_THE_AUDIT and (entry.event != "attempt" or not entry.error)
    ]
    left = len(found) - BESIDE_MAX
    if left <= 0:
        return found
    return [(found[left][0], f"{left:,} earlier entries are in the audit"), *found[left:]]


def _in_words(entry: Entry) -> str:
    took = "" if entry.duration_s is None else f" after {entry.duration_s:.3f} s"
    match entry.event:
        case "attempt":
            return f"attempt {entry.attempt} went well{took}"
        case "probed":
            return f"the downstream was asked: {entry.outcome.replace('_', ' ')}{took}"
        case _:
            return ONLY_IN_THE_AUDIT[entry.event]


def _moments(record: Record, now: float, screen: Screen) -> list[tuple[float, str]]:
    sent = "first sent" if record.sends != 1 else "sent"
    standing = standing_of(record, now)
    if standing is None and record.first_dispatch_at == record.created_at:
        moments = [(record.created_at, f"claimed and {sent}")]
    else:
        moments = [(record.created_at, "claimed")]
        if standing is not None:
            moments = approval_moments(record, standing, now, screen)
        if record.first_dispatch_at and record.sends:
            moments.append((record.first_dispatch_at, sent))
    record = apart(record)
    for evidence in record.evidence:
        entry, what = entry_of(evidence), evidence.note
        if entry is not None:
            what = describe(entry, screen)
        elif evidence.outcome:
            what += f": {_outcome(evidence.outcome, screen)}"
        moments.append((evidence.at, what))
    if abandoned(record, now) and not gave_up(record):
        moments.append((record.lease_until, "the lease ended, and was not renewed"))
    if record.decided_at and record.state is not State.CLAIMED:
        rejected = standing is not None and standing.state == "rejected"
        decided = f"rejected by {record.settled_by}: {screen.shorten(record.reason)}"
        moments.append((record.decided_at, decided if rejected else _decision(record, screen)))
    if record.state in (State.COMPLETED, State.FAILED) and record.dedup_until != inf:
        forgotten = "its window ends: the outcome is forgotten, the key is refused"
        moments.append((record.dedup_until, forgotten))
    return moments


def _decision(record: Record, screen: Screen) -> str:
    who = f", by {record.settled_by}" if record.settled_by else ""
    match record.state:
        case State.COMPLETED:
            return f"completed{who}"
        case State.FAILED:
            attempt = failure_of(record)
            if attempt is None or not attempt.number:
                return f"failed{who}"
            return f"failed: {describe_attempt(attempt, screen)}"
        case State.IN_DOUBT:
            return f"in doubt: {screen.shorten(record.reason)}"
        case _:
            return "decided"
