"""Effects on a terminal: a list of them, and what to do about one."""

from __future__ import annotations

from typing import Any

from effectonce._core.effect_ref import effect_of
from effectonce._core.guarantees import Capability
from effectonce._core.record import Record, State
from effectonce.approvals._standing import standing_of
from effectonce.cli._output import EFFECT, TOOL, WHERE, Column, field, since
from effectonce.dead_letters._letter import is_dead
from effectonce.dead_letters._letters import GRACE_S
from effectonce.views.approvals import shown_state
from effectonce.views.effects import abandoned, as_data, may_resend, reference
from effectonce.views.history import is_run, run_of, run_steps
from effectonce.views.times import moment

STYLES: dict[str, str] = {
    "needs_approval": "bold yellow",
    "approved": "cyan",
    State.COMPLETED: "green",
    State.FAILED: "red",
    State.IN_DOUBT: "bold yellow",
    State.DISPATCHED: "cyan",
    State.CLAIMED: "cyan",
    State.TOMBSTONE: "dim",
}
KEYS = "Give --app, or the keys (EFFECTONCE_KEYS, keys_file), to read what is stored."


def next_steps(record: Record, now: float) -> list[tuple[str, str]]:
    """What to do, and the exact command."""
    ref, run = reference(record), run_of(record)
    if is_run(record):
        return [("its steps", f"effectonce workflow show {ref}"), *run_steps(record, ref, now)]
    its_run = [] if run is None else [("its run", f"effectonce workflow show {run}")]
    return [*_own_steps(record, ref, now), *its_run]


def _own_steps(record: Record, ref: str, now: float) -> list[tuple[str, str]]:
    standing = standing_of(record, now)
    reject = f"effectonce approve no {ref} --reason TEXT"
    if standing is not None and standing.waits:
        approve = f"effectonce approve yes {ref} --reason TEXT"
        look = f"effectonce approve show {ref}"
        return [("what it asks for", look), ("let it be sent", approve), ("never send it", reject)]
    if standing is not None and standing.state == "approved":
        now_ = f"effectonce dlq redrive {ref} --app MODULE:GUARD --reason TEXT"
        return [("take it back", reject), ("send it now", now_)]
    if record.state is State.IN_DOUBT:
        steps = [
            ("it happened", f"effectonce indoubt confirm {ref} --result JSON --reason TEXT"),
            ("it did not", f"effectonce indoubt refute {ref} --reason TEXT"),
        ]
        if record.request.terms.downstream is Capability.PROBE:
            ask = f"effectonce indoubt reconcile {ref} --app MODULE:GUARD"
            steps.insert(0, ("ask the downstream", ask))
        if may_resend(record, now):
            steps.append(("send it again", f"effectonce indoubt retry {ref} --reason TEXT"))
        return steps
    if abandoned(record, now) and not may_resend(record, now):
        return [("put it in doubt", "effectonce store gc")]
    is_open = record.state in (State.CLAIMED, State.DISPATCHED)
    if not is_open or not is_dead(record, now, GRACE_S):
        return []
    again = ("try it again", f"effectonce dlq redrive {ref} --app MODULE:GUARD --reason TEXT")
    never = ("give it up", f"effectonce dlq discard {ref} --reason TEXT")
    return [again] if record.sends else [again, never]


SENDS = field("SENDS", "sends", right=True, whole=True)
STATE = Column(
    "STATE",
    lambda item: item["_shown_state"].replace("_", " "),
    lambda item: item["state"],
    lambda item: STYLES[item["_shown_state"]],
    whole=True,
)
COLUMNS = [EFFECT, TOOL, STATE, WHERE, SENDS, since("AGE", "_age_s", "claimed_at")]


def listed(record: Record, now: float) -> dict[str, Any]:
    """A row of a list. What begins with an underscore is for the table alone."""
    beside = {"_age_s": now - record.created_at, "_shown_state": shown_state(record, now)}
    return {**as_data(record, now), **beside}


def headline(record: Record) -> str:
    return f"{effect_of(record)}, claimed {moment(record.created_at)} UTC"
