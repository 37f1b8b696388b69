"""Effects on a terminal: a list of them, and what to do about one."""

from __future__ import annotations

from typing import Any

from effectonce._core.guarantees import Capability
from effectonce._core.record import Record, State
from effectonce.cli._output import EFFECT, TOOL, WHERE, field, since, words
from effectonce.dead_letters._letter import effect_of, is_dead
from effectonce.dead_letters._letters import GRACE_S
from effectonce.views.effects import abandoned, as_data, may_resend, reference
from effectonce.views.history import is_run, run_of, run_steps
from effectonce.views.times import moment

STYLES = {
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
STATE = words("STATE", "state", lambda item: STYLES[item["state"]])
COLUMNS = [EFFECT, TOOL, STATE, WHERE, SENDS, since("AGE", "_age_s", "claimed_at")]


def listed(record: Record, now: float) -> dict[str, Any]:
    """A row of a list. What begins with an underscore is for the table alone."""
    return {**as_data(record, now), "_age_s": now - record.created_at}


def headline(record: Record) -> str:
    return f"{effect_of(record)}, claimed {moment(record.created_at)} UTC"
