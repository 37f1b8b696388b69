"""A call that needs an approval is an interruption of the OpenAI Agents SDK."""

import asyncio
import json
import threading

import pytest
from agents import Agent, RunConfig, Runner, RunState, function_tool
from agents.exceptions import ModelBehaviorError
from openai.types.responses import ResponseFunctionToolCall
from pydantic import BaseModel

from effectonce import Approval, Guard
from effectonce._core.ops import Search
from effectonce.approvals import Approvals
from effectonce.integrations.openai_agents import protect, sync_approvals
from effectonce.stores.memory import MemoryStore
from effectonce.testing.clock import FakeClock
from tests.integrations.agents.test_openai_agents import DONE, Scripted, asks, outputs
from tests.processes import in_two_processes

CONFIG = RunConfig(group_id="chat-42", tracing_disabled=True)


class Desk:
    def __init__(
        self,
        guard,
        bank,
        *,
        hosted=False,
        approval=True,
        approver="ada",
        kind="irreversible",
        default=100,
        identity=None,
        **options,
    ):
        self.guard, self.bank = guard, bank
        self.options = options | {"approver": approver}

        async def refund(payment_id: str, amount: int = default) -> str:
            """Refund a payment."""
            return bank.pay(payment_id, amount)["receipt"]

        if hosted:
            contract = {"kind": "irreversible", "approval": approval, "identity": identity}
            self.options["contracts"] = {"refund": contract}
        else:
            refund = guard.tool(kind=kind, approval=approval, identity=identity)(refund)
        self.tool = function_tool(refund)

    def agent(self, *lines):
        agent = Agent(name="desk", model=Scripted(*lines), tools=[self.tool])
        return protect(agent, self.guard, **self.options)

    def asked(self, **arguments):
        """A run that waits."""
        call = asks(("a", {"payment_id": "pay_7"} | arguments))
        return go(self.agent(call, DONE), "refund pay_7")


@pytest.fixture(params=["guarded", pytest.param("hosted", marks=pytest.mark.long)])
def desk(request, guard, bank):
    return Desk(guard, bank, hosted=request.param == "hosted")


def go(agent, given):
    return asyncio.run(Runner.run(agent, given, run_config=CONFIG))


def approved(result, **how):
    state = result.to_state()
    state.approve(result.interruptions[0], **how)
    return state


def records(guard):
    return guard.store.apply(Search(limit=10))


def test_the_run_pauses_and_nothing_is_sent(desk, bank):
    result = desk.asked()

    (item,) = result.interruptions
    assert (item.name, json.loads(item.arguments)) == ("refund", {"payment_id": "pay_7"})
    assert bank.ledger() == []


@pytest.mark.parametrize("desk", ["guarded", "hosted"], indirect=True)
def test_approved_it_is_sent_once_and_the_store_says_by_whom(desk, bank):
    result = go(desk.agent(DONE), approved(desk.asked()))

    assert outputs(result) == [("a", "rcpt_1")]
    assert len(bank.ledger()) == 1
    (record,) = records(desk.guard)
    assert record.evidence[-1].outcome == b"ada: answered in OpenAI Agents"


def test_rejected_it_is_not_sent(desk, bank):
    result = desk.asked()
    state = result.to_state()
    state.reject(result.interruptions[0], rejection_message="not before Friday")

    assert outputs(go(desk.agent(DONE), state)) == [("a", "not before Friday")]
    assert bank.ledger() == []


def test_a_call_that_needs_none_is_not_asked_about(guard, bank):
    desk = Desk(guard, bank, approval=lambda amount: amount > 500)

    assert desk.asked(amount=500).interruptions == []
    assert len(desk.asked(payment_id="pay_8", amount=501).interruptions) == 1
    assert len(bank.ledger()) == 1


def test_resumed_twice_also_after_a_restart_it_is_sent_once(desk, bank):
    stored = approved(desk.asked()).to_string()

    results = [outputs(resumed(desk, stored, sync=False)) for _ in range(2)]

    assert results == [[("a", "rcpt_1")]] * 2
    assert len(bank.ledger()) == 1


def test_resumed_at_the_same_time_it_is_sent_once(desk, bank):
    stored = approved(desk.asked()).to_string()

    async def resume():
        agent = desk.agent(DONE)
        state = await RunState.from_string(agent, stored)
        return outputs(await Runner.run(agent, state, run_config=CONFIG))

    async def all_of_them():
        return await asyncio.gather(*(resume() for _ in range(4)))

    assert asyncio.run(all_of_them()) == [[("a", "rcpt_1")]] * 4
    assert len(bank.ledger()) == 1


