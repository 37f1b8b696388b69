"""Workflows: a run is an effect, a step is an effect, resuming is calling again."""

import pytest

from effectonce import (
    CannotTell,
    Conflict,
    ContractViolation,
    Downstream,
    Found,
    GaveUp,
    Guard,
    InDoubt,
    ReplayedFailure,
    current_effect,
)
from effectonce.errors import CodeChanged, StepFailed
from effectonce.workflows import Resumed, Run
from tests.core.helpers import QUICK
from tests.core.workflows import Flaky, key_of, refusing, registered, stopped_after

# ---------------------------------------------------------------- resuming


def test_a_run_that_was_stopped_goes_on_where_it_was(guard, ledger):
    stop = [ValueError("a bug")]

    @guard.workflow(identity=["order"])
    def ship(run: Run, order: str) -> list[str]:
        first = run.step("pack", ledger.do, f"pack {order}")
        if stop:
            raise stop.pop()
        return [first, run.step("send", ledger.do, f"send {order}")]

    with pytest.raises(ValueError, match="a bug"):
        ship("o1")

    assert ship("o1") == ["pack o1", "send o1"]
    assert ship("o1") == ["pack o1", "send o1"]
    assert ledger.done == ["pack o1", "send o1"]


def test_a_step_whose_arguments_do_not_fit_sends_nothing(guard, ledger):
    @guard.tool(kind="write")
    def pay(amount: int):
        ledger.do("pay")

    @guard.workflow
    def settle(run: Run, order: str) -> None:
        run.step("pay", pay, "ten")

    with pytest.raises(ContractViolation, match="amount"):
        settle("o1")
    assert ledger.done == []


def test_an_answer_is_written_down_before_anything_is_done_with_it_and_never_asked_for_again(
    guard, ledger
):
    answers = iter(["charge", "refund"])
    stop = [RuntimeError("died before acting")]

    @guard.workflow
    def act(run: Run, chat: str) -> str:
        decision = run.ask("decide", lambda: ledger.do("asked", next(answers)))
        if stop:
            raise stop.pop()
        return run.step("act", ledger.do, decision)

    with pytest.raises(RuntimeError):
        act("c1")
    assert act("c1") == "charge"
    assert ledger.done == ["asked", "charge"]


def test_the_same_step_in_a_loop_is_another_one_each_time(guard, ledger):
    @guard.workflow
    def mail(run: Run, week: str) -> int:
        for _ in range(3):
            run.step("mail", ledger.do, "bob")
        return len(ledger.done)

    assert mail("w1") == 3
    assert mail("w1") == 3


def test_other_arguments_under_the_same_identity_are_a_conflict(guard, ledger):
    @guard.workflow(identity=["order"])
    def pay(run: Run, order: str, amount: int) -> str:
        return run.step("pay", ledger.do, amount)

    pay("o1", 5)
    with pytest.raises(Conflict):
        pay("o1", 6)
    assert ledger.done == [5]


def test_a_result_of_ten_megabytes_and_a_document_of_one_work(guard):
    @guard.workflow(identity=["name"])
    def read(run: Run, name: str, document: str) -> int:
        return len(run.ask("summarise", lambda text: text * 10, document))

    assert read("d1", "x" * 2**20) == 10 * 2**20


def test_a_run_has_one_name_in_all_steps_and_downstream_keys_that_never_change(guard):
    keys, names, stop = [], [], [ValueError()]

    @guard.tool(kind="write", downstream="key")
    def pay(amount: int) -> int:
        keys.append((current_effect().downstream_key, current_effect().ref.scope))
        return amount

    @guard.workflow
    def order(run: Run, n: int) -> None:
        names.append(run.id)
        run.step("first", pay, 1)
        if stop:
            raise stop.pop()
        run.step("second", pay, 1)

    with pytest.raises(ValueError):
        order(1)
    order(1)
    assert len(set(names)) == 1
    assert all(names[0] in scope for _, scope in keys)
    assert len({key for key, _ in keys}) == len(keys) == 2


# ---------------------------------------------------------------- changed code


