"""Calls that a person has to approve first: bound to their arguments, used once, by one caller."""

import pytest

from effectonce import (
    Approval,
    ApprovalNeeded,
    Conflict,
    ContractViolation,
    Guard,
    NotApproved,
    NotSent,
    Retry,
)
from effectonce.approvals import Wish
from tests.core.helpers import QUICK, approve, in_a_loop, in_threads


class Bank:
    """Counts what it did."""

    def __init__(self, guard, **contract):
        self.done = []
        settings = {"kind": "write", "approval": True, "retry": QUICK, "wait_s": 0} | contract

        @guard.tool(**settings)
        def refund(payment: str, amount: int, note: str = "") -> dict:
            self.done.append((payment, amount, note))
            return {"refunded": amount}

        self.refund, self.guard = refund, guard

    def ask(self, amount=700, step="1", note="", **place):
        with self.guard.step("chat", step, **place):
            return self.refund("pay_1", amount, note)

    def wish(self, **asked) -> Wish:
        with pytest.raises(ApprovalNeeded):
            self.ask(**asked)
        (wish,) = self.guard.approvals.waiting()
        return wish


@pytest.fixture
def bank(guard):
    return Bank(guard)


def test_what_is_never_allowed_is_refused_and_no_person_is_asked(guard):
    rules = Approval(when=lambda amount: amount > 500, never=lambda amount: amount > 10_000)
    bank = Bank(guard, approval=rules)

    bank.ask(amount=400, step="small")
    bank.wish(amount=700, step="large")
    with pytest.raises(ContractViolation, match=r"no person can approve it .* Nothing was sent"):
        bank.ask(amount=10_001, step="huge")

    assert len(guard.approvals.waiting()) == 1
    assert [amount for _, amount, _ in bank.done] == [400]


def test_what_became_forbidden_is_not_sent_by_an_approval_of_before(guard):
    highest = [10_000]
    bank = Bank(guard, approval=Approval(never=lambda amount: amount > highest[0]))
    wish = bank.wish(amount=700)
    guard.approvals.approve(wish.key, by="ada", reason="yes")

    highest[0] = 500
    with pytest.raises(ContractViolation, match="never called with these arguments"):
        bank.ask(amount=700)
    assert bank.done == []


def test_nothing_is_sent_before_a_person_has_approved_it(bank):
    for _ in range(2):
        with pytest.raises(ApprovalNeeded, match=r"waits for a person .* Nothing was sent") as told:
            bank.ask()

    error = told.value.as_model_error()
    assert (error["code"], error["retriable"]) == ("APPROVAL_NEEDED", False)
    assert error["operation"].startswith("eff_")
    assert bank.done == []


def test_what_waits_is_listed_with_who_asked_and_for_what(bank):
    wish = bank.wish(asked_by="agent-7")

    assert (wish.effect.tool, wish.effect.scope, wish.effect.step) == ("refund", "chat", "1")
    assert wish.asked_by == "agent-7"
    assert wish.arguments == {"payment": "pay_1", "amount": 700, "note": ""}
    assert bank.guard.approvals.find(wish.key) == wish
    assert bank.guard.approvals.waiting(tool="other") == ()
    assert bank.guard.approvals.waiting(tenant="other") == ()


def test_an_approved_call_is_sent_once_and_replayed(bank):
    wish = bank.wish()

    bank.guard.approvals.approve(wish.key, by="ada", reason="the parcel came back")

    assert bank.guard.approvals.waiting() == ()
    assert [bank.ask() for _ in range(3)] == [{"refunded": 700}] * 3
    assert bank.done == [("pay_1", 700, "")]


def test_a_rejected_call_is_never_sent_and_says_by_whom_and_why(bank):
    wish = bank.wish()
    bank.guard.approvals.reject(wish.key, by="ada", reason="not before Friday")

    for _ in range(2):
        with pytest.raises(NotApproved, match=r"rejected by ada .*: not before Friday") as told:
            bank.ask()

    assert told.value.as_model_error()["code"] == "NOT_APPROVED"
    assert bank.guard.approvals.waiting() == ()
    assert bank.done == []


def test_an_approval_that_was_not_used_can_be_taken_back(bank):
    wish = bank.wish()
    bank.guard.approvals.approve(wish.key, by="ada", reason="yes")
    bank.guard.approvals.reject(wish.key, by="grace", reason="no")

    with pytest.raises(NotApproved, match="rejected by grace"):
        bank.ask()
    assert bank.done == []


