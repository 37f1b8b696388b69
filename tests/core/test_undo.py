"""The undo of an effect: once, of what happened, and of nothing else."""

import asyncio

import pytest

from effectonce import (
    Approval,
    ApprovalNeeded,
    ContractViolation,
    Downstream,
    Found,
    Guard,
    InDoubt,
    Keyring,
    NotSent,
    PartialSuccess,
    Rejected,
    current_effect,
)
from effectonce._core.record import Evidence
from effectonce._core.undo import NOTE, read_request, undoes
from effectonce.stores.memory import MemoryStore
from effectonce.stores.sqlite import SqliteStore
from tests.core.helpers import QUICK, done, in_colour


class Shop:
    """Refunds, takes refunds back, and counts both."""

    def __init__(self, guard, *, colour="sync", undo=None, **contract):
        self.guard, self.done, self.undone, self.answers = guard, [], [], []
        declare = guard.tool(**({"kind": "write", "retry": QUICK, "wait_s": 0} | contract))

        def refund(payment: str, amount: int, note: str = "") -> dict:
            return self._refund(payment, amount)

        def take_back(result, payment, amount):
            return self._take_back(result, payment, amount)

        self.refund, self.colour = declare(in_colour(colour, refund)), colour
        self.undoing = self.refund.undo(**undo or {})(in_colour(colour, take_back))

    def _refund(self, payment, amount):
        current_effect().downstream_key  # noqa: B018  # sent with the request
        if self.answers:
            raise self.answers.pop(0)
        self.done.append((payment, amount))
        return {"receipt": len(self.done)}

    def _take_back(self, result, payment, amount):
        key = current_effect().downstream_key
        self.undone.append((result, payment, amount, key))
        if self.answers:
            raise self.answers.pop(0)
        return {"taken back": result["receipt"]}

    def ask(self, step="1", payment="pay_1", amount=700):
        with self.guard.step("chat", step):
            return done(self.refund(payment, amount))

    def key(self, step="1", payment="pay_1", amount=700):
        with self.guard.step("chat", step):
            return self.refund.explain(payment, amount).key

    def undo(self, key=None, by="ada", reason="wrong customer"):
        key = self.key() if key is None else key
        undo = self.guard.aundo if self.colour == "async" else self.guard.undo
        return done(undo(key, by=by, reason=reason))


@pytest.fixture
def shop(colour, guard):
    return Shop(guard, colour=colour)


def test_an_effect_is_undone_once_with_its_result_and_its_arguments(shop):
    shop.ask()

    first, *more = [shop.undo() for _ in range(3)]

    assert (first.value, first.replayed) == ({"taken back": 1}, False)
    assert [(each.value, each.replayed) for each in more] == [({"taken back": 1}, True)] * 2
    assert [given[:3] for given in shop.undone] == [({"receipt": 1}, "pay_1", 700)]
    assert shop.undone[0][3].startswith("eo_")


def test_the_undo_is_an_effect_of_its_own_and_names_what_it_undoes(shop):
    shop.ask()

    undone = shop.undo()

    record = shop.guard.find(undone.effect.key)
    original = shop.guard.find(shop.key())
    assert (record.request.terms.tool, record.state) == ("refund.undo", "completed")
    assert undoes(record) == f"eff_{original.request.key[-12:]}"
    assert undoes(original) is None
    assert original.state == "completed"


def test_calls_of_the_tool_still_replay_the_original(shop):
    first = shop.ask()
    shop.undo()

    assert shop.ask() == first
    assert len(shop.done) == 1
    assert shop.ask(step="2") == {"receipt": 2}  # a new one is a new step


def test_who_asked_first_and_why_is_kept(shop):
    shop.ask()
    shop.undo(by="ada", reason="wrong customer")
    shop.undo(by="grace", reason="again")

    entries = [each for each in shop.guard.find(shop.key()).evidence if each.note == NOTE]
    assert len(entries) == 1
    assert b'"by":"ada","reason":"wrong customer"' in entries[0].outcome


def test_it_needs_a_name_and_a_reason(shop):
    shop.ask()

    for given in ({"by": ""}, {"reason": " "}):
        with pytest.raises(ContractViolation, match="needs a name"):
            shop.undo(**given)
    assert shop.undone == []


def test_an_unknown_key_is_said_to_be_one(shop):
    with pytest.raises(ContractViolation, match="no effect has this key"):
        shop.undo("0" * 64)


