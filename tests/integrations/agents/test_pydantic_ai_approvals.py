"""A call that needs an approval is a deferred one of Pydantic AI."""

import asyncio
import json

import pytest
from pydantic_ai import Agent, DeferredToolRequests, ToolApproved, ToolDenied
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse
from pydantic_ai.models.function import FunctionModel

from effectonce import Approval, Guard
from effectonce._core.ops import Search
from effectonce.integrations.pydantic_ai import EffectOnce
from effectonce.stores.memory import MemoryStore
from effectonce.testing.clock import FakeClock
from tests.integrations.agents.test_pydantic_ai import DONE, one, returns
from tests.processes import in_two_processes

SIGNED = {"by": "ada", "reason": "it came back"}


class Desk:
    def __init__(self, guard, bank, *, hosted=False, approval=True, kind="irreversible", **options):
        self.guard, self.options = guard, options

        async def refund(payment_id: str, amount_minor: int = 100) -> str:
            """Refund a payment."""
            return bank.pay(payment_id, amount_minor)["receipt"]

        if hosted:
            self.options["contracts"] = {"refund": {"kind": kind, "approval": approval}}
        else:
            refund = guard.tool(kind=kind, approval=approval)(refund)
            self.options["guarded"] = [refund]
        self.tool = refund

    def agent(self, *lines):
        said = list(lines)
        return Agent(
            FunctionModel(lambda messages, info: ModelResponse(parts=said.pop(0))),
            tools=[self.tool],
            capabilities=[EffectOnce(self.guard, **self.options)],
            output_type=[str, DeferredToolRequests],
        )

    def asked(self, **arguments):
        """A run that waits."""
        return go(self.agent(one("a", **arguments), DONE), "refund pay_7")

    def answered(self, before, answer=None, **given):
        requests = before.output
        metadata = {call: shown | SIGNED for call, shown in requests.metadata.items()}
        given = {"approvals": {"a": ToolApproved()}, "metadata": metadata} | given
        if answer is not None:
            given["approvals"] = {"a": answer}
        results = requests.build_results(**given)
        history = before.all_messages()
        return go(self.agent(DONE), message_history=history, deferred_tool_results=results)


def go(agent, *prompt, **given):
    return asyncio.run(agent.run(*prompt, conversation_id="chat-42", **given))


@pytest.fixture(params=["guarded", pytest.param("hosted", marks=pytest.mark.long)])
def desk(request, guard, bank):
    return Desk(guard, bank, hosted=request.param == "hosted", asked_by=lambda _: "agent-7")


def evidence(guard):
    (record,) = guard.store.apply(Search(limit=10))
    return [(each.note, each.outcome.decode()) for each in record.evidence]


def test_the_request_says_what_is_asked_and_by_whom(desk, bank):
    requests = desk.asked().output

    (wish,) = desk.guard.approvals.waiting()
    shown = requests.metadata["a"]
    assert [call.tool_call_id for call in requests.approvals] == ["a"]
    assert (shown["code"], shown["reference"]) == ("APPROVAL_NEEDED", wish.effect.reference)
    assert shown["arguments"] == {"payment_id": "pay_7", "amount_minor": 100}
    assert shown["asked_by"] == wish.asked_by == "agent-7"
    assert bank.ledger() == []


@pytest.mark.parametrize("desk", ["guarded", "hosted"], indirect=True)
def test_approved_it_is_sent_once_and_the_store_says_by_whom(desk, bank):
    result = desk.answered(desk.asked())

    assert returns(result) == [("a", "success", "rcpt_1")]
    assert result.output == "done"
    assert len(bank.ledger()) == 1
    assert evidence(desk.guard)[-1] == ("approved", "ada: it came back")


def test_denied_it_is_rejected_and_never_sent(desk, bank):
    before = desk.asked()
    result = desk.answered(before, ToolDenied("not before Friday"), metadata=before.output.metadata)
    assert desk.guard.approvals.waiting() != ()  # without a name it is no decision

    result = desk.answered(before, ToolDenied("not before Friday"))

    assert returns(result) == [("a", "denied", "not before Friday")]
    assert desk.guard.approvals.waiting() == ()
    ((_, outcome, text),) = returns(go(desk.agent(one("b"), DONE), "again"))
    assert (outcome, json.loads(text)["code"]) == ("failed", "NOT_APPROVED")
    assert bank.ledger() == []


