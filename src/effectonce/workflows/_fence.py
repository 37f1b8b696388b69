"""After a run was cancelled, no step of it begins: how the process that has it hears of that in
time.

Theory of operation. Who cancels a run writes that on its record, and then into a cell: a small
value that costs little to read. A step is claimed before it is done, and the cell is read in the
same round trip, after the claim. So a step that was claimed after the cancellation is not begun:
it is taken back, and the run ends. A step of another store than the run's costs a round trip of
its own.

A step that may be repeated has no record until its end is known, so there is no claim to hear of
it with. Such steps hear of it when the run looks at its record, at the latest a second after the
last time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from effectonce._core.guarantees import DAY_S
from effectonce._core.keys import derive
from effectonce._core.ops import (
    Cell,
    Claim,
    Invoke,
    NotStarted,
    Op,
    ReadCell,
    Together,
    Transact,
    Unavailable,
    WriteCell,
)
from effectonce._runtime.performers import AsyncPerforming
from effectonce.errors import StoreUnavailable
from effectonce.stores.base import Store

_BEGINS = frozenset({Invoke, Transact})


class KeptBack(Exception):
    """The run was cancelled before this step began."""


def to_read(run: str) -> ReadCell:
    return ReadCell(_name(run))


def to_write(run: str) -> WriteCell:
    # For a day: the process that has the run looks at its record every second, and one that goes
    # on with it before the first step.
    return WriteCell(_name(run), 0, b"cancelled", DAY_S)


def _name(run: str) -> str:
    return f"cancelled {derive('cancelled', run)}"  # names are kept in the clear


class _Fence:
    """What both have in common."""

    def __init__(self, cell: ReadCell, elsewhere: Store | None) -> None:
        # the store of the run, if it is not that of the step
        self._cell, self._elsewhere = cell, elsewhere
        self._cancelled = self._begun = False

    def _asks(self, op: Op[Any]) -> bool:
        return type(op) is Claim and self._elsewhere is None and not self._begun

    def _heard(self, replies: Any) -> Any:
        if isinstance(replies, Unavailable):
            return replies
        self._hear(replies[1])
        return replies[0]

    def _hear(self, cell: Cell) -> None:
        self._cancelled = cell.revision > 0

    def _begins(self, op: Op[Any]) -> bool:
        """Is this the moment before the step is done for the first time? What was begun goes on."""
        if self._begun or type(op) not in _BEGINS:
            return False
        self._begun = True
        return True


class Fence(_Fence):
    """Performs the ops of a step, unless its run was cancelled before it began."""

    def __init__(
        self, perform: Callable[[Op[Any]], Any], cell: ReadCell, elsewhere: Store | None
    ) -> None:
        super().__init__(cell, elsewhere)
        self._perform = perform

    def __call__(self, op: Op[Any]) -> Any:
        if self._asks(op):
            return self._heard(self._perform(Together((op, self._cell))))
        if self._begins(op):
            try:
                if self._elsewhere is not None:
                    self._hear(self._elsewhere.apply(self._cell))
            except StoreUnavailable as error:
                return NotStarted(error)
            if self._cancelled:
                return NotStarted(KeptBack())
        return self._perform(op)


class AsyncFence(_Fence):
    """The same for a step that is async."""

    def __init__(self, perform: AsyncPerforming, cell: ReadCell, elsewhere: Store | None) -> None:
        super().__init__(cell, elsewhere)
        self._perform = perform

    @property
    def cancelled(self) -> asyncio.CancelledError | None:
        return self._perform.cancelled

    def __call__(self, op: Op[Any], /) -> Awaitable[Any]:
        return self._performed(op)

    async def _performed(self, op: Op[Any]) -> Any:
        if self._asks(op):
            return self._heard(await self._perform(Together((op, self._cell))))
        if self._begins(op):
            try:
                if self._elsewhere is not None:
                    self._hear(await self._elsewhere.aapply(self._cell))
            except StoreUnavailable as error:
                return NotStarted(error)
            if self._cancelled:
                return NotStarted(KeptBack())
        return await self._perform(op)
