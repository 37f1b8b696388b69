"""A chain of models whose first is down for a while: what is answered, by which, for how much.

Questions come at random for an hour. Each goes to the first model; when that is down, to the
next, as `once_llm(..., fallback=[...])` asks. A model fails some questions on any day, and the
first one fails all of them during its outage. What it fails costs its time, not its price.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean, quantiles

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

HOUR_S = 3600.0
OUTAGE_AT_S = 1200.0
ANSWERS_VARY = 0.3  # of the time that a model takes
OVERLOADED = Verdict(Bucket.OVERLOADED, Certainty.REJECTED)
Answered = Callable[[bool], None]


class Model(Struct, frozen=True):
    """One of the chain. *price* is for a thousand answers, in whatever money."""

    name: str
    price: float
    latency_s: float
    fails: float  # share of questions that it cannot answer, on a good day

    def __post_init__(self) -> None:
        if not 0 <= self.fails <= 1:
            raise ValueError(f"{self.name} fails {self.fails:g}: choose a share from 0 to 1")


class Chain(Struct, frozen=True):
    """What callers do when a model is down."""

    name: str
    models: tuple[Model, ...]
    retry: Retry = Retry(attempts=3)
    budget: bool = False
    breaker: bool = False


class ChainResult(Struct, frozen=True):
    """What became of an hour with one chain."""

    chain: str
    answered: float  # share of questions
    answered_in_outage: float
    by_model: dict[str, float]  # share of questions that each model answered
    cost: float  # of all answers of the hour
    requests: float  # for each question
    mean_s: float  # until there is an answer
    p99_s: float


class FallbackResult(Struct, frozen=True):
    rate: float  # questions in a minute
    outage_s: float
    seed: int
    chains: tuple[ChainResult, ...]


class _AskedModel:
    """A model as one caller asks it: its retries, and its own circuit."""

    def __init__(
        self, world: World, chain: Chain, model: Model, tokens: RetryBudget | None, outage_s: float
    ) -> None:
        self.world, self.model, self.tokens = world, model, tokens
        self.down = (OUTAGE_AT_S, OUTAGE_AT_S + outage_s)
        self.circuit = Machine(Breaker().limits, world.rng.random, 0.0) if chain.breaker else None
        self.how = retrying(chain.retry, classify, None, tokens)
        self.env = Env(now=lambda: world.now, new_token=str, rng=world.rng.random)
        self.requests = 0

    def ask(self, answer: Answered, attempt: int = 1) -> None:
        permit = FREE if self.circuit is None else self.circuit.admit(self.world.now)
        if permit is None:
            answer(False)  # nothing is sent, and the next model is asked at once
            return
        generation = 0 if self.circuit is None else self.circuit.generation
        self.requests += 1
        spread = 1 + ANSWERS_VARY * (2 * self.world.rng.random() - 1)
        good = not self._is_down() and self.world.rng.random() >= self.model.fails
        self.world.after(
            self.model.latency_s * spread, self._answered, answer, attempt, generation, permit, good
        )

    def _is_down(self) -> bool:
        return self.down[0] <= self.world.now < self.down[1]

    def _answered(
        self,
        answer: Answered,
        attempt: int,
        generation: int,
        permit: int,
        good: bool,  # noqa: FBT001  # it is an answer
    ) -> None:
        if self.circuit is not None and good:
            self.circuit.succeeded(generation, permit, self.world.now, 0)
        elif self.circuit is not None:
            self.circuit.failed(generation, permit, self.world.now, 0, None)
        if good:
            if self.tokens is not None:
                earn(self.tokens, OVERLOADED if attempt > 1 else None)
            answer(True)
            return
        patience = RetryState(self.how, self.env, attempt=attempt)
        delay_s = settled(patience.after(FAILED, OVERLOADED, repeatable=True)).delay_s
        if delay_s is None:
            answer(False)
        else:
            self.world.after(delay_s, self.ask, answer, attempt + 1)


class _Hour:
    """All questions of an hour, and one chain."""

    def __init__(self, chain: Chain, rate: float, outage_s: float, seed: str) -> None:
        self.world, self.chain, self.rate, self.outage_s = World(seed), chain, rate, outage_s
        tokens = RetryBudget("models") if chain.budget else None
        self.models = [
            _AskedModel(self.world, chain, model, tokens, 0.0 if number else outage_s)
            for number, model in enumerate(chain.models)
        ]
        self.asked_at: list[float] = []
        self.answers: dict[int, tuple[int, float]] = {}  # which model, and after what time
        self.world.after(0.0, self._arrive)
        self.world.run()

    def _arrive(self) -> None:
        question = len(self.asked_at)
        self.asked_at.append(self.world.now)
        self._ask(question, 0)
        next_s = self.world.rng.expovariate(self.rate / 60)
        if self.world.now + next_s < HOUR_S:
            self.world.after(next_s, self._arrive)

    def _ask(self, question: int, number: int) -> None:
        def answered(good: bool) -> None:  # noqa: FBT001  # it is an answer
            if good:
                took_s = self.world.now - self.asked_at[question]
                self.answers[question] = (number, took_s)
            elif number + 1 < len(self.models):
                self._ask(question, number + 1)

        self.models[number].ask(answered)

    def result(self) -> ChainResult:
        questions, took = len(self.asked_at), [took_s for _, took_s in self.answers.values()]
        end_s = OUTAGE_AT_S + self.outage_s
        hit = [n for n, at_s in enumerate(self.asked_at) if OUTAGE_AT_S <= at_s < end_s]
        counts = [0] * len(self.models)
        for number, _ in self.answers.values():
            counts[number] += 1
        prices = [model.price / 1000 for model in self.chain.models]
        return ChainResult(
            chain=self.chain.name,
            answered=round(len(self.answers) / questions, 4),
            answered_in_outage=round(sum(n in self.answers for n in hit) / max(1, len(hit)), 4),
            by_model={
                model.name: round(count / questions, 4)
                for model, count in zip(self.chain.models, counts, strict=True)
            },
            cost=round(sum(n * price for n, price in zip(counts, prices, strict=True)), 2),
            requests=round(sum(each.requests for each in self.models) / questions, 4),
            mean_s=round(fmean(took), 2) if took else 0.0,
            p99_s=round(quantiles(took, n=100)[98], 2) if len(took) > 1 else 0.0,
        )


def beside(chain: Chain) -> tuple[Chain, ...]:
    """What the same callers get with less: no retries, and the first model alone."""
    first = chain.models[:1]
    return (
        Chain("the first model, asked once", first, replace(chain.retry, attempts=1)),
        replace(chain, name="the first model alone", models=first),
        replace(chain, name="no breaker", breaker=False),
    )


def simulate(
    *, chains: Sequence[Chain], seed: int = 7, rate: float = 60.0, outage_s: float = 600.0
) -> FallbackResult:
    """Live through the same hour with each chain, at *rate* questions a minute."""
    at_least(1, rate=rate)
    if not 0 <= outage_s <= HOUR_S - OUTAGE_AT_S:
        raise ValueError(f"outage_s={outage_s:g}: choose a number from 0 to 2,400")
    hours = tuple(_Hour(chain, rate, outage_s, f"{seed}").result() for chain in chains)
    return FallbackResult(rate, outage_s, seed, hours)
