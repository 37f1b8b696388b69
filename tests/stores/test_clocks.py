"""Clocks that are wrong, or put right: no caller waits for a year, and no declared delay passes
by a step.
"""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effectonce import ContractViolation, Guard, InDoubt, InFlight, NotFound, Retry, current_effect
from effectonce._core import guards, ops
from effectonce._core.guarantees import LEASE_MAX_S
from effectonce.policy import Downstream
from effectonce.stores import _clock_steps
from effectonce.stores.memory import MemoryStore
from effectonce.stores.sqlite import SqliteStore
from effectonce.testing.clock import FakeClock
from effectonce.testing.conformance.bench import request as asked

YEAR_S, LEASE_S, DELAY_S = 365 * 86_400.0, 30.0, 60.0


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
def timed(request, open_store):
    """A store, and its clock."""
    clock = FakeClock()
    return open_store(request.param, clock), clock


# ---------------------------------------------------------------- leases


def claim(key, token, *, dispatch=True, lease_s=LEASE_S, **changes):
    return ops.Claim(asked(key, **changes), token, lease_s, dispatch=dispatch)


def test_a_lease_that_a_wrong_clock_wrote_is_over_once_the_clock_is_put_right(timed):
    store, clock = timed
    clock.advance(YEAR_S)
    assert isinstance(store.apply(claim("sent", "dead")), ops.Held)
    assert isinstance(store.apply(claim("claimed", "dead", dispatch=False)), ops.Held)
    clock.advance(-YEAR_S)

    assert isinstance(store.apply(claim("sent", "next")), ops.Doubtful)
    assert isinstance(store.apply(claim("claimed", "next")), ops.Held)


def test_who_dies_before_the_clock_is_put_back_an_hour_holds_no_other_up_for_it(timed):
    store, clock = timed
    store.apply(claim("claimed", "dead", dispatch=False))
    clock.advance(-3600)

    assert isinstance(store.apply(claim("claimed", "next")), ops.Held)


def test_who_works_on_after_the_clock_was_put_back_keeps_its_lease(timed):
    store, clock = timed
    held = store.apply(claim("long", "alive"))
    clock.advance(-3600)
    store.apply(ops.Renew("long", "alive", held.epoch, LEASE_S))

    assert isinstance(store.apply(claim("long", "next")), ops.Busy)


def test_a_person_can_settle_what_an_owner_with_a_wrong_clock_left(timed):
    store, clock = timed
    clock.advance(YEAR_S)
    for key in ("happened", "did not"):
        store.apply(claim(key, "dead"))
    clock.advance(-YEAR_S)

    guard = Guard(store, cache=0)
    guard.confirm("happened", result=7, by="ada", reason="the bank has it")
    guard.refute("did not", by="ada", reason="the bank has not")

    assert [guard.find(key).state for key in ("happened", "did not")] == ["completed", "failed"]


def test_the_longest_lease_is_respected_and_a_longer_one_cannot_be_declared(timed):
    store, clock = timed
    store.apply(claim("long", "alive", lease_s=LEASE_MAX_S))
    clock.advance(-600)  # a clock that is put back a little ends no lease
    assert isinstance(store.apply(claim("long", "next")), ops.Busy)

    with pytest.raises(ContractViolation, match=r"at most 12 h"):
        Guard(store).tool(kind="write", lease_s=LEASE_MAX_S + 1)(lambda: None)


def test_a_step_that_waits_for_an_absurd_lease_is_in_doubt_and_not_in_flight(timed):
    store, clock = timed
    clock.advance(YEAR_S)
    store.apply(claim("first", "dead", latch="step"))
    clock.advance(-YEAR_S)

    latched = store.apply(claim("second", "next", latch="step"))
    assert (type(latched), latched.retry_after_s) == (ops.Latched, None)


AHEAD = """
import sys, time
from effectonce import Guard
from effectonce.stores.sqlite import SqliteStore

guard = Guard(SqliteStore(sys.argv[1], clock=lambda: time.time() + 365 * 86_400))

@guard.tool(kind="write", wait_s=0)
def pay():
    import os
    os._exit(9)

with guard.step("chat", "pay"):
    pay()
"""


