"""Asking probes in the background: a few a second, a bounded number in a round, and an effect
whose probe does not know is asked less and less often.

Theory of operation. A round lists what is in doubt, oldest first, and asks about what is due.
When that is, the record says: after as long again as it was in doubt when it was asked last. So
a process that begins anew, or takes over, goes on at the same pace.

Of all processes that know a tool, one asks at a time: it holds the lease of that tool for the
round, and a process that dies gives it up when the lease ends. An inquiry is a lease on the
record as well, so a process that was held up does no harm. Nothing is sent again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from effectonce._core.keys import derive
from effectonce._core.ops import Cell, Flow, Op, ReadCell, Sleep, WriteCell
from effectonce._core.record import Record
from effectonce._drivers import adrive, drive
from effectonce._log import LOG
from effectonce._runtime.owner_token import new_token
from effectonce._runtime.performers import CLOCK
from effectonce._tools.tool import GuardedTool
from effectonce.outcome import Outcome
from effectonce.recovery.in_doubt import InDoubtFilter, Reconciled, Settlement, count
from effectonce.recovery.pace import ReconcilePace
from effectonce.recovery.periodic import PeriodicThread

RENEW_AFTER = 1 / 3  # of a lease


class AskProbe(Op[Outcome[Any] | None], frozen=True):
    """What does the probe say about the effect of this record?"""

    record: Record


class LeaseHolder(Struct, frozen=True, array_like=True):
    """What the cell of a lease says."""

    owner: str = ""
    until: float = 0.0  # by the store's clock


class ToolLease:
    """The right to ask the probe of one tool. One process has it at a time."""

    def __init__(self, tool: str, owner: str, lease_s: float, clock: Callable[[], float]) -> None:
        self._name, self._owner = f"reconciler {derive('reconciler', tool)}", owner
        self._lease_s, self._clock, self._renew_at = lease_s, clock, 0.0
        self._held = False

    def hold(self) -> Flow[float]:
        """Take it, or keep it: 0. Otherwise, for how many seconds another process has it."""
        if self._held and self._clock() < self._renew_at:
            return 0.0
        self._held = False
        cell = yield from ReadCell(self._name)
        busy_s = self._busy_s(cell)
        if busy_s > 0:
            return busy_s
        mine = LeaseHolder(self._owner, cell.now + self._lease_s)
        # noted before it is written: the answer may be long on its way
        self._renew_at = self._clock() + self._lease_s * RENEW_AFTER
        other = yield from self._written(cell, mine)
        if other is not None and _holder(other) != mine:
            return max(self._busy_s(other), self._lease_s * RENEW_AFTER)
        self._held = True
        return 0.0

    def release(self) -> Flow[None]:
        """Let another process have it at once."""
        if self._held:
            self._held = False
            cell = yield from ReadCell(self._name)
            if _holder(cell).owner == self._owner:
                yield from self._written(cell, LeaseHolder())

    def _busy_s(self, cell: Cell) -> float:
        holder = _holder(cell)
        return 0.0 if holder.owner in ("", self._owner) else max(0.0, holder.until - cell.now)

    def _written(self, cell: Cell, holder: LeaseHolder) -> Flow[Cell | None]:
        value = msgspec.msgpack.encode(holder)
        return (yield from WriteCell(self._name, cell.revision, value, 2 * self._lease_s))


def _holder(cell: Cell) -> LeaseHolder:
    return msgspec.msgpack.decode(cell.value, type=LeaseHolder) if cell.value else LeaseHolder()


def due_at(record: Record, pace: ReconcilePace) -> float:
    """When to ask about a doubt again: twice as long after it began as the last time."""
    if record.token == "":
        return record.decided_at  # it was never asked about
    asked_at = record.lease_until
    waited_s = max(0.0, asked_at - record.decided_at)
    return asked_at + min(pace.at_least_every_s, max(pace.every_s, waited_s))


class Reconciler(PeriodicThread):
    """A thread that asks the probes of sync tools: `with guard.reconciler():`, or `start()` and
    `stop()`.

    For async tools, `await reconciler.run()` in a task of your own, until it is cancelled.
    """

    def __init__(
        self,
        desk: Settlement,
        doubts: InDoubtFilter,
        pace: ReconcilePace,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._desk, self._doubts, self.pace, self._clock = desk, doubts, pace, clock
        self._owner = new_token()
        super().__init__("effectonce-reconciler", pace.every_s)
        self.reconciled = Reconciled(0, 0, 0)  # since it was made
        self.left = 0  # by the last round: still in doubt, and of tools that can be asked here
        self.busy_s = 0.0  # for so long has another process the lease of one of them

    @property
    def pause_s(self) -> float:
        """How long to wait for the next round."""
        return min(self.pace.every_s, self.busy_s) if self.busy_s > 0 else self.pace.every_s

    def round(self) -> Reconciled:
        """Ask about every effect in doubt whose time has come, now and here."""
        return drive(self._round(is_async=False), self._perform)

    async def around(self) -> Reconciled:
        """The same for async tools."""
        return await adrive(self._round(is_async=True), self._aperform)

    def _perform(self, op: Op[Any]) -> Any:
        match op:
            case AskProbe(record):
                return self._desk.ask(record)
            case Sleep(seconds):
                return self.stopped.wait(seconds)
            case _:
                return self._desk.store.apply(op)

    async def _aperform(self, op: Op[Any]) -> Any:
        match op:
            case AskProbe(record):
                return await self._desk.aask(record)
            case Sleep(seconds):
                return await asyncio.sleep(seconds, self.stopped.is_set())
            case _:
                return await self._desk.store.aapply(op)

    def _round(self, *, is_async: bool) -> Flow[Reconciled]:
        leases: dict[str, ToolLease] = {}
        began, total, self.left, self.busy_s = self._clock(), Reconciled(0, 0, 0), 0, 0.0
        after: tuple[float, str] | None = (0.0, "")
        stopped = False
        while after is not None and not stopped:
            now = (yield from ReadCell(CLOCK)).now
            records, after = yield from self._doubts.page(after)
            for record in records:
                tool = self._desk.askable(record, is_async=is_async)
                if tool is None:
                    total += Reconciled(0, 0, 1)
                    continue
                self.left += 1
                if stopped or due_at(record, self.pace) > now or not self._has_room(total, began):
                    continue
                if not (yield from self._may_ask(tool, leases)):
                    continue
                came_to = count([(yield from AskProbe(record))])
                total += came_to
                self.left -= came_to.settled + came_to.skipped
                if came_to.skipped:
                    continue  # what is stored does not make a call: nothing was asked
                stopped = bool((yield Sleep(1 / self.pace.per_s)))
        for lease in leases.values():
            yield from lease.release()
        self._report(total)
        return total

    def _has_room(self, total: Reconciled, began: float) -> bool:
        asked = total.settled + total.in_doubt
        return asked < self.pace.per_round and self._clock() - began < self.pace.round_s

    def _may_ask(self, tool: GuardedTool, leases: dict[str, ToolLease]) -> Flow[bool]:
        name = tool.contract.name
        if name not in leases:
            leases[name] = ToolLease(name, self._owner, self.pace.lease_s, self._clock)
        busy_s = yield from leases[name].hold()
        if busy_s > 0:
            self.busy_s = busy_s if self.busy_s == 0 else min(self.busy_s, busy_s)
        return busy_s == 0

    def _report(self, total: Reconciled) -> None:
        self.reconciled += total
        if total.settled:
            settled = "probes settled %d effects that were in doubt; %d still are"
            LOG.info(settled, total.settled, self.left)

    async def run(self) -> None:
        """Ask the probes of async tools, round after round, until it is cancelled."""
        while True:
            try:
                await self.around()
                self.failure = None
            except Exception as error:  # noqa: BLE001  # as in the thread
                self.failed(error)
            await asyncio.sleep(self.pace.every_s)
