"""What each tenant has of an upstream: breakers and retries of its own, and connections as long
as others find some.
"""

import asyncio

import pytest

from effectonce import Breaker, Retry, RetryBudget
from effectonce.http.gateway.tenant_isolation import TENANTS_MAX, Bulkheads, Connections
from effectonce.stores.memory import MemoryStore
from tests.http.helpers import run

NOW = 0.0  # seconds to wait


def test_many_tenants_take_no_more_memory_than_some():
    made = Bulkheads(Retry(), Breaker(), RetryBudget, MemoryStore())

    first = made.of("tenant-0")
    for number in range(TENANTS_MAX):
        made.of(f"tenant-{number}")
    again = made.of("tenant-0")
    made.of("one more")

    assert again is first
    assert len(made) == TENANTS_MAX
    assert made.of("tenant-0") is first  # it was seen of late
    made.of("tenant-1")
    assert len(made) == TENANTS_MAX


async def taken(connections, tenant, most=1000):
    """How many it gets, if it takes what it can."""
    for count in range(most):
        try:
            await connections.take(tenant, NOW)
        except TimeoutError:
            return count
    return most


def test_a_tenant_takes_half_of_what_is_free_and_the_next_one_finds_the_rest():
    async def main():
        connections = Connections(100)
        return [await taken(connections, tenant) for tenant in ("alice", "bob", "carol", "dave")]

    assert run(main) == [50, 25, 13, 6]


def test_one_connection_is_for_who_comes_first():
    async def main():
        connections = Connections(1)
        both = await taken(connections, "alice"), await taken(connections, "bob")
        connections.give_back("alice")
        return *both, await taken(connections, "bob")

    assert run(main) == (1, 0, 1)


def test_who_waits_gets_what_is_given_back_and_first_who_has_fewest():
    async def main():
        connections, order = Connections(4), []

        async def wait(tenant):
            await connections.take(tenant, 60)
            order.append(tenant)

        assert await taken(connections, "alice") == 2
        assert await taken(connections, "bob") == 1
        assert await taken(connections, "carol") == 1
        waiting = [asyncio.create_task(wait(tenant)) for tenant in ("alice", "dave")]
        await asyncio.sleep(0)
        connections.give_back("alice")
        await waiting[1]
        connections.give_back("bob")
        connections.give_back("carol")
        await waiting[0]
        return order

    assert run(main) == ["dave", "alice"]


@pytest.mark.parametrize("granted_first", [False, True])
def test_who_gives_up_while_waiting_takes_nothing_along(granted_first):
    async def main():
        connections = Connections(1)
        await connections.take("alice", NOW)
        waiting = asyncio.create_task(connections.take("bob", 60))
        await asyncio.sleep(0)
        if granted_first:
            connections.give_back("alice")
            waiting.cancel()
        else:
            waiting.cancel()
            connections.give_back("alice")
        with pytest.raises(asyncio.CancelledError):
            await waiting
        return await taken(connections, "carol"), connections.held("bob")

    assert run(main) == (1, 0)
