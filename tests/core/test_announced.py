"""A tool with `separate_dispatch` whose record says *dispatched* from the entry of `sending()`
on, and not before.
"""

import asyncio
import inspect

import httpx
import pytest
from msgspec.structs import replace

from effectonce import (
    ContractViolation,
    EffectOnceError,
    Guard,
    InDoubt,
    NotSent,
    Retry,
    StoreUnavailable,
    current_effect,
)
from effectonce._core import ops
from effectonce.http.client import protect
from tests.flaky import FlakyStore

ONCE = Retry(attempts=1, base_s=0, cap_s=0)
COLOURS = ("sync", "async")
each_colour = pytest.mark.parametrize("colour", COLOURS)


class Pays:
    """A tool that does something *before* `sending()`, and pays inside of it."""

    def __init__(
        self,
        colour,
        *,
        before=lambda: None,
        inside=lambda: None,
        skips=False,
        store=None,
        **contract,
    ):
        self.store, self.paid, self.states = store or FlakyStore(), 0, []
        self.guard, self.colour = Guard(self.store, cache=0), colour
        declared = {
            "kind": "write",
            "separate_dispatch": True,
            "retry": ONCE,
            "wait_s": 0,
        } | contract

        def pay(order: int) -> str:
            self.look()
            before()
            if skips:
                return "nothing to pay"
            with current_effect().sending():
                self.look()
                inside()
                self.paid += 1
                return "paid"

        async def apay(order: int) -> str:
            self.look()
            awaited = before()
            if inspect.isawaitable(awaited):
                await awaited
            if skips:
                return "nothing to pay"
            async with current_effect().sending():
                self.look()
                inside()
                self.paid += 1
                return "paid"

        self.tool = self.guard.tool(name="pay", **declared)(pay if colour == "sync" else apay)

    def look(self):
        self.states.append(str(self.guard.find(current_effect().ref.key).state))

    def call(self):
        if self.colour == "async":
            return asyncio.run(self.acall())
        with self.guard.step("chat", "pay"):
            return self.tool(1)

    async def acall(self):
        with self.guard.step("chat", "pay"):
            return await self.tool(1)

    @property
    def writes(self):
        return [name for name in self.store.log if name not in ("Find", "Attest")]


@each_colour
def test_it_is_claimed_before_and_dispatched_inside(colour):
    pays = Pays(colour)

    assert [pays.call(), pays.call()] == ["paid", "paid"]
    assert (pays.states, pays.paid) == (["claimed", "dispatched"], 1)


@each_colour
def test_without_the_declaration_there_is_no_write_more(colour):
    declared, not_declared = Pays(colour), Pays(colour, separate_dispatch=False)
    declared.call(), not_declared.call()

    assert declared.writes == ["Claim", "Dispatch", "Complete"]
    assert not_declared.writes == ["Claim", "Complete"]
    assert not_declared.states == ["dispatched", "dispatched"]


@each_colour
def test_an_error_before_it_leaves_a_claim_that_was_let_go(colour):
    errors = [ValueError("bad sku")]

    def before():
        if errors:
            raise errors.pop()

    pays = Pays(colour, before=before)

    with pytest.raises(ValueError, match="bad sku"):
        pays.call()
    assert pays.writes == ["Claim", "Renew"]
    assert pays.call() == "paid"


@each_colour
def test_an_error_inside_it_is_a_doubt(colour):
    def inside():
        raise ValueError("somewhere on the way")

    pays = Pays(colour, inside=inside)

    for _ in range(2):
        with pytest.raises(InDoubt):
            pays.call()
    assert pays.writes[:3] == ["Claim", "Dispatch", "Doubt"]


@each_colour
def test_an_attempt_that_had_no_effect_is_dispatched_anew(colour):
    errors = [NotSent("refused")]

    def inside():
        if errors:
            raise errors.pop()

    pays = Pays(colour, inside=inside, retry=Retry(attempts=2, base_s=0, cap_s=0))

    assert pays.call() == "paid"
    assert pays.writes == ["Claim", "Dispatch", "Unsend", "Dispatch", "Complete"]
    assert pays.states == ["claimed", "dispatched"] * 2


