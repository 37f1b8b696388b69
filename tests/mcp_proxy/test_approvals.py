"""A call that needs an approval, through the proxy: the official client asks its person, in both
eras of the protocol; another client gets that the call waits.
"""

from __future__ import annotations

import asyncio
import json
import sys

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import ElicitResult

from effectonce import Guard
from effectonce._core.ops import Search
from effectonce.mcp._contracts import Contracts
from tests.mcp_proxy.conftest import SDK, environment, proxied
from tests.mcp_proxy.test_sdk import ERAS, NEW, OLD, run
from tests.servers._process import until

REFUND = {"payment_id": "p", "amount_minor": 7}
YES = {"approved": True, "by": "ada", "reason": "it came back"}


class Person:
    """Answers what is asked, and remembers it."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    async def __call__(self, context, params):
        self.asked.append(params)
        action, content = self.answers.pop(0)
        return ElicitResult(action=action, content=content)


def connect(stage, era, person=None, **contracts):
    contracts = {"tools": {"refund": {"kind": "irreversible", "approval": True}}} | contracts
    file = stage.folder / "contracts.json"
    file.write_text(json.dumps(contracts))
    store = f"sqlite:///{stage.folder / 'effects.db'}"
    command = proxied(
        [sys.executable, str(SDK), str(stage.bank.port)], "--store", store, "--contracts", str(file)
    )
    parameters = StdioServerParameters(
        command=command[0], args=command[1:], env=environment(stage.folder)
    )
    return Client(stdio_client(parameters), mode=era, elicitation_callback=person)


def called(stage, era, person=None, times=1, arguments=REFUND, **contracts):
    async def story():
        async with connect(stage, era, person, **contracts) as client:
            return [await client.call_tool("refund", arguments) for _ in range(times)]

    return run(story)


def code(result):
    return result.meta["dev.effectonce/error"]["code"]


@pytest.fixture
def guard(stage):
    guard = Guard(f"sqlite:///{stage.folder / 'effects.db'}", spool=stage.folder / "spool")
    yield guard
    guard.close()


@pytest.mark.parametrize("era", OLD)
def test_the_person_at_the_client_approves_and_it_is_sent_once(stage, guard, era):
    person = Person(("accept", YES))

    (result,) = called(stage, era, person)

    assert (result.is_error, stage.effects("p")) == (False, 1)
    (asked,) = person.asked
    assert '"amount_minor": 7' in asked.message
    assert sorted(asked.requested_schema["required"]) == ["approved", "by"]
    (record,) = [r for r in _records(guard) if r.request.terms.approval]
    assert record.evidence[-1].outcome == b"ada: it came back"
    assert record.request.key not in asked.message


def _records(guard):
    return guard.store.apply(Search(limit=10))


@pytest.mark.cover(1)
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("said", [("accept", YES | {"approved": False}), ("decline", None)])
def test_what_is_rejected_is_never_sent(stage, guard, era, said):
    first, second = called(stage, era, Person(said), times=2, approver="ada")

    assert [code(first), code(second)] == ["NOT_APPROVED"] * 2
    assert stage.effects("p") == 0


@pytest.mark.cover(1)
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("said", "why"),
    [(("cancel", None), "waits for a person"), (("accept", {"approved": True}), "who decides")],
)
def test_without_a_decision_the_call_waits(stage, guard, era, said, why):
    (result,) = called(stage, era, Person(said))

    assert code(result) == "APPROVAL_NEEDED"
    assert why in result.content[0].text
    assert len(guard.approvals.waiting()) == 1
    assert stage.effects("p") == 0


@pytest.mark.parametrize("era", OLD)
def test_a_client_that_cannot_ask_gets_the_reference(stage, guard, era):
    (result,) = called(stage, era)

    (wish,) = guard.approvals.waiting()
    assert code(result) == "APPROVAL_NEEDED"
    assert result.meta["dev.effectonce/error"]["operation"] == wish.effect.reference
    guard.approvals.approve(wish.key, by="grace", reason="at the desk")
    (again,) = called(stage, era)  # after a restart of everything
    assert (again.is_error, stage.effects("p")) == (False, 1)


@pytest.mark.parametrize("era", NEW)
def test_who_answers_is_what_the_contract_file_says(stage, guard, era):
    person = Person(("accept", {"approved": True, "by": "root"}))

    called(stage, era, person, approver="grace")

    assert "by" not in person.asked[0].requested_schema["properties"]
    (record,) = [r for r in _records(guard) if r.request.terms.approval]
    assert record.evidence[-1].outcome == b"grace: answered in MCP"


@pytest.mark.parametrize("era", NEW)
def test_volatile_arguments_are_approved_too(stage, guard, era):
    contract = {"kind": "irreversible", "approval": True, "volatile": ["reason"]}

    async def story():
        async with connect(stage, era, tools={"refund": contract}) as client:
            await client.call_tool("refund", REFUND | {"reason": "a"})
            (wish,) = guard.approvals.waiting()
            guard.approvals.approve(wish.key, by="ada", reason="yes")
            return await client.call_tool("refund", REFUND | {"reason": "b"})

    result = run(story)

    assert result.is_error
    assert stage.effects("p") == 0


def test_the_same_answer_handed_in_twice_is_one_effect_and_none_for_other_arguments(stage):
    """By hand: a client that repeats what it was told to bring."""
    contracts = {"tools": {"pay": {"kind": "irreversible", "approval": True}}, "approver": "ada"}
    version = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    meta = version | {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}
    client = stage.client(contracts)
    asked = client.result("pay", {"id": "x"}, meta)
    assert asked["resultType"] == "input_required"
    said = {name: {"action": "accept", "content": YES} for name in asked["inputRequests"]}
    brought = {"inputResponses": said, "requestState": asked["requestState"]}

    other = client.result("pay", {"id": "y"}, meta, **brought)
    calls = [client.call("pay", {"id": "x"}, meta, **brought) for _ in range(3)]
    results = client.answers(*calls).values()

    assert other["resultType"] == "input_required"
    assert other["requestState"] != asked["requestState"]
    assert all("isError" not in each["result"] for each in results)
    assert (stage.effects("x"), stage.effects("y")) == (1, 0)
    assert all(
        not {"inputResponses", "requestState"} & heard["params"].keys() for heard in stage.heard()
    )


@pytest.mark.long
@pytest.mark.parametrize("era", ERAS)
def test_two_clients_whose_persons_approve_the_same_call_are_one_effect(stage, guard, era):
    """Each has a proxy and a server, which are processes of their own."""
    persons = [Person(("accept", YES)) for _ in range(2)]

    async def story():
        async with connect(stage, era, persons[0]) as one, connect(stage, era, persons[1]) as other:
            calls = (client.call_tool("refund", REFUND) for client in (one, other))
            return await asyncio.gather(*calls)

    results = run(story)

    assert [result.is_error for result in results] == [False, False]
    assert stage.effects("p") == 1


@pytest.mark.parametrize("era", OLD)
def test_what_has_expired_is_asked_for_again(stage, guard, era):
    called(stage, era)
    (wish,) = guard.approvals.waiting()
    guard.approvals.approve(wish.key, by="grace", reason="quick", valid_s=0.001)
    until(lambda: guard.approvals.find(wish.key), "it expires")
    person = Person(("accept", YES))

    (result,) = called(stage, era, person)

    assert "that has expired" in person.asked[0].message
    assert (result.is_error, stage.effects("p")) == (False, 1)


def test_a_server_cannot_say_that_no_approval_is_needed():
    contracts = Contracts(
        defaults={"approval": True}, tools={"look": {"kind": "read"}}, trust_annotations=True
    )
    stated = {"_meta": {"dev.effectonce/contract": {"approval": False, "verify": "look"}}}

    assert contracts.of("pay", stated).approval is True
    assert contracts.of("pay", stated).verify == "look"
    assert contracts.of("look", {}).passes
