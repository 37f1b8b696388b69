"""A replay equals the original, or says that it cannot; a repeated one costs no I/O."""

import dataclasses
import threading
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from effectonce import Conflict, Guard, InDoubt, PartialSuccess, Rejected, ResultUnavailable
from effectonce._core import ops
from effectonce._core.record import State
from effectonce._runtime.replay_cache import ReplayCache
from effectonce.testing.clock import FakeClock
from tests.core.helpers import RECEIPT, Colour, Level, Line, Model, Receipt, Struct, named, tool
from tests.flaky import FlakyStore

# ---------------------------------------------------------------- replay


def test_an_outcome_says_how_old_it_is(guard, clock):
    @guard.tool(kind="write", not_sent=[KeyError])
    def pay(fails=False):
        if fails:
            raise Rejected("no")

    def ages(**arguments):
        with guard.step("chat", f"pay {arguments}"):
            first = guard.call(pay, arguments)
            clock.advance(7)
            return first.age_s, guard.call(pay, arguments).age_s

    assert ages() == (0.0, 7.0)
    assert ages(fails=True) == (0.0, 7.0)


def test_a_doubt_says_how_old_it_is(guard, clock):
    @guard.tool(kind="write")
    def pay():
        raise TimeoutError

    with guard.step("chat", "pay"):
        first = guard.call(pay, {})
        clock.advance(7)
        again = guard.call(pay, {})

    assert (first.status, first.age_s, again.age_s) == ("in_doubt", 0.0, 7.0)


UNDECLARED = object()
FALSY = (None, 0, 0.0, "", [], {}, False, b"", (), set(), frozenset())


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        *((value, UNDECLARED) for value in FALSY),
        ((1, "two", (3,)), tuple),
        ({1: "a", (2, 3): [b"\x00"]}, dict),
        ({"$": "not a tag", "nested": {"$": 1}}, dict),
        (Decimal("1.10"), Decimal),
        ([2**70, -(2**64), 1.5, True], list),
        (
            {
                "at": datetime(2025, 3, 1, 12, tzinfo=UTC),
                "on": date(2025, 3, 1),
                "for": timedelta(seconds=1.5),
            },
            dict,
        ),
        (
            {"time": datetime(2025, 1, 1, 3, 4, 5).time(), "ids": {UUID(int=1)}},  # noqa: DTZ001
            dict,
        ),  # noqa: DTZ001, RUF100
        (float("inf"), float),
        (Colour.RED, Colour),
        (Level.HIGH, Level),
        (RECEIPT, Receipt),
        ([RECEIPT, None], list[Receipt | None]),
        ({"a": Line("x", Decimal(2))}, dict[str, Line]),
        ((1, Line("x", Decimal(2))), tuple[int, Line]),
        (Model(id=3, lines=(Line("x", Decimal(2)),)), Model),
        (Struct(3, date(2025, 1, 1)), Struct),
        (Colour.RED, Annotated[Colour, "doc"]),
        (Colour.RED, Colour | None),
        ({"body": "x" * 10_000_000}, UNDECLARED),
    ],
    ids=lambda v: "undeclared" if v is UNDECLARED else str(v)[:40],
)
def test_a_result_replays_equal_and_of_the_same_type(guard, value, hint):
    calls = []

    def pay():
        calls.append(1)
        return value

    if hint is not UNDECLARED:
        pay.__annotations__["return"] = hint
    guarded = guard.tool(kind="write")(pay)
    with guard.step("chat", "pay"):
        first, second = guarded(), guarded()

    assert first == second == value
    assert type(second) is type(value)
    assert calls == [1]


def test_of_a_result_that_cannot_be_stored_the_log_tells_before_anybody_asks_for_it(guard, caplog):
    fetch = tool(guard, named("fetch", lambda n: object()))

    for n in range(3):
        with guard.step("chat", f"fetch {n}"):
            fetch(n)

    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warning.startswith("a result of fetch cannot be stored (object: a object is not data")
    assert "ResultUnavailable" in warning


def test_whether_it_was_replayed_is_always_answerable(guard):
    @guard.tool(kind="write")
    def pay(amount: int):
        return amount

    with guard.step("chat", "pay"):
        first, second = guard.call(pay, {"amount": 5}), guard.call("pay", {"amount": 5})

    assert (first.replayed, second.replayed) == (False, True)
    assert first.unwrap() == second.unwrap() == 5
    assert first.effect == second.effect


# ---------------------------------------------------------------- the process cache


def test_known_outcomes_are_replayed_without_the_store():
    store = FlakyStore()
    guard = Guard(store)
    pay = tool(guard, named("pay", lambda: {"receipt": 1}))
    with guard.step("chat", "pay"):
        first = pay()
        first["receipt"] = "changed by the caller"
        assert pay() == {"receipt": 1}
    assert store.log == ["Claim", "Complete"]


def test_the_cache_is_bounded_checks_the_request_and_ends_with_the_window(store, clock):
    writer, reader = Guard(store), Guard(store, cache=2)
    for guard in (writer, reader):
        tool(guard, named("pay", lambda invoice, amount: amount), identity=["invoice"], window=3600)

    def call(guard, invoice, amount=1):
        with guard.step("chat", f"pay {invoice}"):
            return guard.call("pay", {"invoice": invoice, "amount": amount})

    for invoice in range(3):
        call(writer, invoice)
        assert call(reader, invoice).replayed
    assert len(reader._house.cache._entries) == 2
    with pytest.raises(Conflict):
        call(reader, 2, amount=2)