def test_a_doubt_has_to_be_settled_first(shop):
    shop.answers = [TimeoutError()]
    with pytest.raises(InDoubt):
        shop.ask()

    with pytest.raises(ContractViolation, match="is in doubt: settle it first"):
        shop.undo()
    assert shop.undone == []

    shop.guard.confirm(shop.key(), result={"receipt": 9}, by="ada", reason="seen")
    assert shop.undo().value == {"taken back": 9}


def test_of_what_did_not_happen_nothing_is_undone(shop):
    shop.answers = [Rejected("closed")]
    with pytest.raises(Rejected):
        shop.ask()
    with pytest.raises(ContractViolation, match="failed: nothing happened"):
        shop.undo()

    shop.answers = [NotSent()] * QUICK.attempts
    with pytest.raises(Exception, match="did not run"):
        shop.ask(step="2")
    with pytest.raises(ContractViolation, match="was never sent: nothing happened"):
        shop.undo(shop.key(step="2"))
    assert shop.undone == []


def test_of_a_part_nothing_is_undone(shop):
    shop.answers = [PartialSuccess("half", corrective_action="book the rest")]
    with pytest.raises(PartialSuccess):
        shop.ask()

    with pytest.raises(ContractViolation, match="cannot be undone from here: half"):
        shop.undo()


def test_what_is_forgotten_cannot_be_undone(store, clock, guard):
    shop = Shop(guard, window=10)
    shop.ask()
    clock.advance(11)
    guard.sweep()

    with pytest.raises(ContractViolation, match="is forgotten"):
        shop.undo()


def test_what_is_under_way_is_not_undone(guard):
    seen = []

    @guard.tool(kind="write", wait_s=0)
    def refund(payment: str) -> str:
        with pytest.raises(ContractViolation, match="is in flight"):
            guard.undo(current_effect().key, by="ada", reason="too early")
        seen.append(payment)
        return "done"

    @refund.undo
    def take_back(payment):
        seen.append("undone")

    with guard.step("chat", 1):
        refund("pay_1")
    assert seen == ["pay_1"]


def test_what_is_not_stored_is_not_guessed(store):
    guard = Guard(store, cache=0, secret=b"s")

    @guard.tool(kind="write", redact=["card"])
    def charge(order: str, card: str) -> object:
        return "done" if order == "o_1" else object()

    with pytest.raises(ContractViolation, match="redacts 'card'"):

        @charge.undo
        def wrong(card): ...

    undone = []

    @charge.undo
    def give_back(result, order):
        undone.append((result, order))

    with guard.step("chat", 1):
        charge("o_1", "4242")
        key = charge.explain("o_1", "4242").key
    assert guard.undo(key, by="ada", reason="no").value is None
    assert undone == [("done", "o_1")]

    with guard.step("chat", 2):
        charge("o_2", "4242")
        key = charge.explain("o_2", "4242").key
    with pytest.raises(ContractViolation, match="cannot be undone from here"):
        guard.undo(key, by="ada", reason="no")
    assert undone == [("done", "o_1")]


def test_without_the_keys_of_a_sealed_store_nothing_is_undone(store):
    sealed = Shop(Guard(store, cache=0, secret=b"s", keyring=Keyring({"k": b"0" * 32})))
    sealed.ask()
    key = sealed.key()
    blind = Shop(Guard(store, cache=0, secret=b"s", keyring=Keyring({"k": b"1" * 32})))

    with pytest.raises(ContractViolation, match="cannot be undone from here"):
        blind.undo(key)
    assert blind.undone == []
    assert sealed.undo(key).value == {"taken back": 1}


def test_an_undo_that_needs_an_approval_waits_for_it(guard):
    shop = Shop(guard, undo={"approval": Approval(four_eyes=True)})
    shop.ask()
    for _ in range(2):
        with pytest.raises(ApprovalNeeded):
            shop.undo(by="ada")
    (wish,) = guard.approvals.waiting()
    assert (wish.effect.tool, wish.asked_by) == ("refund.undo", "ada")
    assert wish.arguments["payment"] == "pay_1"
    with pytest.raises(ContractViolation, match="another person"):
        guard.approvals.approve(wish.key, by="ada", reason="mine")

    guard.approvals.approve(wish.key, by="grace", reason="yes")

    assert shop.undo().value == {"taken back": 1}
    assert len(shop.undone) == 1


def test_it_inherits_its_tools_contract_and_may_declare_its_own(guard):
    plain = Shop(guard, kind="irreversible", downstream=Downstream.key(), accept_store_loss=True)
    contract = plain.undoing.contract
    assert (contract.name, contract.kind) == ("refund.undo", "irreversible")
    assert contract.downstream == Downstream.key()
    assert (contract.approval, contract.allowances) == (None, ())

    other = Shop(Guard(MemoryStore()), undo={"kind": "idempotent_write", "downstream": "none"})
    assert other.undoing.contract.kind == "idempotent_write"


