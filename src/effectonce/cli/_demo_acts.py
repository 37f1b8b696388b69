"""The demo's three acts. What they return was read from the bank's ledger, from the store, or
from the agents' results.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import replace

from effectonce import Guard, State
from effectonce.cli._demo_agent import DIE, DemoJob, guarded_refund
from effectonce.cli._demo_stage import DemoFailed, Stage, StageEvent
from effectonce.testing.bank import Bank

PAYMENT, OTHER_PAYMENT, AMOUNT_MINOR = "pay_7", "pay_8", 1_400_000
TIMEOUT_S = 1.0  # how long an agent waits for the bank
LEASE_S = 1.5  # how long a dead agent's claim stands
FIRST, SECOND, THIRD = "agent-1", "agent-2", "agent-3"
Show = Callable[[StageEvent], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unprotected:
    ledger: list[dict[str, Any]]
    calls: int  # how often an agent set out to do it
    attempts: int  # how often a request left

    def broken_promises(self) -> Iterator[str]:
        if len(self.ledger) < 2:
            yield (
                "act 1: the faults should cause duplicates without effectonce, but refunds ="
                f" {len(self.ledger)}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectedAgent:
    ledger: list[dict[str, Any]]
    calls: int
    attempts: int
    replayed: int  # the outcome was known
    coalesced: int  # another call was under way, and this one waited
    state: str

    def broken_promises(self) -> Iterator[str]:
        if len(self.ledger) != 1:
            yield f"act 2: effectonce promises 1 refund, but refunds = {len(self.ledger)}"
        if self.state != State.COMPLETED:
            yield f"act 2: the record should be completed, but it is {self.state}"
        if self.replayed < 1 or self.coalesced < 1:
            yield (
                "act 2: a call should be replayed and one coalesced, but replayed ="
                f" {self.replayed}, coalesced = {self.coalesced}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoDoubt:
    ledger: list[dict[str, Any]]
    calls: int
    attempts: int
    state: str  # after the answer was lost
    refused: int  # calls that sent nothing, because the outcome was unknown
    settled_by: str
    replayed: int  # calls after it was settled

    def broken_promises(self) -> Iterator[str]:
        if len(self.ledger) != 1 or self.attempts != 1:
            yield (
                f"act 3: it should be sent once and land once, but sent = {self.attempts}, refunds"
                f" = {len(self.ledger)}"
            )
        if self.state != State.IN_DOUBT or self.refused != 1:
            yield (
                f"act 3: it should be in doubt and refused, but it is {self.state}, and refused ="
                f" {self.refused}"
            )
        if self.settled_by != "probe" or self.replayed != 1:
            yield (
                "act 3: the probe should settle it for the next call, but settled by"
                f" {self.settled_by!r}, replayed = {self.replayed}"
            )


class Theatre:
    """A folder for ledgers and stores, a seed, and a function that gets each event."""

    def __init__(self, folder: Path, seed: int, show: Show) -> None:
        self._folder, self._seed, self._show = folder, seed, show
        # The seed decides how late the bank answers: always too late for the first send, always
        # in time for the last.
        rng = random.Random(seed)  # noqa: S311  # not a secret
        self.too_late = f"answer-late:{TIMEOUT_S + rng.uniform(1, 3):.3f}"
        self.slowly = f"answer-late:{rng.uniform(0.3, 0.5):.3f}"

    def without(self) -> Unprotected:
        """Act 1: every attempt makes a key of its own, so a bank that honours keys does not
        help.
        """
        with self._stage("act-1", honours_keys=True) as (stage, bank):
            self._same_faults(stage, self._job(bank))
            return Unprotected(
                ledger=bank.ledger(), calls=stage.calls, attempts=_count(stage, "sends")
            )

    def protected(self) -> ProtectedAgent:
        """Act 2: the same faults and the same kill; then the model asks once more, in other
        words.
        """
        with self._stage("act-2", honours_keys=True) as (stage, bank):
            job = self._job(bank, protection="key", store=self._store("act-2"))
            self._same_faults(stage, job)
            (again,) = stage.start(THIRD)
            stage.note(THIRD, "asks", why="once more, in other words")
            stage.perform((again, _with(job, THIRD, reason="parcel was late, customer is upset")))
            outcomes = _outcomes(stage)
            return ProtectedAgent(
                ledger=bank.ledger(),
                calls=stage.calls,
                attempts=_count(stage, "sends"),
                replayed=sum(o["replayed"] and not o["coalesced"] for o in outcomes),
                coalesced=sum(o["coalesced"] for o in outcomes),
                state=_only_state(job.store),
            )

    def doubt(self) -> DemoDoubt:
        """Act 3: nobody can know, so no success is reported and nothing is sent again, until the
        bank can be asked.
        """
        with self._stage("act-3", honours_keys=False) as (stage, bank):
            job = self._job(
                bank,
                protection="probe",
                store=self._store("act-3"),
                payment_id=OTHER_PAYMENT,
                enquiries=False,
            )
            first, second, third = stage.start(FIRST, SECOND, THIRD)
            stage.perform((first, _with(job, FIRST, faults=("lose-answer",))))
            stage.note(SECOND, "asks", why="wants to refund it as well")
            stage.perform((second, _with(job, SECOND)))
            state, senders = _only_state(job.store), _who(stage, "sends")
            refused = sum(
                e.what == "outcome" and e.details["status"] == "in_doubt" and e.who not in senders
                for e in stage.events
            )
            stage.note("store", "state", state=state)
            settled_by = self._settle(stage, _with(job, "probe", enquiries=True))
            stage.note(THIRD, "asks", why="wants to refund it once more")
            stage.perform((third, _with(job, THIRD)))
            return DemoDoubt(
                ledger=bank.ledger(),
                calls=stage.calls,
                attempts=_count(stage, "sends"),
                state=state,
                refused=refused,
                settled_by=settled_by,
                replayed=sum(o["replayed"] for o in _outcomes(stage)),
            )

    def _same_faults(self, stage: Stage, job: DemoJob) -> None:
        """A late answer, a retry, a kill after the bank said yes, a restart, and a second agent
        at the same moment.
        """
        (victim,) = stage.start(FIRST)
        stage.perform_and_kill(victim, _with(job, FIRST, faults=(self.too_late, DIE)))
        if job.store:
            stage.note("store", "state", state=_only_state(job.store))
        reborn, other = stage.start(FIRST, SECOND)
        stage.note(FIRST, "restarted", why="by its orchestrator; it remembers nothing")
        stage.note(SECOND, "started", why="a second agent takes the same ticket")
        slowly = {"faults": (self.slowly,), "seed": f"{job.seed}/again"}
        stage.perform((reborn, _with(job, FIRST, **slowly)), (other, _with(job, SECOND, **slowly)))

    def _settle(self, stage: Stage, job: DemoJob) -> str:
        """Ask the probe about what is in doubt; then read from the store who settled it."""
        guard = Guard(job.store)
        try:
            guarded_refund(guard, job)
            keys = [record.request.key for record in guard.in_doubt()]
            stage.note(
                "probe", "asks", why=f"the enquiry desk has opened: was {job.payment_id} paid?"
            )
            guard.reconcile()
            records = [guard.find(key) for key in keys]
        finally:
            guard.close()
        settled = [
            record for record in records if record is not None and record.state is State.COMPLETED
        ]
        if len(settled) != 1:
            raise DemoFailed(f"the probe settled {len(settled)} effects instead of 1")
        stage.note("store", "settled", state=str(settled[0].state), by=settled[0].settled_by)
        return settled[0].settled_by

    def _job(
        self, bank: Bank, *, protection: Literal["none", "key", "probe"] = "none", **changes: Any
    ) -> DemoJob:
        job: dict[str, Any] = {
            "who": "",
            "port": bank.port,
            "payment_id": PAYMENT,
            "amount_minor": AMOUNT_MINOR,
            "reason": "late delivery",
            "faults": (),
            "timeout_s": TIMEOUT_S,
            "lease_s": LEASE_S,
            "seed": str(self._seed),
        }
        return DemoJob(protection=protection, **job | changes)

    @contextmanager
    def _stage(self, act: str, *, honours_keys: bool) -> Iterator[tuple[Stage, Bank]]:
        with (
            Bank(self._folder / f"{act}.ledger", honours_keys=honours_keys) as bank,
            Stage(self._show) as stage,
        ):
            yield stage, bank

    def _store(self, act: str) -> str:
        return f"sqlite:///{self._folder / act}.db"


def _with(job: DemoJob, who: str, **changes: Any) -> DemoJob:
    return replace(job, who=who, **changes)


def _count(stage: Stage, what: str) -> int:
    return sum(event.what == what for event in stage.events)


def _who(stage: Stage, what: str) -> set[str]:
    return {event.who for event in stage.events if event.what == what}


def _outcomes(stage: Stage) -> list[dict[str, Any]]:
    return [event.details for event in stage.events if event.what == "outcome"]


def _only_state(store: str) -> str:
    """The state of the one effect that there is."""
    guard = Guard(store)
    try:
        states = [state for state, count in guard.counts().items() for _ in range(count)]
    finally:
        guard.close()
    if len(states) != 1:
        raise DemoFailed(f"the store has {len(states)} effects instead of 1")
    return str(states[0])