def test_a_blanket_approval_is_none(desk, bank):
    """It stands for calls whose arguments were shown to no person."""
    result = go(desk.agent(DONE), approved(desk.asked(), always_approve=True))

    ((_, text),) = outputs(result)
    assert json.loads(text)["code"] == "APPROVAL_NEEDED"
    assert bank.ledger() == []


def test_what_expired_is_not_approved_by_the_same_answer(bank):
    clock = FakeClock()
    guard = Guard(MemoryStore(clock=clock))
    desk = Desk(
        guard, bank, kind="write", approval=Approval(valid_s=60), asked_by=lambda _: "agent-7"
    )
    state = approved(desk.asked())
    # the wish as another process left it: approved by this answer, and not used
    desk.options["approver"] = None
    (call,) = outputs(go(desk.agent(asks(("b", {"payment_id": "pay_7"})), DONE), "again"))
    assert json.loads(call[1])["code"] == "APPROVAL_NEEDED"
    (wish,) = guard.approvals.waiting()
    assert wish.asked_by == "agent-7"
    guard.approvals.approve(wish.key, by="ada", reason="yes")
    clock.advance(61)
    desk.options["approver"] = "ada"

    ((_, text),) = outputs(go(desk.agent(DONE), state))

    assert json.loads(text)["code"] == "APPROVAL_NEEDED"
    assert "has expired" in text
    assert bank.ledger() == []


def test_without_a_name_for_who_answers_the_run_does_not_pause(guard, bank):
    desk = Desk(guard, bank, approver=None)

    result = desk.asked()

    ((_, text),) = outputs(result)
    assert json.loads(text)["code"] == "APPROVAL_NEEDED"
    (wish,) = guard.approvals.waiting()
    assert wish.effect.reference == json.loads(text)["operation"]


def test_who_asked_does_not_approve_where_four_eyes_are_declared(guard, bank):
    desk = Desk(guard, bank, approval=Approval(four_eyes=True), asked_by=lambda _: "ada")

    ((_, text),) = outputs(go(desk.agent(DONE), approved(desk.asked())))

    assert "another person has to approve it" in text
    assert bank.ledger() == []


def test_a_pause_of_the_tools_own_stays(guard, bank):
    desk = Desk(guard, bank, hosted=True, approval=lambda amount: amount > 500)
    desk.tool.needs_approval = lambda context, params, call_id: params["payment_id"] == "pay_7"

    result = desk.asked(amount=1)

    assert len(result.interruptions) == 1
    assert outputs(go(desk.agent(DONE), approved(result))) == [("a", "rcpt_1")]


# ---------------------------------------------------------------- the same wish in our store


def synced(state, **options):
    asyncio.run(sync_approvals(state, run_config=CONFIG, **options))
    return state


@pytest.fixture
def waiting(desk):
    """A run that waits, whose wish is in the store."""
    return synced(desk.asked().to_state())


def approve_elsewhere(guard):
    (wish,) = guard.approvals.waiting()
    guard.approvals.approve(wish.key, by="grace", reason="at the desk")


def test_while_a_run_waits_its_wish_is_in_the_store(guard, bank):
    desk = Desk(guard, bank, asked_by=lambda _: "agent-7")
    state = desk.asked().to_state()
    still = asyncio.run(sync_approvals(state, run_config=CONFIG))

    assert [item.call_id for item in still] == ["a"]

    (wish,) = guard.approvals.waiting()
    assert wish.arguments == {"payment_id": "pay_7", "amount": 100}
    assert (wish.asked_by, wish.effect.scope) == ("agent-7", "chat-42")
    assert bank.ledger() == []


def test_the_wish_is_that_of_the_call_which_the_resumed_run_makes(desk, bank, waiting):
    waiting.approve(waiting.get_interruptions()[0])

    result = go(desk.agent(DONE), waiting)

    assert outputs(result) == [("a", "rcpt_1")]
    (record,) = records(desk.guard)
    assert record.evidence[-1].outcome == b"ada: answered in OpenAI Agents"


def test_approved_elsewhere_the_run_goes_on_without_an_answer(desk, bank, waiting):
    stored = waiting.to_string()
    approve_elsewhere(desk.guard)

    assert [outputs(resumed(desk, stored)) for _ in range(2)] == [[("a", "rcpt_1")]] * 2
    assert len(bank.ledger()) == 1
    (record,) = records(desk.guard)
    assert record.evidence[-1].outcome == b"grace: at the desk"


