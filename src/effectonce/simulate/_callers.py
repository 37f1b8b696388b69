"""What callers of a vendor do when a call fails: three that treat all errors alike, and the whole policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from msgspec import Struct

from effectonce._core.backoff import full_jitter
from effectonce._core.breaker import FREE, Machine, Phase, Sign, sign_of
from effectonce._core.classify import classify
from effectonce._core.gate import Action
from effectonce._core.ops import Flow
from effectonce._core.patience import Env, Patience, earn
from effectonce._core.verdicts import Bucket, Verdict
from effectonce.policy import Breaker, Budget, Retry
from effectonce.retry_budget import RetryBudget
from effectonce.retrying import retrying
from effectonce.simulate._mix import Mix
from effectonce.simulate._vendors import Prompt, Vendor
from effectonce.simulate._world import World

T = TypeVar("T")
FAILED = Exception("a call that failed")


class Turn(Struct):
    """One turn on its way: what was planned for it, and where it is."""

    start_s: float
    steps_s: tuple[float, ...]
    prompt: Prompt
    step: int = 0
    attempt: int = 1
    held: int = 0  # times that an open circuit kept it waiting
    repaired: int = 0
    shortened: bool = False
    charged: Verdict | None = None  # what the attempt under way is a retry after
    permit: int = FREE
    generation: int = 0


class Caller(Protocol):
    """A policy. What it returns are seconds to wait."""

    def held_s(self, now: float, turn: Turn) -> float | None:
        """None: send it. Otherwise ask again after that time."""

    def succeeded(self, now: float, turn: Turn) -> None:
        """A call came back well."""

    def failed_s(self, now: float, turn: Turn, kind: str, room_s: float | None) -> float | None:
        """When to try again; None: not at all."""


class Indifferent:
    """Tries everything again, whatever it is."""

    def __init__(self, attempts: float, delay_s: Callable[[int], float]) -> None:
        self.attempts, self.delay_s = attempts, delay_s

    def held_s(self, now: float, turn: Turn) -> float | None:
        return None

    def succeeded(self, now: float, turn: Turn) -> None:
        pass

    def failed_s(self, now: float, turn: Turn, kind: str, room_s: float | None) -> float | None:
        return None if turn.attempt >= self.attempts else self.delay_s(turn.attempt)


class Whole:
    """Classifies first, asks the gate, waits as long as it is told to, keeps to its budgets, and leaves alone who is unwell."""

    def __init__(self, mix: Mix, vendor: Vendor, world: World) -> None:
        self.vendor, self.rng = vendor, world.rng.random
        self.env = Env(now=lambda: world.now, new_token=str, rng=self.rng)
        self.tokens = RetryBudget(
            vendor.name,
            capacity=mix["budget"] * mix["processes"],
            cost=mix["budget_cost"],
            costs={Bucket.RATE_LIMIT: mix["budget_cost_429"], Bucket.OVERLOADED: mix["budget_cost_429"]},
        )
        retry = Retry(
            attempts=int(mix["attempts"]),
            base_s=mix["other_base_s"],
            throttled_base_s=mix["base_s"],
            cap_s=mix["cap_s"],
            deadline_s=mix["deadline_s"],
        )
        self.how = retrying(retry, classify, None, self.tokens)
        self.repairs = Budget().repairs
        breaker = Breaker(rate=mix["breaker_rate"], minimum=int(mix["breaker_minimum"]))
        self.circuit = Machine(breaker.limits, self.rng, 0.0)

    def held_s(self, now: float, turn: Turn) -> float | None:
        permit = self.circuit.admit(now)
        if permit is not None:
            turn.permit, turn.generation = permit, self.circuit.generation
            return None
        turn.held += 1
        until_probe_s = self.circuit.until - now if self.circuit.phase is Phase.OPEN else 0.0
        return until_probe_s + full_jitter(turn.held, self.how.throttled_base_s, self.how.cap_s, self.rng)

    def succeeded(self, now: float, turn: Turn) -> None:
        self.circuit.succeeded(turn.generation, turn.permit, now, 0)
        earn(self.tokens, turn.charged)

    def failed_s(self, now: float, turn: Turn, kind: str, room_s: float | None) -> float | None:
        verdict = self.vendor.verdict(kind, room_s)
        if sign_of(verdict) is Sign.FAILURE:
            self.circuit.failed(turn.generation, turn.permit, now, 0, verdict.retry_after_s)
        else:
            self.circuit.released(turn.generation, turn.permit)
        patience = Patience(self.how, self.env, started_at=turn.start_s, attempt=turn.attempt)
        found = settled(patience.after(FAILED, verdict, repeatable=True))  # a model call changes nothing
        turn.charged = patience.charged
        if found.action is Action.REPAIR and turn.repaired < self.repairs:
            turn.repaired, turn.prompt = turn.repaired + 1, Prompt()
            return 0.0
        if found.action is Action.SHORTEN and not turn.shortened:
            turn.shortened, turn.prompt = True, Prompt()
            return 0.0
        return found.delay_s


def settled(flow: Flow[T]) -> T:
    """What a flow comes to that asks no store."""
    try:
        op = next(flow)
    except StopIteration as done:
        found: T = done.value
        return found
    raise AssertionError(f"there is no store here that answers {op}")


def caller(policy: str, mix: Mix, vendor: Vendor, world: World) -> Caller:
    """The policy of that name."""
    rng = world.rng.random
    match policy:
        case "naive":
            return Indifferent(mix["naive_attempts"], lambda _: 0.0)
        case "fixed":
            return Indifferent(mix["attempts"], lambda _: mix["fixed_s"])
        case "jitter":
            return Indifferent(mix["attempts"], lambda attempt: full_jitter(attempt, mix["base_s"], mix["cap_s"], rng))
        case _:
            return Whole(mix, vendor, world)
