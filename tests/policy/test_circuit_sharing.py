"""A circuit that processes share: a quorum opens everybody's, one sick process only its own, and
no call waits for the store.
"""

import asyncio
import logging
import os
import subprocess
import sys
import threading

import pytest

from effectonce import CircuitOpen, Phase, StoreUnavailable, breaker
from effectonce._core.ops import ReadCell, WriteCell
from effectonce.stores.memory import MemoryStore
from effectonce.testing.clock import FakeClock
from tests.policy.helpers import DOWN, circuit, fail


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def store(clock):
    return MemoryStore(clock=clock)


def fleet(store, clock, *names, **policy):
    """Circuits that have seen each other."""
    made = [
        circuit(clock=clock, shared=store, node=name, consecutive=1, **policy)[0] for name in names
    ]
    vote(*made)
    return made


def finish_exchanges():
    """What a circuit started beside the calls."""
    for thread in threading.enumerate():
        if thread.name == "effectonce-circuit":
            thread.join()


def vote(*circuits):
    """Everybody says something, then everybody has heard everybody."""
    for one in (*circuits, *circuits):
        one.share()
    finish_exchanges()


def test_when_most_have_found_it_unhealthy_the_others_open_too(store, clock):
    a, b, well = fleet(store, clock, "a", "b", "well", open_s=30.0)
    fail(a)
    clock.advance(10.0)
    fail(b)

    vote(a, b, well)

    assert well.phase is Phase.OPEN
    assert well.stats().why == "2 of 3 processes have found it unhealthy"
    assert well.stats().retry_after_s == 20.0  # when the first of them probes again
    with pytest.raises(CircuitOpen, match="2 of 3 processes"):
        well.admit()


@pytest.mark.parametrize(("policy", "phase"), [({}, Phase.CLOSED), ({"quorum": 0.4}, Phase.OPEN)])
def test_half_of_them_are_enough_if_the_policy_says_so(store, clock, policy, phase):
    a, b, c, d = fleet(store, clock, "a", "b", "c", "d", **policy)
    fail(a)
    fail(b)

    vote(a, b, c, d)

    assert [one.phase for one in (a, b, c, d)] == [Phase.OPEN, Phase.OPEN, phase, phase]


def test_who_follows_does_not_vote(store, clock):
    """Or else two sick ones and one follower were three, and would open a fourth's."""
    a, b, follower = fleet(store, clock, "a", "b", "follower")
    fail(a)
    fail(b)
    vote(a, b, follower)

    (fourth,) = fleet(store, clock, "fourth")
    vote(follower, fourth)

    assert follower.phase is Phase.OPEN
    assert fourth.phase is Phase.CLOSED


def test_who_was_opened_by_hand_does_not_vote(store, clock):
    a, b, well = fleet(store, clock, "a", "b", "well")
    a.open(for_s=60.0)
    b.open()

    vote(a, b, well)

    assert well.phase is Phase.CLOSED


def test_who_has_probed_well_is_not_opened_by_the_same_votes_again(store, clock):
    a, b, well = fleet(store, clock, "a", "b", "well", open_s=8.0)
    fail(a)
    clock.advance(2.0)
    fail(b)
    vote(a, b, well)
    clock.advance(6.0)  # b's vote stands for two more seconds
    a.admit().failed(DOWN)  # and a's is renewed
    with well.admit():
        pass

    vote(a, b, well)
    alone = well.phase
    clock.advance(2.0)
    b.admit().failed(DOWN)
    vote(a, b, well)

    assert alone is Phase.CLOSED
    assert well.phase is Phase.OPEN


def test_a_probe_of_a_follower_that_fails_is_a_finding_of_its_own(store, clock):
    a, b, follower = fleet(store, clock, "a", "b", "follower", open_s=8.0)
    fail(a)
    fail(b)
    vote(a, b, follower)
    (fourth,) = fleet(store, clock, "fourth")
    clock.advance(8.0)
    for one in (a, b, follower):
        one.admit().failed(DOWN)

    vote(a, b, follower, fourth)

    assert fourth.phase is Phase.OPEN


# ---------------------------------------------------------------- beside the calls


class Counting:
    """A store that is shared, and how often it was asked."""

    def __init__(self, store):
        self.store, self.ops = store, []

    def apply(self, op):
        self.ops.append(op)
        return self.store.apply(op)

    async def aapply(self, op):
        self.ops.append(op)
        await asyncio.sleep(0)
        return self.store.apply(op)

    def seen(self):
        finish_exchanges()
        return [type(op) for op in self.ops]


EXCHANGE = [ReadCell, WriteCell]


def test_votes_are_exchanged_at_most_once_per_refresh_however_many_calls_there_are(store, clock):
    counting = Counting(store)
    subject, _ = circuit(clock=clock, shared=counting, refresh_s=5.0)
    call = subject(lambda: None)

    for _ in range(1000):
        call()
    first = counting.seen()
    clock.advance(5.0)
    for _ in range(1000):
        call()

    assert first == EXCHANGE
    assert counting.seen() == EXCHANGE * 2
    assert subject.stats().succeeded == 2000


def test_refused_calls_keep_the_exchange_going(store, clock):
    counting = Counting(store)
    subject, _ = circuit(clock=clock, shared=counting, refresh_s=5.0)
    subject.open()
    counting.seen()
    clock.advance(5.0)

    subject.try_admit()
    subject.try_admit()

    assert counting.seen() == EXCHANGE * 2


def test_a_change_is_told_at_once(store, clock):
    counting = Counting(store)
    (subject,) = fleet(counting, clock, "a", open_s=30.0)
    with subject.admit():
        pass
    before = len(counting.seen())

    fail(subject)

    assert counting.seen()[before:] == EXCHANGE
    assert b'"a":[1000000.0,1000030.0]' in counting.ops[-1].value