def test_an_approval_is_used_within_its_time(bank, clock):
    wish = bank.wish()
    bank.guard.approvals.approve(wish.key, by="ada", reason="yes", valid_s=60)
    clock.advance(61)

    with pytest.raises(ApprovalNeeded, match="It was approved, and that has expired"):
        bank.ask()
    (again,) = bank.guard.approvals.waiting()
    assert (again.key, again.expired) == (wish.key, True)
    bank.guard.approvals.approve(wish.key, by="ada", reason="yes, still", valid_s=60)

    assert bank.ask() == {"refunded": 700}


def test_arguments_that_changed_are_another_effect_with_another_wish(bank):
    bank.guard.approvals.approve(bank.wish().key, by="ada", reason="yes")

    with pytest.raises(ApprovalNeeded):
        bank.ask(amount=7_000)
    assert bank.done == []
    assert [wish.arguments["amount"] for wish in bank.guard.approvals.waiting()] == [7_000]


@pytest.mark.parametrize("declared", [{"identity": ["payment"]}, {"volatile": ["note", "amount"]}])
def test_arguments_that_changed_under_one_key_are_refused_and_wished_anew(guard, declared):
    bank = Bank(guard, **declared)
    first = bank.wish(note="a")
    guard.approvals.approve(first.key, by="ada", reason="yes")

    with pytest.raises(Conflict, match="asked for before with other arguments"):
        bank.ask(note="b")

    (second,) = guard.approvals.waiting()
    assert (second.key, second.expired) == (first.key, False)
    assert (first.arguments["note"], second.arguments["note"]) == ("a", "b")
    with pytest.raises(ContractViolation, match="its arguments are others by now"):
        guard.approvals.approve(first.key, by="ada", reason="y", fingerprint=first.fingerprint)
    guard.approvals.approve(second.key, by="ada", reason="yes", fingerprint=second.fingerprint)
    assert bank.ask(note="b") == {"refunded": 700}
    assert bank.done == [("pay_1", 700, "b")]


def test_what_was_sent_does_not_change_its_arguments_any_more(guard):
    bank = Bank(guard, volatile=["note"])
    guard.approvals.approve(bank.wish(note="a").key, by="ada", reason="yes")
    bank.ask(note="a")

    with pytest.raises(Conflict):
        bank.ask(note="b")
    assert bank.done == [("pay_1", 700, "a")]


def test_an_argument_that_is_no_data_is_not_approved(guard):
    sent = []

    @guard.tool(kind="write", approval=True, volatile=["client"], retry=QUICK)
    def send(text: str, client) -> None:
        sent.append(client)

    with guard.step("chat", 1), pytest.raises(ApprovalNeeded):
        send("hello", object())
    approve(guard)
    with guard.step("chat", 1):
        send("hello", object())
    assert len(sent) == 1


# ---------------------------------------------------------------- rules


@pytest.mark.parametrize(("amount", "needed"), [(500, False), (501, True)])
def test_a_rule_says_which_calls_need_it(guard, amount, needed):
    bank = Bank(guard, approval=lambda amount: amount > 500)

    if needed:
        bank.wish(amount=amount)
    else:
        assert bank.ask(amount=amount) == {"refunded": amount}
    assert len(bank.done) == (not needed)


def test_a_rule_is_asked_each_time(guard):
    limit = [500]
    bank = Bank(guard, approval=lambda amount: amount > limit[0])
    bank.wish(amount=700)
    limit[0] = 1_000

    assert bank.ask(amount=700) == {"refunded": 700}


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (lambda amount: amount / 0 > 1, "ZeroDivisionError"),
        (lambda amount: amount, "answered with 700, not True or False"),
    ],
)
def test_a_rule_that_does_not_decide_sends_nothing(guard, rule, why):
    bank = Bank(guard, approval=rule)

    with pytest.raises(ContractViolation, match=why):
        bank.ask()
    assert bank.done == []


@pytest.mark.parametrize(
    ("contract", "why"),
    [
        ({"approval": lambda price: True}, "has no parameter 'price', which its approval asks for"),
        ({"approval": "always"}, "give a function of the arguments that decide"),
        ({"kind": "read"}, "is a read, which is not approved"),
    ],
)
def test_a_declaration_that_cannot_be_meant_is_refused(guard, contract, why):
    with pytest.raises(ContractViolation, match=why):
        Bank(guard, **contract)


