"""Spending limits: held before anything leaves, given back when nothing happened, never overdrawn."""

from datetime import timedelta
from itertools import count

import msgspec
import pytest

from effectonce import (
    Allowance,
    ApprovalNeeded,
    ContractViolation,
    Downstream,
    Guard,
    InDoubt,
    Keyring,
    LimitReached,
    NotApproved,
    NotSent,
    Rejected,
    StoreUnavailable,
    current_effect,
)
from effectonce._core.allowances import (
    TRIES,
    Account,
    Holding,
    Owner,
    Spend,
    SpendingWindow,
    hold,
    settle,
)
from effectonce._core.endings import Again, Exhausted, Replay
from effectonce._core.guarantees import Capability, Kind, Terms
from effectonce._core.ops import (
    Applied,
    Busy,
    Cell,
    Dispatch,
    Held,
    Invoke,
    Recorded,
    Refused,
    Unapproved,
    Unavailable,
    Unconfirmed,
)
from effectonce._core.record import Record, Request, State
from effectonce._core.retry_state import Env
from effectonce._tools.registry import tool_of
from effectonce.stores.memory import MemoryStore
from effectonce.testing.clock import FakeClock
from tests.core.helpers import QUICK, approve, in_a_loop, in_threads

DAY_S = 86_400.0


class Bank:
    """Counts what it paid out; fails as it is told to."""

    def __init__(self, guard, allowance, **contract):
        self.paid, self.fails = [], []
        settings = {"kind": "write", "retry": QUICK, "wait_s": 0, "spends": "amount"} | contract

        @guard.tool(**settings, allowance=allowance)
        def refund(payment: str, amount: int) -> int:
            current_effect().downstream_key  # noqa: B018  # sent with the request
            if self.fails:
                error, done = self.fails.pop(0)
                if done:
                    self.paid.append(amount)
                raise error
            self.paid.append(amount)
            return amount

        self.guard, self.refund, self._steps = guard, refund, count()

    def pay(self, amount, step=None, payment="pay_1", **place):
        with self.guard.step(
            "chat", f"step {next(self._steps) if step is None else step}", **place
        ):
            return self.refund(payment, amount)

    @property
    def account(self):
        (account,) = self.guard.allowances.list()
        return account


@pytest.fixture
def daily(guard):
    return Bank(guard, Allowance("refunds", limit=1000, unit="cents"))


def test_what_does_not_fit_is_not_sent_and_says_what_is_left(daily):
    daily.pay(700)

    with pytest.raises(
        LimitReached, match=r"would spend 400 cents of refunds .*300 of 1000"
    ) as told:
        daily.pay(400)

    error = told.value.as_model_error()
    assert (error["code"], error["left"], error["limit"]) == ("LIMIT_REACHED", 300, 1000)
    assert error["retriable"] is True
    assert 0 < error["retry_after_s"] <= DAY_S
    assert daily.pay(300) == 300
    assert daily.paid == [700, 300]


def test_what_is_above_the_limit_never_fits(daily):
    with pytest.raises(LimitReached, match="will never fit") as told:
        daily.pay(1001)

    assert told.value.retriable is False


def test_what_was_refused_is_counted_until_its_window_ends(daily, clock):
    daily.pay(700)
    for amount in (400, 500, 1001):
        with pytest.raises(LimitReached):
            daily.pay(amount, step="too much", payment=f"pay of {amount}")
    with pytest.raises(LimitReached):
        daily.pay(400, step="too much", payment="pay of 400")  # an agent's retry

    assert (daily.account.refused, daily.account.refused_amount) == (4, 2301)
    assert (daily.account.spent, daily.account.left) == (700, 300)
    daily.pay(300)
    assert daily.account.refused == 4
    clock.advance(DAY_S)
    assert (daily.account.refused, daily.account.refused_amount) == (0, 0)


def test_a_call_that_waits_for_a_person_was_not_refused(guard):
    bank = Bank(guard, Allowance("refunds", limit=10, over="approval"))
    with pytest.raises(ApprovalNeeded):
        bank.pay(11)

    assert bank.account.refused == 0


def test_only_the_allowance_that_refused_counts_it(guard):
    large, small = Allowance("large", limit=100), Allowance("small", limit=10)
    bank = Bank(guard, [large, small])
    with pytest.raises(LimitReached, match="of small"):
        bank.pay(11)

    assert {a.allowance: a.refused for a in guard.allowances.list()} == {"large": 0, "small": 1}


