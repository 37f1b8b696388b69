"""Settling many effects in doubt by one decision, each by the same rules as one alone.

Every effect is settled by an op of its own: what another person, a probe or a late answer has
settled meanwhile is reported, and never overwritten. So two people who settle the same group at
once settle each effect once, and a process that is killed leaves the rest as it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from effectonce._core.effect_ref import EffectRef, effect_of
from effectonce._core.record import Record, State
from effectonce._validate import who
from effectonce.approvals._standing import apart
from effectonce.errors import ContractViolation
from effectonce.recovery.pace import Pace

if TYPE_CHECKING:
    from effectonce.recovery.operations import GuardOperations

Act = Literal["confirm", "refute", "retry"]
CameTo = Literal["confirmed", "refuted", "retried", "already_settled", "refused", "not_tried"]
_DONE: dict[Act, CameTo] = {"confirm": "confirmed", "refute": "refuted", "retry": "retried"}
ACTS = tuple(_DONE)


class BulkDecision(Struct, frozen=True, kw_only=True):
    """What a person says about effects in doubt; *result* is what later calls get if they happened.

    Raises `ContractViolation` if it could not stay on a record.
    """

    act: Act
    by: str
    reason: str
    result: Any = None

    def __post_init__(self) -> None:
        if self.act not in _DONE:
            raise ContractViolation(f"act={self.act!r}: it is one of {', '.join(_DONE)}")
        who(self.by, self.reason)


class SettledEffect(Struct, frozen=True, kw_only=True):
    """What came of one effect."""

    effect: EffectRef
    what: CameTo
    why: str = ""

    @property
    def done(self) -> bool:
        """Was it settled by this decision?"""
        return self.what in _DONE.values()


def settle_each(
    guard: GuardOperations,
    decisions: Iterable[tuple[Record, BulkDecision]],
    *,
    per_s: float | None = 20.0,
    pause: Callable[[float], object] = time.sleep,
    stopped: Callable[[], bool] = lambda: False,
) -> Iterator[SettledEffect]:
    """Settle effects one after the other, at most *per_s* a second, as they are asked for.

    When *stopped* says so, the rest is reported as `not_tried`, and left as it is.
    """
    pace = Pace(per_s)
    for number, (record, decision) in enumerate(decisions):
        if number and not stopped():
            pause(pace.next_s())
        if stopped():
            yield SettledEffect(effect=effect_of(record), what="not_tried")
        else:
            yield settle_one(guard, record.request.key, decision)


def settle_one(guard: GuardOperations, key: str, decision: BulkDecision) -> SettledEffect:
    """Settle one effect, or say why it was left as it is."""
    record = guard.find(key)
    if record is None:
        return SettledEffect(
            effect=EffectRef("", key), what="refused", why="it is unknown to this store"
        )
    effect = effect_of(record)
    if record.state is State.IN_DOUBT:
        try:
            _write(guard, key, decision)
        except ContractViolation as error:
            record = guard.find(key) or record
            if record.state is State.IN_DOUBT:
                return SettledEffect(effect=effect, what="refused", why=str(error))
        else:
            return SettledEffect(effect=effect, what=_DONE[decision.act])
    return SettledEffect(effect=effect, what="already_settled", why=_stands(record))


def _write(guard: GuardOperations, key: str, decision: BulkDecision) -> None:
    by, reason = decision.by, decision.reason
    match decision.act:
        case "confirm":
            guard.confirm(key, result=decision.result, by=by, reason=reason)
        case "refute":
            guard.refute(key, by=by, reason=reason)
        case "retry":
            guard.retry(key, by=by, reason=reason)


def _stands(record: Record) -> str:
    """How it stands, and by whose word."""
    state, by = str(record.state).replace("_", " "), apart(record).settled_by
    return f"it is {state}, says {by}" if by else f"it is {state}"


def mending(act: Act, reference: str) -> tuple[str | None, str]:
    """The command that can still mend a settlement, and what it can do; None: nothing can.

    No rule leads back from an outcome to a doubt: a caller may have been given it already.
    """
    match act:
        case "confirm":
            can = "undoes it, where its tool has an undo; if it did not happen, use a new step"
            return f"effectonce effect undo {reference} --app MODULE:GUARD --reason TEXT", can
        case "refute":
            return None, "later calls get the failure; to do it after all takes a new step"
        case "retry":
            return (
                f"effectonce indoubt confirm {reference} --result JSON --reason TEXT",
                "before a call has sent it again",
            )
