"""The retry budget beside botocore's own, over one history."""

import random

import pytest

from effectonce import Bucket, Certainty, RetryBudget, Verdict
from effectonce._drivers import drive
from effectonce._runtime.plain_performers import Plain

DOWN = Verdict(Bucket.SERVER_ERROR, Certainty.AMBIGUOUS)
BUSY = Verdict(Bucket.RATE_LIMIT, Certainty.REJECTED)


class Theirs:
    """botocore's quota for retries, as its standard mode drives it."""

    def __init__(self):
        from botocore.retries.quota import RetryQuota

        self.quota = RetryQuota(500)

    def retries(self, call, verdict):
        from botocore.retries.standard import RetryQuotaChecker as Checker

        cost = Checker._THROTTLING_RETRY_COST if verdict is BUSY else Checker._RETRY_COST
        if not self.quota.acquire(cost):
            return False
        call["cost"] = cost
        return True

    def succeeded(self, call):
        self.quota.release(call.get("cost", 1))

    @property
    def level(self):
        return self.quota.available_capacity


class Ours:
    def __init__(self):
        self.budget = RetryBudget("aws")

    def retries(self, call, verdict):
        if not drive(self.budget.charge(verdict), Plain(None)):
            return False
        call["verdict"] = verdict
        return True

    def succeeded(self, call):
        self.budget.refund(call["verdict"]) if "verdict" in call else self.budget.succeeded()

    @property
    def level(self):
        return self.budget.level


def lived_through(budget, failing, seed):
    rng, history = random.Random(seed), []
    for _ in range(3000):
        call, attempts = {}, 1
        while rng.random() < failing:
            verdict = BUSY if rng.random() < 0.3 else DOWN
            if attempts == 3 or not budget.retries(call, verdict):
                break
            attempts += 1
        else:
            budget.succeeded(call)
        history.append((attempts, budget.level))
    return history


@pytest.mark.parametrize("failing", [0.05, 0.1, 0.2, 0.5, 1.0])
def test_the_budget_allows_the_retries_that_botocore_allows_and_no_others(failing):
    assert lived_through(Ours(), failing, 1) == lived_through(Theirs(), failing, 1)
