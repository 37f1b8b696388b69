"""Whether an entry of a list fits a filter, for lists of effects, doubts, runs and wishes.

Dead letters have a query of their own, which a filter becomes: `ListFilter.wanted`.
"""

from __future__ import annotations

from typing import NamedTuple

from effectonce._core.record import Record, State
from effectonce.approvals._standing import standing_of
from effectonce.recovery.causes import error_type, trouble_of
from effectonce.views.filter_fields import ListFilter
from effectonce.views.history import is_run

RUN_STATES = {"open": State.CLAIMED, "completed": State.COMPLETED, "failed": State.FAILED}


class FilterFacts(NamedTuple):
    """What a filter looks at."""

    tool: str
    tenant: str
    state: str
    scope: str
    at: float  # since when it is as its list shows it
    record: Record


def effect_facts(record: Record) -> FilterFacts:
    """Of an effect: its age counts from its claim."""
    return _facts(record, str(record.state), record.created_at)


def doubt_facts(record: Record) -> FilterFacts:
    """Of an effect in doubt: its age counts from when it went in doubt."""
    return _facts(record, str(record.state), record.decided_at)


def run_facts(record: Record) -> FilterFacts | None:
    """Of a run: its age counts from its beginning. None: it is none."""
    if not is_run(record):
        return None
    names = {state: name for name, state in RUN_STATES.items()}
    return _facts(record, names.get(record.state, str(record.state)), record.created_at)


def wish_facts(record: Record, now: float) -> FilterFacts | None:
    """Of a call that waits: its age counts from when it was asked for. None: it does not wait."""
    standing = standing_of(record, now)
    if standing is None or not standing.waits:
        return None
    return _facts(record, standing.state, standing.asked_at)


def _facts(record: Record, state: str, at: float) -> FilterFacts:
    request = record.request
    return FilterFacts(request.terms.tool, request.tenant, state, request.scope, at, record)


def fits(asked: ListFilter, facts: FilterFacts | None, now: float) -> bool:
    """Does an entry of a list fit?"""
    if facts is None:
        return False
    pairs = (
        (asked.tool, facts.tool),
        (asked.tenant, facts.tenant),
        (None if asked.state == "all" else asked.state, facts.state),
        (asked.scope, facts.scope),
    )
    if any(want is not None and want != its for want, its in pairs):
        return False
    if not asked.since(now) <= facts.at <= asked.until(now):
        return False
    if asked.error is not None and asked.error != error_type(facts.record):
        return False
    return asked.group is None or asked.group == trouble_of(facts.record).group
