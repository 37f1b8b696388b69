"""Ways around an approval: nothing is sent that no person has seen, and no person is asked twice."""

import dataclasses
import io

import pytest

from effectonce import (
    Allowance,
    Approval,
    ApprovalNeeded,
    Conflict,
    ContractViolation,
    GaveUp,
    Guard,
    InDoubt,
    Keyring,
    NotApproved,
    NotSent,
    Retry,
    State,
    StoreUnavailable,
    TimeWindow,
    current_effect,
)
from effectonce._core.ops import Approve, Claim, Complete, Dispatch, Find, Refute
from effectonce._core.record import APPROVED
from effectonce.stores.encrypted import Sealed
from effectonce.stores.memory import MemoryStore
from effectonce.stores.sqlite import SqliteStore
from tests.core.helpers import QUICK, approve, done, in_colour, tool
from tests.core.test_approvals import Bank
from tests.flaky import FlakyStore

ONCE = Retry(attempts=1)


@pytest.fixture
def bank(guard):
    return Bank(guard)


# ---------------------------------------------------------------- steps of workflows


# ---------------------------------------------------------------- other arguments than those seen


@dataclasses.dataclass
class Draft:
    text: str


def test_a_volatile_model_that_is_changed_while_the_call_waits_is_sent_as_it_was_approved(colour):
    class Waiting(MemoryStore):
        """Another thread changes the draft while the claim is on its way."""

        def apply(self, op, /):
            if isinstance(op, Find):
                return super().apply(op)
            reply = super().apply(op)
            if armed:
                draft.text = "pay 9999"
            return reply

    armed, sent, draft = [], [], Draft("pay 1")
    guard = Guard(Waiting(), cache=0)

    def send(to: str, draft: Draft) -> None:
        sent.append(draft.text)

    sending = tool(guard, in_colour(colour, send), approval=True, volatile=["draft"])

    def call():
        with guard.step("chat", 1):
            done(sending("ada", draft))

    with pytest.raises(ApprovalNeeded):
        call()
    approve(guard)
    armed.append(True)
    call()

    assert sent == ["pay 1"]


@pytest.mark.parametrize(
    ("seen", "later"),
    [
        ("pay 1 \ud800", "pay 9999 \ud800"),
        ({"amount": 1, "rate": float("nan")}, {"amount": 9999, "rate": float("nan")}),
        ([object(), 1], [object(), 9999]),
        (Draft(["pay 1", object()]), Draft(["pay 9999", object()])),
        ({"pay 1", float("nan")}, {"pay 9999", float("nan")}),
    ],
    ids=["text", "number", "list", "model", "set"],
)
def test_data_beside_what_is_none_is_approved(guard, seen, later):
    sent = []

    @guard.tool(kind="write", approval=True, volatile=["note"], retry=QUICK)
    def send(to: str, note) -> None:
        sent.append(note)

    with guard.step("chat", 1):
        with pytest.raises(ApprovalNeeded):
            send("ada", seen)
        approve(guard)
        with pytest.raises(Conflict):
            send("ada", later)
        assert sent == []
        approve(guard)
        send("ada", later)
    assert len(sent) == 1


def test_what_contains_itself_is_not_approved(guard):
    @guard.tool(kind="write", approval=True, volatile=["note"], retry=QUICK)
    def send(to: str, note) -> None:
        pass

    note = []
    note.append(note)
    with guard.step("chat", 1), pytest.raises(ContractViolation, match="contains itself"):
        send("ada", note)


def test_a_rule_cannot_change_what_is_sent(guard):
    def over(lines):
        lines.append(9999)
        return sum(lines) > 500

    sent = []

    @guard.tool(kind="write", approval=over, retry=QUICK)
    def refund(lines: list[int]) -> None:
        sent.append(lines)

    with guard.step("chat", 1), pytest.raises(ApprovalNeeded):
        refund([700])
    wish = approve(guard)
    with guard.step("chat", 1):
        refund([700])

    assert wish.arguments == {"lines": [700]}
    assert sent == [[700]]


