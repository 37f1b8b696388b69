"""Effects are found by what people know: a payment id, a customer."""

import asyncio

import pytest

from effectonce import ApprovalNeeded, ContractViolation, Guard, InDoubt, StoreUnavailable
from effectonce._core.ops import Together
from effectonce.stores.memory import MemoryStore
from tests.core.helpers import QUICK


def refunds(guard, **contract):
    settings = {"kind": "write", "retry": QUICK, "searchable": ["payment_id", "customer"]}

    @guard.tool(**settings | contract)
    def refund(payment_id: str, customer: str = "", note: str = "") -> dict:
        if note == "lost":
            raise TimeoutError("no answer")
        return {"refunded": payment_id}

    def ask(payment_id, customer="", note="", **place):
        with guard.step("chat", payment_id, **place):
            return refund(payment_id, customer, note)

    return ask


def found(guard, text, **wanted):
    return [record.request.step for record in guard.search(text, **wanted)]


def test_an_effect_is_found_by_its_arguments(guard):
    ask = refunds(guard)
    for number in (3, 38, 4):
        ask(f"pay_{number}", "Ada Lovelace")

    assert found(guard, "pay_38") == ["pay_38"]
    assert set(found(guard, "pay_3")) == {"pay_3", "pay_38"}
    assert len(found(guard, " ADA  lovelace")) == 3
    assert found(guard, "ada", limit=2) != []
    assert found(guard, "pay_9") == found(guard, "") == found(guard, " ") == []


def test_an_exact_term_does_not_find_a_longer_one(guard, clock):
    secret = Guard(MemoryStore(clock=clock), secret=b"x" * 32)
    for each in (guard, secret):
        ask = refunds(each)
        for payment in ("pay_3", "pay_38", "pay_3 again"):
            ask(payment, "Ada")

        assert found(each, "PAY_3 ", exact=True) == ["pay_3"]
        assert found(each, "pay_", exact=True) == []
        assert len(found(each, "ada", exact=True)) == 3


def test_a_tenant_finds_its_own(guard):
    ask = refunds(guard)
    ask("pay_1", tenant="a")
    ask("pay_1", tenant="b")

    assert len(found(guard, "pay_1")) == 2
    (record,) = guard.search("pay_1", tenant="b")
    assert record.request.tenant == "b"


def test_what_waits_for_a_person_or_is_in_doubt_is_found(guard):
    waits, lost = refunds(guard, approval=True), refunds(guard, name="lost")
    with pytest.raises(ApprovalNeeded):
        waits("pay_5")
    with pytest.raises(InDoubt):
        lost("pay_6", note="lost")

    assert found(guard, "pay_5") == ["pay_5"]
    assert found(guard, "pay_6") == ["pay_6"]


def test_what_cannot_be_indexed_is_not_stopped_and_is_found_after_the_next_call(guard, monkeypatch):
    lost, apply, away = refunds(guard), guard.store.apply, [True]

    def broken(op):
        if isinstance(op, Together) and away:
            away.clear()
            raise StoreUnavailable("it is away")
        return apply(op)

    monkeypatch.setattr(guard.store, "apply", broken)
    with pytest.raises(InDoubt):
        lost("pay_6", note="lost")
    assert found(guard, "pay_6") == []

    with pytest.raises(InDoubt):
        lost("pay_6", note="lost")
    assert found(guard, "pay_6") == ["pay_6"]


def test_with_a_secret_the_store_holds_no_argument_and_the_whole_term_finds_it(clock):
    store = MemoryStore(clock=clock)
    guard = Guard(store, secret=b"s" * 32)
    refunds(guard)("pay_7", "Ada")

    assert found(guard, "pay_7") == found(guard, "ada") == ["pay_7"]
    assert found(guard, "pay_") == []
    assert not any("pay_7" in name or "ada" in name for name in store._cells)
    other = Guard(store, secret=b"t" * 32)
    assert found(other, "pay_7") == []


def test_a_replay_writes_nothing_and_an_ordinary_tool_is_not_indexed(guard, seen_ops):
    refunds(guard)("pay_8")
    first = [op for op in seen_ops if isinstance(op, Together)]
    refunds_again = len(seen_ops)
    with guard.step("chat", "pay_8"):
        guard.call("refund", {"payment_id": "pay_8"})

    assert len(first) == 1
    assert [type(op).__name__ for op in seen_ops[refunds_again:]] == ["Claim"]


@pytest.fixture
def seen_ops(guard, monkeypatch):
    ops, apply = [], guard.store.apply
    monkeypatch.setattr(guard.store, "apply", lambda op: (ops.append(op), apply(op))[1])
    return ops


def test_an_async_tool_is_found(guard):
    @guard.tool(kind="write", searchable=["invoice"])
    async def pay(invoice: int) -> int:
        return invoice

    async def main():
        with guard.step("chat", 1):
            return await pay(4711)

    asyncio.run(main())
    assert found(guard, "4711") == ["1"]


def test_texts_that_are_no_names_are_not_kept(guard):
    refunds(guard)("pay_1", "x" * 200)

    assert found(guard, "x") == []


@pytest.mark.parametrize(
    ("contract", "why"),
    [
        ({"searchable": ["iban"]}, "has no parameter 'iban', which searchable= names"),
        ({"searchable": ["note"], "redact": ["note"], "volatile": ["note"]}, "note is redacted"),
        ({"kind": "read"}, "is a read, which cannot be searched for"),
    ],
)
def test_a_declaration_that_cannot_be_meant_is_refused(guard, contract, why):
    with pytest.raises(ContractViolation, match=why):
        refunds(guard, **contract)
