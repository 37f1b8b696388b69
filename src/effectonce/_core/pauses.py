"""Tools that a person has paused: one small cell of the store for all of them. Pure.

A paused tool sends nothing. A call whose outcome is known still gets it, as behind an open
circuit. A process knows the cell for two seconds; a call that comes later reads it first. So a
pause holds within two seconds wherever the store is used, and a busy process hardly reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from math import inf

import msgspec
from msgspec import Struct

from effectonce._core.guarantees import DAY_S
from effectonce._core.ops import Cell, Flow, ReadCell, WriteCell

CELL = "paused tools"
LOOK = ReadCell(CELL)  # what a call asks before anything else, unless that was asked lately
FRESH_S = 2.0
KEEP_S = 3650 * DAY_S


class Pause(Struct, frozen=True, array_like=True):
    """Who paused a tool, why, and when, by the store's clock."""

    by: str
    reason: str
    at: float


class PausedCircuit(Struct, frozen=True):
    """Stands in for the circuit of a tool that is paused."""

    error: Exception
    free: None = None

    def refusal(self) -> Exception:
        return self.error

    def try_admit(self) -> Exception:
        return self.error


class Pauses:
    """What a process knows of the cell. *refusing* makes the error that a caller gets."""

    __slots__ = ("_refusing", "fresh_until", "tools")

    def __init__(self, refusing: Callable[[str, Pause], Exception]) -> None:
        self._refusing = refusing
        self.tools: Mapping[str, Pause] = {}
        self.fresh_until = -inf

    def see(self, cell: Cell, now: float) -> None:
        """This is how the cell stands."""
        self.fresh_until = now + FRESH_S
        with suppress(msgspec.MsgspecError):  # of another release: as it was
            self.tools = paused_in(cell.value)

    def forget(self) -> None:
        """The next call reads the cell."""
        self.fresh_until = -inf

    def circuit(self, tool: str) -> PausedCircuit | None:
        """What keeps this tool from sending anything; None: it is not paused."""
        pause = self.tools.get(tool)
        return None if pause is None else PausedCircuit(self._refusing(tool, pause))


def paused_in(value: bytes) -> dict[str, Pause]:
    return msgspec.msgpack.decode(value, type=dict[str, Pause]) if value else {}


def change(tool: str, by: str, reason: str | None) -> Flow[Pause | None]:
    """Pause a tool, for a *reason*; None: resume it. Returns the pause that stood before."""
    stands: Cell = yield from LOOK
    while True:
        tools = paused_in(stands.value)
        before = tools.pop(tool, None)
        if reason is not None:
            tools[tool] = Pause(by, reason, stands.now)
        elif before is None:
            return None
        value = msgspec.msgpack.encode(tools)
        other = yield from WriteCell(CELL, stands.revision, value, KEEP_S)
        if other is None or other.value == value:
            return before
        stands = other
