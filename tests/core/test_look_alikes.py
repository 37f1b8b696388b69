"""What looks alike and is not the same: no call may get the answer of another, and no retry may look like a new call."""

import functools

import pytest

from effectonce import ContractViolation


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


@pytest.mark.parametrize("made_of", [lambda bank: bank, lambda bank: functools.partial(Bank.pay, bank)])
def test_objects_that_are_called_and_look_alike_do_not_share_keys(guard, made_of):
    declare = guard.tool(kind="write", name="pay")
    one = made_of(Bank("here"))

    declare(one)
    declare(one)
    with pytest.raises(ContractViolation, match="other captured values"):
        declare(made_of(Bank("there")))
