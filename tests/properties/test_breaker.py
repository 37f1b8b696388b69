"""The breaker's machine beside a model that remembers everything and looks at it naively each
time.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from tests.core.examples import examples, two_tiers

from effectonce import Breaker
from effectonce._core.breaker.machine import FREE, Machine, Phase
from effectonce._core.breaker.windows import SLOTS, LastCalls, LastSeconds

POLICIES = st.builds(
    Breaker,
    consecutive=st.sampled_from([None, 2, 4]),
    failures=st.sampled_from([None, 2, 3]),
    rate=st.sampled_from([None, 0.5, 1.0]),
    slow_rate=st.sampled_from([0.5, 1.0]),
    slow_s=st.just(1.0),
    window_calls=st.sampled_from([None, 3, 6]),
    window_s=st.just(10.0),
    minimum=st.sampled_from([1, 3]),
    open_s=st.just(4.0),
    jitter=st.just(0.0),
    probes=st.sampled_from([1, 2]),
    probe_lease_s=st.just(6.0),
    successes=st.sampled_from([1, 2]),
)
FLAG = st.sampled_from([0, 1])


class Naive:
    """Everything that happened since the last change, and what follows from it."""

    def __init__(self, policy):
        self.policy, self.phase, self.generation, self.until = policy, Phase.CLOSED, 1, None
        self.history, self.out, self.good, self.story, self.last_s, self.since = (
            [],
            {},
            0,
            0,
            0.0,
            0.0,
        )

    def change(self, phase, now):
        self.phase, self.since, self.generation = phase, now, self.generation + 1
        self.history, self.out, self.good = [], {}, 0

    def open(self, now):
        if self.phase is Phase.CLOSED and now - self.since >= self.last_s:
            self.story = 0
        self.last_s = min(
            self.policy.open_max_s, self.policy.open_s * self.policy.growth**self.story
        )
        self.story += 1
        self.change(Phase.OPEN, now)
        self.until = now + self.last_s

    def admits(self, now):
        if self.phase is Phase.OPEN and now >= self.until:
            self.change(Phase.HALF_OPEN, now)
        if self.phase is Phase.HALF_OPEN:
            return sum(until > now for until in self.out.values()) < self.policy.probes
        return self.phase is Phase.CLOSED

    def window(self, now):
        if self.policy.window_calls is not None:
            return self.history[-self.policy.window_calls :]
        width = self.policy.window_s / SLOTS
        return [call for call in self.history if int(call[0] / width) > int(now / width) - SLOTS]

    def in_a_row(self):
        if self.policy.consecutive is None:
            return False
        tail = self.history[-self.policy.consecutive :]
        return len(tail) == self.policy.consecutive and all(failed for _, failed, _ in tail)

    def failures(self, now):
        if self.policy.window_calls is not None:
            return sum(failed for _, failed, _ in self.history[-self.policy.window_calls :])
        return sum(
            failed and now - then <= self.policy.window_s for then, failed, _ in self.history
        )

    def ended(self, permit, now, failed, slow):
        self.out.pop(permit, None)
        if self.phase is Phase.HALF_OPEN:
            self.good += not (failed or slow)
            if failed or slow:
                self.open(now)
            elif self.good == self.policy.successes:
                self.change(Phase.CLOSED, now)
            return
        self.history.append((now, failed, slow))
        in_a_row = failed and self.in_a_row()
        seen = self.window(now)
        too_many = (
            failed
            and self.policy.failures is not None
            and self.failures(now) >= self.policy.failures
        )
        enough = len(seen) >= self.policy.minimum and (failed or slow)
        rate = self.policy.rate is not None and sum(
            f for _, f, _ in seen
        ) >= self.policy.rate * len(seen)
        slowness = sum(s for _, _, s in seen) >= self.policy.slow_rate * len(seen)
        if in_a_row or too_many or (enough and (rate or slowness)):
            self.open(now)


class BreakerMachine(RuleBasedStateMachine):
    calls = Bundle("calls")

    @initialize(policy=POLICIES)
    def begin(self, policy):
        self.now = 0.0
        self.naive = Naive(policy)
        self.machine = Machine(policy.limits, lambda: 0.0, 0.0)

    @rule(seconds=st.sampled_from([0.25, 1.0, 3.0, 7.0]))
    def time_passes(self, seconds):
        self.now += seconds

    @rule(target=calls)
    def somebody_calls(self):
        admitted = self.naive.admits(self.now)
        permit = self.machine.admit(self.now)

        assert (permit is not None) == admitted
        if permit:
            self.naive.out[permit] = self.now + self.naive.policy.probe_lease_s
        return (self.machine.generation, permit)

    @rule(call=calls, failed=FLAG, slow=FLAG)
    def a_call_ends(self, call, failed, slow):
        generation, permit = call
        if permit is None:
            return
        if generation == self.naive.generation:
            self.naive.ended(permit, self.now, failed, slow)
        if failed:
            self.machine.failed(generation, permit, self.now, slow, None)
        else:
            self.machine.succeeded(generation, permit, self.now, slow)

    @rule(call=calls)
    def a_call_says_nothing(self, call):
        generation, permit = call
        if permit is None:
            return
        if generation == self.naive.generation:
            self.naive.out.pop(permit, None)
        self.machine.released(generation, permit)

    @rule(count=st.integers(1, 5))
    def calls_are_only_counted(self, count):
        if self.now < self.machine.counts_until(self.now):
            self.machine.passed(count)
            self.naive.history += [(self.now, 0, 0)] * count

    @rule()
    def somebody_closes_it(self):
        self.naive.change(Phase.CLOSED, self.now)
        self.naive.story = 0
        self.machine.close(self.now)

    @invariant()
    def both_see_the_same(self):
        assert self.machine.phase is self.naive.phase
        assert self.machine.generation == self.naive.generation
        if self.naive.phase is Phase.CLOSED:
            seen = self.naive.window(self.now)
            self.machine.window.forget(self.now)
            window = self.machine.window
            assert (window.calls, window.failed, window.slow) == (
                len(seen),
                sum(f for _, f, _ in seen),
                sum(s for _, _, s in seen),
            )
        if self.naive.phase is Phase.OPEN:
            assert self.machine.until == self.naive.until

    @invariant()
    def no_more_permits_are_out_than_are_allowed(self):
        live = [number for number, until in self.machine.probes.items() if until > self.now]
        assert len(live) <= self.naive.policy.probes
        assert FREE not in live


@two_tiers(20, 100)
def test_the_machine_does_as_the_model(number):
    run_state_machine_as_test(BreakerMachine, settings=settings(max_examples=number))


@pytest.mark.parametrize(
    "window", [LastCalls(4), LastSeconds(10.0)], ids=lambda window: type(window).__name__
)
@examples(calls=st.lists(st.tuples(st.sampled_from([0.0, 0.5, 4.0, 11.0]), FLAG, FLAG)))
def test_a_window_is_the_sum_of_what_is_in_it(window, calls):
    window.clear()
    naive = Naive(
        Breaker(
            rate=0.5,
            minimum=1,
            window_s=10.0,
            window_calls=4 if isinstance(window, LastCalls) else None,
        )
    )
    now = 0.0
    for pause, failed, slow in calls:
        now += pause
        window.add(now, failed, slow)
        naive.history.append((now, failed, slow))

    seen = naive.window(now)
    assert (window.calls, window.failed, window.slow) == (
        len(seen),
        sum(f for _, f, _ in seen),
        sum(s for _, _, s in seen),
    )
