"""Callers that wait share one write, on each store behind a wire; nothing else of one is any
business of another.
"""

import asyncio

import pytest

from effectonce._core import ops
from tests.stores import crowds
from tests.stores.crowds import CALLERS, HELD, claims


@pytest.fixture(params=["postgres", "redis"])
def store(request, open_store):
    options = {"connections": 1} if request.param == "postgres" else {}
    return open_store(request.param, **options)


def test_every_caller_of_a_batch_gets_an_answer_of_its_own(store):
    asyncio.run(crowds.everybody_gets_an_answer_of_its_own(store))


def test_one_slow_tool_holds_up_nobody_else(store):
    asyncio.run(crowds.one_slow_tool_holds_up_nobody(store))


def test_a_caller_that_is_cancelled_takes_nobody_with_it(store):
    async def main():
        await store.aapply(ops.Tally())
        busy = asyncio.create_task(store.aapply(ops.Tally()))
        callers = [asyncio.create_task(store.aapply(op)) for op in claims()]
        await asyncio.sleep(0)
        callers.pop(7).cancel()
        assert await asyncio.gather(*callers) == [HELD] * (CALLERS - 1)
        await busy
        return await store.aapply(claims()[7])

    assert asyncio.run(main()) == HELD, "what it asked for was written all the same"
