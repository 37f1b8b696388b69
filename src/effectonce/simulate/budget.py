"""What a retry budget allows while a share of the calls fails: none, ours, and the throttle of
gRPC (proposal A6).

Every call is tried again at once while it fails, up to its attempts and as far as the budget
allows. Failures are independent: that is when a retry helps most, and what a throttle can only
make worse. What a budget is for, an outage, is the last column: there, all calls fail.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from effectonce._core.classification.verdicts import Bucket, Certainty, Verdict
from effectonce._core.retry_state import earn
from effectonce.retries.budget import RetryBudget
from effectonce.simulate._callers import settled
from effectonce.simulate._world import World, at_least

SHARES = (0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
DOWN = Verdict(Bucket.SERVER_ERROR, Certainty.AMBIGUOUS)
MAX_TOKENS, TOKEN_RATIO = 10.0, 0.1  # the values that proposal A6 shows


class Budgeted(Struct, frozen=True):
    """What one budget made of each share of failures."""

    policy: str
    allowed: tuple[float, ...]  # share of the retries that were asked for; 1 if none was
    sent: tuple[float, ...]  # requests for each call
    failed: tuple[float, ...]  # share of the calls that end in an error


class BudgetResult(Struct, frozen=True):
    calls: int
    attempts: int
    seed: int
    shares: tuple[float, ...]  # of the attempts that fail
    policies: tuple[Budgeted, ...]


class Throttle(Protocol):
    def failed(self, *, last: bool) -> bool:
        """A request failed, perhaps the last that the call may make. May it be tried again?"""

    def succeeded(self, *, retried: bool) -> None:
        """A request went well."""


class _Unlimited:
    """There is no budget."""

    def failed(self, *, last: bool) -> bool:
        return not last

    def succeeded(self, *, retried: bool) -> None:
        pass


class _Ours:
    """`RetryBudget` as it comes."""

    def __init__(self) -> None:
        self.tokens = RetryBudget("next")

    def failed(self, *, last: bool) -> bool:
        return not last and settled(self.tokens.charge(DOWN))

    def succeeded(self, *, retried: bool) -> None:
        earn(self.tokens, DOWN if retried else None)


class _Grpc:
    """A6: failures take a token, successes bring part of one; below half there are no retries."""

    def __init__(self) -> None:
        self.tokens = MAX_TOKENS

    def failed(self, *, last: bool) -> bool:
        self.tokens = max(0.0, self.tokens - 1)
        return not last and self.tokens > MAX_TOKENS / 2

    def succeeded(self, *, retried: bool) -> None:
        self.tokens = min(MAX_TOKENS, self.tokens + TOKEN_RATIO)


BUDGETS: dict[str, Callable[[], Throttle]] = {
    "none": _Unlimited,
    "effectonce": _Ours,
    "gRPC A6": _Grpc,
}


def _live(
    throttle: Throttle, share: float, calls: int, attempts: int, seed: str
) -> tuple[float, float, float]:
    rng = World(seed).rng.random
    asked = allowed = sent = failed = 0
    for _ in range(calls):
        for attempt in range(1, attempts + 1):
            sent += 1
            if rng() >= share:
                throttle.succeeded(retried=attempt > 1)
                break
            may = throttle.failed(last=attempt == attempts)
            asked, allowed = asked + (attempt < attempts), allowed + may
            if not may:
                failed += 1
                break
    return allowed / asked if asked else 1.0, sent / calls, failed / calls


def simulate(*, seed: int = 7, calls: int = 20_000, attempts: int = 3) -> BudgetResult:
    """Make *calls* calls with each budget, at each share of failures."""
    at_least(100, calls=calls)
    at_least(1, attempts=attempts)
    policies = []
    for policy, made in BUDGETS.items():
        lived = [_live(made(), share, calls, attempts, f"{seed} {share}") for share in SHARES]
        allowed, sent, failed = (tuple(round(one[at], 4) for one in lived) for at in range(3))
        policies.append(Budgeted(policy, allowed, sent, failed))
    return BudgetResult(calls, attempts, seed, SHARES, tuple(policies))
