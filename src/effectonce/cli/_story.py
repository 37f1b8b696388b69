"""The whole story of one effect on one screen, for somebody who has a customer on the telephone."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from effectonce._core.records import TERMINAL, Record, State
from effectonce._core.terms import GUARANTEES
from effectonce.cli._console import console
from effectonce.cli._effects import (
    STYLES,
    abandoned,
    arguments_of,
    is_sealed,
    may_resend,
    next_steps,
    outcome_of,
    place_of,
    reference,
    verdict,
)
from effectonce.cli._history import attempt_told, failure_of, gave_up, is_run, partial_of, run_of, said, told
from effectonce.cli._output import SAID_MAX, dumps, print_pairs, shortened
from effectonce.cli._times import moment, span

if TYPE_CHECKING:
    from rich.console import Console

    from effectonce.observe import Entry

AUDIT_SHOWN = 12  # of the last entries: it should stay one screen
OURSELVES = ("probe", "late evidence")  # they settle a doubt, and leave the reason of it as it was
MARK = {State.COMPLETED: "✓", State.FAILED: "✗", State.IN_DOUBT: "?", State.TOMBSTONE: "·"}


def tell(record: Record, now: float, audit: Sequence[Entry] = (), *, reveal: bool) -> None:
    """Print it, with what the audit has about it."""
    from rich.markup import escape

    screen, style = console(), STYLES[record.state]
    mark, state = MARK.get(record.state, "…"), str(record.state).replace("_", " ")
    if partial_of(record) is not None:
        mark, style, state = "!", STYLES[State.IN_DOUBT], "completed in part"
    screen.print(f"[{style}]{mark} {state}[/]  [bold]{escape(record.request.terms.tool)}[/]  {reference(record)}")
    screen.print(escape(verdict(record, now)))
    screen.print()
    print_pairs(_facts(record, now, reveal=reveal))
    screen.print()
    print_pairs(_timeline(record, now, reveal=reveal))
    screen.print()
    if audit:
        _tell_audit(screen, audit)
    _tell_next(screen, record, now)


def _facts(record: Record, now: float, *, reveal: bool) -> list[tuple[str, str]]:
    request, terms = record.request, record.request.terms
    promise = GUARANTEES[terms.kind, terms.downstream].promise
    contract = f"{terms.kind}, downstream {terms.downstream}, version {terms.version}: {promise}"
    facts = [
        ("where", _where(record)),
        ("step of", f"the run {run_of(record)}" if run_of(record) else ""),
        ("tenant", request.tenant),
        ("contract", f"workflow, version {terms.version}: each step by its own" if is_run(record) else contract),
        ("begun", f"{record.epoch} time{'s' * (record.epoch != 1)}" if is_run(record) else ""),
        ("sends", "" if is_run(record) else _sends(record, now)),
        ("owner", _owner(record, now)),
        ("settled by", record.settled_by),
        (
            "was in doubt" if record.settled_by in OURSELVES else "reason",
            "" if record.state is State.IN_DOUBT else shortened(record.reason, SAID_MAX),
        ),
        ("arguments", "" if record.state is State.TOMBSTONE else _said(arguments_of(record, reveal=reveal))),
        ("outcome", _outcome(record.outcome, reveal=reveal)),
        ("done", _done(record, reveal=reveal)),
        ("key", request.key if reveal else ""),
        (
            "sealed",
            "Give --app, or the keys (EFFECTONCE_KEYS, keys_file), to read what is stored." if is_sealed(record) else "",
        ),
    ]
    return [(name, text) for name, text in facts if text]


def _where(record: Record) -> str:
    if record.state is State.TOMBSTONE or is_run(record):
        return place_of(record)
    return shortened(place_of(record), SAID_MAX) or "anywhere: the same tool and arguments, for as long as its window"


def _outcome(data: bytes, *, reveal: bool) -> str:
    said = _said(outcome_of(data, reveal=reveal)) if data else ""
    return said if reveal else shortened(said, SAID_MAX)


def _done(record: Record, *, reveal: bool) -> str:
    """What of it happened, if not all of it did."""
    report = partial_of(record)
    if report is None:
        return ""
    return dumps(report["done"]) if reveal else "a part (hidden: --reveal shows it)"


def _said(said: Any) -> str:
    return said.text or dumps(said.value)


def _sends(record: Record, now: float) -> str:
    if record.sends == 0:
        return "none" if record.state is not State.COMPLETED else "none that this record counts"
    again = ""
    if record.state not in TERMINAL:
        until_s = record.first_dispatch_at + record.request.terms.resend_s - now
        again = f"; may be sent again for {span(until_s)}" if may_resend(record, now) else "; may not be sent again"
    return f"{record.sends}{again}"


def _owner(record: Record, now: float) -> str:
    left_s = record.lease_until - now
    if record.state in TERMINAL or (left_s <= 0 and (record.state is State.IN_DOUBT or not record.token)):
        return ""  # whoever asked about a doubt last does not own it
    lease = f"its lease runs {span(left_s)} more" if left_s > 0 else f"its lease ended {span(-left_s)} ago"
    return f"{record.token[:8] or 'nobody'}, epoch {record.epoch}; {lease}"


def _timeline(record: Record, now: float, *, reveal: bool) -> list[tuple[str, str, str]]:
    """What happened, in the order of time, and how long after the claim."""
    rows = []
    for at, what in sorted(_moments(record, now, reveal=reveal), key=lambda moment: moment[0]):
        since = f"in {span(at - now)}" if at > now else f"+{span(at - record.created_at)}" if at > record.created_at else ""
        rows.append((moment(at), since, what))
    return rows


def _moments(record: Record, now: float, *, reveal: bool) -> list[tuple[float, str]]:
    sent = "first sent" if record.sends != 1 else "sent"
    if record.first_dispatch_at == record.created_at:
        moments = [(record.created_at, f"claimed and {sent}")]
    else:
        moments = [(record.created_at, "claimed")]
        moments += [(record.first_dispatch_at, sent)] if record.first_dispatch_at and record.sends else []
    for evidence in record.evidence:
        entry = said(evidence)
        if entry is not None:
            moments.append((evidence.at, told(entry)))
            continue
        outcome = _outcome(evidence.outcome, reveal=reveal)
        moments.append((evidence.at, f"{evidence.note}: {outcome}" if evidence.outcome else evidence.note))
    if abandoned(record, now) and not gave_up(record):
        moments.append((record.lease_until, "the lease ended, and nobody renewed it"))
    if record.decided_at and record.state is not State.CLAIMED:
        moments.append((record.decided_at, _decision(record)))
    if record.state in (State.COMPLETED, State.FAILED) and record.dedup_until != inf:
        moments.append((record.dedup_until, "its window ends: the outcome is forgotten, the key is refused"))
    return moments


def _decision(record: Record) -> str:
    who = f", by {record.settled_by}" if record.settled_by else ""
    match record.state:
        case State.COMPLETED:
            return f"completed{who}"
        case State.FAILED:
            attempt = failure_of(record)
            return f"failed{who}" if attempt is None or not attempt.number else f"failed: {attempt_told(attempt)}"
        case State.IN_DOUBT:
            return f"in doubt: {shortened(record.reason, SAID_MAX)}"
        case _:
            return "decided"


def _tell_audit(screen: Console, audit: Sequence[Entry]) -> None:
    """The last entries: the beginning of a long one is in the timeline above."""
    from effectonce.cli._audit import told as what_it_says

    left = len(audit) - AUDIT_SHOWN
    more = f"  the first {left:,} are not shown: effectonce audit list --effect {audit[0].effect}" if left > 0 else ""
    screen.print(f"in the audit[dim]{more}[/]")
    print_pairs([(moment(e.at), e.event.replace("_", " "), what_it_says(e)) for e in audit[-AUDIT_SHOWN:]])
    screen.print()


def _tell_next(screen: Console, record: Record, now: float) -> None:
    steps, report = next_steps(record, now), partial_of(record)
    if report is not None:
        steps = [("put it right", report["corrective_action"]), *steps]
    if steps:
        print_pairs(steps, style="dim", last="bold")
    else:
        screen.print("Nothing to do." if record.state in TERMINAL else "Nothing to settle.", style="dim")