def test_a_refusal_costs_the_ops_that_it_did_and_a_call_that_fits_none_more():
    class Counting(MemoryStore):
        has_cells = False  # so it is not asked what is paused

        def apply(self, op):
            names.append(type(op).__name__)
            return super().apply(op)

    names = []
    guard = Guard(Counting(), cache=0, reconcile=False)
    bank = Bank(guard, Allowance("refunds", limit=10))
    with pytest.raises(LimitReached):
        bank.pay(11)
    refused, names[:] = list(names), []
    bank.pay(10)

    assert refused == ["Claim", "Together", "WriteCell", "Renew"]
    assert names == [
        "Claim", "Together", "WriteCell", "Dispatch", "Complete", "ReadCell", "WriteCell",
    ]  # fmt: skip


def test_a_replay_spends_nothing(daily):
    assert [daily.pay(1000, step=1) for _ in range(3)] == [1000] * 3
    assert daily.paid == [1000]
    assert (daily.account.spent, daily.account.left) == (1000, 0)


@pytest.mark.parametrize(
    ("error", "kept"),
    [(NotSent("no connection"), False), (Rejected("declined"), False), (TimeoutError(), True)],
)
def test_what_certainly_did_not_happen_is_given_back(guard, error, kept):
    bank = Bank(guard, Allowance("refunds", limit=1000))
    bank.fails = [(error, False)] * 3

    with pytest.raises(Exception):  # noqa: B017  # whichever it is
        bank.pay(1000, step="lost")
    bank.fails = []

    assert (bank.account.spent, bank.account.in_doubt) == (0, 1000 if kept else 0)
    if kept:
        with pytest.raises(LimitReached):
            bank.pay(1)
    else:
        assert bank.pay(1000, step="next") == 1000


@pytest.mark.parametrize("happened", [True, False])
def test_a_doubt_holds_its_amount_until_it_is_settled(guard, happened):
    bank = Bank(guard, Allowance("refunds", limit=1000))
    bank.fails = [(TimeoutError(), True)]
    with pytest.raises(InDoubt) as told:
        bank.pay(1000)
    key = told.value.effect.key
    if happened:
        guard.confirm(key, result=1000, by="ada", reason="looked")
    else:
        guard.refute(key, by="ada", reason="looked")

    if happened:
        with pytest.raises(LimitReached):
            bank.pay(1)
        assert (bank.account.spent, bank.account.in_doubt) == (1000, 0)
    else:
        assert bank.pay(1000) == 1000


def test_what_may_have_been_sent_is_sent_again_whatever_is_left(guard, clock):
    """It holds its amount already, or it was spent in a window that is over."""
    bank = Bank(
        guard, Allowance("refunds", limit=1000), downstream=Downstream.key(window=7 * DAY_S)
    )
    bank.fails = [(TimeoutError(), True)] * 3
    with pytest.raises(Exception, match="may have run"):
        bank.pay(1000, step="lost")
    with pytest.raises(LimitReached):
        bank.pay(1)
    clock.advance(DAY_S)
    bank.pay(1000)

    assert bank.pay(1000, step="lost") == 1000


def test_counts_for_each_customer_and_hour(guard, clock):
    sent = []

    @guard.tool(
        kind="write",
        retry=QUICK,
        allowance=Allowance("mails", limit=2, per=timedelta(hours=1), for_each="customer"),
    )
    def mail(customer: str, text: str) -> None:
        sent.append(customer)

    def send(customer, number):
        with guard.step("chat", f"{customer} {number}"):
            mail(customer, "hello")

    for number in range(2):
        send("ada", number)
        send("grace", number)
        clock.advance(1200)
    with pytest.raises(LimitReached, match="customer ada"):
        send("ada", 2)
    clock.advance(1260)  # the first of each has left the window, with its minute
    send("ada", 3)
    with pytest.raises(LimitReached):
        send("ada", 4)
    assert sent == ["ada", "grace", "ada", "grace", "ada"]


def test_each_one_who_asks_has_an_account(guard):
    bank = Bank(guard, Allowance("agents", limit=10, for_each="asked_by"))

    bank.pay(6, asked_by="support-agent")
    bank.pay(6, asked_by="sales-agent")
    with pytest.raises(LimitReached, match="asked_by support-agent"):
        bank.pay(6, asked_by="support-agent")


def test_tenants_are_kept_apart_unless_it_is_said_otherwise(guard):
    apart = Bank(guard, Allowance("apart", limit=10), name="apart")
    shared = Bank(guard, Allowance("shared", limit=10, for_each=None), name="shared")

    for tenant in ("a", "b"):
        apart.pay(10, tenant=tenant)
    shared.pay(10, tenant="a")
    with pytest.raises(LimitReached):
        shared.pay(1, tenant="b")
    assert apart.paid == [10, 10]


