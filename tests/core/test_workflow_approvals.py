"""Steps that a person has to approve: the run waits, and goes on when it is decided."""

import asyncio

import pytest

from effectonce import Allowance, Approval, ApprovalNeeded, Guard, StepFailed
from effectonce.errors import CodeChanged
from effectonce.testing.bank import Bank
from effectonce.workflows import Resumed, Run
from tests.core.helpers import QUICK, approve
from tests.core.workflows import elsewhere, key_of
from tests.processes import in_two_processes


class Shop:
    """Packs, refunds with an approval, and sends; unpacks if that fails."""

    def __init__(self, guard, ledger, mode="sync", **contract):
        self.guard, self.ledger, self.is_async = guard, ledger, mode == "async"
        settings = {"kind": "write", "approval": True, "retry": QUICK} | contract

        def refund(amount: int) -> str:
            return ledger.do(f"refund {amount}")

        async def arefund(amount: int) -> str:
            return refund(amount)

        chosen = guard.tool(name="refund", **settings)(arefund if self.is_async else refund)
        self.amount = 700

        @guard.workflow(name="ship", identity=["order"])
        def ship(run: Run, order: str) -> str:
            run.step("pack", ledger.do, "pack")
            run.compensate("unpack", ledger.do, "unpack")
            run.step("refund", chosen, self.amount)
            return run.step("send", ledger.do, "send")

        @guard.workflow(name="aship", identity=["order"])
        async def aship(run: Run, order: str) -> str:
            run.step("pack", ledger.do, "pack")
            run.compensate("unpack", ledger.do, "unpack")
            await run.step("refund", chosen, self.amount)
            return run.step("send", ledger.do, "send")

        self.ship = aship if self.is_async else ship

    def call(self, order="o1"):
        return asyncio.run(self.ship(order)) if self.is_async else self.ship(order)

    def resume(self):
        given = self.guard.workflows.resume(key_of(self.guard))

        async def awaited():
            return await given

        return asyncio.run(awaited()) if self.is_async else given

    def wish(self):
        with pytest.raises(ApprovalNeeded):
            self.call()
        (wish,) = self.guard.approvals.waiting()
        return wish


@pytest.fixture(params=["sync", "async"])
def shop(request, guard, ledger):
    return Shop(guard, ledger, request.param)


def test_the_run_waits_and_is_not_compensated(shop, ledger):
    wish = shop.wish()

    summary = shop.guard.workflows.summary(key_of(shop.guard))
    assert (summary.state, [step.state for step in summary.steps]) == (
        "waiting",
        ["completed", "claimed"],
    )
    assert "ApprovalNeeded" in summary.error
    assert (wish.effect.tool, wish.effect.step) == ("refund", "2 refund")
    assert wish.arguments == {"amount": 700}
    assert ledger.done == ["pack"]


def test_approved_it_is_resumed_and_each_step_is_done_once(shop, ledger):
    shop.guard.approvals.approve(shop.wish().key, by="ada", reason="yes")

    assert shop.resume() == "send"
    assert shop.call() == "send"
    assert ledger.done == ["pack", "refund 700", "send"]


def test_resumed_before_it_is_decided_it_still_waits(shop, ledger):
    shop.wish()

    with pytest.raises(ApprovalNeeded):
        shop.resume()
    assert ledger.done == ["pack"]


def test_rejected_the_step_has_failed_and_the_run_is_compensated(shop, ledger):
    shop.guard.approvals.reject(shop.wish().key, by="ada", reason="not before Friday")

    with pytest.raises(StepFailed, match="not before Friday"):
        shop.resume()
    assert ledger.done == ["pack", "unpack"]


def test_however_often_it_is_looked_at_a_run_that_waits_is_not_given_up(shop, ledger):
    """It did not crash: the limit of runs is for those that do."""
    wish = shop.wish()
    for _ in range(25):
        with pytest.raises(ApprovalNeeded):
            shop.call()

    shop.guard.approvals.approve(wish.key, by="ada", reason="at last")
    assert shop.call() == "send"


def test_a_round_of_resuming_counts_it_as_waiting(guard, ledger):
    shop = Shop(guard, ledger)
    wish = shop.wish()

    assert guard.workflows.resume_all(workflow="ship") == Resumed(waiting=1)
    guard.approvals.approve(wish.key, by="ada", reason="yes")
    assert elsewhere(guard.workflows.resume_all) == Resumed(completed=1)
    assert ledger.done == ["pack", "refund 700", "send"]


