"""Calls that wait for a person: who asked, with which arguments, and who lets them be sent.

A call that needs an approval is written down and not sent. Its record is the wish, and later the
effect: to approve it changes the record, and the claim that uses the approval is the claim of
every call. So there is nothing beside the record that could be used twice, or be lost in a crash.

    guard.approvals.waiting()
    guard.approvals.approve(wish.key, by="ada", reason="the parcel came back")
    guard.approvals.reject(wish.key, by="ada", reason="not before Friday")
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from effectonce._core.codec import decode, encode_error
from effectonce._core.effect_ref import EffectRef
from effectonce._core.guards import asker_of, by_another, unapproved, wished
from effectonce._core.ops import (
    Applied,
    Approve,
    Browse,
    Cell,
    Find,
    ReadCell,
    Refute,
    WriteReply,
)
from effectonce._core.record import Record, Scene, State
from effectonce._core.tagged_json import NotReadable
from effectonce._runtime.performers import CLOCK
from effectonce._tools.observers import Observers, notify_of
from effectonce._tools.tool import GuardedTool
from effectonce._validate import numbers, require, who
from effectonce.errors import ContractViolation
from effectonce.outcome import DidNotApprove
from effectonce.policy.permissions import Approval
from effectonce.stores.base import Store

__all__ = ["Approvals", "Wish"]
BATCH = 100


class Wish(Struct, frozen=True, kw_only=True):
    """A call that waits for a person."""

    effect: EffectRef
    asked_by: str  # "": not known
    asked_at: float  # by the store's clock
    fingerprint: str  # of the arguments that are approved
    arguments: Mapping[str, Any] | None  # as the contract lets them be seen; None: not readable
    expired: bool = False  # it was approved, and that was not used in time

    @property
    def key(self) -> str:
        return self.effect.key


class Approvals:
    """Where calls wait, and where they are decided. Nothing here sends anything."""

    def __init__(self, store: Store, tools: Mapping[str, GuardedTool], watch: Observers) -> None:
        self._store, self._tools, self._watch = store, tools, watch

    def waiting(
        self, *, tool: str | None = None, tenant: str | None = None, limit: int = 100
    ) -> tuple[Wish, ...]:
        """What waits for a person, oldest first."""
        found: list[Wish] = []
        for record in self._claimed(tenant):
            if tool in (None, record.request.terms.tool):
                found.append(_wish(record))
            if len(found) == limit:
                break
        return tuple(found)

    def find(self, key: str) -> Wish | None:
        """One of them. None: it does not wait."""
        record = self._store.apply(Find(key))
        return _wish(record) if record is not None and _waits(record, self._now()) else None

    def approve(
        self,
        key: str,
        *,
        by: str,
        reason: str,
        fingerprint: str | None = None,
        valid_s: float | None = None,
    ) -> None:
        """Let it be sent, once: the next call with the same arguments does it. *fingerprint* is
        that of the `Wish` that was looked at: if the arguments are others by now, it is refused.
        *valid_s*: for how long, if not as long as the tool declares.
        """
        by, reason = who(by, reason)
        if valid_s is not None:
            numbers(valid_s=valid_s)
            require(valid_s > 0, f"valid_s={valid_s}: an approval has to last until it is used")
        record = self._store.apply(Find(key))
        if record is None:
            raise ContractViolation("there is nothing to approve: no such call is known here")
        seen = record.request.fingerprint if fingerprint is None else fingerprint
        op = Approve(key, seen, valid_s or self._valid_s(record), by, reason)
        if not self._decided(op, record):
            raise ContractViolation(f"it was not approved: {self._why_not(record, op)}")

    def reject(self, key: str, *, by: str, reason: str) -> None:
        """Never send it: every later call gets a failure with this reason. An approval that was
        not used yet is taken back by it.
        """
        by, reason = who(by, reason)
        record = self._store.apply(Find(key))
        if record is None or not record.request.terms.approval:
            raise ContractViolation("there is nothing to reject: no such call waits here")
        if not self._decided(Refute(key, encode_error(DidNotApprove(reason)), by, reason), record):
            raise ContractViolation(f"it was not rejected: the effect is {_state(record)}")

    def _decided(self, op: Approve | Refute, before: Record) -> bool:
        """Every decision of a person passes here."""
        reply: WriteReply = self._store.apply(op)
        if isinstance(reply, Applied) and self._watch.observers:
            outcome = "approved" if isinstance(op, Approve) else "rejected"
            notify_of(self._watch, "approval", before, outcome=outcome, by=op.by, reason=op.reason)
        return isinstance(reply, Applied)

    def _why_not(self, record: Record, op: Approve) -> str:
        if not record.request.terms.approval or record.state is not State.CLAIMED or record.sends:
            return f"it does not wait; the effect is {_state(record)}"
        scene = Scene(self._now())
        if not wished(record, op, scene):
            return "its arguments are others by now. Look at it again"
        if not by_another(record, op, scene):
            return f"{op.by} asked for it, and another person has to approve it"
        return "it is approved already, or a caller is at work on it"

    def _valid_s(self, record: Record) -> float:
        tool = self._tools.get(record.request.terms.tool)
        declared = None if tool is None else tool.contract.approval
        return (Approval() if declared is None else declared).valid_s

    def _claimed(self, tenant: str | None) -> Iterator[Record]:
        after, now = (0.0, ""), self._now()
        while True:
            records = self._store.apply(Browse(State.CLAIMED, tenant, after, BATCH))
            yield from (record for record in records if _waits(record, now))
            if len(records) < BATCH:
                return
            after = (records[-1].created_at, records[-1].request.key)

    def _now(self) -> float:
        cell: Cell = self._store.apply(ReadCell(CLOCK))
        return cell.now


def _waits(record: Record, now: float) -> bool:
    return (
        record.state is State.CLAIMED
        and record.request.terms.approval
        and record.sends == 0
        and unapproved(record, None, Scene(now))
    )


def _state(record: Record) -> str:
    return "never sent" if record.state is State.CLAIMED and not record.sends else record.state


def _wish(record: Record) -> Wish:
    request = record.request
    try:
        stored = decode(request.arguments)
        shown = stored.content if isinstance(stored.content, Mapping) else None
    except NotReadable:
        shown = None
    return Wish(
        effect=EffectRef(
            request.terms.tool, request.key, request.tenant, request.scope, request.step
        ),
        asked_by=asker_of(record),
        asked_at=record.created_at,
        fingerprint=request.fingerprint,
        arguments=shown,
        expired=record.settled_by != "",
    )