def test_a_call_that_needs_no_approval_is_replayed_whatever_its_volatile_arguments_are(guard):
    bank = Bank(guard, approval=lambda amount: amount > 500, volatile=["note"])

    assert [bank.ask(amount=100, note="a"), bank.ask(amount=100, note="b")] == [
        {"refunded": 100}
    ] * 2
    assert bank.done == [("pay_1", 100, "a")]


@pytest.mark.parametrize("decide", [None, "approve"])
def test_a_call_that_needs_none_takes_the_place_of_one_that_was_not_sent(guard, decide):
    bank = Bank(guard, approval=lambda amount: amount > 500, identity=["payment"])
    wish = bank.wish(amount=700)
    if decide:
        guard.approvals.approve(wish.key, by="ada", reason="yes")

    with pytest.raises(Conflict):
        bank.ask(amount=100)
    assert guard.approvals.waiting() == ()
    assert bank.ask(amount=100) == {"refunded": 100}
    with pytest.raises(Conflict):
        bank.ask(amount=700)
    assert bank.done == [("pay_1", 100, "")]


def test_an_approval_under_a_given_key_is_for_its_arguments(guard, bank):
    def ask(amount):
        return guard.call(
            bank.refund, {"payment": "pay_1", "amount": amount}, key=("refund", 1)
        ).unwrap()

    with pytest.raises(ApprovalNeeded):
        ask(700)
    approve(guard)
    with pytest.raises(Conflict):
        ask(7_000)
    with pytest.raises(ApprovalNeeded):
        ask(7_000)
    assert bank.done == []


def test_an_added_parameter_is_part_of_what_is_approved(guard):
    bank = Bank(guard, added={"note": ""}, identity=["payment"])
    bank.wish()
    approve(guard)

    with pytest.raises(Conflict):
        bank.ask(note="to my own account")
    assert bank.done == []


def test_a_redacted_argument_is_part_of_what_is_approved(store):
    guard = Guard(store, cache=0, secret=b"s" * 32)
    bank = Bank(guard, redact=["note"], identity=["payment"])
    wish = bank.wish(note="iban 1")
    approve(guard)

    assert "iban" not in str(wish.arguments)
    with pytest.raises(Conflict):
        bank.ask(note="iban 2")
    assert bank.done == []


def test_each_time_window_needs_an_approval_of_its_own(guard, clock):
    bank = Bank(guard, dedup=TimeWindow(seconds=60))
    bank.wish()
    approve(guard)
    assert bank.ask() == {"refunded": 700}
    clock.advance(61)

    with pytest.raises(ApprovalNeeded):
        bank.ask()
    approve(guard)
    assert [bank.ask(), bank.ask()] == [{"refunded": 700}] * 2
    assert len(bank.done) == 2


def test_what_comes_next_in_a_sequence_waits_for_what_is_not_approved(guard, bank):
    def ask(number):
        with guard.sequence("orders", number):
            return bank.refund("pay_1", number)

    with pytest.raises(ApprovalNeeded):
        ask(1)
    with pytest.raises(Exception, match="Nothing was sent"):
        ask(2)
    assert [wish.arguments["amount"] for wish in guard.approvals.waiting()] == [1]
    approve(guard)
    ask(1)
    with pytest.raises(ApprovalNeeded):
        ask(2)
    assert bank.done == [("pay_1", 1, "")]


def test_a_tool_inside_an_approved_tool_needs_its_own_approval(guard):
    sent = []

    @guard.tool(kind="write", approval=True, retry=QUICK)
    def inner(text: str) -> None:
        sent.append(text)

    @guard.tool(kind="write", downstream="key", approval=True, retry=ONCE)
    def outer(text: str) -> None:
        _ = current_effect().downstream_key
        inner(text)

    def call():
        with guard.step("chat", 1):
            outer("hello")

    with pytest.raises(ApprovalNeeded):
        call()
    approve(guard)
    with pytest.raises(Exception, match="inner"):
        call()
    assert sent == []
    approve(guard)
    call()
    assert sent == ["hello"]


# ---------------------------------------------------------------- above a limit

