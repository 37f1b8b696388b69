"""Two calls of one tool: the second one shows what the first one left on the record."""

import asyncio

import pytest

from effectonce import Guard, Retry

ONCE = Retry(attempts=1)
FAILED_BEFORE = ["ValueError"] * 2  # it ran twice
DOUBT, DONE, GAVE_UP = ["InDoubt"] * 2, ["ResultUnavailable"] * 2, ["GaveUp"] * 2
# a tool that must not run again by mistake
IRREVERSIBLE = {"kind": "irreversible", "accept_store_loss": True, "retry": ONCE}
each_way = pytest.mark.parametrize(
    "contract", [{"through": "protected"}, {}], ids=["through", "nothing declared"]
)


def twice(work, **contract):
    """Return the results of two calls of *work* as a tool, an error by the name of its class.

    The tool takes an order. The first call of an async tool ends its event loop.
    """
    guard = Guard("memory://", cache=0)
    tool = guard.tool(**contract)(work)
    return [_outcome(guard, tool) for _ in range(2)]


def _outcome(guard, tool):
    with guard.step("chat", "work"):
        try:
            result = tool(1)
            return asyncio.run(result) if asyncio.iscoroutine(result) else result
        except Exception as error:  # each error is an outcome
            return type(error).__name__


async def atwice(work, *, guard=None, **contract):
    """Do the same with an async tool, in the event loop that runs."""
    guard = guard or Guard("memory://", cache=0)
    tool, outcomes = guard.tool(**contract)(work), []
    for _ in range(2):
        with guard.step("chat", "work"):
            try:
                outcomes.append(await tool(1))
            except Exception as error:  # each error is an outcome
                outcomes.append(type(error).__name__)
    return outcomes


def ended(act, *, error=None, **contract):
    """Return the outcomes of two calls of a tool that acts, and then fails."""

    def work(order: int) -> None:
        act()
        raise error or ValueError("my own parsing")

    return twice(work, **IRREVERSIBLE | contract)


async def aended(act, **contract):
    """Do the same with an async tool, in the event loop that runs."""

    async def work(order: int) -> None:
        await act()
        raise ValueError("my own parsing")

    return await atwice(work, **IRREVERSIBLE | contract)