def test_names_that_begin_alike_are_listed_apart(guard):
    Bank(guard, Allowance("refunds", limit=10), name="a").pay(1)
    Bank(guard, Allowance("refunds of shops", limit=10), name="b").pay(2)

    assert [each.spent for each in guard.allowances.list("refunds")] == [1]


@pytest.mark.parametrize(
    "guarded", [{"secret": b"s" * 32}, {"secret": b"s" * 32, "keyring": Keyring({"k": b"n" * 32})}]
)
def test_whose_account_it_is_is_not_written_down_where_arguments_are_hidden(store, guarded):
    guard = Guard(store, **guarded)
    bank = Bank(guard, Allowance("refunds", limit=10, for_each="payment"))
    bank.pay(1, payment="ada@example.com")
    bank.pay(2, payment="grace@example.com")

    subjects = {account.subject for account in guard.allowances.list()}
    assert len(subjects) == 2
    assert "example" not in str(subjects) + repr(store._cells)


def test_one_allowance_is_shared_by_tools(guard):
    limit = Allowance("money", limit=10)
    first, second = Bank(guard, limit, name="refund"), Bank(guard, limit, name="credit")
    first.pay(7)

    with pytest.raises(LimitReached):
        second.pay(4)
    second.pay(3)


def test_of_two_allowances_none_is_spent_if_one_does_not_fit(guard):
    bank = Bank(guard, [Allowance("a", limit=10), Allowance("b", limit=5)])

    with pytest.raises(LimitReached, match="of b"):
        bank.pay(6)
    bank.pay(5)
    with pytest.raises(LimitReached):
        bank.pay(1)
    assert [(each.allowance, each.spent) for each in guard.allowances.list()] == [
        ("a", 5),
        ("b", 5),
    ]


