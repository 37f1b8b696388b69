"""What the facts share: a store with a hand-cranked clock, a ledger with a script, and values
that are hard to store.
"""

import asyncio
import dataclasses
import enum
import functools
import inspect
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

import msgspec
import pydantic

from effectonce import Guard, Retry, StoreUnavailable, current_effect

QUICK = Retry(attempts=3, base_s=0, cap_s=0)


def tool(guard, function, **contract):
    """Guard *function* with settings that neither wait nor pause."""
    settings = {"kind": "write", "retry": QUICK, "wait_s": 0, "lease_s": 30} | contract
    return guard.tool(**settings)(function)


def named(name, function):
    """A lambda with a name of its own."""
    function.__name__ = name
    function.__qualname__ = name
    return function


def in_colour(colour, function):
    """Return *function*, or for "async" a coroutine function that does the same."""
    if colour == "sync":
        return function

    @functools.wraps(function)
    async def on_loop(*args, **kwargs):
        return function(*args, **kwargs)

    return on_loop


async def awaited(result):
    """Return the result of a call of either colour."""
    return await result if inspect.isawaitable(result) else result


def done(result):
    """Return the result of a call of either colour, outside of a loop."""
    return asyncio.run(awaited(result)) if inspect.isawaitable(result) else result


def in_a_loop(test):
    """Run an async test."""

    @functools.wraps(test)
    def run(**fixtures):
        asyncio.run(test(**fixtures))

    return run


def in_threads(count, function):
    """Call *function* with each number at the same moment, and return its results in order."""
    start = threading.Barrier(count)

    def call(number):
        start.wait()
        return function(number)

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(call, range(count)))


def silence(store, error=None):
    """The store answers no op any more, of callers of either colour."""

    def apply(op):
        raise StoreUnavailable("no answer") if error is None else error

    store.apply = apply


def unanswered():
    """A tool that nobody answers."""
    raise TimeoutError


def approve(guard, by="ada", **options):
    """Approve the one call that waits, and return what was asked for."""
    (wish,) = guard.approvals.waiting()
    guard.approvals.approve(wish.key, by=by, reason="yes", **options)
    return wish


class Ledger:
    """A downstream that counts, and raises what it is told to, before or after it counts."""

    def __init__(self, *script):
        self.effects, self.script = 0, list(script)

    def pay(self):
        current_effect().downstream_key  # noqa: B018  # sent with the request
        step = self.script.pop(0) if self.script else ("ok", None)
        if step[0] == "before":
            raise step[1]
        self.effects += 1
        if step[0] == "after":
            raise step[1]
        return {"receipt": self.effects}


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


@dataclasses.dataclass
class Line:
    sku: str
    price: Decimal


@dataclasses.dataclass
class Receipt:
    id: UUID
    at: datetime
    lines: list[Line]
    colour: Colour | None = None


class Model(pydantic.BaseModel):
    id: int
    lines: tuple[Line, ...] = ()


class Struct(msgspec.Struct):
    id: int
    when: date | None = None


RECEIPT = Receipt(
    UUID(int=7), datetime(2025, 3, 1, tzinfo=UTC), [Line("a", Decimal("1.10"))], Colour.RED
)


def guarded(store, body, **contract):
    """An async tool around *body*, and a call of it in its step."""
    guard = Guard(store, cache=0)

    @guard.tool(**({"kind": "write", "retry": QUICK} | contract))
    async def pay():
        return await body()

    async def call():
        async with guard.step("chat", "pay"):
            return await pay()

    return guard, pay, call
