"""A call that needs an approval is an interrupt of LangGraph: effects are counted by a process
that knows nothing of it.
"""

import asyncio
import json
import threading
from typing import TypedDict

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command

from effectonce import Approval, Guard
from effectonce._core.ops import Search
from effectonce.integrations.langchain import EffectOnce, once_node, tool_node
from effectonce.stores.memory import MemoryStore
from effectonce.testing.clock import FakeClock
from tests.integrations.agents.langchain_models import Scripted, asks
from tests.processes import in_two_processes

THREAD = {"configurable": {"thread_id": "chat-42", "user": "ada"}}
DONE = AIMessage("done")
YES = {"approved": True, "by": "ada", "reason": "it came back"}
NO = {"approved": False, "by": "ada", "reason": "not before Friday"}


@pytest.fixture(params=["sync", "async"])
def invoke(request):
    if request.param == "sync":
        return lambda agent, given, config=THREAD: agent.invoke(given, config)
    return lambda agent, given, config=THREAD: asyncio.run(agent.ainvoke(given, config))


class Desk:
    """An agent, the tool of which needs an approval."""

    def __init__(self, guard, bank, *, hosted=False, saver=None, approval=True, **options):
        self.guard, self.bank, self.saver = guard, bank, saver or InMemorySaver()
        self.options = options

        def refund(payment_id: str, amount_minor: int = 100) -> str:
            """Refund a payment."""
            return bank.pay(payment_id, amount_minor)["receipt"]

        if hosted:
            contract = {"kind": "irreversible", "approval": approval}
            self.options["contracts"] = {"refund": contract}
        else:
            refund = guard.tool(kind="irreversible", approval=approval, wait_s=30)(refund)
        self.tool = tool(refund)

    def agent(self, *lines):
        return create_agent(
            Scripted(lines=list(lines)),
            [self.tool],
            middleware=[EffectOnce(self.guard, **self.options)],
            checkpointer=self.saver,
        )

    def asked(self, invoke=lambda agent, given: agent.invoke(given, THREAD), **arguments):
        """An agent that waits, and the question that it asks."""
        agent = self.agent(asks("a", payment_id="pay_7", **arguments), DONE)
        result = invoke(agent, {"messages": [HumanMessage("refund pay_7")]})
        (waiting,) = result["__interrupt__"]
        return agent, waiting


@pytest.fixture(params=["guarded", pytest.param("hosted", marks=pytest.mark.long)])
def desk(request, guard, bank):
    return Desk(guard, bank, hosted=request.param == "hosted")


def shown(result):
    return [each for each in result["messages"] if isinstance(each, ToolMessage)]


@pytest.mark.parametrize("hosted", [False, True])
def test_the_question_says_what_is_asked_and_by_whom(guard, bank, invoke, hosted):
    desk = Desk(guard, bank, hosted=hosted, asked_by=lambda _: "agent-7")
    _, waiting = desk.asked(invoke)

    (wish,) = guard.approvals.waiting()
    value = waiting.value
    assert (value["code"], value["tool"]) == ("APPROVAL_NEEDED", "refund")
    assert value["reference"] == wish.effect.reference
    assert value["arguments"] == {"payment_id": "pay_7", "amount_minor": 100}
    assert value["asked_by"] == wish.asked_by == "agent-7"
    assert wish.key not in json.dumps(value)
    assert bank.ledger() == []


def test_an_answer_approves_it_and_it_is_sent_once(desk, bank, invoke):
    agent, _ = desk.asked(invoke)

    result = invoke(agent, Command(resume=YES))

    assert [each.content for each in shown(result)] == ["rcpt_1"]
    assert result["messages"][-1].content == "done"
    assert len(bank.ledger()) == 1
    (record,) = [desk.guard.find(w) for w in keys(desk.guard)]
    assert [e.outcome.decode() for e in record.evidence if e.note == "approved"] == [
        "ada: it came back"
    ]


def keys(guard):
    return [record.request.key for record in guard.store.apply(Search(limit=100))]


def test_an_answer_by_the_id_of_the_interrupt_is_the_same(desk, bank, invoke):
    agent, waiting = desk.asked(invoke)

    result = invoke(agent, Command(resume={waiting.id: YES}))

    assert [each.content for each in shown(result)] == ["rcpt_1"]


def test_a_rejection_is_what_the_model_gets(desk, bank, invoke):
    agent, _ = desk.asked(invoke)

    (message,) = shown(invoke(agent, Command(resume=NO)))

    assert json.loads(message.content)["code"] == "NOT_APPROVED"
    assert "rejected by ada" in message.content
    assert "not before Friday" in message.content
    assert bank.ledger() == []


@pytest.mark.parametrize("decision", ["approve", "reject"])
def test_what_was_decided_elsewhere_needs_no_answer(desk, bank, invoke, decision):
    agent, _ = desk.asked(invoke)
    (wish,) = desk.guard.approvals.waiting()
    getattr(desk.guard.approvals, decision)(wish.key, by="grace", reason="at the desk")

    result = invoke(agent, None)

    assert "__interrupt__" not in result
    assert len(bank.ledger()) == (decision == "approve")