class Stuck:
    """A store that does not answer until it is let."""

    def __init__(self, store):
        self.store, self.asked, self.let = store, threading.Event(), threading.Event()
        self.writes = 0

    def apply(self, op):
        self.asked.set()
        self.let.wait()
        self.writes += isinstance(op, WriteCell)
        return self.store.apply(op)


def test_no_call_waits_for_a_store_that_hangs(store, clock):
    stuck = Stuck(store)
    subject, _ = circuit(clock=clock, shared=stuck, consecutive=2)

    fail(subject)
    stuck.asked.wait()
    fail(subject)
    phase = subject.phase
    stuck.let.set()

    assert phase is Phase.OPEN
    finish_exchanges()


def test_a_change_during_an_exchange_is_told_after_it(store, clock):
    stuck = Stuck(store)
    subject, _ = circuit(clock=clock, shared=stuck, consecutive=2)
    fail(subject)
    stuck.asked.wait()
    fail(subject)
    stuck.let.set()
    finish_exchanges()

    subject.try_admit()  # no refresh is due yet
    finish_exchanges()

    assert stuck.writes == 2


class Gone:
    def apply(self, op):
        raise StoreUnavailable("the store is gone")

    async def aapply(self, op):
        raise StoreUnavailable("the store is gone")


def test_without_the_store_the_circuit_goes_on_alone(clock, caplog):
    subject, _ = circuit(clock=clock, shared=Gone(), consecutive=2)

    with caplog.at_level(logging.DEBUG, "effectonce"):
        fail(subject, 2)
        finish_exchanges()
        asyncio.run(subject.ashare())

    assert subject.phase is Phase.OPEN
    assert "this process decides alone: the store is gone" in caplog.text


def test_without_threads_the_circuit_goes_on_alone(store, clock, monkeypatch):
    def no_more(self):
        raise RuntimeError("can't start new thread")

    counting = Counting(store)
    subject, _ = circuit(clock=clock, shared=counting, consecutive=1)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_more)
        fail(subject)
    before = counting.seen()
    clock.advance(5.0)
    subject.try_admit()

    assert (subject.phase, before) == (Phase.OPEN, [])
    assert counting.seen() == EXCHANGE


class Awaited(Counting):
    def apply(self, op):
        raise AssertionError("a loop runs here: nothing may block it")


def test_in_a_loop_votes_are_exchanged_by_awaiting(store, clock):
    awaited = Awaited(store)

    async def main():
        subject, _ = circuit(clock=clock, shared=awaited, consecutive=1)

        @subject
        async def call():
            raise DOWN

        with pytest.raises(ConnectionRefusedError):
            await call()
        await subject._sharing._task
        await subject.ashare()

    asyncio.run(main())

    assert awaited.seen() == EXCHANGE * 2


def test_a_loop_that_ends_at_once_does_not_end_the_exchanges(store, clock):
    """The task that was to make one is cancelled."""
    counting = Counting(store)
    subject, _ = circuit(clock=clock, shared=counting, consecutive=1)

    async def main():
        fail(subject)

    asyncio.run(main())
    clock.advance(5.0)
    subject.try_admit()

    assert counting.seen()[-2:] == EXCHANGE


# a task that was never run to its end
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_loop_that_is_closed_over_a_task_does_not_end_the_exchanges(store, clock):
    """Nobody cancels the task, and nobody hears of its end."""
    counting = Counting(store)
    subject, _ = circuit(clock=clock, shared=counting, consecutive=1)

    async def main():
        fail(subject)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    loop.close()
    clock.advance(5.0)
    subject.try_admit()

    assert counting.seen()[-2:] == EXCHANGE


def test_a_fork_does_not_wait_for_the_thread_of_its_parent(store, clock):
    counting = Counting(store)
    subject, _ = circuit(clock=clock, shared=counting)
    subject._sharing._busy_in = -1  # as in a child whose parent was busy

    subject(lambda: None)()

    assert counting.seen() == EXCHANGE


def test_a_circuit_that_is_not_shared_has_nothing_to_exchange():
    subject, _ = circuit()

    subject.share()
    asyncio.run(subject.ashare())

    assert subject.phase is Phase.CLOSED


NODE = """
import sys
from effectonce import breaker
from effectonce.stores import open_store

subject = breaker("bank", consecutive=1, shared=open_store(sys.argv[1]), refresh_s=600.0)
for line in sys.stdin:
    match line.strip():
        case "fail":
            subject.admit().failed(ConnectionRefusedError(111, "Connection refused"))
        case "share":
            subject.share()
    print(subject.phase, flush=True)
"""


class Node:
    """A process of its own."""

    def __init__(self, url):
        self.process = subprocess.Popen(
            [sys.executable, "-c", NODE, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, what):
        print(what, file=self.process.stdin, flush=True)
        return self.process.stdout.readline().strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.communicate()


def test_three_processes_over_one_file_open_by_quorum_and_not_for_one_of_them(tmp_path):
    url = f"sqlite:///{tmp_path / 'votes.db'}"
    with Node(url) as a, Node(url) as b, Node(url) as c:
        assert [node("share") for node in (a, b, c)] == ["closed"] * 3

        assert a("fail") == "open"
        one_is_sick = [node("share") for node in (a, b, c)]
        assert b("fail") == "open"
        two_are_sick = [node("share") for node in (a, b, c)]

    assert one_is_sick == ["open", "closed", "closed"]
    assert two_are_sick == ["open", "open", "open"]


def test_a_process_is_named_by_its_machine_and_its_number():
    subject = breaker("bank", shared=MemoryStore())

    assert subject._sharing.node.endswith(f":{os.getpid()}")
