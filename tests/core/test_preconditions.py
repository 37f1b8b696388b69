"""Preconditions: asked before a person is, and again right before the first send; never later."""

import asyncio
import threading

import pytest

from effectonce import (
    Allowance,
    Approval,
    ApprovalNeeded,
    ContractViolation,
    Downstream,
    GaveUp,
    Guard,
    InDoubt,
    NotSent,
    PreconditionFailed,
    StoreUnavailable,
    current_effect,
)
from effectonce._core.ops import Find, Refute, Search
from effectonce.stores.base import StoreUnusable
from effectonce.stores.sqlite import SqliteStore
from effectonce.testing.clock import FakeClock
from tests.core.helpers import QUICK, approve, done, in_a_loop, in_colour


def records(guard):
    return guard.store.apply(Search())


class Shop:
    """Refunds what is open, counts what it did, and what it was asked."""

    def __init__(self, guard, *, colour="sync", rule_colour="sync", **contract):
        self.guard, self.open, self.asked, self.done, self.answers = guard, True, [], [], []
        self.approval = contract.pop("approval", {})
        rule = in_colour(rule_colour, self.still_open)
        approval = Approval(precondition=rule, **self.approval)
        declare = guard.tool(
            **({"kind": "write", "approval": approval, "retry": QUICK, "wait_s": 0} | contract)
        )

        def refund(payment: str, amount: int) -> dict:
            return self._refund(payment, amount)

        self.refund = declare(in_colour(colour, refund))

    def still_open(self, payment):
        self.asked.append(payment)
        if isinstance(self.open, BaseException):
            raise self.open
        return self.open

    def _refund(self, payment, amount):
        current_effect().downstream_key  # noqa: B018  # sent with the request
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, NotSent):
            raise answer
        self.done.append((payment, amount))
        self.open = False  # as a refund does
        if answer is not None:
            raise answer
        return {"refunded": amount}

    def ask(self, step="1", amount=700):
        with self.guard.step("chat", step):
            return done(self.refund("pay_1", amount))

    def approved(self, **asked):
        with pytest.raises(ApprovalNeeded):
            self.ask(**asked)
        return approve(self.guard)


@pytest.fixture(params=[("sync", "sync"), ("async", "sync"), ("async", "async")], ids=str)
def shop(request, guard):
    colour, rule_colour = request.param
    return Shop(guard, colour=colour, rule_colour=rule_colour)


def test_a_call_whose_precondition_holds_is_sent_and_replays_never_ask(shop):
    shop.approved()

    assert [shop.ask() for _ in range(3)] == [{"refunded": 700}] * 3
    assert shop.asked == ["pay_1", "pay_1"]  # before the person was asked, and before it was sent
    assert shop.done == [("pay_1", 700)]


def test_what_no_longer_holds_is_not_sent_and_fails_for_good(shop):
    wish = shop.approved()
    shop.open = False

    for _ in range(2):
        with pytest.raises(PreconditionFailed, match="its precondition did not hold") as raised:
            shop.ask()
        shop.open = True  # too late

    error = raised.value.as_model_error()
    assert (error["code"], error["retriable"]) == ("PRECONDITION_FAILED", False)
    assert shop.done == []
    record = shop.guard.find(wish.key)
    assert (record.state, record.sends, record.settled_by) == ("failed", 0, "its precondition")
    assert len(shop.asked) == 2
    assert shop.guard.approvals.waiting() == ()


def test_no_person_is_asked_for_what_does_not_hold_and_nothing_is_written_down(shop):
    shop.open = False

    with pytest.raises(PreconditionFailed, match="was not sent"):
        shop.ask()

    assert shop.guard.approvals.waiting() == ()
    assert records(shop.guard) == ()
    shop.open = True
    shop.approved()
    assert shop.ask() == {"refunded": 700}


def test_while_it_waits_it_is_not_asked_again(shop):
    for _ in range(3):
        with pytest.raises(ApprovalNeeded):
            shop.ask()

    assert shop.asked == ["pay_1"]


@pytest.mark.parametrize("wrong", [ConnectionError("no answer"), "yes", None])
def test_if_it_cannot_be_answered_nothing_is_sent_and_the_approval_stands(shop, wrong):
    shop.approved()
    shop.open = wrong

    for _ in range(2):
        with pytest.raises(ContractViolation, match="whether its precondition holds") as raised:
            shop.ask()
    assert raised.value.retriable is isinstance(wrong, Exception)
    assert shop.done == []

    shop.open = True
    assert shop.ask() == {"refunded": 700}