OVER = Allowance("refunds", limit=500, over="approval")


def test_what_is_approved_above_a_limit_has_the_volatile_arguments_that_were_seen(guard):
    sent = []

    @guard.tool(kind="write", allowance=OVER, spends="amount", volatile=["to"], retry=QUICK)
    def refund(amount: int, to: str) -> int:
        sent.append(to)
        return amount

    with guard.step("chat", 1):
        with pytest.raises(ApprovalNeeded):
            refund(700, "ada")
        approve(guard)
        with pytest.raises(Conflict):
            refund(700, "mallory")
    assert sent == []


# ---------------------------------------------------------------- decisions


def test_what_may_have_been_sent_is_not_rejected_but_settled(guard, clock):
    @guard.tool(kind="write", approval=True, retry=ONCE, lease_s=30)
    def refund(amount: int) -> None:
        raise TimeoutError("no answer")

    def call():
        with guard.step("chat", 1):
            refund(700)

    with pytest.raises(ApprovalNeeded):
        call()
    wish = approve(guard)
    with pytest.raises(InDoubt):
        call()

    with pytest.raises(ContractViolation, match="it was not rejected: the effect is in_doubt"):
        guard.approvals.reject(wish.key, by="ada", reason="no")
    assert guard.find(wish.key).state is State.IN_DOUBT


def test_a_rejection_is_of_the_arguments_that_were_seen(guard):
    bank = Bank(guard, identity=["payment"])
    first = bank.wish(amount=7_000)
    with pytest.raises(Conflict):
        bank.ask(amount=70)

    with pytest.raises(ContractViolation, match="its arguments are others by now"):
        guard.approvals.reject(first.key, by="ada", reason="n", fingerprint=first.fingerprint)
    approve(guard)
    assert bank.ask(amount=70) == {"refunded": 70}


@pytest.mark.parametrize("by", ["Ada", " ada ", "ADA"])
def test_who_asked_does_not_approve_under_another_spelling(guard, by):
    bank = Bank(guard, approval=Approval(four_eyes=True))
    wish = bank.wish(asked_by="ada")

    with pytest.raises(ContractViolation, match="asked for it, and another person has to"):
        guard.approvals.approve(wish.key, by=by, reason="I want it")


def test_an_approval_from_a_process_without_the_tool_lasts_as_the_tool_declares(
    store, clock, guard
):
    bank = Bank(guard, approval=Approval(valid_s=10))
    wish = bank.wish()
    Guard(store).approvals.approve(wish.key, by="ada", reason="yes")
    clock.advance(11)

    with pytest.raises(ApprovalNeeded, match="has expired"):
        bank.ask()


def test_a_call_that_needs_an_approval_since_yesterday_waits_for_one(guard):
    """It was asked for and not sent, when its rule let it pass."""
    limit, attempts = [1_000], []

    @guard.tool(kind="write", approval=lambda amount: amount > limit[0], retry=ONCE, wait_s=0)
    def refund(amount: int) -> int:
        attempts.append(amount)
        if len(attempts) == 1:
            raise NotSent("no connection")
        return amount

    def call():
        with guard.step("chat", 1, asked_by="agent"):
            return refund(700)

    with pytest.raises(GaveUp):
        call()
    limit[0] = 500
    with pytest.raises(ApprovalNeeded):
        call()
    assert approve(guard).asked_by == "agent"

    assert call() == 700
    assert attempts == [700, 700]


# ---------------------------------------------------------------- lost acknowledgements


@pytest.mark.parametrize("how", ["lost", "unacknowledged"])
def test_an_approval_whose_answer_was_lost_is_given_again_and_used_once(how):
    store = FlakyStore()
    bank = Bank(Guard(store, cache=0))
    wish = bank.wish()
    decide = {"by": "ada", "reason": "yes", "fingerprint": wish.fingerprint}
    store.fail(Approve, how)

    with pytest.raises(StoreUnavailable):
        bank.guard.approvals.approve(wish.key, **decide)
    bank.guard.approvals.approve(wish.key, **decide)

    assert [bank.ask(), bank.ask()] == [{"refunded": 700}] * 2
    assert len(bank.done) == 1
    approvals = [each for each in bank.guard.find(wish.key).evidence if each.note == APPROVED]
    assert len(approvals) == 1