def test_rejected_elsewhere_the_model_gets_it_as_data(desk, bank, waiting):
    (wish,) = desk.guard.approvals.waiting()
    desk.guard.approvals.reject(wish.key, by="grace", reason="not before Friday")

    ((_, text),) = outputs(go(desk.agent(DONE), synced(waiting)))

    assert json.loads(text)["code"] == "NOT_APPROVED"
    assert "not before Friday" in text
    assert bank.ledger() == []


def test_undecided_it_waits_on(desk, bank, waiting):
    result = go(desk.agent(DONE), synced(waiting))

    assert len(result.interruptions) == 1
    assert len(desk.guard.approvals.waiting()) == 1
    assert bank.ledger() == []


@pytest.mark.parametrize("said", ["not before Friday", None])
def test_rejected_in_the_framework_it_is_rejected_in_the_store(guard, bank, said):
    desk = Desk(guard, bank, approver=lambda context: context.context["user"])
    state = synced(desk.asked().to_state())
    state.reject(state.get_interruptions()[0], rejection_message=said)

    result = go(desk.agent(DONE), synced(state, context={"user": "ada"}))

    assert len(outputs(result)) == 1
    (record,) = records(guard)
    reason = said or "answered in OpenAI Agents"
    assert (record.state, record.settled_by, record.reason) == ("failed", "ada", reason)
    assert guard.approvals.waiting() == ()
    assert bank.ledger() == []


def test_a_decision_in_the_store_comes_before_a_later_one_in_the_framework(desk, bank, waiting):
    (wish,) = desk.guard.approvals.waiting()
    desk.guard.approvals.reject(wish.key, by="grace", reason="no")
    waiting.approve(waiting.get_interruptions()[0])

    ((_, text),) = outputs(go(desk.agent(DONE), synced(waiting)))

    assert json.loads(text)["code"] == "NOT_APPROVED"
    assert bank.ledger() == []


@pytest.fixture
def expiring(bank):
    """A desk whose approvals are good for a minute, its guard, and the clock."""
    clock = FakeClock()
    guard = Guard(MemoryStore(clock=clock))
    return Desk(guard, bank, kind="write", approval=Approval(valid_s=60)), guard, clock


def test_an_approval_from_elsewhere_that_has_expired_is_asked_for_again(expiring, bank):
    desk, guard, clock = expiring
    state = synced(desk.asked().to_state())
    approve_elsewhere(guard)
    clock.advance(61)

    result = go(desk.agent(DONE), synced(state))

    assert len(result.interruptions) == 1
    assert [wish.expired for wish in guard.approvals.waiting()] == [True]
    assert bank.ledger() == []


def test_a_second_refund_that_is_approved_is_sent_although_it_equals_the_first(desk, bank):
    """The model was shown the first one in the same run, before it paused."""
    both = [asks((call, {"payment_id": "pay_7"})) for call in "ab"]
    agent = desk.agent(*both, DONE)
    result = go(agent, approved(go(agent, "refund pay_7")))
    stored = approved(result).to_string()

    for _ in range(2):
        assert outputs(resumed(desk, stored)) == [("a", "rcpt_1"), ("b", "rcpt_2")]
    assert len(bank.ledger()) == 2


def test_without_that_the_second_is_refused_and_not_taken_for_the_first(desk, bank):
    both = [asks((call, {"payment_id": "pay_7"})) for call in "ab"]
    agent = desk.agent(*both, DONE)
    result = go(agent, approved(go(agent, "refund pay_7")))

    (_, (_, text)) = outputs(go(agent, approved(result)))

    assert json.loads(text)["code"] == "CONTRACT_VIOLATION"
    assert "sync_approvals" in text
    assert len(bank.ledger()) == 1


@pytest.mark.parametrize("hosted", [False, True])
@pytest.mark.parametrize("approval", [False, lambda amount: amount > 500])
def test_a_pause_of_the_tools_own_waits_and_leaves_nothing_in_the_store(
    guard, bank, hosted, approval
):
    desk = Desk(guard, bank, hosted=hosted, approval=approval)
    desk.tool.needs_approval = True
    state = desk.asked(amount=1).to_state()

    still = asyncio.run(sync_approvals(state, run_config=CONFIG))

    assert [item.call_id for item in still] == ["a"]
    assert len(go(desk.agent(DONE), state).interruptions) == 1
    assert records(guard) == ()
    assert bank.ledger() == []


