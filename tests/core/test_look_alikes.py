"""What looks alike and is not the same: no call may get the answer of another, and no retry may
look like a new call.
"""

import asyncio
import dataclasses
import enum
import functools
import pickle
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import ClassVar

import pydantic
import pytest

from effectonce import ContractViolation, Delivered, Rejected, State
from effectonce._runtime.step import place


class Bank:
    def __init__(self, name):
        self.name, self.paid = name, []

    def pay(self, invoice: str):
        self.paid.append(invoice)
        return f"{self.name} paid {invoice}"

    def __call__(self, invoice: str):
        return self.pay(invoice)

    def __repr__(self):
        return "a bank"


def test_methods_of_two_objects_do_not_share_keys(guard):
    here, there = Bank("here"), Bank("there")
    pay = guard.tool(kind="write")(here.pay)

    with pytest.raises(ContractViolation, match="other captured values"):
        guard.tool(kind="write")(there.pay)
    with guard.step("chat", "pay"):
        assert pay("inv_1") == "here paid inv_1"
        assert guard.tool(kind="write", name="pay there")(there.pay)("inv_1") == "there paid inv_1"
    assert (here.paid, there.paid) == (["inv_1"], ["inv_1"])


def test_a_method_of_the_same_object_may_be_made_a_tool_again(guard):
    bank = Bank("here")

    guard.tool(kind="write")(bank.pay)
    pay = guard.tool(kind="write")(bank.pay)

    with guard.step("chat", "pay"):
        assert pay("inv_1") == "here paid inv_1"


@pytest.mark.parametrize(
    "made_of", [lambda bank: bank, lambda bank: functools.partial(Bank.pay, bank)]
)
def test_objects_that_are_called_and_look_alike_do_not_share_keys(guard, made_of):
    declare = guard.tool(kind="write", name="pay")
    one = made_of(Bank("here"))

    declare(one)
    declare(one)
    with pytest.raises(ContractViolation, match="other captured values"):
        declare(made_of(Bank("there")))


# ---------------------------------------------------------------- places


class Title(str):
    """A text that is equal to others, whatever their case."""

    __slots__ = ()

    def __eq__(self, other):
        return str(self).lower() == str(other).lower()

    def __hash__(self):
        return hash(str(self).lower())


class Label(str):
    __slots__ = ()


class Room(enum.StrEnum):
    CHAT = "chat"


def key_in(guard, scope, **where):
    with guard.step(scope, "pay", **where):
        return guard._tools["pay"].explain("inv_1").key


@pytest.fixture
def pay(guard):
    return guard.tool(kind="write")(Bank("here").pay)


@pytest.mark.parametrize("chat", [Label("chat"), Room.CHAT])
def test_a_scope_is_the_text_that_it_holds(guard, pay, chat):
    place.cache_clear()

    assert key_in(guard, chat) == key_in(guard, "chat")
    assert key_in(guard, "chat", tenant=Label("acme")) == key_in(guard, "chat", tenant="acme")


def test_a_scope_that_thinks_it_is_another_one_is_not(guard, pay):
    place.cache_clear()

    assert (
        len({key_in(guard, Title("Chat")), key_in(guard, "chat"), key_in(guard, Title("CHAT"))})
        == 3
    )
    assert (
        len({key_in(guard, "chat", tenant=Title("Acme")), key_in(guard, "chat", tenant="acme")})
        == 2
    )


@pytest.mark.parametrize("bad", ["half a pair \ud83d", ["chat"]])
def test_a_place_that_no_store_could_write_is_refused(guard, pay, bad):
    calls = [
        lambda: guard.step(bad, "pay"),
        lambda: guard.step("chat", bad),
        lambda: guard.step("chat", "pay", tenant=bad),
        lambda: guard.sequence(bad, 1),
        lambda: guard.turn(bad, "1"),
        lambda: guard.call(pay, {"invoice": "inv_1"}, key=bad),
    ]
    for call in calls:
        with pytest.raises(ContractViolation, match="Nothing was sent"):
            call()


@pytest.mark.parametrize("number", [0, -1, 1.0, True, "1", None])
def test_a_number_of_a_sequence_is_a_whole_one(guard, number):
    with pytest.raises(ContractViolation, match=r"counts from 1|give a whole number"):
        guard.sequence("account", number)


def test_a_number_of_a_sequence_is_the_number_that_it_holds(guard, pay):
    class Number(int):
        pass

    for number in (1, Number(1)):
        with guard.sequence("account", number):
            assert pay("inv_1") == "here paid inv_1"
    assert guard.counts() == {State.COMPLETED: 1}


# ---------------------------------------------------------------- arguments


def test_arguments_may_be_any_mapping(guard, pay):
    with guard.step("chat", "pay"):
        first = guard.call(pay, MappingProxyType({"invoice": "inv_1"}))
        again = guard.call(pay, {"invoice": "inv_1"})
    assert (first.value, again.value, again.replayed) == (
        "here paid inv_1",
        "here paid inv_1",
        True,
    )


