"""Layers inside each other: what an inner one says about its own request is never taken for the outer effect."""

import asyncio

import pytest

from effectonce import (
    Breaker,
    Budget,
    Certainty,
    Circuit,
    CircuitOpen,
    GaveUp,
    Guard,
    InDoubt,
    Retry,
    State,
    retry,
)

QUICK = Retry(base_s=0, cap_s=0)
REFUSED = ConnectionRefusedError(111, "Connection refused")


class Shop:
    """A guarded tool that makes one request of its own and then calls *inner*; both colours."""

    def __init__(self, colour, guard, inner, **contract):
        self.charged, self._async, self._inner, self.guard = 0, colour == "async", inner, guard
        settings = {"kind": "write", "downstream": "none", "retry": QUICK, "wait_s": 0, "name": "charge"} | contract
        self._tool = guard.tool(**settings)(self._coroutine if self._async else self._plain)

    def _plain(self):
        self.charged += 1
        return self._inner()

    async def _coroutine(self):
        self.charged += 1
        return await self._inner()

    def charge(self):
        with self.guard.step("chat", "charge"):
            return asyncio.run(self._tool()) if self._async else self._tool()


@pytest.fixture(params=["sync", "async"])
def colour(request):
    return request.param


def raising(colour, error):
    """A function of this colour that fails; *calls* counts how often."""

    def plain():
        plain.calls += 1
        raise error

    async def coroutine():
        plain()

    plain.calls = coroutine.calls = 0
    return coroutine if colour == "async" else plain


# ---------------------------------------------------------------- a guarded call inside a guarded call


def test_an_inner_call_that_its_turn_refuses_does_not_take_the_outer_effect_back(colour):
    guard = Guard("memory://")
    inner = guard.tool(kind="write", downstream="key", name="mail")(raising(colour, AssertionError("not reached")))
    shop = Shop(colour, guard, inner)
    with guard.turn("chat", "turn-7", budget=Budget(steps=1)), pytest.raises(InDoubt):
        shop.charge()
    with pytest.raises(InDoubt):
        shop.charge()
    assert shop.charged == 1


def test_an_inner_call_that_gave_up_does_not_take_the_outer_effect_back(colour):
    guard = Guard("memory://")
    inner = guard.tool(kind="write", downstream="key", name="mail", retry=QUICK, one_request=True)(raising(colour, REFUSED))
    shop = Shop(colour, guard, inner, one_request=True)
    for _ in range(2):
        with pytest.raises(InDoubt):
            shop.charge()
    assert shop.charged == 1
