"""Runs of workflows: as data, with their steps."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from effectonce._core.pages import Beside
from effectonce._core.record import Record, State
from effectonce.approvals._standing import apart, standing_of
from effectonce.views.approvals import WAITING, approval_data
from effectonce.views.effects import arguments_of, reference, shown_state
from effectonce.views.history import attempt_data, attempts_of, cancelled_of, run_state
from effectonce.views.times import iso

if TYPE_CHECKING:
    from effectonce import Guard

STEPS_MAX = 100_000
_POSITION = re.compile(r"(undo )?(\d+) (.*)", re.DOTALL)


def steps_of(guard: Guard, record: Record) -> list[Record]:
    """Its steps in order, then compensations. Keys need your guard's secret; the scope does not."""
    scope = f"{record.request.terms.tool} {reference(record)}"
    beside = guard.store.apply(Beside(record.request.key, STEPS_MAX))
    place = (scope, record.request.tenant)
    steps = (r for r in beside if (r.request.scope, r.request.tenant) == place)
    found = [step for step in steps if _POSITION.match(step.request.step)]
    return sorted(found, key=lambda step: position(step)[:2])


def position(step: Record) -> tuple[bool, int, str]:
    """Is it a compensation, which one, and its name."""
    read = _POSITION.fullmatch(step.request.step)
    assert read is not None
    return read[1] is not None, int(read[2]), read[3]


def as_data(record: Record, now: float) -> dict[str, Any]:
    """A run as `effectonce.run/1`."""
    cancelled, open_ = cancelled_of(record), record.state is State.CLAIMED
    by = None if cancelled is None else {"by": cancelled.by, "reason": cancelled.reason}
    return {
        "reference": reference(record),
        "workflow": record.request.terms.tool,
        "version": record.request.terms.version,
        "tenant": record.request.tenant,
        "state": run_state(record, now),
        "runs": record.epoch,
        "began_at": iso(record.created_at),
        "ended_at": None if open_ else iso(record.decided_at),
        "cancelled": by,
        "error": _last_error(record),
        "_age_s": now - record.created_at,
    }


def whole(record: Record, steps: list[Record], now: float, *, reveal: bool) -> dict[str, Any]:
    """The same with its steps."""
    data = as_data(record, now) | {
        "steps": [_step(step, now) for step in steps if not position(step)[0]],
        "compensations": [_step(step, now) for step in steps if position(step)[0]],
    }
    if reveal:
        data |= {"key": record.request.key, "arguments": arguments_of(record, reveal=True).value}
    return data


def _step(record: Record, now: float) -> dict[str, Any]:
    _, number, name = position(record)
    return {
        "position": number,
        "name": name,
        "reference": reference(record),
        "tool": record.request.terms.tool,
        "state": str(record.state),
        "sends": record.sends,
        "began_at": iso(record.created_at),
        "ended_at": iso(record.decided_at),
        "error": error_of(record) or None,
        "attempts": [attempt_data(attempt) for attempt in attempts_of(record)],
        "approval": approval_data(standing_of(record, now)),
    }


def to_decide(steps: list[Record], now: float) -> list[tuple[str, str]]:
    """The steps that wait for a person: which, and the reference of each."""
    waiting = [step for step in steps if shown_state(step, now) == WAITING]
    return [(place(step), reference(step)) for step in waiting]


def place(step: Record) -> str:
    """Which step or compensation it is."""
    undo, number, _ = position(step)
    return f"{'undo' if undo else 'step'} {number}"


def error_of(record: Record) -> str:
    if record.state is State.COMPLETED:
        return ""
    error = _last_error(record)
    return apart(record).reason if error is None else error


def _last_error(record: Record) -> str | None:
    attempts = attempts_of(record)
    if record.state is State.COMPLETED or not attempts:
        return None
    return f"{attempts[-1].error}: {attempts[-1].message}".strip(": ")


def why_of(item: dict[str, Any]) -> str:
    """What stopped the run. A run that waits and has no error has lost its owner."""
    return item["error"] or ("its owner is gone" if item["state"] == "waiting" else "")