def test_under_a_key_a_lost_answer_is_sent_again(guard):
    shop = Shop(guard, downstream=Downstream.key())
    shop.ask()
    shop.answers = [TimeoutError()]

    assert shop.undo().value == {"taken back": 1}
    assert len({given[3] for given in shop.undone}) == 1


def test_without_help_a_lost_answer_is_a_doubt_which_its_probe_may_settle(guard):
    shop = Shop(guard)
    shop.ask()
    shop.answers = [TimeoutError()]
    assert [shop.undo().status for _ in range(2)] == ["in_doubt"] * 2
    assert len(shop.undone) == 1

    asked = Shop(Guard(MemoryStore()), downstream="probe")
    asked.ask()
    asked.undoing.probe(lambda result, payment, amount: Found({"found": payment}))
    asked.answers = [TimeoutError()]
    assert asked.undo().value == {"found": "pay_1"}


def test_an_undo_shares_its_tools_transaction(tmp_path):
    guard = Guard(SqliteStore(tmp_path / "effects.db"), cache=0)

    @guard.tool(kind="write", downstream="transaction")
    def book(seat: str) -> str:
        db = current_effect().connection
        db.execute("CREATE TABLE IF NOT EXISTS seats (seat TEXT)")
        db.execute("INSERT INTO seats VALUES (?)", (seat,))
        return seat

    @book.undo
    def free(seat):
        current_effect().connection.execute("DELETE FROM seats WHERE seat = ?", (seat,))
        return "freed"

    with guard.step("chat", 1):
        book("12A")
        key = book.explain("12A").key
    assert [guard.undo(key, by="ada", reason="no").value for _ in range(2)] == ["freed"] * 2
    guard.close()


def test_a_tool_without_an_undo_and_a_guard_without_the_tool_say_so(guard, store):
    @guard.tool(kind="write")
    def pay(to: str) -> str:
        return to

    with guard.step("chat", 1):
        pay("a")
        key = pay.explain("a").key
    with pytest.raises(ContractViolation, match="pay declares no undo"):
        guard.undo(key, by="ada", reason="no")
    with pytest.raises(ContractViolation, match="pay is no tool of this guard"):
        Guard(store).undo(key, by="ada", reason="no")


def test_sync_and_async_are_not_mixed(guard):
    on_loop, plain = Shop(guard, colour="async"), Shop(Guard(MemoryStore()))
    on_loop.ask()
    plain.ask()

    with pytest.raises(ContractViolation, match=r"await guard\.aundo"):
        guard.undo(on_loop.key(), by="ada", reason="no")
    with pytest.raises(ContractViolation, match=r"use guard\.undo"):
        asyncio.run(plain.guard.aundo(plain.key(), by="ada", reason="no"))
    with pytest.raises(TypeError, match="its undo is async def"):

        @plain.refund.undo
        async def later(result): ...


@pytest.mark.parametrize(
    ("options", "wrong"),
    [({"identity": ["payment"]}, "an undo has no identity"), ({"kind": "wild"}, "kind='wild'")],
)
def test_a_wrong_declaration_is_refused(guard, options, wrong):
    with pytest.raises(ContractViolation, match=wrong):
        Shop(guard, undo=options)


def test_an_undo_asks_for_arguments_that_there_are(guard):
    @guard.tool(kind="write")
    def pay(to: str) -> str:
        return to

    @guard.tool(kind="write")
    def keep(result: str) -> str:
        return result

    with pytest.raises(ContractViolation, match="no parameter 'amount', which its undo asks for"):
        pay.undo(lambda amount: None)
    with pytest.raises(ContractViolation, match="keep has a parameter 'result'"):
        keep.undo(lambda result: None)


def test_a_read_and_a_workflow_have_no_undo(guard):
    @guard.tool(kind="read")
    def look(at: str) -> str:
        return at

    @guard.workflow
    def run_it(run) -> None: ...

    with pytest.raises(ContractViolation, match="a read changes nothing"):
        look.undo(lambda at: None)
    with pytest.raises(ContractViolation, match="is a workflow"):
        run_it.undo(lambda: None)


def test_who_asked_for_an_undo_may_be_sealed():
    said = read_request(Evidence(7.0, NOTE, b"v1 sealed k abc"))

    assert (said.by, said.reason, said.at) == ("", "it cannot be read here", 7.0)