@pytest.mark.parametrize("how", ["lost", "unacknowledged"])
def test_a_rejection_whose_answer_was_lost_is_given_again(how):
    store = FlakyStore()
    bank = Bank(Guard(store, cache=0))
    wish = bank.wish()
    store.fail(Refute, how)

    with pytest.raises(StoreUnavailable):
        bank.guard.approvals.reject(wish.key, by="ada", reason="no")
    bank.guard.approvals.reject(wish.key, by="ada", reason="no")

    with pytest.raises(NotApproved):
        bank.ask()
    assert bank.done == []


@pytest.mark.parametrize("how", ["lost", "unacknowledged"])
@pytest.mark.parametrize("op", [Claim, Dispatch, Complete])
def test_a_lost_answer_to_who_uses_an_approval_uses_it_once(op, how):
    store = FlakyStore()
    bank = Bank(Guard(store, cache=0))
    wish = bank.wish()
    bank.guard.approvals.approve(wish.key, by="ada", reason="yes")
    store.fail(op, how)

    assert [bank.ask(), bank.ask()] == [{"refunded": 700}] * 2
    assert len(bank.done) == 1


# ---------------------------------------------------------------- dead letters


def test_what_needs_an_approval_by_now_is_not_redriven_without_one(guard, clock):
    limit, attempts = [1_000], []

    @guard.tool(kind="write", approval=lambda amount: amount > limit[0], retry=ONCE, wait_s=0)
    def refund(amount: int) -> int:
        attempts.append(amount)
        raise NotSent("no connection")

    with guard.step("chat", 1), pytest.raises(GaveUp):
        refund(700)
    limit[0] = 500
    (letter,) = guard.dead_letters.list()

    redriven = guard.dead_letters.redrive(letter.key, by="ada", reason="again")

    assert "waits for an approval" in redriven.why
    assert attempts == [700]
    assert [wish.key for wish in guard.approvals.waiting()] == [letter.key]


def test_an_approved_letter_waits_in_another_store_for_an_approval_there(bank, clock):
    wish = bank.wish()
    bank.guard.approvals.approve(wish.key, by="ada", reason="yes")
    clock.advance(600)
    file = io.BytesIO()
    assert bank.guard.dead_letters.export(file) == 1
    other = Guard(MemoryStore(clock=clock), cache=0)

    for count in (1, 0):
        file.seek(0)
        taken = other.dead_letters.load(file)
        assert (taken.imported, taken.problems) == (count, ())
    assert [each.key for each in other.approvals.waiting()] == [wish.key]


def test_a_sent_letter_is_in_doubt_in_another_store_although_its_tool_needs_approvals(guard, clock):
    @guard.tool(kind="write", approval=True, retry=ONCE)
    def refund(amount: int) -> None:
        raise TimeoutError("no answer")

    with guard.step("chat", 1):
        with pytest.raises(ApprovalNeeded):
            refund(700)
        wish = approve(guard)
        with pytest.raises(InDoubt):
            refund(700)
    file, other = io.BytesIO(), Guard(MemoryStore(clock=clock), cache=0)
    guard.dead_letters.export(file)
    file.seek(0)

    assert other.dead_letters.load(file).problems == ()
    assert other.find(wish.key).state is State.IN_DOUBT


# ---------------------------------------------------------------- records that vanish


class Forgetful:
    """A tool with an approval, during whose run its record goes."""

    def __init__(self, *script, colour="sync", **contract):
        self.store = MemoryStore()
        self.guard, self.script, self.sends = Guard(self.store, cache=0), list(script), 0
        settings = {"kind": "write", "approval": True, "retry": ONCE, "wait_s": 0} | contract

        def pay() -> int:
            return self.pay()

        self.tool = self.guard.tool(**settings)(in_colour(colour, pay))

    def pay(self):
        _ = current_effect().downstream_key
        self.sends += 1
        if self.sends == 1:
            self.store._records.clear()
            self.store._open.clear()
        if self.script:
            raise self.script.pop(0)
        return self.sends

    def call(self):
        with self.guard.step("chat", "pay"):
            return done(self.tool())

    def approved(self):
        with pytest.raises(ApprovalNeeded):
            self.call()
        approve(self.guard)
        return self


