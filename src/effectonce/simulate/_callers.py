"""When a vendor's call fails: three callers that treat all errors alike, and the whole policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from msgspec import Struct

from effectonce._core.backoff import full_jitter
from effectonce._core.breaker.machine import FREE, Machine, Phase, Sign, sign_of
from effectonce._core.classification.classify import classify
from effectonce._core.classification.verdicts import Bucket, Verdict
from effectonce._core.decisions import Action
from effectonce._core.ops import Flow
from effectonce._core.retry_state import Env, RetryState, earn
from effectonce._drivers import drive
from effectonce.policy import Budget, Retry
from effectonce.retries.breaker_policy import Breaker
from effectonce.retries.budget import RetryBudget
from effectonce.retries.retry import retrying
from effectonce.simulate._mix import Mix
from effectonce.simulate._vendors import Prompt, Vendor
from effectonce.simulate._world import World

T = TypeVar("T")
FAILED = Exception("a call that failed")


class CallerTurn(Struct):
    """One turn on its way: what was planned for it, and where it is."""

    start_s: float
    steps_s: tuple[float, ...]
    prompt: Prompt
    process: int = 0  # where it runs
    step: int = 0
    attempt: int = 1
    refusals: int = 0  # of the attempts, those that were put off
    held: int = 0  # times that an open circuit kept it waiting
    repaired: int = 0
    shortened: bool = False
    charged: Verdict | None = None  # what the attempt under way is a retry after
    permit: int = FREE
    generation: int = 0


class Caller(Protocol):
    """A policy. What it returns are seconds to wait."""

    def held_s(self, now: float, turn: CallerTurn) -> float | None:
        """None: send it. Otherwise ask again after that time."""

    def succeeded(self, now: float, turn: CallerTurn) -> None:
        """A call came back well."""

    def failed_s(
        self, now: float, turn: CallerTurn, kind: str, room_s: float | None
    ) -> float | None:
        """When to try again; None: not at all."""


class Indifferent:
    """Tries everything again, whatever it is."""

    def __init__(self, attempts: float, delay_s: Callable[[int], float]) -> None:
        self.attempts, self.delay_s = attempts, delay_s

    def held_s(self, now: float, turn: CallerTurn) -> float | None:
        return None

    def succeeded(self, now: float, turn: CallerTurn) -> None:
        pass

    def failed_s(
        self, now: float, turn: CallerTurn, kind: str, room_s: float | None
    ) -> float | None:
        return None if turn.attempt >= self.attempts else self.delay_s(turn.attempt)


class Process:
    """One process of the whole policy: its own budget and its own breaker."""

    def __init__(self, mix: Mix, vendor: Vendor, retry: Retry, rng: Callable[[], float]) -> None:
        costs = dict.fromkeys((Bucket.RATE_LIMIT, Bucket.OVERLOADED), mix["budget_cost_429"])
        self.tokens = RetryBudget(
            vendor.name, capacity=mix["budget"], cost=mix["budget_cost"], costs=costs
        )
        self.how = retrying(retry, classify, None, self.tokens)
        limits = Breaker(consecutive=int(mix["breaker_consecutive"])).limits
        self.circuit = Machine(limits, rng, 0.0)


class Whole:
    """Classifies, asks the gate, waits as asked, keeps its budgets, spares an unwell service."""

    def __init__(self, mix: Mix, vendor: Vendor, world: World) -> None:
        self.vendor, self.rng = vendor, world.rng.random
        self.env = Env(now=lambda: world.now, new_token=str, rng=self.rng)
        retry = Retry(
            attempts=int(mix["attempts"]),
            throttled_attempts=int(mix["throttled_attempts"]),
            base_s=mix["other_base_s"],
            throttled_base_s=mix["base_s"],
            cap_s=mix["cap_s"],
            deadline_s=mix["deadline_s"],
        )
        self.repairs = Budget().repairs
        self.processes = [
            Process(mix, vendor, retry, self.rng) for _ in range(int(mix["processes"]))
        ]

    def held_s(self, now: float, turn: CallerTurn) -> float | None:
        how, circuit = self.processes[turn.process].how, self.processes[turn.process].circuit
        permit = circuit.admit(now)
        if permit is not None:
            turn.permit, turn.generation = permit, circuit.generation
            return None
        turn.held += 1
        until_probe_s = circuit.until - now if circuit.phase is Phase.OPEN else 0.0
        return until_probe_s + full_jitter(turn.held, how.throttled_base_s, how.cap_s, self.rng)

    def succeeded(self, now: float, turn: CallerTurn) -> None:
        process = self.processes[turn.process]
        process.circuit.succeeded(turn.generation, turn.permit, now, 0)
        earn(process.tokens, turn.charged)

    def failed_s(
        self, now: float, turn: CallerTurn, kind: str, room_s: float | None
    ) -> float | None:
        verdict, process = self.vendor.verdict(kind, room_s), self.processes[turn.process]
        if sign_of(verdict) is Sign.FAILURE:
            process.circuit.failed(turn.generation, turn.permit, now, 0, verdict.retry_after_s)
        else:
            process.circuit.released(turn.generation, turn.permit)
        patience = RetryState(
            process.how,
            self.env,
            started_at=turn.start_s,
            attempt=turn.attempt,
            refusals=turn.refusals,
        )
        # a model call changes nothing
        found = settled(patience.after(FAILED, verdict, repeatable=True))
        turn.charged, turn.refusals = patience.charged, patience.refusals
        if found.action is Action.REPAIR and turn.repaired < self.repairs:
            turn.repaired, turn.prompt = turn.repaired + 1, Prompt()
            return 0.0
        if found.action is Action.SHORTEN and not turn.shortened:
            turn.shortened, turn.prompt = True, Prompt()
            return 0.0
        return found.delay_s


def settled(flow: Flow[T]) -> T:
    """What a flow comes to that asks no store."""
    return drive(flow, _refuse)


def _refuse(op: object) -> None:
    raise AssertionError(f"there is no store here that answers {op}")


def caller(policy: str, mix: Mix, vendor: Vendor, world: World) -> Caller:
    """The policy of that name."""
    rng = world.rng.random
    match policy:
        case "naive":
            return Indifferent(mix["naive_attempts"], lambda _: 0.0)
        case "fixed":
            return Indifferent(mix["alike_attempts"], lambda _: mix["fixed_s"])
        case "jitter":
            return Indifferent(
                mix["alike_attempts"],
                lambda attempt: full_jitter(attempt, mix["base_s"], mix["cap_s"], rng),
            )
        case _:
            return Whole(mix, vendor, world)
