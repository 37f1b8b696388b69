"""Kill a ten-step workflow at random moments, resume it, kill it again; then count what happened
downstream.

    python -m tests.crash.workflows --runs 1000 [--store sqlite|postgres|redis] [--seed 7]

Each run is one workflow: an answer that is asked for, payments by key, by probe and by tools
that may repeat, two steps at once, another workflow inside, and in every third run a refusal at
the end, which is compensated. Workers die by SIGKILL before or after a write to the store, or
when the bank has said yes; the last one lives. Now and then two of them work on the same run at
the same time. The bank is a process of its own, and has the last word.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from effectonce import (
    Downstream,
    EffectOnceError,
    Found,
    GaveUp,
    Guard,
    InDoubt,
    InFlight,
    LeaseLost,
    NotFound,
    Rejected,
    ReplayedFailure,
    StepFailed,
    StoreUnavailable,
    current_effect,
)
from effectonce.testing.bank import Bank, Teller
from effectonce.testing.crash import die
from effectonce.workflows import Run
from tests.crash.soak import command, end, opened, served, start

LEASE_S = 0.3
PATIENCE_S = 60.0
# the next attempt goes on, or asks the probe again
LATER = (GaveUp, InDoubt, InFlight, LeaseLost, StoreUnavailable)
PAUSE_S = 0.05
AT_ONCE = 6
MOMENTS = 60  # a run passes about so many
DONE = ("hotel", "note 1", "train", "left", "right", "note 2", "ferry", "inside", "last")
UNDONE = ("no hotel", "no train", "no ferry")


class Moments:
    """Counts the moments of this process, and ends it at one of them."""

    def __init__(self, at):
        self._left = itertools.count(0 if at is None else at, -1)
        self._dies = at is not None

    def pass_(self):
        if next(self._left) == 0 and self._dies:
            die()


class MortalStore:
    """A store whose process may die before a write, and after it, when nobody was told."""

    def __init__(self, store, moments):
        self._store, self._moments = store, moments

    @property
    def capabilities(self):
        return self._store.capabilities

    def apply(self, op, /):
        self._moments.pass_()
        reply = self._store.apply(op)
        self._moments.pass_()
        return reply

    async def aapply(self, op, /):
        self._moments.pass_()
        reply = await self._store.aapply(op)
        self._moments.pass_()
        return reply

    def close(self):
        self._store.close()


# ---------------------------------------------------------------- a worker


def trip_of(guard, port, moments):
    """The workflow, as this process knows it."""

    def paid(what: str, trip: str) -> str:
        with Teller(port) as teller:
            receipt = teller.pay(f"{trip}/{what}", 1, key=current_effect().downstream_key)[
                "receipt"
            ]
        moments.pass_()
        return receipt

    @guard.tool(kind="irreversible", downstream="key", lease_s=LEASE_S)
    def pay(what: str, trip: str) -> str:
        return paid(what, trip)

    @guard.tool(kind="idempotent_write", lease_s=LEASE_S)
    def note(what: str, trip: str) -> str:
        return paid(what, trip)

    @guard.tool(kind="write", downstream=Downstream.probe(delay=0.5), lease_s=LEASE_S)
    def book(what: str, trip: str) -> str:
        return paid(what, trip)

    @book.probe
    def booked(what: str, trip: str):
        with Teller(port) as teller:
            found = teller.find(f"{trip}/{what}")
        return NotFound() if found is None else Found(found["receipt"])

    @guard.tool(kind="write", downstream=Downstream.key(stores_rejections=True), lease_s=LEASE_S)
    def refuse() -> None:
        raise Rejected("sold out")

    @guard.workflow(lease_s=LEASE_S, runs=1000, name="inside")
    def inside(run: Run, trip: str) -> str:
        return run.step("inside", pay, "inside", trip)

    @guard.workflow(lease_s=LEASE_S, runs=1000, identity=["trip"])
    def travel(run: Run, trip: str, refused: bool) -> dict:
        plan = run.ask("plan", lambda: os.urandom(8).hex())
        got = {"hotel": run.step("hotel", pay, "hotel", trip)}
        run.compensate("no hotel", pay, "no hotel", trip)
        got["note 1"] = run.step("note", note, "note 1", trip)
        got["train"] = run.step("train", book, "train", trip)
        run.compensate("no train", note, "no train", trip)
        got["left"], got["right"] = run.parallel(
            ("left", pay, "left", trip), ("right", note, "right", trip)
        )
        got["note 2"] = run.step("note", note, "note 2", trip)
        got["ferry"] = run.step(f"ferry {plan}", pay, "ferry", trip)
        run.compensate("no ferry", pay, "no ferry", trip)
        got["inside"] = run.step("inside", inside, trip)
        if refused:
            run.step("refused", refuse)
        got["last"] = run.step("last", note, "last", trip)
        return got

    return travel


def work(job, at):
    """One process: it goes on with the run until it dies, or until it knows the end."""
    moments = Moments(at)
    guard = Guard(MortalStore(opened(job["store"]), moments), cache=0, spool=job["spool"])
    travel = trip_of(guard, job["port"], moments)
    give_up_at = time.monotonic() + PATIENCE_S
    while True:
        try:
            return {"status": "completed", "got": travel(job["trip"], job["refused"])}
        except (StepFailed, ReplayedFailure) as error:
            return {"status": "failed", "error": str(error)}
        except EffectOnceError as error:
            if not isinstance(error, LATER) or time.monotonic() > give_up_at:
                return {"status": type(error).__name__, "error": str(error)}
            time.sleep(PAUSE_S)  # as any caller would: every turn of this loop begins the run again


def run_one(job):
    """Workers that die, now and then two at once; then one that lives."""
    killed, told = 0, []
    for moments in job["deaths"]:
        workers = [start(lambda at=at: work(job, at)) for at in moments]
        for worker in workers:
            how, report = end(*worker)
            killed += how == f"signal {signal.SIGKILL.value}"
            told += [report] if report is not None else []
    told.append(end(*start(lambda: work(job, None)))[1])
    return job | {"killed": killed, "told": told}


# ---------------------------------------------------------------- the whole


def plan(runs, store, spool, port, seed):
    rng = random.Random(seed)
    for number in range(runs):
        deaths = [
            [rng.randrange(MOMENTS) for _ in range(2 if rng.random() < 0.2 else 1)]
            for _ in range(rng.choice((1, 1, 2, 3)))
        ]
        yield {
            "trip": f"trip_{number}",
            "refused": number % 3 == 0,
            "deaths": deaths,
            "store": store,
            "spool": spool,
            "port": port,
        }


def judge(reports, ledger):
    """What each worker was told, and what the bank has: every payment once, every answer the
    same.
    """
    paid, receipts = Counter(), {}
    for entry in ledger:
        paid[entry["payment_id"]] += 1
        receipts[entry["payment_id"]] = entry["receipt"]
    bad, broken = Counter(), []
    for report in reports:
        before = bad.total()
        trip, refused, told = report["trip"], report["refused"], report["told"]
        expected = {
            f"{trip}/{what}"
            for what in (*DONE[: -1 if refused else None], *(UNDONE if refused else ()))
        }
        mine = {payment for payment in paid if payment.startswith(f"{trip}/")}
        bad["duplicates"] += any(paid[payment] > 1 for payment in mine)
        bad["lost"] += mine != expected
        bad["wrong_ends"] += any(
            each["status"] != ("failed" if refused else "completed") for each in told
        )
        bad["wrong_results"] += not refused and any(
            each.get("got") != {what: receipts[f"{trip}/{what}"] for what in DONE} for each in told
        )
        if bad.total() > before:
            broken.append(report)
    return {name: bad[name] for name in ("duplicates", "lost", "wrong_ends", "wrong_results")} | {
        "broken": broken
    }


def soak(runs, store="sqlite", seed=7, on_progress=lambda _: None):
    with (
        tempfile.TemporaryDirectory(prefix="effectonce-workflows-") as folder,
        served(store, folder) as (where, _),
        Bank(Path(folder, "bank"), honours_keys=True) as bank,
    ):
        reports = []
        # most of the time is spent waiting for leases
        with multiprocessing.get_context("fork").Pool(AT_ONCE) as runners:
            for report in runners.imap_unordered(
                run_one, plan(runs, where, str(Path(folder, "spool")), bank.port, seed)
            ):
                reports.append(report)
                on_progress(len(reports))
        verdict = judge(reports, bank.ledger())
    return {
        "store": store,
        "runs": runs,
        "killed": sum(report["killed"] for report in reports),
    } | verdict


def main():
    result = command(soak, __doc__, runs=1000, seed=7)
    sys.exit(bool(result["broken"]))


if __name__ == "__main__":
    main()
