"""Probes, people, and fallbacks."""

import pytest

from effectonce import (
    CannotTell,
    ContractViolation,
    Downstream,
    Found,
    Guard,
    InDoubt,
    NotFound,
    Rejected,
    ReplayedFailure,
    State,
    current_effect,
)
from effectonce._core import ops, rules
from tests.core.helpers import QUICK, Ledger, named, tool, unanswered


def test_a_probe_settles_a_timeout_within_the_call(guard):
    ledger = Ledger(("after", TimeoutError()))

    @guard.tool(kind="write", downstream="probe", retry=QUICK)
    def pay(invoice: str):
        return ledger.pay()

    @pay.probe
    def find(invoice: str):
        assert (invoice, current_effect().epoch) == ("inv_1", 3)
        return Found({"receipt": ledger.effects}) if ledger.effects else NotFound()

    with guard.step("chat", "pay"):
        outcome = guard.call(pay, {"invoice": "inv_1"})
        assert (outcome.value, outcome.settled_by) == ({"receipt": 1}, "probe")
        assert pay("inv_1") == {"receipt": 1}
    assert ledger.effects == 1


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (NotFound(), "the probe did not find it, which is no proof"),
        (CannotTell("closed"), r"the probe could not tell \(closed\)"),
        (CannotTell(), r"the probe could not tell \(0 s ago"),
        (None, "the probe returned NoneType instead of Found"),
        (RuntimeError("down"), "the probe failed .*down"),
    ],
    ids=repr,
)
def test_a_probe_that_proves_nothing_leaves_the_doubt(guard, answer, said):
    ledger = Ledger(("after", TimeoutError()))
    pay = tool(guard, ledger.pay, downstream="probe")

    @pay.probe
    def find():
        if isinstance(answer, Exception):
            raise answer
        return answer

    with guard.step("chat", "pay"):
        with pytest.raises(InDoubt) as doubt:
            pay()
        assert isinstance(doubt.value.__cause__, TimeoutError)
        for _ in range(2):
            with pytest.raises(InDoubt, match=said):
                pay()
    assert guard.reconcile() == type(guard.reconcile())(settled=0, in_doubt=1, skipped=0)
    assert ledger.effects == 1


def test_a_declared_delay_bound_turns_not_found_into_a_re_run(guard, clock):
    ledger = Ledger(("before", TimeoutError()))
    pay = tool(guard, ledger.pay, downstream=Downstream.probe(delay=60))

    @pay.probe
    def find():
        return Found("?") if ledger.effects else NotFound()

    with guard.step("chat", "pay"):
        with pytest.raises(InDoubt):
            pay()
        clock.advance(89)
        with pytest.raises(InDoubt):
            pay()
        clock.advance(2)
        assert guard.reconcile().in_doubt == 1  # asking alone never sends
        assert pay() == {"receipt": 1}


def test_effects_in_doubt_are_reconciled_in_the_background(store, clock):
    worker = Guard(store, cache=0)
    silent = tool(
        worker,
        named("pay", lambda invoice: (_ for _ in ()).throw(TimeoutError())),
        downstream="probe",
    )
    for invoice in ("inv_1", "inv_2"):
        with worker.step("chat", f"pay {invoice}"), pytest.raises(InDoubt):
            silent(invoice)
    assert worker.reconcile().skipped == 2

    desk = Guard(store, cache=0)
    pay = tool(
        desk, named("pay", lambda invoice: pytest.fail("asking must not send")), downstream="probe"
    )
    pay.probe(
        lambda invoice: Found(f"receipt of {invoice}") if invoice == "inv_1" else CannotTell()
    )
    assert desk.reconcile() == type(desk.reconcile())(settled=1, in_doubt=1, skipped=0)
    with desk.step("chat", "pay inv_1"):
        assert pay("inv_1") == "receipt of inv_1"


