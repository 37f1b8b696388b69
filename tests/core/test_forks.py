"""A process that forks while its threads are at work: the child waits for none of them, because
they are not there.
"""

import os
import signal
import threading

import pytest

from effectonce import Circuit, Guard, NotSent, Retry, RetryBudget, StoreUnavailable
from effectonce._core import ops
from effectonce.stores.memory import MemoryStore


class Away(MemoryStore):
    """It cannot be told how the effects of one tool ended."""

    def apply(self, op):
        if isinstance(op, ops.Complete) and b"kept" in op.outcome:
            raise StoreUnavailable("away")
        return super().apply(op)


def calls(guard, circuit, budget):
    """Two calls that take every lock there is on their way."""
    attempts = []

    @guard.tool(
        kind="write", breaker=circuit, budget=budget, retry=Retry(attempts=3, base_s=0, cap_s=0)
    )
    def pay(step: int):
        attempts.append(step)
        if len(attempts) == 1:
            raise NotSent("not this time")
        return "paid"

    @guard.tool(kind="write", retry=Retry(attempts=3, deadline_s=0.001))
    def keep(step: int):
        return "kept"

    with guard.step("chat", "child", latch=False):
        return pay(1), pay(1), keep(1)


@pytest.mark.parametrize("where", ["heart", "cache", "circuit", "votes", "budget", "spool"])
def test_a_child_waits_for_no_lock_that_a_thread_of_its_parent_holds(where, tmp_path):
    guard, budget = Guard(Away(), spool=tmp_path), RetryBudget("bank")
    circuit = Circuit("bank", shared=guard.store if where == "votes" else None)
    owners = {
        "heart": guard._house.heart,
        "cache": guard._house.cache,
        "circuit": circuit,
        "votes": circuit._sharing,
        "budget": budget,
        "spool": guard.spool,
    }
    held, forked = threading.Event(), threading.Event()

    def hold():
        with owners[where]._lock:
            held.set()
            forked.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(30)
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(30)  # it is not to wait for ever
        os._exit(0 if calls(guard, circuit, budget) == ("paid", "paid", "kept") else 1)
    forked.set()
    holder.join()
    assert os.waitpid(pid, 0)[1] == 0


def test_a_process_that_is_forked_inside_a_tool_leaves_it_like_its_parent():
    guard, held, forked = Guard(MemoryStore(), cache=0), threading.Event(), threading.Event()

    def hold():
        with guard._house.heart._lock:
            held.set()
            forked.wait(30)

    holder = threading.Thread(target=hold)

    @guard.tool(kind="write")
    def fork():
        holder.start()
        assert held.wait(30)
        pid = os.fork()
        if pid:
            forked.set()
        else:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(30)
        return pid

    with guard.step("chat", "fork"):
        pid = fork()
        if pid == 0:
            os._exit(0)
    holder.join()
    assert os.waitpid(pid, 0)[1] == 0
