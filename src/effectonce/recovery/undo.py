"""Undoing one effect: find it, see that it happened, and run the undo of its tool, once."""

from __future__ import annotations

from typing import Any

from effectonce._core.effect_ref import EffectRef
from effectonce._core.endings import Replay
from effectonce._core.guards import leased
from effectonce._core.ops import Cell, Find, Flow, ReadCell, Recorded
from effectonce._core.record import Record, State
from effectonce._core.tagged_json import NotReadable
from effectonce._core.undo import SUFFIX, asked, place_of, read_request
from effectonce._drivers import adrive, drive
from effectonce._runtime.performers import CLOCK, Prepared
from effectonce._runtime.step import Step, StepContext
from effectonce._tools.tool import GuardedTool
from effectonce._tools.undo import RESULT, stored_arguments
from effectonce._validate import who
from effectonce.errors import ContractViolation
from effectonce.outcome import Outcome, conclude
from effectonce.stores.base import Store


class Undoing:
    """The undos of a guard's tools."""

    def __init__(self, store: Store, tools: dict[str, GuardedTool]) -> None:
        self._store, self._tools = store, tools

    def undo(self, key: str, by: str, reason: str) -> Outcome[Any]:
        by, reason = who(by, reason)
        ready = self._ready(key, by, reason, is_async=False)
        undo, prepared = drive(ready, self._store.apply)
        with _asked_by(prepared, by):
            return undo.call(prepared)

    async def aundo(self, key: str, by: str, reason: str) -> Outcome[Any]:
        by, reason = who(by, reason)
        ready = self._ready(key, by, reason, is_async=True)
        undo, prepared = await adrive(ready, self._store.aapply)
        async with _asked_by(prepared, by):
            return await undo.acall(prepared)

    def undo_of(self, record: Record) -> GuardedTool:
        """What undoes it; raises if nothing does."""
        name = record.request.terms.tool
        undo = self._tools.get(f"{name}{SUFFIX}")
        if undo is None or name not in self._tools:
            missing = f"declares no undo: write @{name}.undo"
            if name not in self._tools:
                missing = "is no tool of this guard"
            raise ContractViolation(f"{name} {missing}. Nothing was sent.")
        return undo

    def _ready(
        self, key: str, by: str, reason: str, *, is_async: bool
    ) -> Flow[tuple[GuardedTool, Prepared]]:
        """The undo as a call. Who asked for it is on the record of the effect by then."""
        record: Record | None = yield from Find(key)
        cell: Cell = yield from ReadCell(CLOCK)
        if record is None:
            raise ContractViolation("no effect has this key in this store. Nothing was sent.")
        refusal = why_not(record, cell.now)
        if refusal:
            raise ContractViolation(f"{_ref(record)} {refusal} Nothing was sent.")
        undo = self.undo_of(record)
        if undo.is_async is not is_async:
            use = "async: await guard.aundo(...)" if undo.is_async else "def: use guard.undo(...)"
            raise ContractViolation(f"{undo.contract.name} is {use}. Nothing was sent.")
        arguments = self._arguments(record, undo)
        secret = undo.house.secret
        terms = undo.check.terms(undo.terms)
        prepared = undo.prepare_step(place_of(record, secret), terms, (), arguments)
        if not any(read_request(entry) is not None for entry in record.evidence):
            yield from asked(record, by, reason, secret)
        return undo, prepared

    def _arguments(self, record: Record, undo: GuardedTool) -> dict[str, Any]:
        tool = self._tools[record.request.terms.tool]
        names = tuple(name for name in undo.signature.names if name != RESULT)
        replayed = Recorded(record.state, record.outcome, 0.0, 0.0, record.settled_by)
        outcome = conclude(Replay(replayed, coalesced=False), _ref(record), tool.signature.returns)
        if outcome.error is not None:
            raise ContractViolation(f"it cannot be undone from here: {outcome.error}")
        try:
            arguments = stored_arguments(tool, record, names)
        except NotReadable as error:
            raise ContractViolation(
                f"{_ref(record)} cannot be undone from here: {error}. Nothing was sent."
            ) from None
        if RESULT in undo.signature.names:
            arguments[RESULT] = outcome.value
        return arguments


def why_not(record: Record, now: float) -> str:
    """Why there is nothing to undo; "" if it happened."""
    if record.request.terms.steps:
        return "is a run of a workflow: cancel it, and its steps are compensated."
    match record.state:
        case State.COMPLETED:
            return ""
        case State.FAILED:
            return "failed: nothing happened, and there is nothing to undo."
        case State.TOMBSTONE:
            return "is forgotten: its window is over, and its arguments and result are gone."
        case State.IN_DOUBT:
            return "is in doubt: settle it first (confirm, refute or reconcile), then undo it."
        case _ if leased(record, now):
            return "is in flight: wait for its outcome."
        case _ if record.sends == 0:
            return "was never sent: nothing happened, and there is nothing to undo."
        case _:
            return "may have happened and has no outcome: repeat it or settle it first."


def _ref(record: Record) -> EffectRef:
    request = record.request
    return EffectRef(request.terms.tool, request.key, request.tenant, request.scope, request.step)


def _asked_by(prepared: Prepared, by: str) -> Step:
    ref = prepared.ref
    return Step(StepContext(tenant=ref.tenant, scope=ref.scope, asked_by=by))