def test_a_step_that_has_another_name_now_is_noticed(store, ledger):
    with pytest.raises(KeyError):
        registered(Guard(store), stopped_after(ledger, "pack", "send"))(1)

    with pytest.raises(CodeChanged, match="'1 pack' was done here before, and now '1 wrap'"):
        registered(Guard(store), stopped_after(ledger, "wrap", "send"))(1)
    assert ledger.done == ["pack", "send"]


def test_other_arguments_of_a_step_are_noticed(guard, ledger):
    amounts, stop = iter([5, 6]), [KeyError()]

    @guard.workflow
    def pay(run: Run, n: int) -> None:
        run.step("pay", ledger.do, next(amounts))
        if stop:
            raise stop.pop()

    with pytest.raises(KeyError):
        pay(1)
    with pytest.raises(CodeChanged, match="'1 pay' has other arguments"):
        pay(1)
    assert ledger.done == [5]


# ---------------------------------------------------------------- failures, doubts, compensations


def test_a_definite_failure_undoes_what_was_done_the_last_first_and_ends_the_run(guard, ledger):
    @guard.workflow
    def book(run: Run, trip: str) -> None:
        run.step("hotel", ledger.do, "hotel")
        run.compensate("cancel hotel", ledger.do, "no hotel")
        run.step("train", ledger.do, "train")
        run.compensate("cancel train", ledger.do, "no train")
        run.step("ferry", refusing(ledger))

    with pytest.raises(
        StepFailed, match=r"step 3 ferry of book .* failed for good with Rejected: sold out"
    ) as failure:
        book("t1")
    with pytest.raises(ReplayedFailure, match="sold out"):
        book("t1")

    assert failure.value.error_type == "Rejected"
    assert ledger.done == ["hotel", "train", "refuse", "no train", "no hotel"]


def test_a_crash_while_compensating_goes_on_compensating_once_each(guard, ledger):
    flaky = Flaky(ledger, 1, ConnectionError("nobody knows"))

    @guard.tool(kind="idempotent_write", retry=QUICK)
    def cancel_hotel(what: str) -> str:
        return flaky(what)

    guard_once = guard.tool(kind="idempotent_write", name="once", retry=QUICK)(ledger.do)

    @guard.workflow
    def book(run: Run, trip: str) -> None:
        run.step("hotel", ledger.do, "hotel")
        run.compensate("cancel hotel", cancel_hotel, "no hotel")
        run.step("train", ledger.do, "train")
        run.compensate("cancel train", guard_once, "no train")
        run.step("ferry", refusing(ledger))

    flaky.times = 3
    with pytest.raises(GaveUp):
        book("t1")
    flaky.times = 0
    with pytest.raises(StepFailed):
        book("t1")
    assert ledger.done == ["hotel", "train", "refuse", "no train", "no hotel"]


def test_a_compensation_that_fails_for_good_is_told_and_the_others_are_done(guard, ledger):
    @guard.workflow
    def book(run: Run, trip: str) -> None:
        run.compensate("cancel hotel", ledger.do, "no hotel")
        run.compensate("cancel train", refusing(ledger))
        run.step("ferry", refusing(ledger))

    with pytest.raises(
        StepFailed, match=r"could not be compensated: step undo 2 cancel train .* sold out"
    ):
        book("t1")
    assert ledger.done == ["refuse", "refuse", "no hotel"]


def test_a_workflow_may_handle_a_definite_failure_and_does_the_same_when_it_is_resumed(
    guard, ledger
):
    stop = [KeyError()]

    @guard.workflow
    def book(run: Run, trip: str) -> str:
        try:
            run.step("ferry", refusing(ledger))
        except StepFailed:
            run.step("plane", ledger.do, "plane")
        if stop:
            raise stop.pop()
        return run.step("hotel", ledger.do, "hotel")

    with pytest.raises(KeyError):
        book("t1")
    assert book("t1") == "hotel"
    assert ledger.done == ["refuse", "plane", "hotel"]


def test_an_error_of_the_users_own_ends_the_run_if_it_is_declared(guard, ledger):
    class OutOfStock(Exception):
        pass

    @guard.workflow(ends_on=[OutOfStock])
    def book(run: Run, trip: str) -> None:
        run.step("hotel", ledger.do, "hotel")
        run.compensate("cancel hotel", ledger.do, "no hotel")
        raise OutOfStock("no beds")

    with pytest.raises(OutOfStock):
        book("t1")
    with pytest.raises(ReplayedFailure, match="no beds"):
        book("t1")
    assert ledger.done == ["hotel", "no hotel"]


