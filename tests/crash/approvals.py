"""Processes that ask, approve and resume, each a fork of this one, and each killed where it is said.

Started as a process of its own without threads: its forks share nothing but the store and the bank.
Prints what became of each flow; the bank counts.
"""

import asyncio
import itertools
import json
import os
import signal
import sys

from effectonce import (
    Approval,
    ApprovalNeeded,
    Conflict,
    ContractViolation,
    Guard,
    InDoubt,
    InFlight,
    NotApproved,
    PreconditionFailed,
    current_effect,
)
from effectonce.stores.postgres import PostgresStore
from effectonce.stores.redis import RedisStore
from effectonce.stores.sqlite import SqliteStore
from effectonce.testing.bank import pay, read_ledger
from effectonce.testing.clock import FakeClock

LEASE_S, NOW = 30.0, 1_000_000.0
REFUSALS = (
    ApprovalNeeded,
    NotApproved,
    PreconditionFailed,
    ContractViolation,
    InDoubt,
    InFlight,
    Conflict,
)
PHASES = ("ask", "approve", "resume")


def opened(url, clock=None):
    given = {} if clock is None else {"clock": clock}
    if url.startswith("sqlite"):
        return SqliteStore(url.removeprefix("sqlite:///"), busy_s=60.0, **given)
    kind = RedisStore if url.startswith("redis") else PostgresStore
    return kind(url, timeout_s=60.0, **given)


class Mortal:
    """A store whose process is killed before or after its nth op."""

    def __init__(self, store, nth, when):
        self.inner, self.capabilities, self._dies = store, store.capabilities, (nth, when)
        self._ops = itertools.count()

    def _die(self, number, when):
        if self._dies == (number, when):
            os.kill(os.getpid(), signal.SIGKILL)

    def apply(self, op):
        number = next(self._ops)
        self._die(number, "before")
        reply = self.inner.apply(op)
        self._die(number, "after")
        return reply

    async def aapply(self, op):
        number = next(self._ops)
        self._die(number, "before")
        reply = await self.inner.aapply(op)
        self._die(number, "after")
        return reply

    def close(self):
        self.inner.close()


class Caller:
    """What one process does with one flow. It rests on *holds*, a function of its invoice."""

    def __init__(self, store, port, downstream, colour, wait_s=0.0, holds=None):
        self.guard, self._keyed, self._port = Guard(store, cache=0), downstream == "key", port
        declare = self.guard.tool(
            kind="write",
            downstream=downstream,
            approval=Approval(precondition=holds),
            lease_s=LEASE_S,
            wait_s=wait_s,
        )
        if colour == "sync":

            @declare
            def refund(invoice: str) -> str:
                return self._pay(invoice)

            self._call = refund
        else:

            @declare
            async def refund(invoice: str) -> str:
                return self._pay(invoice)

            self._call = lambda invoice: asyncio.run(refund(invoice))
        self.tool = refund

    def _pay(self, invoice):
        key = current_effect().downstream_key  # read in any case, as is declared
        sent = key if self._keyed else None
        return pay(self._port, invoice, 1, key=sent, timeout_s=60)["receipt"]

    def key_of(self, invoice):
        with self.guard.step("approvals", invoice):
            return self.tool.explain(invoice).key

    def ask(self, invoice):
        with self.guard.step("approvals", invoice):
            return self._call(invoice)

    resume = ask

    def approve(self, invoice):
        self.guard.approvals.approve(self.key_of(invoice), by="ada", reason="yes")

    def reject(self, invoice):
        self.guard.approvals.reject(self.key_of(invoice), by="grace", reason="no")


def said(act, *args):
    """What came of it: a result, or the name of what was raised."""
    try:
        return [act(*args), ""]
    except REFUSALS as error:
        return [None, type(error).__name__]