def test_a_cancelled_run_is_never_approved(shop, ledger):
    wish = shop.wish()
    shop.guard.workflows.cancel(key_of(shop.guard), by="ada", reason="stop")

    with pytest.raises(Exception, match="stop"):
        shop.resume()
    assert shop.guard.approvals.find(wish.key) is None
    assert ledger.done == ["pack", "unpack"]


@pytest.mark.parametrize("kind", ["write", "idempotent_write"])
def test_a_rule_says_which_steps_need_it(guard, ledger, kind):
    shop = Shop(guard, ledger, kind=kind, approval=lambda amount: amount > 500)
    shop.amount = 500
    assert shop.call() == "send"

    shop.amount = 501
    with pytest.raises(ApprovalNeeded):
        shop.call("o2")


OVER = Allowance("refunds", limit=500, over="approval")


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("kind", ["write", "idempotent_write", "irreversible"])
@pytest.mark.parametrize("asks", [{}, {"approval": None, "allowance": OVER, "spends": "amount"}])
def test_no_kind_of_step_is_sent_before_it_is_approved(guard, ledger, asks, kind, mode):
    shop = Shop(guard, ledger, mode, kind=kind, accept_store_loss=True, **asks)

    wish = shop.wish()
    assert ledger.done == ["pack"]
    guard.approvals.approve(wish.key, by="ada", reason="yes")
    assert shop.call() == "send"
    assert ledger.done == ["pack", "refund 700", "send"]


def test_arguments_that_changed_are_not_what_was_approved(guard, ledger):
    shop = Shop(guard, ledger)
    guard.approvals.approve(shop.wish().key, by="ada", reason="yes")
    shop.amount = 9_000

    with pytest.raises(CodeChanged, match="other arguments"):
        shop.call()

    (wish,) = guard.approvals.waiting()
    assert wish.arguments == {"amount": 9_000}
    assert ledger.done == ["pack"]


def test_volatile_arguments_are_approved_too(guard, ledger):
    note = ["a"]

    @guard.tool(kind="write", approval=True, volatile=["note"], retry=QUICK)
    def refund(amount: int, note: str) -> None:
        ledger.do(note)

    @guard.workflow
    def ship(run: Run, order: str) -> None:
        run.step("refund", refund, 7, note[0])

    with pytest.raises(ApprovalNeeded):
        ship("o1")
    approve(guard)
    note[0] = "b"

    with pytest.raises(CodeChanged):
        ship("o1")
    assert ledger.done == []


def test_what_has_expired_waits_again(guard, ledger, clock):
    shop = Shop(guard, ledger, approval=Approval(valid_s=60))
    guard.approvals.approve(shop.wish().key, by="ada", reason="yes")
    clock.advance(61)

    with pytest.raises(ApprovalNeeded, match="has expired"):
        shop.resume()
    assert ledger.done == ["pack"]


class Till:
    """The shop's ledger at a bank, which is a process of its own."""

    def __init__(self, bank):
        self._bank = bank

    def do(self, what):
        return self._bank.pay(what, 100)["receipt"]


ELSEWHERE = """
import json, sys
from effectonce import Guard
from effectonce.testing.bank import Teller
from tests.core.test_workflow_approvals import Shop, Till

guard = Guard(sys.argv[1], spool=sys.argv[2])
shop = Shop(guard, Till(Teller(int(sys.argv[3]))), sys.argv[4])
print(json.dumps(shop.call()))
guard.close()
"""


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_after_a_restart_two_processes_go_on_and_each_step_is_done_once(tmp_path, mode):
    url, spool = f"sqlite:///{tmp_path}/effects.db", tmp_path / "spool"
    with Bank(tmp_path / "ledger") as bank:
        guard = Guard(url, spool=spool)
        wish = Shop(guard, Till(bank), mode).wish()
        guard.approvals.approve(wish.key, by="ada", reason="yes")
        guard.close()

        said = in_two_processes(ELSEWHERE, url, spool, bank.port, mode)

        assert said == ["rcpt_3"] * 2
        assert [each["payment_id"] for each in bank.ledger()] == ["pack", "refund 700", "send"]