@each_colour
def test_a_tool_that_returns_without_it_is_done(colour):
    pays = Pays(colour, skips=True)

    assert [pays.call(), pays.call()] == ["nothing to pay", "nothing to pay"]
    assert pays.states == ["claimed"]


@each_colour
def test_the_end_of_such_a_tool_is_written_when_the_store_is_back(colour):
    pays = Pays(colour, skips=True)
    pays.store.fail(ops.Dispatch, times=2)

    assert pays.call() == "nothing to pay"
    assert pays.guard.counts() == {"completed": 1}


@each_colour
def test_nothing_is_sent_if_the_store_cannot_be_told(colour):
    pays = Pays(colour)
    pays.store.fail(ops.Dispatch, times=9)

    with pytest.raises(StoreUnavailable):
        pays.call()
    assert (pays.paid, pays.states) == (0, ["claimed"])


@each_colour
def test_nothing_is_sent_by_an_owner_that_was_overtaken(colour):
    """Another caller took the claim over while the tool prepared what it sends."""
    pays = Pays(colour, before=lambda: taken_over())

    def taken_over():
        key = current_effect().ref.key
        record = pays.guard.find(key)
        pays.store.apply(ops.Renew(key, record.token, record.epoch, 0))
        pays.store.apply(ops.Claim(record.request, "another caller", 30, dispatch=True))

    with pytest.raises(EffectOnceError):
        pays.call()
    assert pays.paid == 0


@each_colour
def test_nothing_is_sent_beside_another_call_of_the_same_step(colour):
    pays = Pays(colour, before=lambda: sent_by_another_call())

    def sent_by_another_call():
        request = replace(pays.guard.find(current_effect().ref.key).request, key="another call")
        assert request.latch
        pays.store.apply(ops.Claim(request, "its caller", 30, dispatch=True))

    with pytest.raises(EffectOnceError):
        pays.call()
    assert pays.paid == 0


def test_an_async_tool_has_to_wait_for_its_record():
    guard, paid = Guard("memory://", cache=0), []

    @guard.tool(kind="write", separate_dispatch=True, retry=ONCE)
    async def pay(order: int) -> str:
        with current_effect().sending():
            paid.append(order)
        return "paid"

    async def main():
        with guard.step("chat", "pay"):
            await pay(1)

    with pytest.raises(ContractViolation, match="async with"):
        asyncio.run(main())
    assert (paid, guard.counts()) == ([], {"claimed": 1})


@each_colour
def test_a_protected_client_outside_of_it_is_a_dispatch_too(colour):
    """A log-in before `sending()`: what it did is not known after a crash, so it counts as sent."""
    seen = []

    def answer(request):
        seen.extend(pays.guard.find(key).state for key in keys)
        return httpx.Response(200, text="in")

    keys, transport = [], httpx.MockTransport(answer)
    made = (
        httpx.Client(transport=transport)
        if colour == "sync"
        else httpx.AsyncClient(transport=transport)
    )
    client = protect(made, retry=ONCE)

    def before():
        keys.append(current_effect().ref.key)
        return client.post("http://shop/login")

    pays = Pays(colour, before=before)

    assert pays.call() == "paid"
    assert seen == ["dispatched"]
    assert pays.writes == ["Claim", "Dispatch", "Complete"]


def test_a_call_that_is_cancelled_while_the_record_is_written_sent_nothing():
    class Slow(FlakyStore):
        async def aapply(self, op, /):
            if isinstance(op, ops.Dispatch):
                task.cancel()
                await asyncio.sleep(0)
            return await super().aapply(op)

    pays = Pays("async", store=Slow())

    async def main():
        nonlocal task
        task = asyncio.ensure_future(pays.acall())
        with pytest.raises(asyncio.CancelledError):
            await task

    task = None
    asyncio.run(main())

    assert (pays.paid, pays.guard.counts()) == (0, {"claimed": 1})
