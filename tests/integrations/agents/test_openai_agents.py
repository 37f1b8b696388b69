"""Agents of the OpenAI Agents SDK, with a scripted model."""

import asyncio
import copy
import json
from contextlib import closing

import pytest
from agents import (
    Agent,
    AgentHooks,
    CustomTool,
    ModelResponse,
    RunConfig,
    Runner,
    Usage,
    function_tool,
)
from agents.models.interface import Model
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from effectonce import ContractViolation, Guard, InDoubt, Rejected
from effectonce.integrations.openai_agents import protect

CONTRACTS = {"refund": {"kind": "irreversible", "volatile": ["reason"]}}


class Scripted(Model):
    def __init__(self, *lines):
        self.lines, self.schemas, self.seen = list(lines), [], []

    async def get_response(
        self,
        system_instructions,
        input,  # noqa: A002
        model_settings,
        tools,
        *args,
        **kwargs,  # noqa: A002, RUF100
    ):  # noqa: A002, RUF100
        self.schemas = [(tool.name, tool.description, tool.params_json_schema) for tool in tools]
        self.seen.append(copy.deepcopy(input))
        line = self.lines.pop(0)
        if isinstance(line, Exception):
            raise line
        return ModelResponse(output=line, usage=Usage(), response_id=None)

    def stream_response(self, *args, **kwargs):
        raise NotImplementedError


def asks(*calls):
    def call(call_id, arguments):
        return ResponseFunctionToolCall(
            type="function_call", call_id=call_id, name="refund", arguments=json.dumps(arguments)
        )

    return [call(call_id, arguments) for call_id, arguments in calls]


def one(call_id, **arguments):
    return asks((call_id, {"payment_id": "pay_7", "reason": "late"} | arguments))


TEXT = ResponseOutputText(type="output_text", text="done", annotations=[])
DONE = [
    ResponseOutputMessage(
        id="m", type="message", role="assistant", status="completed", content=[TEXT]
    )
]


def refund_of(bank, *faults, **options):
    faults = list(faults)

    @function_tool(**options)
    async def refund(payment_id: str, reason: str) -> str:
        """Refund a payment."""
        return bank.pay(payment_id, 100, fault=faults.pop(0) if faults else None)["receipt"]

    return refund


def run(guard, tool, *lines, given="refund pay_7", group="chat-42", contracts=CONTRACTS, **options):
    model = Scripted(*lines)
    agent = protect(
        Agent(name="desk", model=model, tools=[tool], **options), guard, contracts=contracts
    )
    config = RunConfig(group_id=group, tracing_disabled=True)
    return asyncio.run(Runner.run(agent, given, run_config=config)), model


def outputs(result):
    return [
        (item["call_id"], item["output"])
        for item in result.to_input_list()
        if item.get("type") == "function_call_output"
    ]


def test_a_lost_answer_is_told_as_a_doubt_and_not_as_a_request_to_try_again(guard, bank):
    result, _ = run(guard, refund_of(bank, "lose-answer"), one("a"), one("b"), DONE)

    told = [json.loads(output) for _, output in outputs(result)]
    assert len(bank.ledger()) == 1
    assert [error["code"] for error in told] == [InDoubt.code, InDoubt.code]
    assert "try again" not in str(told)
    assert guard.in_doubt()[0].request.key not in str(told)


@pytest.mark.parametrize("guarded", [False, True])
def test_a_time_out_of_the_sdk_is_a_doubt_too(guarded, bank):
    # its claim waits for nothing: the tool has begun before its time can be over
    guard = Guard("memory://")

    async def refund(payment_id: str, reason: str) -> str:
        """Refund a payment."""
        bank.pay(payment_id, 100)
        await asyncio.Event().wait()

    tool = function_tool(guard.tool(kind="write")(refund) if guarded else refund, timeout=0.05)
    result, _ = run(guard, tool, one("a"), one("b"), DONE, contracts=None)

    assert [json.loads(output)["code"] for _, output in outputs(result)] == [
        InDoubt.code,
        InDoubt.code,
    ]
    assert len(bank.ledger()) == 1


def test_a_model_that_decides_again_gets_the_first_result_under_its_new_id(guard, bank):
    with pytest.raises(RuntimeError):
        run(guard, refund_of(bank), one("a"), RuntimeError("crashed before the next turn"))

    result, _ = run(guard, refund_of(bank), one("b", reason="the parcel was late"), DONE)

    assert outputs(result) == [("b", "rcpt_1")]
    assert len(bank.ledger()) == 1


def test_a_model_that_saw_the_result_and_asks_again_means_it(guard, bank):
    result, _ = run(guard, refund_of(bank), one("a"), one("b"), DONE)
    assert [output for _, output in outputs(result)] == ["rcpt_1", "rcpt_2"]

    history = [*result.to_input_list(), {"role": "user", "content": "once more"}]
    again, _ = run(guard, refund_of(bank), one("c"), DONE, given=history)

    assert outputs(again)[-1] == ("c", "rcpt_3")


def test_equal_calls_of_one_message_are_one_and_others_run_beside_them(guard, bank):
    calls = asks(
        *(
            (name, {"payment_id": pay, "reason": ""})
            for name, pay in (("a", "pay_7"), ("b", "pay_8"), ("c", "pay_7"))
        )
    )

    result, _ = run(guard, refund_of(bank), calls, DONE)

    said = dict(outputs(result))
    assert said["a"] == said["c"] != said["b"]
    assert len(bank.ledger()) == 2


def test_the_model_sees_the_schema_that_it_saw_before(guard, bank):
    tool = refund_of(bank)

    _, model = run(guard, tool, DONE)

    assert model.schemas == [(tool.name, tool.description, tool.params_json_schema)]


