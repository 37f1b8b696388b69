"""The in-doubt desk: effects whose outcome is unknown, and who may settle them.

A probe settles what it can prove, on demand or by a reconciler in the background. What is left
is settled by a person, who gives a name and a reason; both stay on the record. Nothing here
sends a request: `retry` only lets the next call do so, where the contract allows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any

from msgspec import Struct

from effectonce._core.codec import encode, encode_error
from effectonce._core.ops import (
    Applied,
    Browse,
    Confirm,
    Find,
    Flow,
    ReadCell,
    Rearm,
    Refused,
    Refute,
    WriteReply,
)
from effectonce._core.record import Record, State
from effectonce._core.tagged_json import NotReadable, NotStorable
from effectonce._drivers import adrive, drive
from effectonce._runtime.performers import CLOCK
from effectonce._tools.observers import Observers, settled
from effectonce._tools.tool import GuardedTool
from effectonce._validate import who
from effectonce.errors import ContractViolation
from effectonce.outcome import Outcome
from effectonce.stores.base import Store

BATCH = 100
NOT_HONOURED = (
    "its downstream does not honour the key (any more): sending it again could do it twice"
)


class Reconciled(Struct, frozen=True):
    """What a round of asking probes came to."""

    settled: int
    in_doubt: int  # asked, and still unknown
    skipped: int  # no probe is registered here, sync or async as the caller is

    def __add__(self, other: Reconciled) -> Reconciled:
        return Reconciled(
            self.settled + other.settled,
            self.in_doubt + other.in_doubt,
            self.skipped + other.skipped,
        )


class DidNotHappen(Exception):  # a statement by a person, stored under this name
    """A person found out that the effect did not happen."""


class InDoubtFilter(Struct, frozen=True, kw_only=True):
    """Which effects in doubt: of a tenant or some, of a tool, older than that."""

    tenant: str | None = None
    tenants: set[str] | None = None
    tool: str | None = None
    older_than_s: float = 0.0

    def page(
        self, after: tuple[float, str] = (0.0, "")
    ) -> Flow[tuple[tuple[Record, ...], tuple[float, str] | None]]:
        """Some of them, oldest first, and where the next ones begin; None: there are no more."""
        now = (yield from ReadCell(CLOCK)).now if self.older_than_s > 0 else 0.0
        records = yield from Browse(State.IN_DOUBT, self.tenant, after, BATCH)
        wanted = tuple(record for record in records if self._holds(record, now))
        return wanted, (place(records[-1]) if len(records) == BATCH else None)

    def _holds(self, record: Record, now: float) -> bool:
        asked = record.request
        if self.tenants is not None and asked.tenant not in self.tenants:
            return False
        if self.tool is not None and asked.terms.tool != self.tool:
            return False
        return self.older_than_s <= 0 or now - record.decided_at >= self.older_than_s


def place(record: Record) -> tuple[float, str]:
    """Where a record stands in a listing."""
    return record.created_at, record.request.key


class Settlement:
    """Where effects in doubt are looked at and settled."""

    def __init__(self, store: Store, tools: Mapping[str, GuardedTool], watch: Observers) -> None:
        self.store, self.tools, self._watch = store, tools, watch

    def in_doubt(self, doubts: InDoubtFilter, limit: int) -> tuple[Record, ...]:
        return tuple(islice(chain.from_iterable(self.pages(doubts)), limit))

    def pages(self, doubts: InDoubtFilter) -> Iterator[tuple[Record, ...]]:
        """All of them, page by page."""
        after: tuple[float, str] | None = (0.0, "")
        while after is not None:
            records, after = drive(doubts.page(after), self.store.apply)
            yield records

    # ------------------------------------------------------------ by a person

    def confirm(self, key: str, result: Any, by: str, reason: str) -> None:
        signed = who(by, reason)
        record = self.store.apply(Find(key))
        tool = None if record is None else self.tools.get(record.request.terms.tool)
        try:
            outcome = encode(result, Any if tool is None else tool.signature.returns)
        except NotStorable as error:
            why = f"this result cannot be what later calls get: {error}"
            raise ContractViolation(why) from None
        self._settle(Confirm(key, outcome, *signed))

    def refute(self, key: str, by: str, reason: str) -> None:
        by, reason = who(by, reason)
        self._settle(Refute(key, encode_error(DidNotHappen(reason)), by, reason))

    def retry(self, key: str, by: str, reason: str) -> None:
        self._settle(Rearm(key, *who(by, reason)))

    def _settle(self, op: Confirm | Refute | Rearm) -> None:
        """Every decision of a person about a doubt passes here."""
        reported = self._watch.observers or self._watch.counters
        before = self.store.apply(Find(op.key)) if reported else None
        reply: WriteReply = self.store.apply(op)
        if isinstance(reply, Applied):
            if before is not None:
                settled(self._watch, op, before)
            return
        state = reply.state if isinstance(reply, Refused) else None
        if isinstance(op, Rearm) and state is State.IN_DOUBT:
            raise ContractViolation(NOT_HONOURED)
        raise _nothing_to_settle(op.key, state)

    # ------------------------------------------------------------ by a probe

    def reconcile(self, doubts: InDoubtFilter, limit: int, key: str | None) -> Reconciled:
        if key is not None:
            return count([self.ask(_in_doubt(self.store.apply(Find(key))))])
        return count(self.ask(record) for record in self.in_doubt(doubts, limit))

    async def areconcile(self, doubts: InDoubtFilter, limit: int, key: str | None) -> Reconciled:
        if key is not None:
            return count([await self.aask(_in_doubt(await self.store.aapply(Find(key))))])
        answers: list[Outcome[Any] | None] = []
        after: tuple[float, str] | None = (0.0, "")
        while after is not None and len(answers) < limit:
            records, after = await adrive(doubts.page(after), self.store.aapply)
            answers += [await self.aask(record) for record in records[: limit - len(answers)]]
        return count(answers)

    def ask(self, record: Record) -> Outcome[Any] | None:
        """What a sync tool's probe says about an effect. None: none here, or it cannot be asked."""
        tool = self.askable(record, is_async=False)
        try:
            return None if tool is None else tool.reconcile(record)
        except NotReadable:
            return None

    async def aask(self, record: Record) -> Outcome[Any] | None:
        """The same for an async tool."""
        tool = self.askable(record, is_async=True)
        try:
            return None if tool is None else await tool.areconcile(record)
        except NotReadable:
            return None

    def askable(self, record: Record, *, is_async: bool) -> GuardedTool | None:
        tool = self.tools.get(record.request.terms.tool)
        fits = tool is not None and tool.is_async is is_async and tool.probe_function is not None
        return tool if fits else None


def count(answers: Iterable[Outcome[Any] | None]) -> Reconciled:
    """Add up what probes answered."""
    answers = list(answers)
    settled = sum(answer is not None and answer.status != "in_doubt" for answer in answers)
    skipped = sum(answer is None for answer in answers)
    return Reconciled(settled, len(answers) - settled - skipped, skipped)


def _nothing_to_settle(key: str, state: State | None) -> ContractViolation:
    """Why not. People have references, and the store knows keys."""
    why = "unknown to this store" if state is None else str(state)
    if state is None and key.startswith("eff_"):
        why += (
            f". {key} is a reference: give the key, error.effect.key or record.request.key, or use"
            " `effectonce indoubt`"
        )
    return ContractViolation(f"there is nothing to settle: the effect is {why}")


def _in_doubt(record: Record | None) -> Record:
    if record is None or record.state is not State.IN_DOUBT:
        state = "unknown to this store" if record is None else record.state
        raise ContractViolation(f"there is nothing to settle: the effect is {state}")
    return record
