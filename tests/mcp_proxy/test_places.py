"""Which effect a call is: counted in a store, and proven without a process."""

import asyncio

import pytest

from effectonce import ContractViolation, Guard
from effectonce._core.keys import AtOrdinal, AtStep, ByName
from effectonce.mcp._call_identity import LATE_S, CallPlaces, asked
from effectonce.mcp._contracts import Contracts, ToolContract
from effectonce.mcp._effects import Effects
from effectonce.mcp._jsonrpc import UnreadableMessage, each, outside, read, written
from effectonce.stores.memory import MemoryStore
from effectonce.testing.clock import FakeClock

CONVERSATION = {"dev.effectonce/conversation": "chat"}


class Counted:
    def __init__(self, *, sees_client=True, **contract):
        self.clock = FakeClock()
        self.places = CallPlaces(MemoryStore(clock=self.clock), b"", sees_client=sees_client)
        self.contract = ToolContract(**contract)

    def put(self, meta=None, **arguments):
        call = asked("bank/pay", "bank", arguments, self.contract, meta, "", "main")
        return asyncio.run(self.places.put(call, self.contract))

    def shown(self, placed, call="", **more):
        asyncio.run(self.places.shown(placed, call, self.contract.counted_s, **more))


def test_until_its_result_is_shown_a_call_keeps_its_place():
    counted = Counted()

    assert counted.put(CONVERSATION).place == counted.put(CONVERSATION).place == AtOrdinal(0)
    counted.shown(counted.put(CONVERSATION))
    assert counted.put(CONVERSATION).place == counted.put(CONVERSATION).place == AtOrdinal(1)


def test_without_a_conversation_time_has_to_pass_as_well():
    counted = Counted(again_s=120)
    counted.shown(counted.put())

    counted.clock.advance(119)
    assert counted.put().place == AtOrdinal(0)
    counted.clock.advance(1)
    assert counted.put().place == AtOrdinal(1)


@pytest.mark.parametrize(("sees_client", "after_s"), [(True, LATE_S + 1), (False, 0)])
def test_where_a_client_may_have_given_up_without_a_word_time_has_to_pass_in_a_conversation_too(
    sees_client, after_s
):
    counted = Counted(sees_client=sees_client)
    counted.shown(counted.put(CONVERSATION), after_s=after_s)

    assert counted.put(CONVERSATION).place == AtOrdinal(0)
    counted.clock.advance(120)
    assert counted.put(CONVERSATION).place == AtOrdinal(1)


def test_the_same_call_id_is_a_retry_however_late():
    counted = Counted()
    meta = CONVERSATION | {"claudecode/toolUseId": "toolu_1"}
    counted.shown(counted.put(meta), "toolu_1")

    counted.clock.advance(3600)
    assert counted.put(meta).place == AtOrdinal(0)


def test_a_key_is_above_a_step_and_a_step_above_a_conversation():
    counted = Counted()
    step = CONVERSATION | {"dev.effectonce/step": "one"}

    assert counted.put(step).place == AtStep("one")
    assert counted.put(step | {"idempotencyKey": "k"}).place == ByName(("bank", "k"))


@pytest.mark.parametrize("name", ["dev.effectonce/step", "dev.effectonce/conversation"])
def test_what_a_client_says_to_us_is_looked_at(name):
    counted = Counted()

    with pytest.raises(ContractViolation, match="contains the id of one call"):
        counted.put({name: "toolu_01D7FLrfh4GYq7yT1ULFeyMV"})
    counted.put({name: "9f3a0c52-5f0e-4c1a-9a51-0b6a1f6f2c11"})
    counted.put(
        {
            "threadId": "toolu_01D7FLrfh4GYq7yT1ULFeyMV",
            "idempotencyKey": "call_Ao02pnFYXD6GN1yzc0uXPsvF",
        }
    )


def test_what_was_shown_twice_is_shown_once():
    counted = Counted()
    placed = counted.put(CONVERSATION)
    counted.shown(placed)
    counted.shown(placed)
    counted.put(CONVERSATION)
    counted.shown(placed)  # late: somebody has taken the next place already

    assert counted.put(CONVERSATION).place == AtOrdinal(1)


def test_traces_and_ids_of_requests_are_not_looked_at():
    counted = Counted()
    traces = [
        {"traceparent": f"00-{n:032x}-0000000000000001-01", "progressToken": n} for n in range(2)
    ]

    one, two = (counted.put(trace) for trace in traces)

    assert one == two


# ---------------------------------------------------------------- lines and contracts


def test_ids_of_different_types_are_different():
    assert outside(b'{"id":1,"result":{}}').name != outside(b'{"id":"1","result":{}}').name


@pytest.mark.parametrize(
    "line",
    [b'{"a":NaN}', b'{"a":1,"a":2}', b"[1]", b"{", b"\xff", b'{"a":1e999999999999999999999}'],
)
def test_what_readers_may_disagree_about_is_not_read(line):
    with pytest.raises(UnreadableMessage):
        read(line)


def test_a_line_is_written_as_it_was_read():
    line = b'{"a":0.1000000000000000000001,"b":[1,1.0,"\xc3\xa9"],"c":123456789012345678901234567890}\n'

    assert written(read(line)) == line


def test_a_batch_has_messages_and_anything_else_is_one():
    assert each(b'[{"id":1}, {"id":2}]\n') == [b'{"id":1}\n', b'{"id":2}\n']
    assert each(b'{"id":1}\n') == [b'{"id":1}\n']
    assert each(b"[broken\n") == [b"[broken\n"]


def test_what_a_trusted_server_says_is_between_the_defaults_and_the_tool():
    said = {
        "annotations": {"readOnlyHint": True},
        "_meta": {"dev.effectonce/contract": {"volatile": ["note"]}},
    }
    contracts = Contracts(
        trust_annotations=True, defaults={"kind": "irreversible"}, tools={"pay": {"kind": "write"}}
    )

    assert contracts.of("look", said) == ToolContract(kind="read", volatile=("note",))
    assert contracts.of("pay", said).kind == "write"
    assert contracts.of("other", {}).kind == "irreversible"
    assert Contracts().of("look", said) == ToolContract()


def test_an_irreversible_tool_is_refused_by_a_store_that_may_forget_it():
    guard, contracts = Guard("memory://"), Contracts()
    effects = Effects(guard, contracts, lambda call: call, server="bank", sees_client=True)

    with pytest.raises(ContractViolation, match="which this store cannot hold"):
        asyncio.run(effects.enter("pay", {}, ToolContract(kind="irreversible"), None))
