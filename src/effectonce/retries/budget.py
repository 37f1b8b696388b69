"""The retry budget of a dependency: when it answers no caller, all callers stop retrying."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from itertools import count
from math import inf

from effectonce._core.budget import Costs, TokenBucket, charge_shared
from effectonce._core.classification.classify import Bucket, Verdict
from effectonce._core.guarantees import DAY_S
from effectonce._core.ops import Flow
from effectonce._forks import anew_in_a_fork
from effectonce._validate import flags, numbers, of_type, texts
from effectonce.errors import ContractViolation

COSTS = {Bucket.RATE_LIMIT: 5.0, Bucket.OVERLOADED: 5.0}


class RetryBudget:
    """Tokens for retries of one dependency. A retry takes its cost out when it is scheduled, and
    gives it back if it succeeds.

    A call that succeeds without a retry puts *earns* in. It begins full. With the defaults, 35
    retries that fail are free, and then there is one for every 14 calls that succeed: a storm
    has nothing to feed on. *costs* says what a retry costs after which kind of error, *cost*
    after all others. A *shared* budget is one for all processes on the store of the guard; only
    retries ask the store, and while it cannot be asked each process counts for itself.
    """

    def __init__(
        self,
        name: str,
        *,
        capacity: float = 500.0,
        cost: float = 14.0,
        costs: Mapping[Bucket, float] | None = None,
        earns: float = 1.0,
        shared: bool = False,
    ) -> None:
        if not name:
            raise ContractViolation("a retry budget needs the name of its dependency")
        texts(name=name)
        flags(shared=shared)
        of_type("costs", costs, Mapping, "buckets, such as costs={Bucket.RATE_LIMIT: 5}")
        unknown = [str(bucket) for bucket in costs or () if bucket not in tuple(Bucket)]
        if unknown:
            raise ContractViolation(
                f"costs has {', '.join(unknown)}: choose among {', '.join(Bucket)}"
            )
        given = COSTS if costs is None else costs
        by_bucket = {Bucket(bucket): price for bucket, price in given.items()}
        prices = {f"costs[{bucket}]": price for bucket, price in by_bucket.items()}
        numbers(capacity=capacity, cost=cost, earns=earns, **prices)
        if not 0 < capacity < inf:
            raise ContractViolation(
                f"capacity={capacity}: a budget holds some tokens, and not all there are"
            )
        if not all(price >= 0 for price in (cost, *by_bucket.values(), earns)):
            raise ContractViolation(
                f"cost={cost}, costs={by_bucket}, earns={earns}: none of them can be negative"
            )
        self.name, self.shared = name, shared
        self._costs, self._bucket = Costs(cost, by_bucket), TokenBucket(capacity)
        self._earns, self._lock = earns, threading.RLock()
        self._counter, self._counted = count(), 0  # successes; `next` is atomic, += is not
        self._earned = 0.0  # tokens that no charge has put in yet
        self.succeeded = self._counter.__next__  # a call of it is all that a success costs
        anew_in_a_fork(self)

    def after_fork(self) -> None:
        """What it knows goes along; a lock does not."""
        self._lock = threading.RLock()

    @property
    def level(self) -> float:
        """How many tokens this process knows of."""
        with self._lock:
            return min(self._bucket.capacity, self._bucket.level + self._fold())

    def refund(self, verdict: Verdict) -> None:
        """A call succeeded with its retry after *verdict*: the cost of that retry comes back."""
        with self._lock:
            self._earned += max(self._costs.of(verdict), self._earns)

    def charge(self, verdict: Verdict) -> Flow[bool]:
        """May a call that failed like this be tried again? It is charged now."""
        cost = self._costs.of(verdict)
        with self._lock:
            earned, self._earned = self._fold(), 0.0
        if self.shared:
            bucket, cell = TokenBucket(self._bucket.capacity), f"retry-budget/{self.name}"
            charged = yield from charge_shared(cell, cost, bucket, earned, DAY_S)
            if charged is not None:
                with self._lock:
                    self._bucket.level = bucket.level
                return charged
        with self._lock:
            self._bucket.earn(earned)
            return self._bucket.charge(cost)

    def _fold(self) -> float:
        """Tokens that were earned since the last charge. The caller holds the lock."""
        passed = next(self._counter) - self._counted
        self._counted += passed + 1  # to look is to count, too
        self._earned += passed * self._earns
        return self._earned
