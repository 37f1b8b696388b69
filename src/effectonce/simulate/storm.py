"""An outage is over; does the service come back? Three services in a row, and callers that retry.

A client calls `front`, which calls `middle`, which calls `back`, where the effect is. Each has a
queue and works off so many requests in a second. A service does not learn that its caller has
gone: what waits too long is worked off for nothing. For ten seconds `back` can do a tenth of its
work. That is the trigger. What counts is not how that time is survived but what is answered long
after it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from effectonce._core.breaker.machine import FREE, Machine
from effectonce._core.classification.classify import classify
from effectonce._core.classification.verdicts import Bucket, Certainty, Verdict
from effectonce._core.retry_state import Env, RetryState, earn
from effectonce.policy import Retry
from effectonce.retries.breaker_policy import Breaker
from effectonce.retries.budget import RetryBudget
from effectonce.retries.retry import retrying
from effectonce.simulate._callers import FAILED, settled
from effectonce.simulate._world import World, at_least

# of the client, of `front` and of `middle`: who is further out waits longer
TIME_OUTS_S = (4.0, 2.0, 1.0)
RETRY = Retry(attempts=3)  # of every layer that retries
AT_ONCE = Retry(attempts=3, base_s=0, throttled_base_s=0, cap_s=0)
ROOM = 1.5  # what `front` and `middle` can do, in units of `back`
TRIGGER_S = 20.0
LENGTH_S = 150.0
AFTER_S = (110.0, 140.0)  # requests of this time are judged
STRIP_S = 5.0


def _drain_s(retry: Retry) -> float:
    """No client waits longer for an answer."""
    return retry.attempts * (TIME_OUTS_S[0] + retry.cap_s)


DRAIN_S = _drain_s(RETRY)
# a refusal looks no different to those who wait further out
GONE = Verdict(Bucket.NO_ANSWER, Certainty.AMBIGUOUS)
Answer = Callable[[bool], None]


class Outage(Struct, frozen=True, kw_only=True):
    """What happens to the services."""

    load: float = 0.7  # of what `back` can do
    outage_s: float = 10.0
    left: float = 0.1  # of what `back` can do, during the outage
    lost: float = 0.01  # share of answers that get lost on a good day: the reason to retry at all
    queue_s: float = 10.0  # a queue holds this many seconds of work, and refuses the rest

    def __post_init__(self) -> None:
        for name, (low, high) in RANGES.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"{name}={value:g}: choose a number from {low:g} to {high:g}")


RANGES = {
    "load": (0.05, 1.5),
    "outage_s": (1, 60),
    "left": (0, 1),
    "lost": (0, 0.5),
    "queue_s": (1, 60),
}


class Policy(Struct, frozen=True):
    """What callers do about an error."""

    name: str
    layers: int = 3  # so many layers retry, from the client on: 3 is all of them, 1 the client only
    retry: Retry = RETRY
    budget: bool = False
    breaker: bool = False
    keys: bool = False


POLICIES = (
    Policy("no retries", layers=0),
    Policy("naive", retry=AT_ONCE),
    Policy("naive + keys", retry=AT_ONCE, keys=True),
    Policy("jitter"),
    Policy("one layer", layers=1),
    Policy("budget", budget=True),
    Policy("breaker", breaker=True),
    Policy("whole", layers=1, budget=True, breaker=True, keys=True),
)


class Storm(Struct, frozen=True):
    """What became of one policy."""

    policy: str
    goodput_before: float  # share of requests that were answered, before the trigger
    goodput: float  # the same, long after it
    recovered: bool  # is it 95 % or more?
    # requests sent to `back` for each request of a client, over the whole time
    amplification: float
    worst: float  # the same, in the worst five seconds
    duplicates: int  # effects beyond the first one of a request
    # share of requests that were answered, by five seconds of their start
    answered: tuple[float, ...]


class StormResult(Struct, frozen=True):
    rate: float  # what `back` can do in a second
    seed: int
    outage: Outage
    policies: tuple[Storm, ...]


class _Service:
    """A queue and one worker."""

    def __init__(
        self, world: World, rate: float, queue_s: float, work: Callable[[int, Answer], None]
    ) -> None:
        self.world, self.rate, self.work = world, rate, work
        self.queue: deque[tuple[int, Answer]] = deque()
        self.room = int(rate * queue_s)

    def ask(self, request: int, answer: Answer) -> None:
        if len(self.queue) >= self.room:
            answer(False)
            return
        self.queue.append((request, answer))
        if len(self.queue) == 1:
            self.world.after(1 / self.rate, self.finish)

    def finish(self) -> None:
        self.work(*self.queue.popleft())
        if self.queue:
            self.world.after(1 / self.rate, self.finish)


class _Hop:
    """How one service calls the next."""

    def __init__(self, world: World, policy: Policy, layer: int, target: _Service) -> None:
        self.world, self.target = world, target
        self.time_out_s = TIME_OUTS_S[layer]
        retry = policy.retry if layer < policy.layers else replace(policy.retry, attempts=1)
        self.tokens = RetryBudget("next") if policy.budget else None
        self.circuit = Machine(Breaker().limits, world.rng.random, 0.0) if policy.breaker else None
        self.how = retrying(retry, classify, None, self.tokens)
        self.env = Env(now=lambda: world.now, new_token=str, rng=world.rng.random)
        self.sent: list[float] = []

    def call(self, request: int, answer: Answer, attempt: int = 1) -> None:
        permit = FREE if self.circuit is None else self.circuit.admit(self.world.now)
        if permit is None:
            answer(False)  # the circuit is open: nothing is sent, and this step does not try again
            return
        generation, waiting = 0 if self.circuit is None else self.circuit.generation, True

        def answered(good: bool) -> None:  # noqa: FBT001  # it is an answer
            nonlocal waiting
            if waiting:  # otherwise it comes too late: the caller has gone on
                waiting = False
                self.learn(generation, permit, attempt, good=good)
                self.ended(request, answer, attempt, good=good)

        self.sent.append(self.world.now)
        self.world.after(self.time_out_s, answered, False)
        self.target.ask(request, answered)

    def learn(self, generation: int, permit: int, attempt: int, *, good: bool) -> None:
        if good and self.tokens is not None:
            earn(self.tokens, GONE if attempt > 1 else None)
        if good and self.circuit is not None:
            self.circuit.succeeded(generation, permit, self.world.now, 0)
        elif self.circuit is not None:
            self.circuit.failed(generation, permit, self.world.now, 0, None)

    def ended(self, request: int, answer: Answer, attempt: int, *, good: bool) -> None:
        if good:
            answer(True)
            return
        patience = RetryState(self.how, self.env, attempt=attempt)
        delay_s = settled(patience.after(FAILED, GONE, repeatable=True)).delay_s
        if delay_s is None:
            answer(False)
        else:
            self.world.after(delay_s, self.call, request, answer, attempt + 1)


class _Town:
    """The client, the three services, and one policy, for two minutes."""

    def __init__(self, policy: Policy, rate: float, seed: str, outage: Outage) -> None:
        self.world, self.policy, self.rate, self.outage = World(seed), policy, rate, outage
        self.started: list[float] = []
        self.answered: set[int] = set()
        self.effects: dict[int, int] = {}
        queue_s = outage.queue_s
        self.back = _Service(self.world, rate, queue_s, self.land)
        self.to_back = _Hop(self.world, policy, 2, self.back)
        middle = _Service(self.world, rate * ROOM, queue_s, self.to_back.call)
        to_middle = _Hop(self.world, policy, 1, middle)
        front = _Service(self.world, rate * ROOM, queue_s, to_middle.call)
        self.to_front = _Hop(self.world, policy, 0, front)
        self.world.after(0.0, self.arrive)
        self.world.after(TRIGGER_S, self.run_at, rate * max(outage.left, 0.001))
        self.world.after(TRIGGER_S + outage.outage_s, self.run_at, rate)
        self.world.run(LENGTH_S + max(DRAIN_S, _drain_s(policy.retry)))

    def arrive(self) -> None:
        request = len(self.started)
        self.started.append(self.world.now)
        self.to_front.call(request, lambda good: self.answered.add(request) if good else None)
        next_s = self.world.rng.expovariate(self.rate * self.outage.load)
        if self.world.now + next_s < LENGTH_S:
            self.world.after(next_s, self.arrive)

    def land(self, request: int, answer: Answer) -> None:
        if not (self.policy.keys and request in self.effects):
            self.effects[request] = self.effects.get(request, 0) + 1
        if self.world.rng.random() >= self.outage.lost:
            answer(True)

    def run_at(self, rate: float) -> None:
        self.back.rate = rate

    def goodput(self, start_s: float, end_s: float) -> float:
        asked = [request for request, at_s in enumerate(self.started) if start_s <= at_s < end_s]
        return round(sum(request in self.answered for request in asked) / max(1, len(asked)), 4)

    def result(self) -> Storm:
        slots = range(int(LENGTH_S / STRIP_S))
        sent, asked = (
            Counter(int(at_s / STRIP_S) for at_s in times)
            for times in (self.to_back.sent, self.started)
        )
        good = Counter(int(self.started[request] / STRIP_S) for request in self.answered)
        goodput = self.goodput(*AFTER_S)
        return Storm(
            policy=self.policy.name,
            goodput_before=self.goodput(0.0, TRIGGER_S - sum(TIME_OUTS_S)),
            goodput=goodput,
            recovered=goodput >= 0.95,
            amplification=round(len(self.to_back.sent) / len(self.started), 4),
            worst=round(max(sent[slot] / max(1, asked[slot]) for slot in slots), 4),
            duplicates=sum(self.effects.values()) - len(self.effects),
            answered=tuple(round(good[slot] / max(1, asked[slot]), 4) for slot in slots),
        )


def simulate(
    *,
    seed: int = 7,
    rate: float = 20.0,
    policies: Sequence[Policy] = POLICIES,
    outage: Outage | None = None,
) -> StormResult:
    """Live through the same outage with each policy, at *rate* requests a second."""
    at_least(1, rate=rate)
    outage = Outage() if outage is None else outage
    storms = tuple(_Town(policy, rate, f"{seed}", outage).result() for policy in policies)
    return StormResult(rate, seed, outage, storms)