def test_arguments_that_do_not_fit_leave_nothing_in_doubt(guard, bank):
    result, _ = run(guard, refund_of(bank), asks(("a", {"wrong": 1})), one("b"), DONE)

    assert json.loads(outputs(result)[0][1])["code"] == "TOOL_FAILED"
    assert outputs(result)[1] == ("b", "rcpt_1")
    assert guard.in_doubt() == ()


def test_a_refusal_is_told_in_the_words_of_the_tool_if_it_has_any(guard, bank):
    def formatted(context, error):
        assert isinstance(error, Rejected)
        return "the bank says no"

    result, _ = run(
        guard, refund_of(bank, "refuse", failure_error_function=formatted), one("a"), DONE
    )
    plain, _ = run(guard, refund_of(bank, "refuse"), one("a"), DONE, group="chat-43")

    assert outputs(result) == [("a", "the bank says no")]
    assert json.loads(outputs(plain)[0][1])["code"] == "TOOL_FAILED"


def test_a_tool_that_is_guarded_already_keeps_its_contract(guard, bank):
    @guard.tool(kind="write", volatile=["reason"])
    async def refund(payment_id: str, reason: str) -> str:
        """Refund a payment."""
        return bank.pay(payment_id, 1)["receipt"]

    for reason in ("late", "the parcel was late"):
        result, _ = run(guard, function_tool(refund), one("a", reason=reason), DONE, contracts=None)
        assert outputs(result) == [("a", "rcpt_1")]

    assert len(bank.ledger()) == 1


def test_without_a_conversation_nothing_is_sent(guard, bank):
    result, _ = run(guard, refund_of(bank), one("a"), DONE, group=None)

    assert json.loads(outputs(result)[0][1])["code"] == "CONTRACT_VIOLATION"
    assert bank.ledger() == []


def test_the_hooks_of_the_agent_are_told_as_before(guard, bank):
    heard = []

    class Own(AgentHooks):
        async def on_llm_start(self, *args):
            heard.append("llm")

        async def on_tool_end(self, context, agent, tool, result):
            heard.append(result)

    run(guard, refund_of(bank), one("a"), DONE, hooks=Own())

    assert heard == ["llm", "rcpt_1", "llm"]


def test_a_model_that_misbehaves_inside_the_tool_says_nothing_about_what_the_tool_did(guard, bank):
    @function_tool
    async def refund(payment_id: str, reason: str) -> str:
        """Refund a payment, and let another agent write the letter."""
        bank.pay(payment_id, 100)
        writer = Agent(name="writer", model=Scripted([]), tools=[refund_of(bank)])
        writer.model.lines = [
            [
                ResponseFunctionToolCall(
                    type="function_call", call_id="x", name="no_such_tool", arguments="{}"
                )
            ],
        ]
        return (
            await Runner.run(writer, "write", run_config=RunConfig(tracing_disabled=True))
        ).final_output

    result, _ = run(guard, refund, one("a"), one("b"), DONE)

    assert [json.loads(output)["code"] for _, output in outputs(result)] == [
        InDoubt.code,
        InDoubt.code,
    ]
    assert len(bank.ledger()) == 1


def test_a_call_that_was_no_json_does_not_stop_the_calls_after_it(guard, bank):
    @function_tool
    async def balance(payment_id: str) -> str:
        """A read."""
        return "100"

    broken = [
        ResponseFunctionToolCall(
            type="function_call", call_id="x", name="balance", arguments='{"payment_id": "pa'
        )
    ]
    model = Scripted(broken, one("a"), DONE)
    agent = Agent(name="desk", model=model, tools=[refund_of(bank), balance])
    protected = protect(agent, guard, contracts=CONTRACTS | {"balance": {"kind": "read"}})
    result = asyncio.run(
        Runner.run(protected, "go", run_config=RunConfig(group_id="chat-42", tracing_disabled=True))
    )

    assert outputs(result)[-1] == ("a", "rcpt_1")


def protected_twice(first, second, bank, *faults):
    model = Scripted(one("a"), DONE)
    agent = protect(
        Agent(name="desk", model=model, tools=[refund_of(bank, *faults)]),
        first,
        contracts=CONTRACTS,
    )
    agent = protect(agent, second, contracts=CONTRACTS)
    config = RunConfig(group_id="chat-42", tracing_disabled=True)
    return [
        output
        for _, output in outputs(asyncio.run(Runner.run(agent, "refund pay_7", run_config=config)))
    ]


def test_an_agent_that_is_protected_twice_is_protected_once(guard, bank):
    assert protected_twice(guard, guard, bank) == ["rcpt_1"]
    assert list(guard.counts().values()) == [1]


def test_an_error_that_another_guard_tells_is_no_result(guard, bank, tmp_path):
    with closing(
        Guard(f"sqlite:///{tmp_path}/others.db", spool=tmp_path / "spool", secret=b"s" * 32)
    ) as other:
        (told,) = protected_twice(other, guard, bank, "lose-answer")

        assert json.loads(told)["code"] == InDoubt.code
        assert len(guard.in_doubt()) == len(other.in_doubt()) == len(bank.ledger()) == 1


def test_a_contract_for_what_is_no_function_tool_is_refused(guard):
    agent = Agent(
        name="desk",
        tools=[
            CustomTool(name="shell", description="", on_invoke_tool=lambda context, given: given)
        ],
    )

    with pytest.raises(
        ContractViolation, match="shell is a CustomTool, and only function tools can be protected"
    ):
        protect(agent, guard, contracts={"shell": {"kind": "write"}})
    assert protect(agent, guard).tools == agent.tools