@dataclasses.dataclass
class Order:
    number: int
    made: ClassVar[int] = 0  # changes with every order
    note: dataclasses.InitVar[str] = ""
    secret: dataclasses.InitVar[str] = dataclasses.field(kw_only=True)

    def __post_init__(self, note, secret):
        Order.made += 1


def test_what_a_class_knows_and_what_only_made_an_object_are_no_part_of_it(guard):
    seen = []

    @guard.tool(kind="write")
    def ship(order: Order):
        seen.append(order.number)
        return order.number

    with guard.step("chat", "ship"):
        ship(Order(1, secret="a"))
        ship(Order(1, "another note", secret="b"))
    assert seen == [1]


@dataclasses.dataclass
class Nothing:
    pass


class NoModel(pydantic.BaseModel):
    pass


@pytest.mark.parametrize("empty", [Nothing, NoModel])
def test_a_model_without_fields_is_data_too(guard, empty):
    @guard.tool(kind="write")
    def ping(what: empty) -> empty:
        return what

    with guard.step("chat", "ping"):
        assert ping(empty()) == ping(empty()) == empty()


def test_a_number_that_is_too_long_to_write_is_refused(guard):
    @guard.tool(kind="write")
    def pay(amount: int):
        pytest.fail("it must not run")

    with (
        guard.step("chat", "pay"),
        pytest.raises(ContractViolation, match=r"digits.*Nothing was sent"),
    ):
        pay(10**5000)


# ---------------------------------------------------------------- what the model was shown


def test_a_result_of_an_older_version_of_the_tool_says_nothing_about_a_call_of_today(guard):
    paid = []

    @guard.tool(kind="write")
    def pay(invoice: str, currency: str):
        paid.append(currency)
        return len(paid)

    shown = [
        Delivered("pay", {"invoice": "inv_1"}),
        Delivered("pay", {"invoice": object(), "currency": "EUR"}),
    ]
    with guard.step("chat", delivered=shown):
        assert pay("inv_1", "EUR") == pay("inv_1", "EUR") == 1


def test_a_result_of_an_older_version_counts_if_its_identity_is_the_same(guard):
    paid = []

    @guard.tool(kind="write", identity=["invoice"])
    def pay(invoice: str, currency: str):
        paid.append(currency)
        return len(paid)

    with guard.step("chat"):
        assert pay("inv_1", "EUR") == 1
    with guard.step(
        "chat", delivered=[Delivered("pay", {"invoice": "inv_1", "note": "of an older version"})]
    ):
        assert pay("inv_1", "EUR") == 2


# ---------------------------------------------------------------- results


def test_a_result_that_nobody_may_look_at_is_still_one(guard):
    class Shy:
        def __getattr__(self, name):
            raise RuntimeError("nobody may look at this")

    @guard.tool(kind="write")
    def pay():
        return Shy()

    with guard.step("chat", "pay"):
        assert guard.call(pay, {}).status == "succeeded"


# ---------------------------------------------------------------- errors


def test_an_error_that_is_raised_again_and_again_is_each_time_about_the_effect_that_raises_it(
    guard,
):
    declined = Rejected("declined")  # one and the same, as a constant or the side effect of a mock

    @guard.tool(kind="write")
    def pay(invoice: str):
        raise declined

    @guard.tool(kind="write")
    async def apay(invoice: str):
        raise declined

    async def call(step):
        async with guard.step("chat", step):
            return await guard.call(apay, {"invoice": "inv_1"})

    for step in ("first", "second"):
        with guard.step("chat", step):
            assert guard.call(pay, {"invoice": "inv_1"}).status == "failed"
        assert asyncio.run(call(f"async {step}")).status == "failed"


@pytest.mark.parametrize("in_a_thread", [False, True])
def test_an_error_of_a_call_inside_says_nothing_about_the_outer_effect_even_if_it_was_raised_before(
    guard, in_a_thread
):
    declined = Rejected("declined")

    @guard.tool(kind="write")
    def pay():
        raise declined

    @guard.tool(kind="write")
    def order():
        with ThreadPoolExecutor(1) as threads:  # which knows nothing of where it was started
            call = functools.partial(
                lambda key: guard.call(pay, {}, key=key).unwrap(), f"in a thread {in_a_thread}"
            )
            return threads.submit(call).result() if in_a_thread else call()

    with guard.step("chat", "pay"), pytest.raises(Rejected):
        pay()
    with guard.step("chat", "order"):
        assert guard.call(order, {}).status == "in_doubt"


def test_an_error_of_an_effect_of_another_process_stays_one(guard):
    @guard.tool(kind="write")
    def pay():
        raise Rejected("declined")

    @guard.tool(kind="write")
    def order():
        raise pickle.loads(came)  # as a task queue hands it on

    with guard.step("chat", "pay"):
        came = pickle.dumps(guard.call(pay, {}).error)
    with guard.step("chat", "order"):
        assert guard.call(order, {}).status == "in_doubt"