@pytest.mark.parametrize("decision", ["approve", "reject"])
def test_what_was_decided_elsewhere_holds_whatever_the_answer_says(desk, bank, decision):
    before = desk.asked()
    (wish,) = desk.guard.approvals.waiting()
    getattr(desk.guard.approvals, decision)(wish.key, by="grace", reason="at the desk")

    result = desk.answered(before, metadata={})

    assert result.output == "done"
    assert len(bank.ledger()) == (decision == "approve")


def test_resumed_twice_also_from_a_stored_history_it_is_sent_once(desk, bank):
    before = desk.asked()
    stored = ModelMessagesTypeAdapter.validate_json(before.all_messages_json())
    before.all_messages = lambda: stored

    for _ in range(2):
        assert returns(desk.answered(before)) == [("a", "success", "rcpt_1")]
    assert len(bank.ledger()) == 1


def test_an_approval_that_does_not_name_its_question_is_asked_for_again(desk, bank):
    before = desk.asked()

    again = desk.answered(before, metadata={"a": SIGNED}).output

    assert again.metadata["a"]["question"] == before.output.metadata["a"]["question"]
    assert bank.ledger() == []


def test_an_approval_is_of_no_use_for_arguments_that_changed(desk, bank):
    before = desk.asked()

    again = desk.answered(
        before, ToolApproved(override_args={"payment_id": "pay_7", "amount_minor": 9_000})
    )

    assert again.output.metadata["a"]["arguments"]["amount_minor"] == 9_000
    assert bank.ledger() == []


def test_an_approval_is_of_no_use_after_it_has_expired(bank):
    clock = FakeClock()
    guard = Guard(MemoryStore(clock=clock))
    desk = Desk(guard, bank, kind="write", approval=Approval(valid_s=60))
    before = desk.asked()
    (wish,) = guard.approvals.waiting()
    guard.approvals.approve(wish.key, by="ada", reason="yes")
    clock.advance(61)

    again = desk.answered(before)

    assert again.output.metadata["a"]["expired"] is True
    assert bank.ledger() == []
    assert returns(desk.answered(again)) == [("a", "success", "rcpt_1")]
    assert len(bank.ledger()) == 1


def test_who_answers_is_what_the_application_says(guard, bank):
    desk = Desk(guard, bank, approver=lambda context: "grace")

    desk.answered(desk.asked())

    assert evidence(guard)[-1] == ("approved", "grace: it came back")


def test_a_call_that_needs_none_is_not_asked_about(guard, bank):
    desk = Desk(guard, bank, hosted=True, approval=lambda amount_minor: amount_minor > 500)

    assert desk.asked(amount_minor=500).output == "done"
    assert isinstance(desk.asked(pay="pay_8", amount_minor=501).output, DeferredToolRequests)


ELSEWHERE = """
import json, sys
from pathlib import Path
from pydantic_ai import DeferredToolResults, ToolApproved
from pydantic_ai.messages import ModelMessagesTypeAdapter
from effectonce import Guard
from effectonce.testing.bank import Teller
from tests.integrations.agents.test_pydantic_ai_approvals import DONE, Desk, go, returns

folder, port = Path(sys.argv[1]), int(sys.argv[2])
guard = Guard(f"sqlite:///{folder}/effects.db", spool=folder / "spool")
agent = Desk(guard, Teller(port)).agent(DONE)
history = ModelMessagesTypeAdapter.validate_json((folder / "history").read_bytes())
metadata = json.loads((folder / "answer").read_text())
results = DeferredToolResults(approvals={"a": ToolApproved()}, metadata=metadata)
result = go(agent, message_history=history, deferred_tool_results=results)
print(json.dumps(returns(result)))
guard.close()
"""


@pytest.mark.long
def test_after_a_restart_two_processes_resume_and_it_is_sent_once(guard, bank, tmp_path):
    before = Desk(guard, bank).asked()
    (tmp_path / "history").write_bytes(before.all_messages_json())
    (tmp_path / "answer").write_text(json.dumps({"a": before.output.metadata["a"] | SIGNED}))

    said = in_two_processes(ELSEWHERE, tmp_path, bank.port)

    assert said == [[["a", "success", "rcpt_1"]]] * 2
    assert len(bank.ledger()) == 1