def forked(work):
    """Do *work* in a process of its own. A function that waits for it: None, if it was killed."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ours)
        try:
            os.write(theirs, json.dumps(work()).encode())
            os._exit(0)
        finally:
            os._exit(1)
    os.close(theirs)

    def ended():
        with os.fdopen(ours) as report:
            text = report.read()
        _, status = os.waitpid(pid, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            return None
        assert status == 0, f"a worker ended with {status}"
        return json.loads(text)

    return ended


# ---------------------------------------------------------------- killed at every op


def killed(url, port, ledger, downstream, colour, rests_on):
    """Every op of every phase, before and after it; then the flow goes on."""
    flows = []
    for phase, when in itertools.product(PHASES, ("before", "after")):
        for nth in itertools.count():
            invoice = f"{downstream}-{colour}-{phase}-{when}-{nth}"
            tool = (downstream, colour, rests_on)
            flow = _flow(url, int(port), ledger, tool, invoice, (phase, nth, when))
            if flow is None:
                break
            flows.append(flow)
    return flows


def _flow(url, port, ledger, tool, invoice, dies):
    """None: the phase has fewer ops."""
    phase, nth, when = dies
    (downstream, colour, rests_on), clock = tool, FakeClock(NOW)

    def run(phases, nth=-1, when=""):
        def work():
            store = Mortal(opened(url, clock), nth, when)
            begun = []
            holds = {
                "nothing": None,
                "unpaid": lambda invoice: effects() == 0,  # as its own effect changes it
                "asked": lambda invoice: begun[-1] != "resume",
            }[rests_on]
            caller, told = Caller(store, port, downstream, colour, holds=holds), []
            for each in phases:
                begun.append(each)
                told.append(said(getattr(caller, each), invoice))
                clock.advance(LEASE_S + 1)
            store.close()
            return told

        told = forked(work)()
        clock.advance((LEASE_S + 1) * len(phases))
        return told

    def effects():
        return sum(entry["payment_id"] == invoice for entry in read_ledger(ledger))

    before = PHASES[: PHASES.index(phase)]
    told = run(before) if before else []
    if run([phase], nth, when) is not None:
        return None
    early = 0 if phase == "resume" else effects()
    told += run([*PHASES[PHASES.index(phase) :], "resume"])
    return {"at": dies, "told": told, "early": early, "effects": effects(), "invoice": invoice}


# ---------------------------------------------------------------- crowds


def together(works):
    """All at the same moment, each in a process of its own."""
    gate, opener = os.pipe()

    def waiting(work):
        def started():
            os.close(opener)
            os.read(gate, 1)  # until the parent closes it
            return work()

        return started

    ends = [forked(waiting(work)) for work in works]
    os.close(opener)
    reports = [end() for end in ends]
    os.close(gate)
    return reports


def crowd(url, port, _ledger, processes):
    """One approval, resumed by many."""

    def begin():
        caller = Caller(opened(url), int(port), "none", "sync")
        return [said(caller.ask, "crowd"), said(caller.approve, "crowd")]

    def resume():
        caller = Caller(opened(url), int(port), "none", "sync", wait_s=100.0)
        return said(caller.resume, "crowd")

    begun = forked(begin)()
    return {"begun": begun, "told": together([resume] * int(processes))}


def race(url, port, _ledger, invoices):
    """Approvers and a rejecter, who begin at either end, and resumers of whatever is decided."""
    names = [f"race-{number}" for number in range(int(invoices))]

    def all_of(act, order=names):
        def work():
            caller = Caller(opened(url), int(port), "none", "sync", wait_s=100.0)
            return [said(getattr(caller, act), name) for name in order]

        return work

    def resumed():
        caller, told = Caller(opened(url), int(port), "none", "sync", wait_s=100.0), []
        for name in names:
            while (reply := said(caller.resume, name))[1] == "ApprovalNeeded":
                pass
            told.append(reply)
        return told

    forked(all_of("ask"))()
    *_, rejected = together(
        [resumed, resumed, all_of("approve"), all_of("approve"), all_of("reject", names[::-1])]
    )

    def at_the_end():
        caller = Caller(opened(url), int(port), "none", "sync")
        states = [caller.guard.find(caller.key_of(name)).state for name in names]
        return [
            [name, state, said(caller.resume, name), reply]
            for name, state, reply in zip(names, states, rejected[::-1], strict=True)
        ]

    return forked(at_the_end)()


if __name__ == "__main__":
    what, *given = sys.argv[1:]
    print(json.dumps({"killed": killed, "crowd": crowd, "race": race}[what](*given)))