def test_if_it_cannot_be_answered_at_first_no_person_is_asked(shop):
    shop.open = ConnectionError("no answer")

    with pytest.raises(ContractViolation, match="could not be decided"):
        shop.ask()

    assert records(shop.guard) == ()


def test_an_interrupt_while_it_is_asked_leaves_the_call_to_the_next_one(guard):
    shop = Shop(guard)
    shop.approved()
    shop.open = KeyboardInterrupt()

    with pytest.raises(KeyboardInterrupt):
        shop.ask()

    shop.open = True
    assert shop.ask() == {"refunded": 700}


@in_a_loop
async def test_a_cancelled_caller_sends_nothing_and_leaves_the_call_to_the_next_one(guard):
    began, holds = asyncio.Event(), asyncio.Event()

    async def rule(payment):
        if guard.approvals.waiting() or records(guard) == ():
            return True
        began.set()
        await holds.wait()
        return True

    paid = []

    @guard.tool(kind="write", approval=Approval(precondition=rule), wait_s=0, retry=QUICK)
    async def refund(payment: str) -> str:
        paid.append(payment)
        return "done"

    async def ask():
        async with guard.step("chat", "1"):
            return await refund("pay_1")

    with pytest.raises(ApprovalNeeded):
        await ask()
    approve(guard)
    call = asyncio.create_task(ask())
    await began.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    assert paid == []
    holds.set()
    assert await ask() == "done"


def test_it_is_never_asked_before_a_send_is_repeated(guard):
    """Our own refund has closed the payment: to fail now would be a false report."""
    shop = Shop(guard, downstream=Downstream.key())
    shop.approved()
    shop.answers = [TimeoutError(), TimeoutError()]

    assert shop.ask() == {"refunded": 700}
    assert len(shop.asked) == 2


def test_it_is_never_asked_in_a_later_call_of_what_may_have_left(guard):
    shop = Shop(guard, downstream=Downstream.key())
    shop.approved()
    shop.answers = [TimeoutError()] * QUICK.attempts

    with pytest.raises(GaveUp, match="may have run"):
        shop.ask()
    assert shop.ask() == {"refunded": 700}
    assert len(shop.asked) == 2


def test_a_doubt_stays_a_doubt(guard):
    shop = Shop(guard)
    shop.approved()
    shop.answers = [TimeoutError()]

    for _ in range(2):
        with pytest.raises(InDoubt):
            shop.ask()
    assert len(shop.asked) == 2


def test_what_certainly_never_left_is_asked_about_by_the_next_call(guard):
    shop = Shop(guard)
    shop.approved()
    shop.answers = [NotSent("no line")] * QUICK.attempts
    with pytest.raises(GaveUp, match="did not run"):
        shop.ask()
    assert len(shop.asked) == 2

    shop.open = False
    with pytest.raises(PreconditionFailed):
        shop.ask()
    assert shop.done == []


def test_a_call_that_needs_no_approval_is_asked_about_before_it_is_sent(guard):
    shop = Shop(guard, approval={"when": lambda amount: amount > 1000})

    assert shop.ask() == {"refunded": 700}
    with pytest.raises(PreconditionFailed):
        shop.ask(step="2")  # it is closed now

    assert shop.done == [("pay_1", 700)]


@pytest.mark.parametrize("downstream", ["none", "key"])
def test_every_store_writes_it_down(any_store, downstream):
    guard = Guard(any_store, cache=0)
    shop = Shop(guard, downstream=downstream)
    wish = shop.approved()
    shop.open = False
    with pytest.raises(PreconditionFailed):
        shop.ask()
    with pytest.raises(PreconditionFailed, match=r"ago"):
        shop.ask()

    assert guard.find(wish.key).state == "failed"
    shop.open = True
    shop.approved(step="2")
    assert shop.ask(step="2") == {"refunded": 700}
    guard.close()


def test_a_transaction_is_not_begun_for_what_does_not_hold(tmp_path):
    guard = Guard(SqliteStore(tmp_path / "effects.db", clock=FakeClock()), cache=0)
    open_, begun = [True], []

    @guard.tool(
        kind="write",
        downstream="transaction",
        approval=Approval(precondition=lambda payment: open_[0]),
    )
    def refund(payment: str) -> str:
        begun.append(current_effect().connection)
        return "done"

    def ask(step):
        with guard.step("chat", step):
            return refund("pay_1")

    for step in "12":
        with pytest.raises(ApprovalNeeded):
            ask(step)
        approve(guard)
    assert ask("1") == "done"
    open_[0] = False

    with pytest.raises(PreconditionFailed):
        ask("2")
    assert (ask("1"), len(begun)) == ("done", 1)
    guard.close()