def test_only_known_outcomes_are_cached(store):
    guard = Guard(store)
    pay = tool(guard, named("pay", lambda: (_ for _ in ()).throw(TimeoutError())))
    with guard.step("chat", "pay"), pytest.raises(InDoubt):
        pay()
    assert not guard._house.cache._entries


class Grumpy:
    """Refuses to be compared, printed or made."""

    def __eq__(self, other):
        raise RuntimeError("do not compare me")

    __hash__ = None

    def __str__(self):
        raise RuntimeError("do not print me")


@dataclasses.dataclass
class Picky:
    n: int

    def __post_init__(self):
        if self.n in PICKED:
            raise RuntimeError("not again")
        PICKED.append(self.n)


PICKED = []


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (object(), UNDECLARED),
        (threading.Lock(), UNDECLARED),
        (RECEIPT, UNDECLARED),
        ("\ud800", UNDECLARED),
        (Grumpy(), Any),
        ([Grumpy()], Any),
        (Picky(1), Picky),
        (Colour.RED, str),
        (Colour.RED, int | str),
        (RECEIPT, int),
        (Line("a", Decimal(1)), int),
    ],
    ids=[
        "object",
        "lock",
        "undeclared",
        "surrogate",
        "grumpy",
        "in a list",
        "picky",
        "enum as str",
        "enum as union",
        "model as int",
        "flat model as int",
    ],
)
def test_a_result_that_cannot_be_stored_still_counts_as_done(guard, value, hint):
    calls = []

    def pay():
        calls.append(1)
        return value

    if hint is not UNDECLARED:
        pay.__annotations__["return"] = hint
    guarded = guard.tool(kind="write")(pay)
    with guard.step("chat", "pay"):
        assert guarded() is value
        outcome = guard.call(guarded, {})
        with pytest.raises(ResultUnavailable, match="was done"):
            guarded()
    assert (outcome.status, type(outcome.error)) == ("succeeded", ResultUnavailable)
    assert calls == [1]


@pytest.mark.parametrize(
    ("done", "shown"),
    [
        (Grumpy(), "a Grumpy that cannot be printed"),
        ([Line("LH1", Decimal(1))], "[Line(sku='LH1', price=Decimal('1'))]"),
    ],
    ids=["unprintable", "a model"],
)
def test_what_is_done_of_a_partial_success_is_kept_whatever_it_is(guard, done, shown):
    @guard.tool(kind="write")
    def transfer():
        raise PartialSuccess("half", done=done, corrective_action="call the bank")

    with guard.step("chat", "transfer"):
        for _ in range(2):
            with pytest.raises(PartialSuccess) as caught:
                transfer()
    assert caught.value.done == shown


@pytest.mark.parametrize(
    ("error", "unreadable"),
    [
        (Rejected("no"), b"v9 error {}"),
        (PartialSuccess("half", corrective_action="look"), b"v1 partial {"),
    ],
    ids=repr,
)
def test_a_failure_that_cannot_be_read_is_still_a_failure(guard, store, error, unreadable):
    @guard.tool(kind="write")
    def pay():
        raise error

    with guard.step("chat", "pay"):
        key = guard.call(pay, {}).effect.key
        store._records[key] = replace(store._records[key], outcome=unreadable)
        outcome = guard.call(pay, {})
    assert (outcome.status, type(outcome.error)) == ("failed", ResultUnavailable)
    assert "failed" in outcome.error.as_model_error()["corrective_action"]


def test_a_call_that_is_awaited_later_sends_what_it_is_keyed_by(guard):
    import asyncio

    @guard.tool(kind="write")
    async def pay(items: list):
        return list(items)

    async def main():
        items = [1]
        with guard.step("chat", "pay"):
            call = guard.call(pay, {"items": items})
            items.append(2)
            assert (await call).value == [1, 2]
            assert (await guard.call(pay, {"items": [1, 2]})).replayed

    asyncio.run(main())


@pytest.mark.parametrize("odd", [2**70, "half a pair \ud83d"])
def test_a_call_that_cannot_be_remembered_by_its_bytes_is_still_one_call(guard, odd):
    calls = []

    @guard.tool(kind="write", identity=["invoice"], volatile=["note"])
    def pay(invoice: str, note: object = None):
        calls.append(note)

    with guard.step("chat", "pay"):
        pay("inv_1", odd)
        pay("inv_1", odd)
        pay("inv_1", note=odd)
    assert len(calls) == 1


def test_a_remembered_failure_says_how_long_ago_it_was():
    clock = FakeClock()
    cache = ReplayCache(8, clock)
    cache.put("k", "f", ops.Recorded(State.FAILED, b"v1 error {}", 2.0, 100.0))
    clock.advance(30)

    recorded = cache.get("k", "f")
    assert (recorded.age_s, recorded.remaining_s) == (32.0, 70.0)


def test_what_is_large_is_not_remembered_so_memory_is_bounded():
    cache = ReplayCache(8, FakeClock())
    for size in (16_000, 17_000):
        cache.put(f"k{size}", "f", ops.Recorded(State.COMPLETED, b"x" * size, 0.0, 100.0))

    assert cache.get("k16000", "f") is not None
    assert cache.get("k17000", "f") is None