def test_a_process_that_died_with_its_clock_a_year_ahead_holds_no_other_up(tmp_path):
    file = tmp_path / "effects.db"
    died = subprocess.run([sys.executable, "-c", AHEAD, file], capture_output=True, check=False)
    assert died.returncode == 9, died.stderr
    guard = Guard(SqliteStore(file), cache=0)

    @guard.tool(kind="write", wait_s=0)
    def pay():
        return "paid"

    with guard.step("chat", "pay"), pytest.raises(InDoubt, match="its owner vanished"):
        pay()
    guard.close()


# ---------------------------------------------------------------- the delay of a probe


class Machine:
    """A wall clock that can be stepped, and the time since boot, which cannot."""

    def __init__(self, where):
        self.wall, self.ticks, self.path = FakeClock(), FakeClock(0.0), where
        self._memory = MemoryStore(clock=self.wall, ticks=self.ticks)

    def store(self):
        return (
            self._memory
            if self.path is None
            else SqliteStore(self.path, clock=self.wall, ticks=self.ticks)
        )

    def pass_s(self, seconds):
        self.wall.advance(seconds)
        self.ticks.advance(seconds)

    def step(self, seconds):
        self.wall.advance(seconds)


@pytest.fixture(params=["memory", "sqlite"])
def machine(request, tmp_path):
    return Machine(None if request.param == "memory" else tmp_path / "effects.db")


def probed(store, runs, meanwhile=lambda: None):
    """A tool whose first request is lost, and whose probe does not find it. Every process has
    its own.
    """
    guard = Guard(store, cache=0)
    settings = {"retry": Retry(attempts=1), "wait_s": 0, "lease_s": LEASE_S}

    @guard.tool(kind="write", downstream=Downstream.probe(delay=DELAY_S), **settings)
    def pay():
        runs.append("run")
        if len(runs) == 1:
            meanwhile()
            raise TimeoutError("no answer")
        return "paid"

    @pay.probe
    def ask():
        return NotFound()

    def call():
        with guard.step("chat", "pay"):
            return pay()

    return call


def test_a_step_forward_does_not_make_the_declared_delay_pass(machine):
    runs = []
    first, later = probed(machine.store(), runs), probed(machine.store(), runs)
    with pytest.raises(InDoubt):
        first()

    machine.step(YEAR_S)
    for call in (first, later):
        with pytest.raises((InDoubt, InFlight)):
            call()
    assert runs == ["run"], "the first request may still be on its way"

    machine.pass_s(LEASE_S + DELAY_S + 1)
    assert later() == "paid"
    assert runs == ["run"] * 2


def test_time_that_passes_makes_the_declared_delay_pass(machine):
    runs = []
    call = probed(machine.store(), runs)
    with pytest.raises(InDoubt):
        call()

    machine.pass_s(LEASE_S + DELAY_S + 1)

    assert call() == "paid"


def test_a_clock_that_went_back_while_a_request_left_and_came_forward_again_is_noticed(machine):
    runs = []
    early = machine.store()
    early.apply(claim("another", "t"))

    machine.step(-YEAR_S)
    call = probed(machine.store(), runs)
    with pytest.raises(InDoubt):
        call()
    machine.step(YEAR_S)

    with pytest.raises(InDoubt):
        probed(machine.store(), runs)()
    assert runs == ["run"]


def test_after_a_reboot_the_delay_is_counted_from_when_the_clock_was_first_seen(
    tmp_path, monkeypatch
):
    """A machine without a battery begins each boot at the same time."""
    machine, runs = Machine(tmp_path / "effects.db"), []
    with pytest.raises(InDoubt):
        probed(machine.store(), runs)()
    machine.pass_s(LEASE_S + DELAY_S + 1)

    monkeypatch.setattr(_clock_steps, "_BOOT_ID", tmp_path / "none")
    with pytest.raises(InDoubt):
        probed(machine.store(), runs)()
    machine.pass_s(LEASE_S + DELAY_S + 1)

    assert probed(machine.store(), runs)() == "paid"


