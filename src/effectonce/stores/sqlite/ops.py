"""What an op does in a file that is open and locked: look, decide by the table, write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, cast

from msgspec import Struct

from effectonce._core.guards import timed
from effectonce._core.ops import (
    Applied,
    Browse,
    Claim,
    Complete,
    Dispatch,
    Find,
    Inquire,
    ListCells,
    ReadCell,
    Recorded,
    Search,
    Sweep,
    Swept,
    Tally,
    Together,
    WriteCell,
)
from effectonce._core.pages import Beside, Count, Recent, Refer
from effectonce._core.record import Record, Scene, State
from effectonce._core.rules import latch_of
from effectonce._core.transitions import TransitionResult, born_and_ended, transition
from effectonce.stores._clock_steps import Steadiness
from effectonce.stores.sqlite import pages
from effectonce.stores.sqlite.batch import MUST_WRITE
from effectonce.stores.sqlite.connection import SqliteConnection
from effectonce.stores.sqlite.statements import READ, RIVAL

BEFORE_A_SEND, ORDINARY = frozenset({Claim, Dispatch, Together}), frozenset({Claim, Complete})


class SqliteOps(Struct, frozen=True):
    """The ops of one store: they need its clocks, and the connection that the caller holds."""

    clock: Callable[[], float]
    steadiness: Steadiness

    def read(self, connection: SqliteConnection, op: Any) -> Any:
        """Most ops find a record that leaves nothing to write. Those take no lock of the file."""
        match op:
            case Claim(request):
                known = connection.look(request, self.clock())
                if known is None:
                    # a first call, unless another call of its step has no outcome yet
                    return MUST_WRITE
                if isinstance(known, Recorded):
                    return known
                record = connection.record(READ, request.key)
                step = transition(record, op, self._scene(connection, op, record))
                return MUST_WRITE if step.changed else step.reply
            case Complete() | Together():
                # the other write of every call, and of every step: not at the end of this list
                return MUST_WRITE
            case Find(key):
                return connection.record(READ, key)
            case Browse() | Search() | Tally() | Count() | Recent() | Refer() | Beside():
                return pages.answer(connection, op)
            case ReadCell() | ListCells():
                return connection.shared(op, self.clock())
            case _:
                return MUST_WRITE

    def write_ordinary(self, connection: SqliteConnection, op: Any) -> Any:
        """The two writes of a call that meets no other; None: it does, and nothing was written."""
        if type(op) is Complete:
            return Applied(op.epoch) if connection.finish(op, self.clock()) else None
        if op.request.after:
            return None
        born = transition(None, op, Scene(self.clock()))
        return born.reply if connection.bear(cast(Record, born.after)) else None

    def write(self, connection: SqliteConnection, op: Any) -> Any:
        if type(op) in ORDINARY and (reply := self.write_ordinary(connection, op)) is not None:
            return reply
        if isinstance(op, Together):
            once = born_and_ended(op, Scene(self.clock()))
            if once is not None and connection.bear(cast(Record, once.after)):
                return once.reply
            return tuple([self._apply_one(connection, each) for each in op.ops])
        if isinstance(op, Sweep):
            return self._sweep(connection, op)
        if isinstance(op, WriteCell):
            return connection.write_cell(op, self.clock())
        return self.change(connection, op).reply

    def _apply_one(self, connection: SqliteConnection, op: Any) -> Any:
        """One of several, inside their transaction: what writes need not be looked for first."""
        reply = MUST_WRITE if type(op) in BEFORE_A_SEND else self.read(connection, op)
        return self.write(connection, op) if reply is MUST_WRITE else reply

    def change(self, connection: SqliteConnection, op: Any) -> TransitionResult:
        record = connection.record(READ, op.key)
        step = transition(record, op, self._scene(connection, op, record))
        if step.changed:
            connection.put(op.key, step)
        return step

    def _scene(self, connection: SqliteConnection, op: Any, record: Record | None) -> Scene:
        latch = latch_of(record, op)
        rival = connection.record(RIVAL, latch, op.key) if latch else None
        after = op.request.after if isinstance(op, Claim) and record is None else ""
        predecessor = connection.record(READ, after) if after else None
        if not timed(record, op):
            return Scene(self.clock(), rival, predecessor)
        if isinstance(op, Inquire):
            note = connection.steady(self.steadiness)
        else:  # this may be no transaction: what is written keeps the note first
            note = self.steadiness.look(connection.noted(), connection.last_sent)
        return note.scene(self.clock(), rival, predecessor)

    def _sweep(self, connection: SqliteConnection, op: Sweep) -> Swept:
        note = connection.steady(self.steadiness)
        scene = note.scene(self.clock(), None, None)
        counts, asked = Counter[State](), op.limit
        found, unreadable = connection.due(scene.now, asked)
        # they stay due: look behind them
        while unreadable and len(found) + len(unreadable) == asked and len(found) < op.limit:
            asked *= 2
            found, unreadable = connection.due(scene.now, asked)
        for before in found[: op.limit]:
            step = transition(before, op, scene)
            connection.put(before.request.key, step)
            counts[State.ABSENT if step.after is None else step.after.state] += 1
        cells = connection.forget_cells(scene.now, op.limit - counts.total())
        return Swept(
            counts[State.IN_DOUBT],
            counts[State.TOMBSTONE],
            counts[State.ABSENT],
            cells,
            tuple(unreadable),
        )
