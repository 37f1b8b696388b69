"""What keeps the trouble of one tenant away from the others: breakers, retries and connections
of its own.

An error may be the tenant's doing: a request that the API cannot stand, a body that never ends.
So failures count for the tenant that had them, reads and writes apart, and no other tenant finds
a closed circuit open. What is known about the tenant that was seen longest ago is forgotten
where there are too many: its breaker then counts from zero.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable

from msgspec import Struct

from effectonce.policy import Retry
from effectonce.retries.breaker_policy import Breaker
from effectonce.retries.budget import RetryBudget
from effectonce.retries.circuit import Circuit
from effectonce.retries.retry import Retrier, retry
from effectonce.stores.base import Store

TENANTS_MAX = 1000


class Bulkhead(Struct, frozen=True):
    """How requests of one tenant are sent."""

    read: Retrier
    write: Retrier
    repeatable_write: Retrier


class Bulkheads:
    """One for each tenant of late."""

    def __init__(
        self, policy: Retry, breaker: Breaker, budget: Callable[[str], RetryBudget], store: Store
    ) -> None:
        self._policy, self._breaker, self._budget, self._store = policy, breaker, budget, store
        self._made: OrderedDict[str, Bulkhead] = OrderedDict()
        self._make("no tenant")  # what cannot be made is reported before anything listens

    def __len__(self) -> int:
        return len(self._made)

    def of(self, tenant: str) -> Bulkhead:
        """The one of this tenant, which is now the last to be forgotten."""
        made = self._made.get(tenant)
        if made is None:
            made = self._made[tenant] = self._make(tenant)
            if len(self._made) > TENANTS_MAX:
                self._made.popitem(last=False)
        else:
            self._made.move_to_end(tenant)
        return made

    def _make(self, tenant: str) -> Bulkhead:
        reads = Circuit(f"upstream for reads of {tenant}", self._breaker)
        writes = Circuit(f"upstream for writes of {tenant}", self._breaker)
        budget, again = self._budget(tenant), "idempotent_write"

        def how(kind: str, circuit: Circuit) -> Retrier:
            return retry(
                self._policy,
                kind=kind,
                one_request=True,
                breaker=circuit,
                budget=budget,
                store=self._store,
                name="the upstream",
            )

        return Bulkhead(how(again, reads), how("write", writes), how(again, writes))


class Connections:
    """So many connections, shared among tenants: each gets another one only while more are free
    than it has.

    So a tenant alone has at most half of them, and the next one half of what is left: who has
    none finds one free.
    """

    def __init__(self, count: int) -> None:
        self._free, self._held = count, Counter[str]()
        self._waiting: dict[str, dict[asyncio.Future[None], None]] = {}

    def held(self, tenant: str) -> int:
        return self._held[tenant]

    async def take(self, tenant: str, wait_s: float) -> None:
        """Take one, and `give_back` it. `TimeoutError`: this tenant got none in that time."""
        queue = self._waiting.setdefault(tenant, {})
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue[turn] = None
        self._hand_out()
        try:
            async with asyncio.timeout(wait_s):
                await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self.give_back(tenant)
            raise
        finally:
            self._forget(tenant, turn)

    def _hand_out(self) -> None:
        """To those who wait, first to the tenant that has fewest."""
        while self._waiting:
            tenant = min(self._waiting, key=self._held.__getitem__)
            if self._held[tenant] >= self._free:
                return
            turn = next(iter(self._waiting[tenant]))
            self._forget(tenant, turn)
            if not turn.done():  # it was cancelled, and has not run since
                self._free -= 1
                self._held[tenant] += 1
                turn.set_result(None)

    def _forget(self, tenant: str, turn: asyncio.Future[None]) -> None:
        queue = self._waiting.get(tenant, {})
        queue.pop(turn, None)
        if not queue:
            self._waiting.pop(tenant, None)

    def give_back(self, tenant: str) -> None:
        self._free += 1
        self._held[tenant] -= 1
        if self._held[tenant] == 0:
            del self._held[tenant]
        self._hand_out()