def test_a_clock_that_is_put_back_makes_nobody_wait_for_it_to_catch_up(machine):
    runs = []
    with pytest.raises(InDoubt):
        probed(machine.store(), runs)()
    machine.step(-YEAR_S)
    with pytest.raises((InDoubt, InFlight)):
        probed(machine.store(), runs)()  # from now on the delay is counted

    machine.pass_s(DELAY_S)
    with pytest.raises((InDoubt, InFlight)):
        probed(machine.store(), runs)()
    assert runs == ["run"], "the lease may have begun just before the step"

    machine.pass_s(LEASE_S + 1)
    assert probed(machine.store(), runs)() == "paid"


def test_a_sender_that_worked_on_after_the_clock_was_put_back_may_have_sent_until_the_end(machine):
    runs = []

    def meanwhile():
        machine.step(-YEAR_S)
        machine.store().apply(ops.Claim(asked("another"), "t", LEASE_S, dispatch=True))
        machine.pass_s(LEASE_S + DELAY_S + 1)

    with pytest.raises(InDoubt):
        probed(machine.store(), runs, meanwhile)()

    with pytest.raises((InDoubt, InFlight)):
        probed(machine.store(), runs)()
    assert runs == ["run"]
    machine.pass_s(LEASE_S + DELAY_S + 1)
    assert probed(machine.store(), runs)() == "paid"


# ---------------------------------------------------------------- the window of a key

WINDOW_S = 7200.0


def keyed(store, runs):
    """A tool whose first request leaves, and whose process dies before the answer."""
    guard = Guard(store, cache=0)

    @guard.tool(kind="write", downstream=Downstream.key(window=WINDOW_S), wait_s=0, lease_s=LEASE_S)
    def pay():
        runs.append(current_effect().downstream_key)
        if len(runs) == 1:
            raise KeyboardInterrupt
        return "paid"

    def call():
        with guard.step("chat", "pay"):
            return pay()

    return call


def live(machine, runs, history, monkeypatch):
    """Go through a history: time passes, the clock is stepped, a store is used, the machine boots
    again, a tool sends.
    """
    for what, *seconds in history:
        match what:
            case "passes":
                machine.pass_s(*seconds)
            case "steps":
                machine.step(*seconds)
            case "claims":
                machine.store().apply(claim(f"at {machine.wall.now}", "t"))
            case "does another":
                machine.store().apply(claim("another", "t"))
                machine.store().apply(ops.Complete("another", "t", 1, b""))
            case "sweeps":
                machine.store().apply(ops.Sweep(100))
            case "boots":
                monkeypatch.setattr(_clock_steps, "_BOOT_ID", Path("/none"))
            case "sends":
                with pytest.raises(KeyboardInterrupt):
                    keyed(machine.store(), runs)()


SENDS, CLAIMS, SWEEPS, BOOTS = ("sends",), ("claims",), ("sweeps",), ("boots",)
LEASE_ENDS = ("passes", LEASE_S + 1)
SENT_AGAIN = {
    "the clock is put back twice": [SENDS, LEASE_ENDS, ("steps", -1800), ("steps", -1800)],
    "it is put back and put right again": [
        *(SENDS, LEASE_ENDS, ("steps", -YEAR_S), CLAIMS, ("steps", YEAR_S), CLAIMS)
    ],
    "it was put back long before": [
        *(CLAIMS, ("steps", -WINDOW_S), SWEEPS, ("passes", WINDOW_S + 1)),
        *(SENDS, ("passes", WINDOW_S / 2)),
    ],
    "it was put right a minute before": [
        *(("does another",), ("steps", -5 * 86_400), SWEEPS, ("passes", 60), SENDS, LEASE_ENDS)
    ],
}
IN_DOUBT = {
    "however far it was put back": [
        *(SENDS, ("passes", WINDOW_S - 600), ("steps", -YEAR_S), CLAIMS, ("passes", 1200))
    ],
    "the send stays in the past": [SENDS, ("passes", 10_000), ("steps", -9900), CLAIMS],
    "nearly": [SENDS, ("passes", 10_000), ("steps", -10_029), CLAIMS, ("passes", 61)],
    "it is in the past again": [
        *(SENDS, ("passes", 100), ("steps", -5000), CLAIMS, ("passes", 9000))
    ],
}
NO_KNOWN_AGE = {  # of a file: what is in memory does not outlive a boot
    "the send is in the future after a boot": [SENDS, LEASE_ENDS, BOOTS, ("steps", -3600)],
    "it stays there whatever is put back later": [
        *(SENDS, ("passes", WINDOW_S - 600), BOOTS, ("steps", -WINDOW_S), CLAIMS),
        *(("passes", 1200), ("steps", -WINDOW_S)),
    ],
    "no boot is known": [BOOTS, SENDS, LEASE_ENDS, ("steps", -3600)],
}