@pytest.mark.parametrize("wrong", [{"valid_s": 0}, {"valid_s": float("inf")}, {"four_eyes": "no"}])
def test_an_approval_that_cannot_be_meant_is_refused(wrong):
    with pytest.raises(ContractViolation):
        Approval(**wrong)


# ---------------------------------------------------------------- who


def test_who_asked_does_not_approve_where_four_eyes_are_declared(guard, clock):
    bank = Bank(guard, approval=Approval(four_eyes=True))
    wish = bank.wish(asked_by="ada")

    with pytest.raises(ContractViolation, match="ada asked for it, and another person has to"):
        guard.approvals.approve(wish.key, by="ada", reason="I want it")
    guard.approvals.approve(wish.key, by="grace", reason="yes", valid_s=5)
    clock.advance(6)
    with pytest.raises(ContractViolation, match="ada asked for it"):  # also the next time
        guard.approvals.approve(wish.key, by="ada", reason="I want it")
    guard.approvals.approve(wish.key, by="grace", reason="yes")
    assert bank.ask(asked_by="ada") == {"refunded": 700}


@pytest.mark.parametrize("signed", [{"by": ""}, {"reason": " "}])
@pytest.mark.parametrize("decide", ["approve", "reject"])
def test_a_decision_has_a_name_and_a_reason(bank, decide, signed):
    wish = bank.wish()

    with pytest.raises(ContractViolation):
        getattr(bank.guard.approvals, decide)(wish.key, **{"by": "ada", "reason": "r"} | signed)
    assert bank.guard.approvals.waiting() == (wish,)


def test_what_does_not_wait_cannot_be_decided(bank):
    wish = bank.wish()
    bank.guard.approvals.approve(wish.key, by="ada", reason="yes")
    with pytest.raises(ContractViolation, match="it is approved already"):
        bank.guard.approvals.approve(wish.key, by="grace", reason="yes, too")
    bank.ask()

    with pytest.raises(ContractViolation, match="it does not wait; the effect is completed"):
        bank.guard.approvals.approve(wish.key, by="ada", reason="once more")
    with pytest.raises(ContractViolation, match="the effect is completed"):
        bank.guard.approvals.reject(wish.key, by="ada", reason="no")
    with pytest.raises(ContractViolation, match="no such call is known"):
        bank.guard.approvals.approve("unknown", by="ada", reason="yes")
    with pytest.raises(ContractViolation, match="no such call waits"):
        bank.guard.approvals.reject("unknown", by="ada", reason="no")


def test_decisions_are_reported(store):
    seen = []
    guard = Guard(store, observers=[seen.append])
    bank = Bank(guard)
    guard.approvals.approve(bank.wish().key, by="ada", reason="yes")
    bank.ask()
    guard.approvals.reject(bank.wish(step="2").key, by="grace", reason="no")

    told = [
        (event.name, event.outcome, event.by) for event in seen if event.name.startswith("approval")
    ]
    assert told == [
        ("approval_needed", "", ""),
        ("approval", "approved", "ada"),
        ("approval_needed", "", ""),
        ("approval", "rejected", "grace"),
    ]


# ---------------------------------------------------------------- crashes and crowds


def test_a_failed_attempt_keeps_its_approval(guard):
    """It certainly had no effect: the same call goes on, and no person is asked again."""
    attempts = []

    @guard.tool(kind="write", approval=True, retry=Retry(attempts=1), wait_s=0)
    def refund(payment: str) -> str:
        attempts.append(payment)
        if len(attempts) == 1:
            raise NotSent("no connection")
        return "done"

    with guard.step("chat", 1), pytest.raises(ApprovalNeeded):
        refund("pay_1")
    approve(guard)
    with guard.step("chat", 1):
        with pytest.raises(Exception, match="no connection"):
            refund("pay_1")
        assert refund("pay_1") == "done"


def test_many_resumers_of_one_approval_send_one_effect(guard):
    bank = Bank(guard, wait_s=30)
    guard.approvals.approve(bank.wish().key, by="ada", reason="yes")

    results = in_threads(16, lambda _: bank.ask())

    assert results == [{"refunded": 700}] * 16
    assert len(bank.done) == 1


@in_a_loop
async def test_the_same_for_async_tools(guard):
    sent = []

    @guard.tool(kind="write", approval=True, retry=QUICK)
    async def send(text: str) -> str:
        sent.append(text)
        return text

    async with guard.step("chat", 1):
        with pytest.raises(ApprovalNeeded):
            await send("hello")
        approve(guard)
        assert [await send("hello"), await send("hello")] == ["hello", "hello"]
    assert sent == ["hello"]
