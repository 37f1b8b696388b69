"""A tool that has returned has run, whatever it returned; and what it returned counts only if it
has happened.
"""

import asyncio  # noqa: F401  # a declared result names it in a text
import collections
import collections.abc
import concurrent.futures
import contextlib
import gc
import io
import sqlite3
import unittest.mock
from collections.abc import AsyncIterator, Awaitable, Generator, Iterator

import pytest

from effectonce import GaveUp, InDoubt, Rejected, State, current_effect
from tests.core.helpers import Ledger, done, in_colour, tool


async def forgotten():
    pytest.fail("it was not awaited")


async def spelled():
    yield 1


class UnderWay:
    def __await__(self):
        yield


LAZY = {
    "awaitable": UnderWay,
    "coroutine": forgotten,
    "future": concurrent.futures.Future,
    "generator": lambda: (x for x in "ab"),
    "map": lambda: map(str, [1]),
    "filter": lambda: filter(None, [1]),
    "zip": lambda: zip("a", "b", strict=True),
    "iterator": lambda: iter([1]),
    "async generator": spelled,
    "futures in a list": lambda: [concurrent.futures.Future()],
    "coroutines in a tuple": lambda: (1, forgotten()),
    "a map in an ordered dict": lambda: collections.OrderedDict(lines=map(str, [1])),
    "a map deep in a dict": lambda: {"paid": [{"lines": map(str, [1])}]},
}


def paying(guard, colour, ledger, make, **contract):
    """A tool that pays, and returns what *make* makes; and a call of it."""

    def pay():
        ledger.pay()
        return make()

    paying = tool(guard, in_colour(colour, pay), name="pay", **contract)

    def call():
        with guard.step("chat", "pay"):
            return done(paying())

    return call


@pytest.mark.cover(1)
@pytest.mark.parametrize("what", LAZY)
def test_a_tool_that_acted_and_returns_what_has_yet_to_happen_is_in_doubt_and_not_run_again(
    guard, colour, what
):
    ledger = Ledger()
    call = paying(guard, colour, ledger, LAZY[what])

    for _ in range(3):
        with pytest.raises(InDoubt):
            call()
    gc.collect()  # and no coroutine is left to complain

    assert ledger.effects == 1
    assert guard.counts() == {State.IN_DOUBT: 1}


@pytest.mark.parametrize("what", ["coroutine", "generator"])
def test_where_the_downstream_knows_the_key_the_call_may_be_repeated_when_it_is_mended(
    guard, colour, what
):
    ledger, made = Ledger(), [LAZY[what]]
    call = paying(
        guard, colour, ledger, lambda: made.pop()() if made else "receipt", downstream="key"
    )

    with pytest.raises(GaveUp, match="has yet to happen"):
        call()

    assert call() == "receipt"


def test_what_has_yet_to_happen_in_a_transaction_is_rolled_back(tmp_path):
    from effectonce import Guard

    guard = Guard(f"sqlite:///{tmp_path / 'effects.db'}")

    def book():
        current_effect().connection.execute("CREATE TABLE ledger (amount)")
        return (x for x in "ab")

    with guard.step("chat", "book"), pytest.raises(TypeError, match="has yet to happen"):
        tool(guard, book, downstream="transaction")()

    assert guard.counts() == {State.CLAIMED: 1}
    guard.close()


@pytest.mark.parametrize(
    "result",
    [
        io.BytesIO(b"x"),
        [io.StringIO()],
        {"a": [1, (2, None)]},
        range(3),
        {"k": {"deep": [[[[iter("a")]]]]}},
    ],
)
def test_a_result_that_has_happened_is_one_whatever_it_is_made_of(guard, result):
    call = paying(guard, "sync", Ledger(), lambda: result)

    assert call() is result


@pytest.mark.parametrize(
    "returns",
    [
        Iterator[int],
        Generator[int, None, None],
        AsyncIterator[int],
        Awaitable[int],
        collections.abc.Coroutine,
        concurrent.futures.Future,
        "asyncio.Future[int]",
        Iterator[int] | None,
    ],
)
def test_a_declared_result_that_happens_later_is_refused_when_the_tool_is_made(guard, returns):
    def pay():
        pass

    pay.__annotations__["return"] = returns

    with pytest.raises(TypeError, match="happens after the tool has returned"):
        tool(guard, pay)


def test_a_read_may_return_what_it_likes(guard):
    @guard.tool(kind="read")
    def lines() -> Iterator[str]:
        return iter("ab")

    assert list(lines()) == ["a", "b"]


def test_a_refusal_stays_one(guard):
    with pytest.raises(Rejected):
        paying(guard, "sync", Ledger(("before", Rejected("no"))), forgotten)()


def test_a_cursor_a_page_and_a_mock_are_results(guard):
    """They are read later, or by anybody; what they are has happened."""

    class Page:
        def __iter__(self):
            return self

        def __next__(self):
            raise StopIteration

    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        results = (database.execute("SELECT 1"), Page(), unittest.mock.MagicMock())
        for step, result in enumerate(results):
            pay = tool(
                guard,
                lambda number, result=result: result,
                name=f"pay {step}",
                volatile=["result"],
            )
            with guard.step("chat", step):
                assert pay(step) is result