@pytest.mark.parametrize("history", SENT_AGAIN)
def test_a_key_in_its_window_is_used_again(machine, history, monkeypatch):
    runs = []
    live(machine, runs, SENT_AGAIN[history], monkeypatch)

    assert keyed(machine.store(), runs)() == "paid"
    assert len(runs) == 2
    assert runs[0] == runs[1]


@pytest.mark.parametrize("history", IN_DOUBT)
def test_a_key_past_its_window_is_not_used_again(machine, history, monkeypatch):
    runs = []
    live(machine, runs, IN_DOUBT[history], monkeypatch)

    with pytest.raises(InDoubt):
        keyed(machine.store(), runs)()
    assert len(runs) == 1


@pytest.mark.parametrize("history", NO_KNOWN_AGE)
def test_a_send_in_the_future_has_no_known_age(tmp_path, history, monkeypatch):
    machine, runs = Machine(tmp_path / "effects.db"), []
    live(machine, runs, NO_KNOWN_AGE[history], monkeypatch)

    with pytest.raises(InDoubt):
        keyed(machine.store(), runs)()
    assert len(runs) == 1


HISTORY = st.lists(st.tuples(st.floats(1, 9000), st.floats(-9000, 9000)), min_size=1, max_size=8)


@given(HISTORY, HISTORY, st.booleans())
def test_what_was_sent_in_this_boot_is_never_taken_for_younger_than_it_is(before, after, old_note):
    wall, ticks = FakeClock(), FakeClock(0.0)
    steadiness = _clock_steps.Steadiness(wall, ticks)
    note, sent_at, sent_ticks = steadiness.look(None, lambda: 0.0), 0.0, 0.0
    for passed_s, step_s in [*before, (0.0, 0.0), *after]:
        if passed_s == 0.0:
            sent_at, sent_ticks = wall.now, ticks.now
            if old_note:
                note = _clock_steps.ClockNote(note.boot, note.distance_s, note.since)
        wall.advance(passed_s + step_s)
        ticks.advance(passed_s)
        note = steadiness.look(note, lambda at=sent_at: at)

    age_s = guards._age_s(sent_at, note.scene(wall.now, None, None))
    true_age_s = ticks.now - sent_ticks - len(after) * _clock_steps.TOLERANCE_S
    assert age_s >= true_age_s or age_s < -guards.SET_BACK_S


def test_a_sweep_leaves_what_may_be_sent_again_after_the_clock_was_put_back(machine):
    runs, store = [], machine.store()
    with pytest.raises(KeyboardInterrupt):
        keyed(store, runs)()
    machine.pass_s(LEASE_S + 1)
    machine.step(-3600)

    assert store.apply(ops.Sweep(100)).doubted == 0
    assert keyed(machine.store(), runs)() == "paid"


def test_the_clock_of_this_machine_is_steady():
    steadiness = _clock_steps.Steadiness(time.time)
    note = steadiness.look(None, lambda: 0.0)
    assert steadiness.look(note, lambda: 0.0) is note
    assert note.boot
