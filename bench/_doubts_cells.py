"""The cells of doubts.py: one fault, one contract, three calls, and what the bank's ledger says
about the answers.

A subject is ours in one mode, or a peer in one configuration. It makes the tool of a cell
callable, and says what each call lets its caller know, in the six words of `Said`. The tool is
the same for all of them: one POST, its answer read as JSON.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from pathlib import Path
from typing import Any, Protocol

from _doubts_bank import KILLED_AFTER, KILLED_BEFORE, REFUSALS, Bank

KILLED_EARLY = "killed before the request"
KILLED_LATER = (KILLED_AFTER, "killed after the answer", "killed before the record")
BEFORE = ("bug before", "KeyError before", "refused", "DNS", "TLS", "bad URL")
WIRE = (
    "closed before",
    "closed after",
    "no answer",
    "500 after",
    "504 after",
    "502 before",
    "cut off",
    "429",
    "503",
    *REFUSALS,
)
AFTER = ("not JSON", "bug after")
FAULTS = (*BEFORE, *WIRE, *AFTER)
# the bank has the request, and did not do it
NOT_DONE = ("closed before", "502 before", KILLED_BEFORE)
NO_ANSWER = (
    *NOT_DONE,
    "closed after",
    "no answer",
    "500 after",
    "504 after",
    "cut off",
    *KILLED_LATER,
)
KINDS = ("write", "irreversible")
DOWNSTREAMS = ("none", "key", "probe")
CALLS = 3
# of one request: only "no answer" waits for it, and a busy machine is not taken for one
TIMEOUT_S = 2.0


class Said(StrEnum):
    """What a caller knows after a call."""

    DONE = "done"  # and here is its result
    HAPPENED = "happened"  # its result is not available
    FAILED = "failed"  # for good: it did not happen
    LATER = "later"  # it did not happen, and may be asked for again
    UNKNOWN = "unknown"  # it may have happened
    RAISED = "raised"  # the tool's own error, which says nothing about the effect


class Verdict(StrEnum):
    RIGHT = "right"
    PERSON = "person"
    DUPLICATE = "duplicate"
    LOST = "lost"
    FALSE = "false"


@dataclass(frozen=True, slots=True)
class Cell:
    kind: str
    downstream: str
    fault: str

    @property
    def who(self) -> str:
        """The customer of this cell, who is also its effect."""
        return f"{self.kind}-{self.downstream}-{self.fault}".replace(" ", "-")


@dataclass(frozen=True, slots=True)
class Answer:
    """What one call said, and how many effects the ledger had then."""

    said: Said
    effects: int


def judge(fault: str, answers: list[Answer]) -> Verdict:
    """Which end a cell came to."""
    if answers[-1].effects > 1:
        return Verdict.DUPLICATE
    if any(_is_false(answer) for answer in answers):
        return Verdict.FALSE
    match answers[-1].said:
        case Said.DONE | Said.HAPPENED:
            return Verdict.RIGHT
        case Said.FAILED:  # the bank refused it, or would do it and is not asked any more
            return Verdict.RIGHT if fault in REFUSALS else Verdict.LOST
        case Said.LATER | Said.UNKNOWN | Said.RAISED:
            return Verdict.PERSON


def _is_false(answer: Answer) -> bool:
    happened = answer.said in (Said.DONE, Said.HAPPENED)
    return (happened and answer.effects == 0) or (answer.said is Said.FAILED and answer.effects > 0)


def floor(fault: str, downstream: str) -> bool:
    """Must a person look? The request left, no answer to it is known any more, and the bank
    cannot say.

    A bank that can be asked says what it did. What it did not do may still be on its way.
    """
    return fault in (
        NO_ANSWER if downstream == "none" else NOT_DONE if downstream == "probe" else ()
    )


# ---------------------------------------------------------------- the tool


class Payment:
    """The body of the tool of one cell, but for the client that sends it. The fault hits its
    first run.
    """

    def __init__(self, cell: Cell, bank: Bank) -> None:
        self.cell, self._bank, self._runs = cell, bank, 0

    def url(self) -> str:
        """Where to send it; or the fault that keeps it from being sent."""
        self._runs += 1
        match self._fault():
            case "bug before":
                raise ValueError("bad sku")
            case "KeyError before":
                raise KeyError("sku")
            case "refused":
                return f"http://127.0.0.1:{closed_port()}/pay"
            case "DNS":
                return "http://no-such-host.invalid/pay"
            case "TLS":
                return f"https://127.0.0.1:{self._bank.port}/pay"
            case "bad URL":
                return "htp:/nowhere"
            case _:
                return f"{self._bank.url}/pay"

    def receipt(self, body: bytes) -> str:
        receipt: str = json.loads(body)["receipt"]
        if self._fault() == "bug after":
            raise ValueError("my own parsing")
        return receipt

    def find(self) -> str | None:
        """What a probe finds."""
        return next(iter(self._bank.paid(self.cell.who)), None)

    def _fault(self) -> str:
        return self.cell.fault if self._runs == 1 else ""


def closed_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


# ---------------------------------------------------------------- running them


class Subject(Protocol):
    """Ours, or a peer. `tool` is called once for each cell; what it returns is then called three
    times.
    """

    def tool(self, payment: Payment) -> Callable[[], Said]: ...

    def reconcile(self, cell: Cell) -> None:
        """Run the subject's own reconciler, if it has one."""


Subjects = dict[str, Callable[[Path, Bank], Subject]]


def cells(faults: Iterable[str], downstreams: Iterable[str] = DOWNSTREAMS) -> Iterator[Cell]:
    for downstream, kind, fault in product(downstreams, KINDS, faults):
        yield Cell(kind, downstream, fault)


def run(subject: Subject, cell: Cell, bank: Bank) -> dict[str, Any]:
    """One cell: the fault, then the same call twice more without it, as an orchestrator retries."""
    bank.arm(
        cell.who, "" if cell.fault in BEFORE else cell.fault, honours_keys=cell.downstream == "key"
    )
    call, answers = subject.tool(Payment(cell, bank)), []
    for _ in range(CALLS):
        said = call()
        answers.append(Answer(said, len(bank.paid(cell.who))))
        if cell.downstream == "probe":
            subject.reconcile(cell)
    answers[-1] = Answer(answers[-1].said, len(bank.paid(cell.who)))
    return ended(cell, answers)


def ended(cell: Cell, answers: list[Answer]) -> dict[str, Any]:
    return {
        "fault": cell.fault,
        "kind": cell.kind,
        "downstream": cell.downstream,
        "verdict": judge(cell.fault, answers),
        "floor": floor(cell.fault, cell.downstream),
        "effects": answers[-1].effects,
        "said": [answer.said for answer in answers],
    }