def test_a_person_settles_what_nobody_else_can(guard):
    @guard.tool(kind="write", retry=QUICK)
    def pay(invoice: int):
        raise TimeoutError

    def doubt(invoice):
        with guard.step("chat", f"pay {invoice}"):
            return guard.call(pay, {"invoice": invoice}).effect.key

    confirmed, refuted = doubt(1), doubt(2)
    assert [record.request.key for record in guard.in_doubt()] == sorted([confirmed, refuted])
    guard.confirm(confirmed, result={"receipt": 9}, by="ada", reason="on the statement")
    guard.refute(refuted, by="ada", reason="not on the statement")
    with guard.step("chat", "pay 1"):
        outcome = guard.call(pay, {"invoice": 1})
        assert (outcome.value, outcome.settled_by) == ({"receipt": 9}, "ada")
    with guard.step("chat", "pay 2"), pytest.raises(ReplayedFailure, match="not on the statement"):
        pay(2)
    with pytest.raises(ContractViolation, match="nothing to settle: the effect is completed"):
        guard.refute(confirmed, by="ada", reason="changed my mind")
    with pytest.raises(ContractViolation, match="unknown to this store"):
        guard.refute("0" * 40, by="ada", reason="typo")


def test_a_person_may_retry_only_where_the_key_is_honoured(guard, clock):
    mail = tool(guard, unanswered)

    ledger = Ledger(("after", TimeoutError()), ("before", Rejected("?")))
    pay = tool(guard, ledger.pay, downstream=Downstream.key(window=3600))

    with guard.step("chat", "mail"):
        key = guard.call(mail, {}).effect.key
    with pytest.raises(ContractViolation, match="could do it twice"):
        guard.retry(key, by="ada", reason="please")
    with guard.step("chat", "pay"):
        key = guard.call(pay, {}).effect.key
        guard.retry(key, by="ada", reason="the bank says it is fine")
        assert pay() == {"receipt": 2}


def test_a_fallback_answers_for_a_tool_that_cannot(guard):
    @guard.tool(kind="write", retry=QUICK)
    def pay(invoice: str):
        raise TimeoutError

    @pay.fallback
    def explain(error, invoice):
        return f"{error.code} for {invoice}"

    with guard.step("chat", "pay"):
        assert pay("inv_1") == "OUTCOME_UNKNOWN for inv_1"
        with pytest.raises(ContractViolation):
            pay(5)
    assert guard.counts() == {State.IN_DOUBT: 1}


def test_a_fallback_answers_for_a_call_that_somebody_else_is_doing(guard):
    @guard.tool(kind="write", wait_s=0)
    def pay():
        with guard.step("chat", "pay"):
            return pay()

    pay.fallback(lambda error: error.code)
    with guard.step("chat", "pay"):
        assert pay() == "RETRY_IN_FLIGHT"


def test_one_caller_asks_the_probe_at_a_time(guard, store):
    pay = tool(guard, unanswered, downstream="probe")

    asked = []

    @pay.probe
    def find():
        asked.append(1)
        if len(asked) == 1:
            with guard.step("chat", "pay"), pytest.raises(InDoubt):
                pay()
        return Found("receipt")

    with guard.step("chat", "pay"):
        assert pay() == "receipt"
    assert asked == [1]


def test_a_doubt_that_somebody_settles_while_we_want_to_ask_is_replayed(guard, store):
    pay = tool(guard, unanswered, downstream="probe")

    pay.probe(lambda: CannotTell())
    with guard.step("chat", "pay"):
        key = guard.call(pay, {}).effect.key
        apply = store.apply

        def settled_first(op):
            if isinstance(op, ops.Inquire):
                store.apply = apply
                guard.confirm(key, result="receipt", by="ada", reason="seen")
            return apply(op)

        store.apply = settled_first
        assert pay() == "receipt"
        store.apply = settled_first
        record = guard.find(key)
        assert guard._tool(pay).reconcile(record).status == "in_doubt"


def test_a_doubt_that_vanished_stays_one(guard, store):
    pay = tool(guard, unanswered, downstream="probe")

    pay.probe(lambda: Found(1))
    with guard.step("chat", "pay"):
        prepared = guard._tool(pay).prepare((), {})
    record = rules.Record(prepared.request, State.IN_DOUBT, 1, "", 0, 0)
    assert guard._tool(pay).reconcile(record).status == "in_doubt"


def test_an_interrupted_probe_is_an_interruption(guard):
    pay = tool(guard, unanswered, downstream="probe")

    with guard.step("chat", "pay"), pytest.raises(InDoubt):
        pay()

    @pay.probe
    def find():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        guard.reconcile()
    with guard.step("chat", "pay"), pytest.raises(KeyboardInterrupt):
        pay()
