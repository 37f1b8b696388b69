"""An agent of the demo: a process that pays once, and reports every move as a JSON line.

It reports that it is ready, and reads what to do from stdin, so that two agents can be sent off
at the same moment. It is killed from outside; it never ends itself early.
"""

from __future__ import annotations

import random
import sys
from typing import Any, Literal

import msgspec

from effectonce import CannotTell, Found, Guard, NotFound, Retry, Tool, current_effect
from effectonce.testing.bank import find, pay

# a fault of ours, not the bank's: hang right after the bank said yes, to be killed there
DIE = "die"
AMOUNT_MINOR, ATTEMPTS = 1_400_000, 5
TIMEOUT_S = 1.0  # how long an agent waits for the bank
LEASE_S = 1.5  # how long a dead agent's claim stands
SENT: list[str] = []  # the keys of this agent's requests


class DemoJob(msgspec.Struct, kw_only=True, frozen=True):
    """What an agent is to do, and what shall go wrong on the way."""

    port: int
    seed: str
    who: str = ""
    payment_id: str = "pay_7"
    reason: str = "late delivery"
    # of the first send, the second, …; the last one goes for all that follow
    faults: tuple[str, ...] = ()
    protection: Literal["none", "key", "probe"] = "none"
    store: str = ""
    enquiries: bool = True  # does the bank answer questions?


def say(event: str, **details: Any) -> None:
    """One line to the parent, at once."""
    sys.stdout.buffer.write(msgspec.json.encode({"event": event, **details}) + b"\n")
    sys.stdout.buffer.flush()


def send(job: DemoJob, attempt: int, key: str) -> dict[str, Any]:
    """One request to the bank, with whatever is to go wrong with it."""
    fault = job.faults[min(attempt, len(job.faults)) - 1] if job.faults else None
    asked = None if fault == DIE else fault
    SENT.append(key)
    say("sends", key=key)
    try:
        answer = pay(
            job.port, job.payment_id, AMOUNT_MINOR, key=key, fault=asked, timeout_s=TIMEOUT_S
        )
    except TimeoutError:
        say("timed_out")
        raise
    except ConnectionError:
        say("answer_lost")
        raise
    say("bank_said_yes", receipt=answer["receipt"])
    if fault == DIE:
        sys.stdin.buffer.read()  # until the kill; or until the parent is gone
        sys.exit(1)
    return answer


def pay_unprotected(job: DemoJob) -> None:
    """The usual way: try again on a time-out, and give every attempt a key of its own."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            send(job, attempt, f"{random.getrandbits(64):016x}")
        except (TimeoutError, ConnectionError):
            continue
        return


def guarded_refund(guard: Guard, job: DemoJob) -> Tool[[str, int, str], dict[str, Any]]:
    """The same tool with one decorator on it, and a probe where the bank can be asked."""
    assert job.protection != "none"

    @guard.tool(
        kind="irreversible",
        downstream=job.protection,
        identity=["payment_id", "amount_minor"],
        volatile=["reason"],
        lease_s=LEASE_S,
        retry=Retry(attempts=ATTEMPTS, base_s=0.2, cap_s=1.0),
    )
    def refund(payment_id: str, amount_minor: int, reason: str) -> dict[str, Any]:
        return send(job, current_effect().attempt, current_effect().downstream_key)

    if job.protection == "probe":

        @refund.probe
        def look_up(
            payment_id: str, amount_minor: int, reason: str
        ) -> Found | NotFound | CannotTell:
            if not job.enquiries:
                return CannotTell("the enquiry desk is closed")
            found = find(job.port, payment_id)
            return NotFound() if found is None else Found({"receipt": found["receipt"]})

    return refund


def pay_protected(job: DemoJob) -> None:
    """The way it should be: one step, one effect."""
    guard = Guard(job.store, reconcile=False)  # the story says when the probe is asked
    refund = guarded_refund(guard, job)
    paid = {"payment_id": job.payment_id, "amount_minor": AMOUNT_MINOR, "reason": job.reason}
    with guard.step("chat-42", "refund"):
        outcome = guard.call(refund, paid)
    if outcome.status == "in_doubt":
        say("in_doubt" if SENT else "refused")
    else:
        became = (
            "coalesced" if outcome.coalesced else "replayed" if outcome.replayed else "recorded"
        )
        say(became, receipt=None if outcome.value is None else outcome.value["receipt"])
    guard.close()


def main() -> None:
    """Say that we are ready, wait for a job, do it."""
    say("ready")
    line = sys.stdin.buffer.readline()
    if not line:
        return
    job = msgspec.json.decode(line, type=DemoJob)
    random.seed(f"{job.seed}/{job.who}")
    if job.protection == "none":
        pay_unprotected(job)
    else:
        pay_protected(job)


if __name__ == "__main__":
    main()
