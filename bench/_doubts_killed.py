"""Runs the cells of doubts.py whose fault is a killed process, for one of ours, and prints what
became of each.

    python bench/_doubts_killed.py SUBJECT PORT FOLDER POINT...

The first call is made by a process that is killed with SIGKILL at a named point: by itself, or
by the bank that has its request in its hands. The same call comes twice more, from a new
process, as an orchestrator retries. Processes are forked before anything is opened.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from _doubts_bank import KILLED_AFTER, KILLED_BEFORE, Bank
from _doubts_cells import (
    CALLS,
    KILLED_EARLY,
    KILLED_LATER,
    Answer,
    Cell,
    Payment,
    Said,
    Subject,
    Subjects,
    cells,
    ended,
)
from _doubts_ours import FAST, Mode, Ours, headers_of

from effectonce import Guard, current_effect
from effectonce._core.ops import Complete, Op
from effectonce.stores.base import Store
from effectonce.stores.sqlite import SqliteStore

POINTS = (KILLED_EARLY, KILLED_BEFORE, *KILLED_LATER)
AT_BANK = (KILLED_BEFORE, KILLED_AFTER)
LEASE_S = 0.2  # so that a caller need not wait long for one that is dead
PATIENCE_S = 60


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Killed(Payment):
    """A payment whose process dies at the point of its cell; or the same payment, made by the
    next process.
    """

    def __init__(self, cell: Cell, bank: Bank, *, dies: bool) -> None:
        super().__init__(cell, bank)
        self.dies_at = cell.fault if dies else ""

    def url(self) -> str:
        if self.dies_at == KILLED_EARLY:
            die()
        return f"{self._bank.url}/pay"

    def receipt(self, body: bytes) -> str:
        if self.dies_at == "killed after the answer":
            die()
        return super().receipt(body)


class DyingStore:
    """A store whose process dies when the outcome is about to be written."""

    def __init__(self, store: Store) -> None:
        self._store, self.capabilities = store, store.capabilities

    def apply(self, op: Op[Any], /) -> Any:
        if isinstance(op, Complete):
            die()
        return self._store.apply(op)

    async def aapply(self, op: Op[Any], /) -> Any:
        return self.apply(op)

    def close(self) -> None:
        self._store.close()


class OursKilled(Ours):
    def __init__(self, mode: Mode, folder: Path, bank: Bank) -> None:
        super().__init__(mode, folder, bank)
        self._folder, self._more = folder, {"lease_s": LEASE_S}

    def tool(self, payment: Payment) -> Callable[[], Said]:
        if isinstance(payment, Killed) and payment.dies_at == "killed before the record":
            self._guard = Guard(DyingStore(SqliteStore(self._folder / "effects.db")))
        return super().tool(payment)

    def _declared(self, cell: Cell) -> Callable[..., Any]:
        through: dict[str, Any] = {"through": "protected"} if self._mode == "through" else {}
        return self._guard.tool(
            kind=cell.kind,
            downstream=cell.downstream,
            name=cell.who,
            retry=FAST,
            **through,
            **self._more,
        )


class OursAnnounced(OursKilled):
    """With `separate_dispatch`, and `sending()` around the request."""

    def __init__(self, mode: Mode, folder: Path, bank: Bank) -> None:
        super().__init__(mode, folder, bank)
        self._more = {"lease_s": LEASE_S, "separate_dispatch": True}

    def _paying(self, payment: Payment, client: Any) -> Callable[[str], str]:
        def pay(who: str) -> str:
            headers, url = headers_of(payment.cell), payment.url()
            with current_effect().sending():
                return payment.receipt(self._sent(client, url, who, headers))

        return pay


OURS: Subjects = {
    "effectonce, protect and through": partial(OursKilled, "through"),
    "effectonce, separate_dispatch and sending()": partial(OursAnnounced, "through"),
}


# ---------------------------------------------------------------- one cell


def in_a_process(work: Callable[[], list[Answer]]) -> list[Answer] | None:
    """What a new process found out. None: it was killed."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(PATIENCE_S)
        os.write(writes, json.dumps([[answer.said, answer.effects] for answer in work()]).encode())
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads, "rb") as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return None
    return [Answer(Said(said), effects) for said, effects in json.loads(told)]


def calls(make: Callable[[], Subject], cell: Cell, bank: Bank, *, dies: bool) -> list[Answer]:
    """The call that is killed, or those that come after it."""
    at_bank = cell.fault if dies and cell.fault in AT_BANK else ""
    bank.arm(cell.who, at_bank, honours_keys=cell.downstream == "key")
    subject = make()
    call, answers = subject.tool(Killed(cell, bank, dies=dies)), []
    for _ in range(1 if dies else CALLS - 1):
        said = call()
        if cell.downstream == "probe":
            subject.reconcile(cell)
        answers.append(Answer(said, len(bank.paid(cell.who))))
    return answers


def run(make: Callable[[], Subject], cell: Cell, bank: Bank) -> dict[str, Any]:
    first = in_a_process(partial(calls, make, cell, bank, dies=True))
    if first is not None:
        raise SystemExit(f"{cell} was not killed: {first}")
    later = in_a_process(partial(calls, make, cell, bank, dies=False))
    assert later is not None
    return ended(cell, later)


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    name, port, folder, *points = sys.argv[1:]
    bank = Bank(int(port))
    make = partial(OURS[name], Path(folder), bank)
    print(json.dumps([run(make, cell, bank) for cell in cells(points)]))


if __name__ == "__main__":
    main()