def test_arguments_as_the_sdk_converts_them_are_those_of_the_wish(guard, bank):
    class Payment(BaseModel):
        payment_id: str

    async def refund(payment: Payment, amount: int = 100) -> str:
        """Refund a payment."""
        return bank.pay(payment.payment_id, amount)["receipt"]

    desk = Desk(guard, bank, hosted=True)
    desk.options["contracts"] = {}
    desk.tool = function_tool(guard.tool(kind="irreversible", approval=True)(refund))
    call = asks(("a", {"payment": {"payment_id": "pay_7"}}))
    state = synced(go(desk.agent(call, DONE), "refund pay_7").to_state())
    approve_elsewhere(guard)

    assert outputs(go(desk.agent(DONE), synced(state))) == [("a", "rcpt_1")]


def test_arguments_that_do_not_fit_are_no_wish_and_reported_when_it_goes_on(guard, bank):
    desk = Desk(guard, bank)
    state = synced(desk.asked(amount="many").to_state())

    assert guard.approvals.waiting() == ()
    state.approve(state.get_interruptions()[0])
    ((_, text),) = outputs(go(desk.agent(DONE), synced(state)))
    assert "many" in text or "Invalid" in text
    assert bank.ledger() == []


ELSEWHERE = """
import asyncio, json, sys
from pathlib import Path
from agents import Runner, RunState
from effectonce import Guard
from effectonce.integrations.openai_agents import sync_approvals
from effectonce.testing.bank import Teller
from tests.integrations.agents.test_openai_agents_approvals import CONFIG, DONE, Desk, outputs

folder, port = Path(sys.argv[1]), int(sys.argv[2])
guard = Guard(f"sqlite:///{folder}/effects.db", spool=folder / "spool")
agent = Desk(guard, Teller(port), hosted=True).agent(DONE)

async def resume():
    state = await RunState.from_string(agent, (folder / "state").read_text())
    await sync_approvals(state, run_config=CONFIG)
    return outputs(await Runner.run(agent, state, run_config=CONFIG))

print(json.dumps(asyncio.run(resume())))
guard.close()
"""


@pytest.mark.long
def test_after_a_restart_two_processes_resume_and_it_is_sent_once(guard, bank, tmp_path):
    state = synced(Desk(guard, bank, hosted=True).asked().to_state())
    approve_elsewhere(guard)
    (tmp_path / "state").write_text(state.to_string())

    said = in_two_processes(ELSEWHERE, tmp_path, bank.port)

    assert said == [[["a", "rcpt_1"]]] * 2
    assert len(bank.ledger()) == 1


def resumed(desk, stored, *, sync=True):
    """The run goes on, with what is stored."""

    async def resume():
        agent = desk.agent(DONE)
        state = await RunState.from_string(agent, stored)
        if sync:
            await sync_approvals(state, run_config=CONFIG)
        return await Runner.run(agent, state, run_config=CONFIG)

    return asyncio.run(resume())


def test_an_approval_is_of_no_use_for_arguments_that_changed(desk, bank, waiting):
    approve_elsewhere(desk.guard)
    dearer = Desk(desk.guard, bank, hosted="contracts" in desk.options, default=9_000)

    assert len(resumed(dearer, waiting.to_string()).interruptions) == 1
    assert [wish.arguments["amount"] for wish in desk.guard.approvals.waiting()] == [9_000]
    assert bank.ledger() == []


@pytest.mark.parametrize("hosted", [False, True])
def test_an_approval_is_of_no_use_for_the_same_payment_with_another_amount(guard, bank, hosted):
    desk = Desk(guard, bank, hosted=hosted, identity=["payment_id"])
    synced(desk.asked().to_state())
    approve_elsewhere(guard)

    dearer = synced(desk.asked(amount=900).to_state()).to_string()
    results = [resumed(desk, dearer) for _ in range(2)]

    assert [len(result.interruptions) for result in results] == [1, 1]
    assert [wish.arguments["amount"] for wish in guard.approvals.waiting()] == [900]
    assert bank.ledger() == []


def test_what_the_store_had_approved_is_no_persons_answer_when_its_approval_is_void(guard, bank):
    desk = Desk(guard, bank, identity=["payment_id"])
    state = synced(desk.asked().to_state())
    approve_elsewhere(guard)
    decided = synced(state).to_string()
    synced(desk.asked(amount=900).to_state())  # the wish is another by now
    synced(desk.asked().to_state())  # and this one again

    unsynced = resumed(desk, decided, sync=False)
    result = resumed(desk, decided)

    assert json.loads(outputs(unsynced)[0][1])["code"] == "APPROVAL_NEEDED"
    assert len(result.interruptions) == 1
    assert bank.ledger() == []


