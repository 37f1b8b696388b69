"""Kill operators in the middle of redriving dead letters, again and again, and count what
happened downstream.

    python -m tests.crash.soak_letters --letters 1000 [--store postgres|redis]

A third of the letters was never sent, a third was lost on its way, and a third happened and its
answer was lost. In each round two operators redrive them at the same time: one dies at a named
point, the other is killed from outside wherever it is then. A last one, who lives, redrives what
is left. What was promised is judged from the ledger of a bank that is a process of its own, and
from the store.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from effectonce import Downstream, EffectOnceError, Guard, NotSent, Retry, State, current_effect
from effectonce._core.ops import Claim
from effectonce.testing.bank import Bank, Teller
from effectonce.testing.crash import CrashingStore, die
from tests.crash.soak import command, end, opened, served, start

LEASE_S = 0.3
PATIENCE_S = 120.0
POINTS = ("before the claim", "claimed", "in flight", "effect done", "completed")
TROUBLES = ("not sent", "silent", "lose-answer")


class DyingLater:
    """A store whose process dies at *point* of the claim number *nth*."""

    def __init__(self, store, point, nth):
        self._store, self._crashing, self._nth, self._claims = (
            store,
            CrashingStore(store, at=point),
            nth,
            0,
        )
        self.capabilities = store.capabilities

    def apply(self, op):
        self._claims += isinstance(op, Claim)
        return (self._crashing if self._claims >= self._nth else self._store).apply(op)

    def close(self):
        self._store.close()


def shop(where, port, *, trouble=None, point=None, nth=1):
    """A guard and its tool, as every process makes them."""
    store = opened(where)
    guard = Guard(store if point is None else DyingLater(store, point, nth), cache=0)
    sends = []

    @guard.tool(
        kind="irreversible",
        downstream=Downstream.key(),
        lease_s=LEASE_S,
        wait_s=0,
        retry=Retry(attempts=1),
    )
    def pay(payment_id: str) -> str:
        if trouble == "not sent":
            raise NotSent("the bank is away")
        sends.append(payment_id)
        key = current_effect().downstream_key
        with Teller(port) as teller:
            if point == "in flight" and len(sends) >= nth:
                body = json.dumps({"payment_id": payment_id, "amount_minor": 1})
                teller._http.request("POST", "/payments", body, {"Idempotency-Key": key})
                die()
            receipt = teller.pay(payment_id, 1, key=key, fault=trouble)["receipt"]
        if point == "effect done" and len(sends) >= nth:
            die()
        return receipt

    return guard, pay


def leave_letters(where, port, count):
    """Every call gives up."""
    for n, trouble in enumerate(TROUBLES):
        guard, pay = shop(where, port, trouble=trouble)
        for number in range(n, count, len(TROUBLES)):
            try:
                with guard.step("shop", number):
                    pay(f"pay_{number}")
            except EffectOnceError:
                continue
            raise AssertionError("it was to give up")
        guard.close()


def operate(where, port, point=None, nth=1):
    """Redrive some of them, oldest first: few enough that some are left for every round."""
    guard, _ = shop(where, port, point=point, nth=nth)
    guard.dead_letters.redrive_all(
        dry_run=False, per_s=None, limit=12, by="an operator", reason="the bank is back"
    )


def operate_to_the_end(where, port, count):
    """Redrive until nothing is left: what a killed operator held is free when its lease is over."""
    total, give_up_at = Counter(), time.monotonic() + PATIENCE_S
    guard, _ = shop(where, port)
    while guard.counts().get(State.COMPLETED, 0) < count and time.monotonic() < give_up_at:
        done = guard.dead_letters.redrive_all(
            dry_run=False,
            per_s=None,
            limit=1_000_000,
            by="the last operator",
            reason="the bank is back",
        )
        total.update(each.what for each in done)
    again = guard.dead_letters.redrive_all(
        dry_run=False, by="the last operator", reason="to be sure"
    )
    counts = {str(state): number for state, number in guard.counts().items()}
    return {"done": total["done"], "left": len(again), "counts": counts}


def soak(letters, seed, store, on_progress):
    kills = letters // 10
    killed, rounds, rng = Counter(), 0, random.Random(seed)
    with (
        tempfile.TemporaryDirectory(prefix="effectonce-letters-") as folder,
        served(store, folder) as (where, _),
        Bank(Path(folder, "ledger"), honours_keys=True) as bank,
    ):
        began = time.monotonic()
        assert end(*start(lambda: leave_letters(where, bank.port, letters)))[0] == "exit 0"
        landed = len(bank.ledger())
        while rounds < 3 * kills and (
            killed.total() < kills or not all(killed[point] for point in POINTS)
        ):
            killed.update(
                kill_two(where, bank.port, POINTS[rounds % len(POINTS)], rng.randint(1, 3))
            )
            rounds += 1
            on_progress(killed.total())
        how, last = end(*start(lambda: operate_to_the_end(where, bank.port, letters)))
        effects = Counter(entry["payment_id"] for entry in bank.ledger())
    return {
        "letters": letters,
        "landed_before": landed,
        "kills": dict(killed),
        "rounds": rounds,
        "seconds": round(time.monotonic() - began, 1),
        "effects": len(effects),
        "duplicates": sum(count - 1 for count in effects.values()),
        "lost": letters - len(effects),
        "last_operator": last if how == "exit 0" else how,
    }


def kill_two(where, port, point, nth):
    """Two operators at once; neither lives, unless the other was faster than its end."""
    first = start(lambda: operate(where, port, point, nth))
    second = start(lambda: operate(where, port))
    dead = [
        name for name, worker in ((point, first), ("anywhere", second)) if was_killed(*worker, name)
    ]
    return Counter(dead)


def was_killed(pid, reader, name):
    if name == "anywhere":
        os.kill(pid, signal.SIGKILL)
    return end(pid, reader)[0] == f"signal {signal.SIGKILL.value}"


def main():
    result = command(soak, __doc__, letters=1000, seed=1)
    counts = isinstance(result["last_operator"], dict) and result["last_operator"]["counts"]
    whole = counts == {"completed": result["letters"]}
    sys.exit(0 if whole and not result["duplicates"] and not result["lost"] else 1)


if __name__ == "__main__":
    main()