def test_an_effect_whose_record_vanished_is_not_asked_for_again(colour):
    pay = Forgetful(colour=colour).approved()

    assert [pay.call(), pay.call()] == [1, 1]
    assert pay.guard.approvals.waiting() == ()


def test_a_doubt_whose_record_vanished_stays_a_doubt(colour):
    pay = Forgetful(TimeoutError("no answer"), colour=colour).approved()

    for _ in range(2):
        with pytest.raises(InDoubt):
            pay.call()
    assert (pay.sends, pay.guard.approvals.waiting()) == (1, ())


def test_what_is_sent_again_under_its_key_is_not_approved_again_when_its_record_vanished():
    pay = Forgetful(TimeoutError("no answer"), downstream="key", retry=QUICK).approved()

    assert [pay.call(), pay.call()] == [2, 2]
    assert pay.guard.approvals.waiting() == ()


# ---------------------------------------------------------------- stores


def test_who_approved_and_why_is_sealed_and_can_be_read(clock):
    inner = MemoryStore(clock=clock)
    guard = Guard(Sealed(inner, Keyring({"2026-11": b"n" * 32})), cache=0)
    bank = Bank(guard, approval=Approval(four_eyes=True))
    wish = bank.wish(asked_by="agent-7")
    guard.approvals.approve(wish.key, by="ada", reason="the customer is ill")
    again = {"by": "ada", "reason": "the customer is ill"}
    guard.approvals.approve(wish.key, **again)  # its answer was lost

    record = guard.find(wish.key)
    story = [(each.note, each.outcome.decode()) for each in record.evidence]
    assert story == [
        ("approval was asked for", "agent-7"),
        ("approved", "ada: the customer is ill"),
    ]
    assert record.reason == "the customer is ill"
    assert "is ill" not in repr(inner.apply(Find(wish.key)))
    assert bank.ask() == {"refunded": 700}


def test_what_was_approved_before_a_store_was_sealed_is_not_taken_for_sealed(clock):
    inner = MemoryStore(clock=clock)
    bank = Bank(Guard(inner, cache=0))
    wish = bank.wish()
    bank.guard.approvals.approve(wish.key, by="ada", reason="yes")

    sealed = Guard(Sealed(inner, Keyring({"2026-11": b"n" * 32})), cache=0).find(wish.key)

    assert [each.note for each in sealed.evidence] == ["approval was asked for", "approved"]
    assert b"not sealed" in sealed.evidence[1].outcome


def test_a_transaction_commits_once_and_only_what_was_approved(tmp_path, clock):
    guard = Guard(SqliteStore(tmp_path / "effects.db", clock=clock), cache=0)
    sql, rows = "CREATE TABLE IF NOT EXISTS rows (amount INTEGER)", "SELECT count(*) FROM rows"

    @guard.tool(kind="write", downstream="transaction", approval=True, retry=ONCE, lease_s=30)
    def note(amount: int) -> int:
        connection = current_effect().connection
        connection.execute(sql)
        connection.execute("INSERT INTO rows VALUES (?)", (amount,))
        return amount

    def call():
        with guard.step("chat", 1):
            return note(700)

    with pytest.raises(ApprovalNeeded):
        call()
    approve(guard)
    assert [call(), call()] == [700, 700]
    with guard.step("chat", 2), pytest.raises(ApprovalNeeded):
        note(800)
    wish = approve(guard)
    guard.approvals.reject(wish.key, by="grace", reason="taken back")
    with guard.step("chat", 2), pytest.raises(NotApproved):
        note(800)

    with guard.store.transaction() as transaction:
        assert transaction.connection.execute(rows).fetchone()[0] == 1
    guard.store.close()
