"""A tool gets arguments of its own: what it changes there changes neither what its caller asks
for next, nor what its next attempt sends.
"""

import asyncio
import collections
import dataclasses
import json
import threading
from types import MappingProxyType
from typing import NamedTuple

import msgspec
import pydantic
import pytest

from effectonce import current_effect
from tests.core.helpers import in_a_loop, tool


@dataclasses.dataclass
class Order:
    id: str
    tries: int = 0
    lines: list = dataclasses.field(default_factory=list)


class Model(pydantic.BaseModel):
    id: str
    tries: int = 0
    lines: list = []


class Struct(msgspec.Struct):
    id: str
    tries: int = 0
    lines: list = []


class Bag(dict):
    pass


def plain(order):
    order["tries"] += 1
    order["lines"].append("changed")


def model(order):
    order.tries += 1
    order.lines.append("changed")


class Basket(NamedTuple):
    id: str
    lines: list


MADE = {
    "named tuple": (lambda: Basket("o1", []), lambda order: order.lines.append("changed")),
    "mapping proxy": (
        lambda: MappingProxyType({"id": "o1", "lines": []}),
        lambda order: order["lines"].append("changed"),
    ),
    "user dict": (lambda: collections.UserDict(id="o1", tries=0, lines=[]), plain),
    "dict": (lambda: {"id": "o1", "tries": 0, "lines": []}, plain),
    "ordered dict": (lambda: collections.OrderedDict(id="o1", tries=0, lines=[]), plain),
    "a dict of the caller's": (lambda: Bag(id="o1", tries=0, lines=[]), plain),
    "list": (lambda: [{"id": "o1", "tries": 0, "lines": []}], lambda orders: plain(orders[0])),
    "tuple": (lambda: ({"id": "o1", "tries": 0, "lines": []},), lambda orders: plain(orders[0])),
    "set": (lambda: {"o1"}, lambda orders: orders.add("changed")),
    "bytes": (lambda: bytearray(b"o1"), lambda order: order.extend(b"changed")),
    "dataclass": (lambda: Order("o1"), model),
    "pydantic": (lambda: Model(id="o1"), model),
    "struct": (lambda: Struct("o1"), model),
    "models in a list": (lambda: [Order("o1")], lambda orders: model(orders[0])),
}


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("keyword", [False, True])
def test_a_tool_that_changes_its_argument_is_called_once_for_it(guard, made, keyword):
    make, change = MADE[made]
    order, calls = make(), []

    def pay(order):
        change(order)
        calls.append(order)
        return len(calls)

    paying = tool(guard, pay)
    for _ in range(3):
        with guard.step("chat", "pay"):
            assert (paying(order=order) if keyword else paying(order)) == 1

    assert len(calls) == 1
    assert order == make()


def test_every_attempt_is_sent_as_the_first_was(guard):
    sent = []

    def pay(order: dict):
        sent.append((current_effect().downstream_key, json.dumps(order)))
        order["tries"] += 1
        if len(sent) < 3:
            raise TimeoutError
        return len(sent)

    with guard.step("chat", "pay"):
        assert tool(guard, pay, downstream="key")({"tries": 0}) == 3

    assert len(set(sent)) == 1


def test_a_default_that_a_tool_changes_stays_the_default(guard):
    calls = []

    def pay(order: str, tags: list = [], *, extra: dict = {}):  # noqa: B006  # people write it
        tags.append(order)
        extra[order] = True
        calls.append((list(tags), dict(extra)))

    paying = tool(guard, pay)
    for order in ("o1", "o1", "o2"):
        with guard.step("chat", "pay"):
            paying(order)
    with guard.step("chat", "pay"):
        paying("o1", ["mine"], extra={})

    assert calls == [(["o1"], {"o1": True}), (["o2"], {"o2": True}), (["mine", "o1"], {"o1": True})]


@in_a_loop
async def test_what_a_caller_changes_while_the_claim_is_on_its_way_is_not_sent(guard):
    order, sent = {"amount": 5}, []

    async def pay(order: dict):
        sent.append(order)

    paying = tool(guard, pay)

    async with guard.step("chat", "pay"):
        call = asyncio.ensure_future(guard.call(paying, {"order": order}))
        await asyncio.sleep(0)
        order["amount"] = 500
        await call

    assert sent == [{"amount": 5}]


def test_a_client_is_handed_on_as_it_is(guard):
    class Client:
        def __init__(self):
            self.lock = threading.Lock()

    @dataclasses.dataclass
    class Dependencies:
        client: Client

    client = Client()
    given = Dependencies(client)

    def pay(order: dict, client, deps, notes: dict):
        return (
            client is given.client
            and deps is given
            and notes["client"] is client
            and notes is not said
        )

    said = {"client": client}
    with guard.step("chat", "pay"):
        assert (
            tool(guard, pay, volatile=["client", "deps", "notes"])({"id": 1}, client, given, said)
            is True
        )


def test_what_cannot_be_copied_is_handed_on(guard):
    class Stubborn(list):
        def __deepcopy__(self, memo):
            raise RuntimeError("not me")

    order = Stubborn(["o1"])
    with guard.step("chat", "pay"):
        assert tool(guard, lambda order: order is not None, name="pay")(order) is True


def test_a_step_of_a_workflow_gets_its_own_as_well(guard):
    seen = []

    @guard.workflow(identity=["order"])
    def refund(run, order: str):
        lines = ["a"]
        run.step("first", lambda lines: lines.append("changed"), lines)
        seen.append(list(lines))
        return run.step("second", list, lines)

    assert refund("o1") == ["a"]
    assert seen == [["a"]]


def test_volatile_arguments_behind_a_star_are_handed_on_as_they_are(guard):
    @dataclasses.dataclass
    class Session:
        sent: int = 0

    def pay(order, *rest, **context):
        for session in (*rest, *context.values()):
            session.sent += 1

    sessions = Session(), Session()
    with guard.step("chat", "pay"):
        tool(guard, pay, volatile=["rest", "context"])("o1", sessions[0], session=sessions[1])

    assert [session.sent for session in sessions] == [1, 1]


@dataclasses.dataclass
class Row:
    """As an ORM has it: declared fields, and what ties it to its session."""

    id: str
    status: str = "new"


class Watched(pydantic.BaseModel):
    id: str
    _listeners: list = pydantic.PrivateAttr(default_factory=list)


def test_a_row_that_belongs_to_a_session_is_no_data_to_be_copied(guard):
    row = Row("o1")
    row.__dict__["_sa_instance_state"] = object()
    model = Watched(id="o1")
    model._listeners.append("one")

    def pay(order):
        return order

    paying = tool(guard, pay)
    for step, order in enumerate((row, model)):
        with guard.step("chat", step):
            assert paying(order) is order


def test_a_volatile_argument_that_holds_itself_is_handed_on(guard):
    knot = []
    knot.append(knot)

    with guard.step("chat", "pay"):
        assert (
            tool(guard, lambda order, knot: knot[0] is knot, name="pay", volatile=["knot"])(
                "o1", knot
            )
            is True
        )