def test_a_step_in_doubt_parks_the_run_and_nothing_else_is_done_even_if_the_workflow_catches_it(
    guard, ledger
):
    def pay() -> None:
        ledger.do("pay")
        raise TimeoutError("nobody knows")

    @guard.workflow
    def order(run: Run, n: int) -> str:
        run.compensate("undo", ledger.do, "undo")
        try:
            run.step("pay", pay)
        except Exception:
            run.step("pay another way", ledger.do, "pay twice")
        return "done"

    for _ in range(2):
        with pytest.raises(InDoubt):
            order(1)
    assert ledger.done == ["pay"]
    assert guard.workflows.summary(key_of(guard)).state == "waiting"

    (doubt,) = guard.in_doubt()
    guard.confirm(doubt.request.key, result=None, by="ann", reason="it is in the bank's list")
    assert order(1) == "done"
    assert ledger.done == ["pay"]


def test_a_run_does_not_end_well_behind_the_back_of_a_step_that_stopped_it(guard, ledger):
    def pay() -> None:
        raise TimeoutError("nobody knows")

    @guard.workflow
    def order(run: Run, n: int) -> str:
        try:
            run.step("pay", pay)
        except InDoubt:
            return "all is well"

    with pytest.raises(InDoubt):
        order(1)
    summary = guard.workflows.summary(key_of(guard))
    assert (summary.state, summary.totals.in_doubt) == ("waiting", 1)
    assert "nobody knows" in summary.steps[0].error


def test_a_probe_settles_a_parked_step_when_the_run_is_resumed(guard, ledger):
    known = []

    @guard.tool(kind="write", downstream=Downstream.probe(), retry=QUICK)
    def pay(amount: int) -> int:
        ledger.do("pay")
        raise TimeoutError("nobody knows")

    @pay.probe
    def was_it(amount: int):
        return Found(known[0]) if known else CannotTell("ask later")

    @guard.workflow
    def order(run: Run, n: int) -> int:
        return run.step("pay", pay, 5)

    with pytest.raises(InDoubt):
        order(1)
    known.append(5)
    assert guard.workflows.resume_all() == Resumed(completed=1)
    assert order(1) == 5
    assert ledger.done == ["pay"]


def test_a_run_that_is_begun_too_often_waits_for_a_person(guard, ledger):
    stop = [True]

    @guard.workflow(runs=3)
    def order(run: Run, n: int) -> str:
        run.step("pay", ledger.do, "pay")
        if stop:
            raise RuntimeError("as if it had crashed")
        return "done"

    for _ in range(3):
        with pytest.raises(RuntimeError):
            order(1)
    for _ in range(2):
        with pytest.raises(GaveUp, match=r"was begun [34] times and never ended"):
            order(1)
    stop.clear()
    assert guard.workflows.resume_all() == Resumed(waiting=1)
    assert guard.workflows.resume(key_of(guard)) == "done"
    assert ledger.done == ["pay"]


def test_a_step_has_the_permissions_of_its_workflow_and_no_others(guard, ledger):
    pay = guard.tool(kind="write", name="pay", permission="money")(ledger.do)

    @guard.workflow(permissions=["money"])
    def trusted(run: Run, n: int) -> str:
        return run.step("pay", pay, "paid")

    @guard.workflow
    def other(run: Run, n: int) -> str:
        return run.step("pay", pay, "paid")

    assert trusted(1) == "paid"
    with pytest.raises(
        ContractViolation, match=r"needs the permission 'money', which other .* does not have"
    ):
        other(1)
    assert ledger.done == ["paid"]


def test_what_cannot_be_part_of_a_fingerprint_is_refused(guard, ledger):
    @guard.workflow
    def order(run: Run, n: int) -> None:
        run.step("do", ledger.do, float("nan"))

    with pytest.raises(ContractViolation, match=r"order\.do: .*Nothing was sent"):
        order(1)
    assert ledger.done == []