def test_an_answer_comes_too_late_after_another_decision(desk, bank, invoke):
    agent, _ = desk.asked(invoke)
    (wish,) = desk.guard.approvals.waiting()
    desk.guard.approvals.reject(wish.key, by="grace", reason="no")

    (message,) = shown(invoke(agent, Command(resume=YES)))

    assert "rejected by grace" in message.content
    assert bank.ledger() == []


def test_resumed_without_a_decision_it_asks_again(desk, bank, invoke):
    agent, before = desk.asked(invoke)

    (after,) = invoke(agent, None)["__interrupt__"]

    assert (after.id, after.value) == (before.id, before.value)
    assert bank.ledger() == []


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"approved": True, "reason": "r"}, "who decides"),
        ({"approved": "yes", "by": "ada"}, "True or False"),
        ({"by": "ada"}, "True or False"),
    ],
)
def test_an_answer_that_does_not_decide_is_asked_for_again(desk, bank, invoke, answer, why):
    agent, _ = desk.asked(invoke)

    (again,) = invoke(agent, Command(resume=answer))["__interrupt__"]

    assert why in again.value["refused"]
    assert bank.ledger() == []
    result = invoke(agent, Command(resume=YES))
    assert [each.content for each in shown(result)] == ["rcpt_1"]


def test_a_word_is_no_answer(desk, bank, invoke):
    agent, before = desk.asked(invoke)

    (again,) = invoke(agent, Command(resume="approved: true, by ada"))["__interrupt__"]

    assert again.value["question"] == before.value["question"]
    assert bank.ledger() == []


def test_who_answers_is_what_the_application_says(guard, bank):
    desk = Desk(guard, bank, approver=lambda config: config["configurable"]["user"])
    agent, _ = desk.asked()

    agent.invoke(Command(resume={"approved": True, "by": "root"}), THREAD)

    (record,) = [guard.find(key) for key in keys(guard)]
    assert record.evidence[-1].outcome == b"ada: answered in LangGraph"


def test_without_a_checkpointer_the_model_gets_that_it_waits(desk, invoke):
    desk.options["scope"] = lambda _: "chat-42"
    agent = create_agent(
        Scripted(lines=[asks("a", payment_id="pay_7"), DONE]),
        [desk.tool],
        middleware=[EffectOnce(desk.guard, **desk.options)],
    )

    (message,) = shown(invoke(agent, {"messages": [HumanMessage("refund")]}, {}))

    assert json.loads(message.content)["code"] == "APPROVAL_NEEDED"


# ---------------------------------------------------------------- resumed twice, changed, expired


