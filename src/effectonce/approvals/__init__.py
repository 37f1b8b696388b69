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
from math import inf
from typing import Any

from msgspec import Struct

from effectonce._core.codec import Stored, decode, encode_error
from effectonce._core.effect_ref import EffectRef, effect_of
from effectonce._core.guards import by_another, wished
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
from effectonce._core.tagged_json import AS_DATA, NotReadable
from effectonce._runtime.performers import CLOCK
from effectonce._tools.observers import Observers, notify_of
from effectonce._validate import numbers, require, who
from effectonce.approvals._links import ApprovalLink, url_of
from effectonce.approvals._standing import asker, waits
from effectonce.errors import ContractViolation
from effectonce.outcome import DidNotApprove
from effectonce.policy.permissions import Approval
from effectonce.stores.base import Store

__all__ = ["Approvals", "Wish"]
BATCH = 100
OTHERS = "its arguments are others by now. Look at it again"


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

    def __init__(self, store: Store, watch: Observers, secret: bytes = b"") -> None:
        self._store, self._watch, self._secret = store, watch, secret

    def waiting(
        self, *, tool: str | None = None, tenant: str | None = None, limit: int = 100
    ) -> tuple[Wish, ...]:
        """What waits for a person, oldest first."""
        found: list[Wish] = []
        for record in self._claimed(tenant):
            if tool in (None, record.request.terms.tool):
                found.append(wish_of(record))
            if len(found) == limit:
                break
        return tuple(found)

    def find(self, key: str) -> Wish | None:
        """One of them. None: it does not wait."""
        record = self._store.apply(Find(key))
        return wish_of(record) if record is not None and waits(record, self._now()) else None

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
        declared_s = record.request.terms.valid_s or Approval().valid_s
        op = Approve(key, seen, declared_s if valid_s is None else valid_s, by, reason)
        if not self._decided(op, record):
            raise ContractViolation(f"it was not approved: {self._why_not(record, op)}")

    def reject(self, key: str, *, by: str, reason: str, fingerprint: str | None = None) -> None:
        """Never send it: every later call gets a failure with this reason. An approval that was
        not used yet is taken back by it. *fingerprint*: as for `approve`.
        """
        by, reason = who(by, reason)
        record = self._store.apply(Find(key))
        if record is None or not record.request.terms.approval:
            raise ContractViolation("there is nothing to reject: no such call waits here")
        seen = record.request.fingerprint if fingerprint is None else fingerprint
        op = Refute(key, encode_error(DidNotApprove(reason)), by, reason, seen)
        if not self._decided(op, record):
            others = record.request.fingerprint != seen
            why = OTHERS if others else f"the effect is {_state(record)}"
            raise ContractViolation(f"it was not rejected: {why}")

    def link(self, key: str, base_url: str, *, approver: str, valid_s: float = 3600) -> str:
        """An address for a chat message, by which *approver* decides about these very arguments
        in your dashboard at *base_url*, for *valid_s*. Opening it decides nothing.

        It needs no login: who has it decides under that name. Send it to that person alone.
        """
        approver, _ = who(approver, "link")
        numbers(valid_s=valid_s)
        require(0 < valid_s < inf, f"valid_s={valid_s}: a link is used some day, or ends")
        if not self._secret:
            raise ContractViolation(
                "a link is signed by the guard's secret, and there is none. Give the guard one,"
                " Guard(..., secret=...)"
            )
        wish = self.find(key)
        if wish is None:
            raise ContractViolation("there is nothing to decide: no such call waits here")
        until = int(self._now() + valid_s)
        link = ApprovalLink(approver=approver, fingerprint=wish.fingerprint, until=until)
        return url_of(link, key, base_url, self._secret)

    def is_valid(self, link: ApprovalLink, key: str) -> bool:
        """Did this guard make this link for this key?"""
        return link.is_of(self._secret, key)

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
            return OTHERS
        if not by_another(record, op, scene):
            return f"{op.by} asked for it, and another person has to approve it"
        return "it is approved already, or a caller is at work on it"

    def _claimed(self, tenant: str | None) -> Iterator[Record]:
        after, now = (0.0, ""), self._now()
        while True:
            records = self._store.apply(Browse(State.CLAIMED, tenant, after, BATCH))
            yield from (record for record in records if waits(record, now))
            if len(records) < BATCH:
                return
            after = (records[-1].created_at, records[-1].request.key)

    def _now(self) -> float:
        cell: Cell = self._store.apply(ReadCell(CLOCK))
        return cell.now


def _state(record: Record) -> str:
    return "never sent" if record.state is State.CLAIMED and not record.sends else record.state


def wish_of(record: Record) -> Wish:
    """A record that waits, as a wish."""
    request = record.request
    try:
        stored = decode(request.arguments, AS_DATA)
    except NotReadable:
        stored = Stored("unavailable", None)
    there = stored.status in ("ok", "redacted") and isinstance(stored.content, Mapping)
    return Wish(
        effect=effect_of(record),
        asked_by=asker(record),
        asked_at=record.created_at,
        fingerprint=request.fingerprint,
        arguments=stored.content if there else None,
        expired=record.settled_by != "",
    )
