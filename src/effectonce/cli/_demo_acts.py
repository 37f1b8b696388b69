"""The demo's three acts. What they return was read from the bank's ledger, from the store, or
from the agents' results.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from effectonce import Guard, State
from effectonce.cli._demo_agent import AMOUNT_MINOR, DIE, TIMEOUT_S, DemoJob, guarded_refund
from effectonce.cli._demo_stage import DemoFailed, Stage, StageEvent
from effectonce.testing.bank import Bank

FIRST, SECOND, THIRD = "agent-1", "agent-2", "agent-3"


def money(amount_minor: int) -> str:
    return f"₹{amount_minor // 100:,}.{amount_minor % 100:02d}"


class DemoAct(NamedTuple):
    """What one act came to: *calls* are agents that set out, *attempts* requests that left."""

    ledger: list[dict[str, Any]]
    counts: dict[str, Any]
    verdict: str
    broken: list[str]  # promises that did not hold


class DemoActs:
    """A folder for ledgers and stores, a seed, and a function that gets each event."""

    def __init__(self, folder: Path, seed: int, show: Callable[[StageEvent], None]) -> None:
        self._folder, self._seed, self._show = folder, seed, show
        # The seed decides how late the bank answers: always too late for the first send, always
        # in time for the last.
        rng = random.Random(seed)  # noqa: S311  # not a secret
        self.too_late = f"answer-late:{TIMEOUT_S + rng.uniform(1, 3):.3f}"
        self.slowly = f"answer-late:{rng.uniform(0.3, 0.5):.3f}"

    def without(self) -> DemoAct:
        """Every attempt makes a key of its own, so a bank that honours keys does not help."""
        with self._stage("act-1") as (stage, bank, job):
            self._same_faults(stage, job)
            counts = {"calls": stage.calls, "attempts": stage.count("sends")}
            ledger = bank.ledger()
        refunds = len(ledger)
        verdict = f"instead of 1: {money(AMOUNT_MINOR * (refunds - 1))} too much."
        expected = "the faults should cause duplicates without effectonce"
        promises = {f"act 1: {expected}, but refunds = {refunds}": refunds >= 2}
        return _act(ledger, counts, verdict, promises)

    def protected(self) -> DemoAct:
        """The same faults and the same kill; then the model asks once more, in other words."""
        with self._stage("act-2", protection="key") as (stage, bank, job):
            self._same_faults(stage, job)
            (again,) = stage.start(THIRD)
            stage.note(THIRD, "asks", why="once more, in other words")
            reason = "parcel was late, customer is upset"
            stage.perform((again, replace(job, who=THIRD, reason=reason)))
            replayed, coalesced = stage.count("replayed"), stage.count("coalesced")
            counts = {
                "calls": stage.calls,
                "attempts": stage.count("sends"),
                "replayed": replayed,  # the outcome was known
                "coalesced": coalesced,  # another call was under way, and this one waited
                "state": (state := _only_state(job.store)),
            }
            ledger = bank.ledger()
        verdict = f"for {stage.calls} calls: {coalesced} coalesced, {replayed} replayed."
        seen = f"replayed = {replayed}, coalesced = {coalesced}"
        promises = {
            f"act 2: effectonce promises 1 refund, but refunds = {len(ledger)}": len(ledger) == 1,
            f"act 2: the record should be completed, but it is {state}": state == State.COMPLETED,
            f"act 2: a call should be replayed and one coalesced, but {seen}": (
                replayed >= 1 and coalesced >= 1
            ),
        }
        return _act(ledger, counts, verdict, promises)

    def doubt(self) -> DemoAct:
        """In doubt: no success is reported, nothing is sent again, until the bank can be asked."""
        doubtful = {"protection": "probe", "payment_id": "pay_8", "enquiries": False}
        with self._stage("act-3", honours_keys=False, **doubtful) as (stage, bank, job):
            first, second, third = stage.start(FIRST, SECOND, THIRD)
            stage.perform((first, replace(job, who=FIRST, faults=("lose-answer",))))
            stage.note(SECOND, "asks", why="wants to refund it as well")
            stage.perform((second, replace(job, who=SECOND)))
            state, refused = _only_state(job.store), stage.count("refused")
            stage.note("store", f"state {state}")
            settled_by = _settle(stage, replace(job, enquiries=True))
            stage.note(THIRD, "asks", why="wants to refund it once more")
            stage.perform((third, replace(job, who=THIRD)))
            sent, replayed = stage.count("sends"), stage.count("replayed")
            ledger = bank.ledger()
        counts = {
            "calls": stage.calls,
            "attempts": sent,
            "state": state,  # after the answer was lost
            "refused": refused,  # calls that sent nothing, because the outcome was unknown
            "settled_by": settled_by,
            "replayed": replayed,  # calls after it was settled
        }
        became = f"{refused} refused in doubt, {replayed} replayed once settled"
        landed = f"sent = {sent}, refunds = {len(ledger)}"
        doubted = f"it is {state}, and refused = {refused}"
        settled = f"settled by {settled_by!r}, replayed = {replayed}"
        promises = {
            f"act 3: it should be sent once and land once, but {landed}": (
                len(ledger) == sent == 1
            ),
            f"act 3: it should be in doubt and refused, but {doubted}": (
                state == State.IN_DOUBT and refused == 1
            ),
            f"act 3: the probe should settle it for the next call, but {settled}": (
                settled_by == "probe" and replayed == 1
            ),
        }
        return _act(ledger, counts, f"for {stage.calls} calls: {became}.", promises)

    @contextmanager
    def _stage(
        self, act: str, *, honours_keys: bool = True, **job: Any
    ) -> Iterator[tuple[Stage, Bank, DemoJob]]:
        store = f"sqlite:///{self._folder / act}.db"
        with (
            Bank(self._folder / f"{act}.ledger", honours_keys=honours_keys) as bank,
            Stage(self._show) as stage,
        ):
            yield stage, bank, DemoJob(port=bank.port, seed=str(self._seed), store=store, **job)

    def _same_faults(self, stage: Stage, job: DemoJob) -> None:
        """A late answer, a retry, a kill after the bank said yes, a restart, and a second agent
        at the same moment.
        """
        (victim,) = stage.start(FIRST)
        stage.perform((victim, replace(job, who=FIRST, faults=(self.too_late, DIE))), kill=True)
        if job.protection != "none":
            stage.note("store", f"state {_only_state(job.store)}")
        reborn, other = stage.start(FIRST, SECOND)
        stage.note(FIRST, "restarted", why="by its orchestrator; it remembers nothing")
        stage.note(SECOND, "started", why="a second agent takes the same ticket")
        job = replace(job, faults=(self.slowly,), seed=f"{job.seed}/again")
        stage.perform((reborn, replace(job, who=FIRST)), (other, replace(job, who=SECOND)))


def _act(
    ledger: list[dict[str, Any]], counts: dict[str, Any], verdict: str, promises: dict[str, bool]
) -> DemoAct:
    refunds = f"{len(ledger)} refund{'s' * (len(ledger) != 1)}"
    broken = [text for text, holds in promises.items() if not holds]
    return DemoAct(ledger, counts, f"{refunds} {verdict}", broken)


def _settle(stage: Stage, job: DemoJob) -> str:
    """Ask the probe about what is in doubt; then read from the store who settled it."""
    with closing(Guard(job.store)) as guard:
        guarded_refund(guard, job)
        keys = [record.request.key for record in guard.in_doubt()]
        stage.note("probe", "asks", why=f"the enquiry desk has opened: was {job.payment_id} paid?")
        guard.reconcile()
        records = [guard.find(key) for key in keys]
    settled = [r for r in records if r is not None and r.state is State.COMPLETED]
    if len(settled) != 1:
        raise DemoFailed(f"the probe settled {len(settled)} effects instead of 1")
    stage.note("store", "settled", state=str(settled[0].state), by=settled[0].settled_by)
    return settled[0].settled_by


def _only_state(store: str) -> str:
    """The state of the one effect that there is."""
    with closing(Guard(store)) as guard:
        states = [str(state) for state, count in guard.counts().items() for _ in range(count)]
    if len(states) != 1:
        raise DemoFailed(f"the store has {len(states)} effects instead of 1")
    return states[0]