def test_an_amount_is_said_by_a_function_of_the_arguments(guard):
    bank = Bank(guard, Allowance("fees", limit=10), spends=lambda amount: amount // 100)

    bank.pay(1000)
    with pytest.raises(LimitReached):
        bank.pay(100)


@pytest.mark.parametrize(
    ("spends", "why"),
    [
        (lambda: -1, "give a whole number"),
        (lambda: 1.5, "give a whole number"),
        (lambda: True, "give a whole number"),
        (lambda: "7", "give a whole number"),
        (lambda amount: amount / 0, r"could not be said .*ZeroDivisionError"),
    ],
)
def test_an_amount_that_is_no_whole_number_is_not_sent(guard, spends, why):
    bank = Bank(guard, Allowance("fees", limit=10), spends=spends)

    with pytest.raises(ContractViolation, match=why):
        bank.pay(1)
    assert bank.paid == []


@pytest.mark.parametrize(
    ("contract", "why"),
    [
        ({"spends": "price"}, "has no parameter 'price'"),
        ({"spends": lambda price: 1}, "has no parameter 'price'"),
        ({"allowance": Allowance("a", limit=1, for_each="customer")}, "no parameter 'customer'"),
        ({"allowance": ["refunds"]}, "such as Allowance"),
        ({"kind": "read"}, "is a read, which spends nothing"),
    ],
)
def test_a_declaration_that_cannot_be_meant_is_refused(guard, contract, why):
    settings = {"allowance": Allowance("refunds", limit=1)} | contract

    with pytest.raises(ContractViolation, match=why):
        Bank(guard, **settings)


@pytest.mark.parametrize(
    "wrong",
    [{"over": "ask"}, {"limit": -1}, {"limit": 1.5}, {"per": "year"}, {"per": 0}, {"name": ""}],
)
def test_an_allowance_that_cannot_be_meant_is_refused(wrong):
    with pytest.raises(ContractViolation):
        Allowance(**{"name": "a", "limit": 1} | wrong)


def test_an_approval_comes_before_the_money(guard):
    bank = Bank(guard, Allowance("refunds", limit=10), approval=True)
    with pytest.raises(ApprovalNeeded):
        bank.pay(10, step=1)
    assert guard.allowances.list() == ()
    approve(guard)

    assert bank.pay(10, step=1) == 10
    assert bank.account.left == 0


def test_what_is_above_the_limit_may_wait_for_a_person(guard):
    bank = Bank(guard, Allowance("refunds", limit=10, over="approval"))
    bank.pay(8)
    for _ in range(2):
        with pytest.raises(ApprovalNeeded):
            bank.pay(5, step="more")
    assert bank.paid == [8]
    (wish,) = guard.approvals.waiting()
    assert wish.arguments == {"payment": "pay_1", "amount": 5}
    guard.approvals.approve(wish.key, by="ada", reason="an exception")

    assert [bank.pay(5, step="more") for _ in range(2)] == [5, 5]
    assert bank.paid == [8, 5]
    assert (bank.account.spent, bank.account.left) == (13, 0)
    with pytest.raises(ApprovalNeeded):
        bank.pay(1)


def test_what_waits_above_the_limit_is_done_when_there_is_enough_again(guard, clock):
    bank = Bank(guard, Allowance("refunds", limit=10, over="approval"))
    bank.pay(8)
    with pytest.raises(ApprovalNeeded):
        bank.pay(5, step="more")
    clock.advance(DAY_S)

    assert bank.pay(5, step="more") == 5
    assert guard.approvals.waiting() == ()


def test_what_was_rejected_above_the_limit_is_not_done_later(guard, clock):
    bank = Bank(guard, Allowance("refunds", limit=1, over="approval"))
    with pytest.raises(ApprovalNeeded):
        bank.pay(5, step="more")
    guard.approvals.reject(guard.approvals.waiting()[0].key, by="ada", reason="no")
    clock.advance(DAY_S)

    with pytest.raises(NotApproved):
        bank.pay(5, step="more")
    assert bank.paid == []


# ---------------------------------------------------------------- crowds and crashes


def test_of_many_that_race_for_the_last_unit_one_gets_it(guard):
    bank = Bank(guard, Allowance("seats", limit=1))
    got, refused = [], []

    def take(number):
        try:
            got.append(bank.pay(1, step=number))
        except LimitReached:
            refused.append(number)

    in_threads(32, take)

    assert (len(got), len(refused), len(bank.paid)) == (1, 31, 1)


class Killed(BaseException):
    """The process is gone: nothing after it runs."""


class Dying(MemoryStore):
    """Its process dies before, or after, its n-th op."""

    def __init__(self, clock):
        super().__init__(clock=clock)
        self.left, self.after = None, False

    def apply(self, op, /):
        if self.left is None:
            return super().apply(op)
        self.left -= 1
        if self.left < 0 or (self.left == 0 and not self.after):
            raise Killed
        done = super().apply(op)
        if self.left == 0:
            raise Killed
        return done


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("end", ["done", "refused"])
def test_wherever_a_process_dies_nothing_is_overdrawn_and_nothing_leaks(end, after):
    """Of every op of a call: what was paid out and what is left is the limit, to the unit."""
    for number in count(1):
        clock = FakeClock()
        store = Dying(clock)
        guard = Guard(store, cache=0, reconcile=False)
        bank = Bank(guard, Allowance("refunds", limit=100), lease_s=30)
        bank.fails = [(Rejected("declined"), False)] if end == "refused" else []
        store.left, store.after = number, after
        died = True
        try:
            bank.pay(60, step="it")
            died = False
        except Killed:
            pass
        except Rejected:
            died = False
        store.left, bank.fails = None, []
        clock.advance(31)  # its lease is over
        guard.sweep()
        for record in guard.in_doubt():
            paid = len(bank.paid) == 1
            settle = (guard.confirm, guard.refute)[not paid]
            settle(record.request.key, by="ada", reason="looked", **{"result": 60} if paid else {})
        left = 100 - sum(bank.paid)
        assert bank.pay(left, step="rest") == left
        with pytest.raises(LimitReached):
            bank.pay(1, step="more")
        assert sum(bank.paid) == 100
        if not died:
            assert number > 5
            return


@in_a_loop
async def test_the_same_for_async_tools(guard):
    @guard.tool(kind="write", retry=QUICK, allowance=Allowance("mails", limit=1))
    async def mail(text: str) -> str:
        return text

    async with guard.step("chat", 1):
        assert await mail("hello") == "hello"
    async with guard.step("chat", 2):
        with pytest.raises(LimitReached):
            await mail("hello")


@pytest.mark.parametrize(
    ("per", "now", "begins", "ends"),
    [
        ("hour", 7_250.0, 7_200.0, 10_800.0),
        ("day", 90_000.0, 86_400.0, 172_800.0),
        ("week", 5 * DAY_S, 4 * DAY_S, 11 * DAY_S),  # 1970-01-05 was a Monday
        ("month", 40 * DAY_S, 31 * DAY_S, 59 * DAY_S),  # February 1970
    ],
)
def test_windows_of_the_calendar(per, now, begins, ends):
    window = SpendingWindow(per)

    assert (window.begins(now), window.ends(now)) == (begins, ends)
    assert window.bucket(now) == begins


# ---------------------------------------------------------------- stores that do not answer


ENV = Env(now=lambda: 0.0, new_token=lambda: "new", rng=lambda: 0.5)
OWNER = Owner("key", "mine", 1, 30.0)
SPEND = Spend("money", "", "allowance money", 5, 10, "", SpendingWindow("day"))
GONE = Unavailable(StoreUnavailable("no answer"))
BROKEN = Cell(0.0, b"\xc1", 1)


def driven(flow, *replies):
    """What the flow asks for, and what it returns, if these are the answers."""
    asked, reply = [], None
    for following in (*replies, None):
        try:
            asked.append(flow.send(reply))
        except StopIteration as done:
            return asked, done.value
        reply = following
    return asked, flow


def cell(*held):
    """An account with so much spent, and what these hold."""
    entries = {key: Holding(5, 0.0, "theirs") for key in held}
    account = Account("money", "", "", 10, SPEND.window, {}, entries)
    return Cell(1.0, msgspec.msgpack.encode(account), 1)


def held(*replies):
    return driven(hold(SPEND, OWNER, ENV, anyway=False), *replies)[1]


def test_an_account_that_cannot_be_asked_or_read_sends_nothing():
    assert held(GONE) is GONE
    assert held((cell(), Applied(1)), GONE) is GONE
    assert "cannot be read" in str(held((BROKEN, Applied(1))).error)
    assert driven(settle(SPEND, "key", "mine", spent=True), BROKEN)[1] is None
    assert driven(settle(SPEND, "key", "mine", spent=True), GONE)[1] is None


def test_who_is_not_the_owner_any_more_holds_nothing():
    assert isinstance(held((cell(), Refused(State.DISPATCHED))), Again)


def test_an_account_that_others_always_write_first_is_given_up():
    ended = held(*[(cell(), Applied(1)), cell()] * TRIES)

    assert "too many others" in str(ended.error)


def test_what_cannot_be_judged_is_held():
    ended = held((cell("a", "b"), Applied(1)), GONE, None)

    assert (ended.left, ended.limit) == (0, 10)


def test_what_waits_for_an_approval_holds_nothing():
    terms = Terms(
        tool="pay", version="1", kind=Kind.WRITE, downstream=Capability.NONE, window_s=1, resend_s=0
    )
    waits = Record(Request("a", "f", terms, "main"), State.CLAIMED, 1, "", 0.0, 0.0)

    assert held((cell("a", "b"), Applied(1)), waits, None, None) is None


def over_limit(guard, *replies):
    """The flow of a call above its limit, which a person may let pass."""
    bank = Bank(guard, Allowance("money", limit=10, over="approval"))
    with guard.step("chat", 1):
        flow = tool_of(bank.refund).flow(tool_of(bank.refund).prepare(("pay_1", 11), {}))
    empty = (Cell(0.0), Applied(1))
    return driven(flow, Cell(0.0), Held(1, 0, False), empty, None, Applied(1), *replies)


def test_another_caller_may_be_faster_than_an_approval(guard):
    outcome = Recorded(State.COMPLETED, b"v1 ok 11", 0.0, 1.0)

    assert isinstance(over_limit(guard, Busy(1.0), outcome)[1], Replay)


def test_a_store_that_is_lost_after_an_approval_sends_nothing(guard):
    asked, ended = over_limit(guard, Held(2, 0, False), GONE, Applied(2))

    assert ended is GONE
    assert not any(isinstance(op, Dispatch | Invoke) for op in asked)


def test_an_unanswered_commit_whose_approval_has_ended_may_have_happened(tmp_path):
    guard = Guard(f"sqlite:///{tmp_path / 'effects.db'}")

    @guard.tool(kind="write", downstream="transaction", approval=True, retry=QUICK, wait_s=0)
    def note(amount: int) -> int:
        current_effect().connection.execute("SELECT 1")
        return amount

    with guard.step("chat", 1):
        flow = tool_of(note).flow(tool_of(note).prepare((1,), {}))
    lost = Unconfirmed(1, StoreUnavailable("no answer"))
    waits = Unapproved(1.0)
    _, ended = driven(flow, Cell(0.0), Held(1, 0, False), lost, waits, waits, None, None)
    guard.close()

    assert isinstance(ended, Exhausted)