@pytest.mark.parametrize("identity", [None, ["payment_id"]])
def test_an_answer_of_the_framework_is_of_no_use_for_a_default_that_changed(guard, bank, identity):
    state = synced(Desk(guard, bank, identity=identity).asked().to_state())
    state.approve(state.get_interruptions()[0])
    dearer = Desk(Guard(guard.store), bank, default=9_000, identity=identity)

    unsynced = resumed(dearer, state.to_string(), sync=False)
    result = resumed(dearer, state.to_string())

    assert json.loads(outputs(unsynced)[0][1])["code"] in ("APPROVAL_NEEDED", "KEY_CONFLICT")
    assert len(result.interruptions) == 1
    assert bank.ledger() == []


def test_an_answer_approves_the_wish_that_it_was_for_and_no_other_that_took_its_place(
    guard, bank, monkeypatch
):
    desk = Desk(guard, bank, identity=["payment_id"])
    approved_100 = approved(desk.asked(amount=100))
    asked_900 = desk.asked(amount=900).to_state()
    find, others = Approvals.find, []

    def after_another_process(self, key):
        if not others:
            others.append(threading.Thread(target=lambda: synced(asked_900)))
            others[0].start()
            others[0].join()
        return find(self, key)

    monkeypatch.setattr(Approvals, "find", after_another_process)
    ((_, text),) = outputs(go(desk.agent(DONE), approved_100))

    assert json.loads(text)["code"] == "KEY_CONFLICT"
    assert len(guard.approvals.waiting()) == 1
    assert bank.ledger() == []


def test_what_expired_is_approved_by_a_new_answer(expiring):
    desk, guard, clock = expiring
    state = synced(desk.asked().to_state())
    approve_elsewhere(guard)
    clock.advance(61)

    synced(state)
    state.approve(state.get_interruptions()[0])

    assert asyncio.run(sync_approvals(state, run_config=CONFIG)) == []
    assert outputs(go(desk.agent(DONE), state)) == [("a", "rcpt_1")]
    (record,) = records(guard)
    assert record.evidence[-1].outcome == b"ada: answered in OpenAI Agents"


def test_an_answer_that_is_older_than_the_question_is_taken_back(expiring, bank):
    desk, guard, clock = expiring
    state = synced(desk.asked().to_state())
    state.approve(state.get_interruptions()[0])
    approve_elsewhere(guard)
    clock.advance(61)

    still = asyncio.run(sync_approvals(state, run_config=CONFIG))

    assert [item.call_id for item in still] == ["a"]
    assert bank.ledger() == []


def test_a_call_of_an_agent_that_is_used_as_a_tool_waits_until_its_own_state_is_answered(
    guard, bank
):
    clerk = Desk(guard, bank).agent(asks(("a", {"payment_id": "pay_7"})), DONE)
    asked = ResponseFunctionToolCall(
        type="function_call", call_id="c", name="clerk", arguments='{"input": "refund"}'
    )
    tools = [clerk.as_tool("clerk", "refunds")]
    state = go(Agent(name="boss", model=Scripted([asked], DONE), tools=tools), "x").to_state()

    before = asyncio.run(sync_approvals(state, run_config=CONFIG))
    state.approve(state.get_interruptions()[0])
    after = asyncio.run(sync_approvals(state, run_config=CONFIG))

    assert [item.call_id for item in before] == ["a"]
    assert after == []


def test_what_no_longer_waits_when_the_run_pauses_need_not_wait(desk, bank, waiting):
    approve_elsewhere(desk.guard)
    go(desk.agent(DONE), synced(waiting))

    again = desk.asked().to_state()
    still = asyncio.run(sync_approvals(again, run_config=CONFIG))

    assert still == []
    assert outputs(go(desk.agent(DONE), again)) == [("a", "rcpt_1")]
    assert len(bank.ledger()) == 1


def test_a_state_whose_arguments_were_changed_is_refused_by_the_sdk(desk, bank, waiting):
    waiting.approve(waiting.get_interruptions()[0])
    old, new = (json.dumps(json.dumps({"payment_id": each})) for each in ("pay_7", "pay_8"))
    changed = waiting.to_string().replace(old, new)

    with pytest.raises(ModelBehaviorError, match="different invocation"):
        resumed(desk, changed)
    assert bank.ledger() == []
