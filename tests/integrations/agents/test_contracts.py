"""A contract that is declared by name and misspelt is told: what there is not when it is
declared, a field when its tool is called.
"""

import asyncio

import pytest

from effectonce import ContractViolation, Guard
from effectonce.integrations._agent_tools import AgentCall, AgentTools, ToolRun


@pytest.mark.parametrize(
    ("option", "guess"),
    [
        ("volatle", "did you mean 'volatile'\\?"),
        ("x", "there are kind, downstream, provider, identity, volatile, "),
    ],
)
def test_an_option_that_there_is_not_is_told_with_what_there_is(option, guess):
    with pytest.raises(ContractViolation, match=f"refund: a contract has no '{option}'; {guess}"):
        AgentTools(Guard("memory://"), {"refund": {option: ["reason"]}}, None)


def test_a_tool_has_one_name_in_both_colours_and_a_store_that_forgets_is_refused_in_each():
    guard = Guard("memory://")
    boxes = [AgentTools(guard, None, None) for _ in range(2)]

    async def refund():
        return "async"

    call = AgentCall(tool="refund", arguments={}, scope="chat-42")
    assert boxes[0].run(call, ToolRun(lambda: "sync", str)).own == "sync"
    assert (
        asyncio.run(
            boxes[1].arun(
                AgentCall(tool="refund", arguments={"n": 2}, scope="chat-42"), ToolRun(refund, str)
            )
        ).own
        == "async"
    )

    strict = AgentTools(guard, {"refund": {"kind": "irreversible"}}, None)
    with pytest.raises(ContractViolation, match="durable"):
        asyncio.run(strict.arun(call, ToolRun(refund, str)))
    guard.close()


def test_a_tool_that_nearly_has_a_contract_is_told_once_and_runs_by_the_default(caplog):
    box = AgentTools(
        Guard("memory://"), {"refnd": {"kind": "read"}, "balance": {"kind": "read"}}, None
    )
    assert (
        box.passes("refund"),
        box.passes("refund"),
        box.passes("balance"),
        box.passes("send_mail"),
    ) == (
        False,
        False,
        True,
        False,
    )
    assert caplog.messages == [
        "the tool refund has no contract, so the default holds for it; is the one of refnd meant"  # noqa: ISC004
        " for it?"
    ]
    box.guard.close()


SCHEMA = {"properties": {"payment_id": {}, "reason": {}}}


def run(contract, schema=SCHEMA, default=None):
    ran = []
    call = AgentCall(
        tool="refund",
        arguments={"payment_id": "pay_7", "reason": "late"},
        scope="chat-42",
        schema=schema,
    )
    box = AgentTools(Guard("memory://"), contract and {"refund": contract}, default)
    try:
        box.run(call, ToolRun(lambda: ran.append("refund"), str))
    finally:
        box.guard.close()
    return ran


@pytest.mark.parametrize(
    "contract", [{"volatile": ["resaon"]}, {"identity": ["payment_id", "resaon"]}]
)
def test_a_field_that_the_tool_does_not_have_is_told_and_nothing_is_sent(contract):
    with pytest.raises(
        ContractViolation,
        match=(
            "refund has no argument 'resaon', which its contract names; it has payment_id, reason"
        ),
    ):
        run(contract)


def test_fields_of_a_default_of_an_open_schema_and_of_no_schema_are_taken_as_they_are():
    assert run(None, default={"volatile": ["note"]}) == ["refund"]
    assert run({"volatile": ["note"]}, schema=SCHEMA | {"additionalProperties": True}) == ["refund"]
    assert run({"volatile": ["note"]}, schema={}) == ["refund"]