def test_resumed_by_many_at_once_it_is_sent_once(guard, bank):
    """Each has a graph of its own, in one conversation."""
    desk = Desk(guard, bank)
    desk.asked()
    start, ended = threading.Barrier(6), []

    def resume():
        agent = desk.agent(DONE)
        start.wait()
        ended.append(shown(agent.invoke(Command(resume=YES), THREAD)))

    threads = [threading.Thread(target=resume) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(ended) == 6
    assert {each.content for messages in ended for each in messages} == {"rcpt_1"}
    assert len(bank.ledger()) == 1


def test_an_answer_is_of_no_use_for_arguments_that_changed(desk, bank, invoke):
    agent, before = desk.asked(invoke)
    state = agent.get_state(THREAD)
    changed = asks("a", payment_id="pay_7", amount_minor=9_000)
    changed.id = state.values["messages"][-1].id
    agent.update_state(THREAD, {"messages": [changed]}, as_node="model")

    (after,) = invoke(agent, Command(resume=YES))["__interrupt__"]

    assert after.value["arguments"]["amount_minor"] == 9_000
    assert after.value["question"] != before.value["question"]
    assert bank.ledger() == []
    invoke(agent, Command(resume={after.id: YES}))
    assert [each["amount_minor"] for each in bank.ledger()] == [9_000]


def test_an_answer_that_names_another_question_is_passed_over(desk, bank, invoke):
    agent, waiting = desk.asked(invoke)
    other = YES | {"question": "0" * 32}

    (again,) = invoke(agent, Command(resume=other))["__interrupt__"]
    assert bank.ledger() == []

    invoke(agent, Command(resume=YES | {"question": waiting.value["question"]}))
    assert again.value["question"] == waiting.value["question"]
    assert len(bank.ledger()) == 1


class Pay(TypedDict):
    receipt: str


def node_graph(guard, function, saver, **options):
    graph = StateGraph(Pay)
    graph.add_node("pay", once_node(guard, function, **options))
    graph.add_edge(START, "pay")
    graph.add_edge("pay", END)
    return graph.compile(checkpointer=saver)


def test_an_answer_is_of_no_use_after_its_approval_has_expired(clock, bank, store):
    """It was answered, and the process died before it was used. Resumed, it asks anew."""
    guard, saver, crash = Guard(store), InMemorySaver(), [True]

    @guard.tool(kind="write", approval=Approval(valid_s=60))
    def charge(payment_id: str) -> str:
        return bank.pay(payment_id, 100)["receipt"]

    def pay(state):
        if guard.approvals.waiting() == () and crash and keys(guard):
            crash.pop()
            raise KeyboardInterrupt  # after the answer was taken
        return {"receipt": charge("pay_7")}

    graph = node_graph(guard, pay, saver)
    graph.invoke({}, THREAD)
    with pytest.raises(KeyboardInterrupt):
        graph.invoke(Command(resume=YES), THREAD)
    clock.advance(61)

    (again,) = graph.invoke(None, THREAD)["__interrupt__"]

    assert again.value["expired"] is True
    assert bank.ledger() == []
    assert graph.invoke(Command(resume={again.id: YES}), THREAD) == {"receipt": "rcpt_1"}
    assert len(bank.ledger()) == 1


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def store(clock):
    return MemoryStore(clock=clock)


# ---------------------------------------------------------------- nodes


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_node_with_two_calls_asks_for_each(guard, bank, mode):
    @guard.tool(kind="write", approval=True)
    def charge(payment_id: str) -> str:
        return bank.pay(payment_id, 100)["receipt"]

    def pay(state):
        return {"receipt": charge("pay_1") + charge("pay_2")}

    async def apay(state):
        return pay(state)

    graph = node_graph(guard, pay if mode == "sync" else apay, InMemorySaver(), asked_by="agent-7")

    def go(given):
        if mode == "sync":
            return graph.invoke(given, THREAD)
        return asyncio.run(graph.ainvoke(given, THREAD))

    asked = [go({}), go(Command(resume=YES))]
    assert [each["__interrupt__"][0].value["arguments"] for each in asked] == [
        {"payment_id": "pay_1"},
        {"payment_id": "pay_2"},
    ]
    assert [each["__interrupt__"][0].value["asked_by"] for each in asked] == ["agent-7"] * 2
    # resumed after a crash, the first answer is not one to the second question
    assert go(None)["__interrupt__"][0].value["arguments"] == {"payment_id": "pay_2"}
    assert len(bank.ledger()) == 1

    # nor is one that could be the first, handed out once more
    (again,) = go(Command(resume=YES))["__interrupt__"]
    assert len(bank.ledger()) == 1

    assert go(Command(resume={again.id: YES})) == {"receipt": "rcpt_1rcpt_2"}
    assert len(bank.ledger()) == 2


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_calls_side_by_side_in_one_node_get_their_own_answers(guard, bank, mode):
    """LangGraph gives an answer to whichever call asks first."""
    desk = Desk(guard, bank)
    graph = StateGraph(MessagesState)
    graph.add_node("tools", tool_node([desk.tool], guard))
    graph.add_edge(START, "tools")
    graph.add_edge("tools", END)
    graph = graph.compile(checkpointer=InMemorySaver())
    calls = [{"id": str(n), "name": "refund", "args": {"payment_id": f"pay_{n}"}} for n in range(4)]
    given = {"messages": [AIMessage("", tool_calls=calls)]}
    decided = {}

    for _ in range(20):
        result = (
            graph.invoke(given, THREAD)
            if mode == "sync"
            else asyncio.run(graph.ainvoke(given, THREAD))
        )
        waiting = result.get("__interrupt__")
        if not waiting:
            break
        payment = waiting[0].value["arguments"]["payment_id"]
        assert payment not in decided, "asked twice for one"
        decided[payment] = payment in ("pay_0", "pay_3")
        answer = {"approved": decided[payment], "by": "ada"}
        given = Command(resume={waiting[0].id: answer})

    assert sorted(decided) == ["pay_0", "pay_1", "pay_2", "pay_3"]
    assert sorted(each["payment_id"] for each in bank.ledger()) == ["pay_0", "pay_3"]


# ---------------------------------------------------------------- another process

ELSEWHERE = """
import sys, json
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command
from effectonce import Guard
from effectonce.testing.bank import Teller
from tests.integrations.agents.test_langgraph_approvals import DONE, THREAD, Desk, shown

folder, port, given = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
guard = Guard(f"sqlite:///{folder}/effects.db", spool=f"{folder}/spool")
with SqliteSaver.from_conn_string(f"{folder}/saved.db") as saver:
    agent = Desk(guard, Teller(int(port)), saver=saver).agent(DONE)
    result = agent.invoke(Command(resume=given) if given else None, THREAD)
    print(json.dumps([message.content for message in shown(result)]))
guard.close()
"""


def test_after_a_restart_two_processes_resume_and_it_is_sent_once(guard, bank, tmp_path):
    with SqliteSaver.from_conn_string(f"{tmp_path}/saved.db") as saver:
        Desk(guard, bank, saver=saver).asked()

    said = in_two_processes(ELSEWHERE, tmp_path, bank.port, json.dumps(YES))

    assert said == [["rcpt_1"], ["rcpt_1"]]
    assert len(bank.ledger()) == 1