def limited(guard, **more):
    allowance = Allowance("refunds", limit=1000, per="day", unit="cents", **more)
    return Shop(guard, allowance=allowance, spends="amount")


def test_what_is_not_sent_gives_its_amount_back(guard):
    shop = limited(guard)
    shop.approved()
    shop.open = False
    with pytest.raises(PreconditionFailed):
        shop.ask()
    (account,) = guard.allowances.list()
    assert (account.spent, account.reserved) == (0, 0)

    shop.open = ConnectionError()
    shop.asked.clear()
    with pytest.raises(ContractViolation):
        shop.ask(step="2")
    shop.open = True
    shop.approved(step="2", amount=900)
    assert shop.ask(step="2", amount=900) == {"refunded": 900}


def test_no_person_is_asked_to_go_above_a_limit_for_what_does_not_hold(guard):
    allowance = Allowance("refunds", limit=100, per="day", over="approval")
    shop = Shop(
        guard, allowance=allowance, spends="amount", approval={"when": lambda amount: False}
    )
    shop.open = False
    with pytest.raises(PreconditionFailed):
        shop.ask()
    assert guard.approvals.waiting() == ()

    shop.open = True
    wish = shop.approved()
    shop.open = False
    with pytest.raises(PreconditionFailed):
        shop.ask()
    assert shop.done == []
    assert guard.find(wish.key).sends == 0


def test_a_lease_is_kept_alive_while_it_is_asked(tmp_path):
    """Two callers, and an answer that takes longer than a lease: one of them sends."""
    guard = Guard(f"sqlite:///{tmp_path}/effects.db", cache=0)
    lease_s, waiting, paid = 0.3, threading.Event(), []

    def slow(payment):
        if guard.approvals.waiting() == () and records(guard):
            waiting.wait(3 * lease_s)
        return True

    @guard.tool(
        kind="write", approval=Approval(precondition=slow), lease_s=lease_s, wait_s=30, retry=QUICK
    )
    def refund(payment: str) -> str:
        paid.append(payment)
        return "done"

    def ask():
        with guard.step("chat", "1"):
            return refund("pay_1")

    with pytest.raises(ApprovalNeeded):
        ask()
    wish = approve(guard)
    callers = [threading.Thread(target=ask) for _ in range(2)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()

    record = guard.find(wish.key)
    assert (paid, record.epoch, record.state) == (["pay_1"], 2, "completed")
    guard.close()


def test_a_precondition_is_checked_when_the_tool_is_declared(guard):
    def declared(rule):
        @guard.tool(kind="write", approval=Approval(precondition=rule))
        def refund(payment: str) -> str:
            return payment

    async def later(payment):
        return True

    with pytest.raises(ContractViolation, match="no parameter 'order', which its precondition"):
        declared(lambda order: True)
    with pytest.raises(TypeError, match="refund is def, its precondition is async def"):
        declared(later)
    with pytest.raises(ContractViolation, match="precondition="):
        Approval(precondition=True)


def test_a_workflow_parks_and_then_fails_the_step(guard):
    shop = Shop(guard)

    @guard.workflow
    def settle(run, payment: str) -> dict:
        return run.step("refund", shop.refund, payment, 700)

    with guard.step("chat", "run"), pytest.raises(ApprovalNeeded):
        settle("pay_1")
    approve(guard)
    shop.open = False

    with guard.step("chat", "run"), pytest.raises(Exception, match="its precondition did not hold"):
        settle("pay_1")
    assert shop.done == []


@pytest.mark.parametrize(("away", "asked"), [(Find, 0), (Refute, 2)])
def test_a_store_that_is_away_ends_nothing(store, monkeypatch, away, asked):
    shop = Shop(Guard(store, cache=0))
    if away is Refute:  # what it rests on changes after a person has approved it
        shop.approved()
        shop.open = False

    def broken(op, apply=store.apply):
        if isinstance(op, away):
            raise StoreUnusable("it is away")
        return apply(op)

    with monkeypatch.context() as patched:
        patched.setattr(store, "apply", broken)
        with pytest.raises(StoreUnavailable):
            shop.ask()

    assert (len(shop.asked), shop.done) == (asked, [])
    assert [record.state for record in records(shop.guard)] == ["claimed"] * (away is Refute)
