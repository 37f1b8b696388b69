"""What delays do to a crowd that wants the same thing: Brooker's experiment.

Some clients want to write one row. Each reads its version, writes if that still stands, and
otherwise waits and reads again, until every client has written once. Every message takes
|Normal(10, 2)| ms. Counted are the writes that were tried, and the time until all are done.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from statistics import fmean
from typing import TypeAlias

from msgspec import Struct

from effectonce._core.backoff import decorrelated_jitter, equal_jitter, exponential, full_jitter
from effectonce.simulate._world import World, at_least

MESSAGE_SPREAD = 0.2  # of the time that a message takes


class Waits(Struct, frozen=True, kw_only=True):
    """How long things take: the delays' base and cap, and a message on average."""

    base_ms: float = 5.0
    cap_ms: float = 2000.0
    message_ms: float = 10.0

    def __post_init__(self) -> None:
        if not 0 < self.base_ms <= self.cap_ms < inf:
            raise ValueError(
                f"base_ms={self.base_ms:g} and cap_ms={self.cap_ms:g}: need 0 < base_ms <= cap_ms"
            )
        if not 0 < self.message_ms < inf:
            raise ValueError(f"message_ms={self.message_ms:g}: a message takes some time")


# From how many failures there were, the delay before, and a die, to the next delay. Brooker's
# first ceiling is twice the base.
Delay: TypeAlias = Callable[[Waits, int, float, Callable[[], float]], float]
DELAYS: dict[str, Delay] = {
    "none": lambda _waits, _failures, _before_ms, _rng: 0.0,
    "exponential": lambda w, failures, _, __: exponential(failures + 1, w.base_ms, w.cap_ms),
    "equal": lambda w, failures, _, rng: equal_jitter(failures + 1, w.base_ms, w.cap_ms, rng),
    "full": lambda w, failures, _, rng: full_jitter(failures + 1, w.base_ms, w.cap_ms, rng),
    "decorrelated": lambda w, _, before_ms, rng: decorrelated_jitter(
        before_ms, w.base_ms, w.cap_ms, rng
    ),
}


class Contention(Struct, frozen=True):
    """What one way to wait came to, on average over the runs."""

    policy: str
    calls: float
    completion_ms: float


class JitterResult(Struct, frozen=True):
    clients: int
    runs: int
    seed: int
    waits: Waits
    policies: tuple[Contention, ...]


class _Row:
    """The row that all clients want to write, and those clients."""

    def __init__(self, world: World, delay: Delay, waits: Waits) -> None:
        self.world, self.delay, self.waits, self.gauss = world, delay, waits, world.rng.gauss
        self.calls = 0
        self.changed_at = -1.0
        self.done_ms = 0.0

    def message_ms(self) -> float:
        return abs(self.gauss(self.waits.message_ms, self.waits.message_ms * MESSAGE_SPREAD))

    def ask(self, wait_ms: float, failures: int, before_ms: float) -> None:
        """Wait, read the row, write it. The write's arrival shows if the version still stands."""
        read_in_ms = wait_ms + self.message_ms()
        write_in_ms = read_in_ms + self.message_ms() + self.message_ms()
        self.world.after(write_in_ms, self.write, self.world.now + read_in_ms, failures, before_ms)

    def write(self, read_at: float, failures: int, before_ms: float) -> None:
        self.calls += 1
        answer_ms = self.message_ms()
        if self.changed_at <= read_at:
            self.changed_at = self.world.now
            self.done_ms = max(self.done_ms, self.world.now + answer_ms)
            return
        delay_ms = self.delay(self.waits, failures + 1, before_ms, self.world.rng.random)
        self.ask(answer_ms + delay_ms, failures + 1, delay_ms)


def _run(policy: str, clients: int, seed: str, waits: Waits) -> tuple[int, float]:
    world = World(seed)
    row = _Row(world, DELAYS[policy], waits)
    for _ in range(clients):
        row.ask(0.0, 0, waits.base_ms)
    world.run()
    return row.calls, row.done_ms


def simulate(
    *, seed: int = 7, clients: int = 100, runs: int = 30, waits: Waits | None = None
) -> JitterResult:
    """Let *clients* fight over one row, with every way to wait, *runs* times."""
    at_least(1, clients=clients, runs=runs)
    waits = Waits() if waits is None else waits
    policies = []
    for policy in DELAYS:
        ran = [_run(policy, clients, f"{seed} {policy} {run}", waits) for run in range(runs)]
        calls, done = fmean(calls for calls, _ in ran), fmean(done for _, done in ran)
        policies.append(Contention(policy, round(calls, 1), round(done, 1)))
    return JitterResult(clients, runs, seed, waits, tuple(policies))
