"""Agents of the Microsoft Agent Framework. What holds in every framework is in `facts.py`."""

import asyncio
import copy
import functools

import pytest
from agent_framework import (
    Agent,
    AgentSession,
    Content,
    FunctionMiddleware,
    MCPStdioTool,
    Message,
    MiddlewareTermination,
    tool,
)
from agent_framework.exceptions import ToolException

from effectonce import InDoubt
from effectonce.integrations.agent_framework import EffectOnce
from tests.frameworks import pages
from tests.frameworks.agent_framework.desk import Desk, Script
from tests.frameworks.facts import (
    CONTRACTS,
    DONE,
    LOSES,
    Ask,
    a_lost_answer_of_a_server_is_a_doubt,
    a_tool_of_a_server_lands_once,
    facts,
    killed_after_the_effect_and_resumed_there_is_one,
    one,
    refund_of,
)

LINES = [one("a"), DONE]


@pytest.fixture
def desk(guard, tmp_path):
    return Desk(guard, tmp_path)


@facts()
def test_in_the_framework(fact, desk, guard, bank):
    fact(desk, guard, bank)


@facts()
def test_in_the_framework_where_it_streams(fact, desk, guard, bank):
    desk.run = functools.partial(desk.run, stream=True)

    fact(desk, guard, bank)


def test_killed_after_the_effect_and_resumed_from_its_history_there_is_one(tmp_path):
    killed_after_the_effect_and_resumed_there_is_one("agent_framework", tmp_path)


def test_the_page_shows_what_happens(bank, tmp_path):
    pages.check("agent_framework", bank, tmp_path)


@pytest.mark.parametrize("stream", [False, True])
def test_without_a_session_the_conversation_may_be_named_by_the_application(
    stream, desk, guard, bank
):
    mine = EffectOnce(
        guard, contracts=CONTRACTS, scope=lambda context: "chat-42", tenant=lambda context: "shop-1"
    )
    options = {"middleware": mine, "scope": None, "stateless": True, "stream": stream}

    first = desk.run(desk.tool(refund_of(bank)), one("a"), one("b"), DONE, **options)
    again = desk.run(desk.tool(refund_of(bank)), one("c"), DONE, **options)

    assert first.said == ["rcpt_1", "rcpt_2"]
    assert again.told == [("c", "rcpt_1")]


def test_a_number_is_the_same_call_however_the_model_writes_it(desk, guard, bank):
    for line in (one("a"), one("b", amount_minor=100), one("c", amount_minor="100")):
        assert desk.run(desk.tool(refund_of(bank)), line, DONE, forget=True).said == ["rcpt_1"]
    assert desk.run(desk.tool(refund_of(bank)), one("d"), DONE).said == ["rcpt_2"]


def test_a_refusal_is_told_in_the_words_of_the_framework_and_then_known(desk, guard, bank):
    ran = desk.run(desk.tool(refund_of(bank, "refuse")), *LINES)
    assert ran.said == ["Error: Function failed."]

    assert desk.run(desk.tool(refund_of(bank)), *LINES, forget=True).codes == ["REPLAYED_FAILURE"]
    assert bank.ledger() == []


def test_an_error_in_the_words_of_the_framework_says_nothing_about_what_was_done(desk, guard, bank):
    async def refund(payment_id: str, reason: str) -> str:
        """Refund a payment."""
        bank.pay(payment_id, 100)
        raise ToolException("the bank did not answer")

    assert desk.run(desk.tool(refund), one("a"), one("b"), DONE).codes == [
        InDoubt.code,
        InDoubt.code,
    ]
    assert len(bank.ledger()) == 1


def test_an_approval_is_asked_for_first_and_leaves_nothing_in_doubt(desk, guard, bank):
    refund = desk.tool(refund_of(bank), approval_mode="always_require")
    desk.run(refund, one("a"), DONE)
    assert bank.ledger() == []
    [asked] = desk.response.user_input_requests

    approved = Message("user", [asked.to_function_approval_response(approved=True)])
    ran = desk.run(
        refund, DONE, given=approved, session=AgentSession.from_dict(desk.session.to_dict())
    )

    assert ran.told == [("a", "rcpt_1")]
    assert guard.in_doubt() == ()


def test_a_tool_that_may_be_called_no_more_leaves_nothing_in_doubt(desk, guard, bank):
    refund = desk.tool(refund_of(bank), max_invocations=1)

    ran = desk.run(refund, one("a"), one("b"), DONE)

    assert ran.said == ["rcpt_1", "Error: Function failed."]
    assert guard.in_doubt() == ()


def test_a_termination_passes_through_and_leaves_nothing_in_doubt(desk, guard, bank):
    class Stops(FunctionMiddleware):
        async def process(self, context, call_next):
            context.result = "not today"
            raise MiddlewareTermination

    stopped = desk.run(
        desk.tool(refund_of(bank)),
        one("a"),
        middleware=[*EffectOnce(guard, contracts=CONTRACTS), Stops()],
    )
    later = desk.run(desk.tool(refund_of(bank)), one("b"), DONE, forget=True)

    assert (stopped.said, later.said) == (["not today"], ["rcpt_1"])


def test_a_middleware_that_asks_a_person_leaves_nothing_in_doubt(desk, guard, bank):
    class Asks(FunctionMiddleware):
        async def process(self, context, call_next):
            call = Content.from_function_call("a", "refund", arguments=dict(context.arguments))
            context.result = Content.from_function_approval_request("really?", call)

    desk.run(
        desk.tool(refund_of(bank)),
        one("a"),
        middleware=[*EffectOnce(guard, contracts=CONTRACTS), Asks()],
    )
    assert [asked.id for asked in desk.response.user_input_requests] == ["really?"]

    assert desk.run(desk.tool(refund_of(bank)), one("b"), DONE, forget=True).said == ["rcpt_1"]


class Sorry(FunctionMiddleware):
    """Makes a result of every error."""

    async def process(self, context, call_next):
        try:
            await call_next()
        except Exception:
            context.result = "that did not work"


class Friendly(FunctionMiddleware):
    """Has other words for everything."""

    async def process(self, context, call_next):
        await call_next()
        context.result = "that did not work"


class Tries(FunctionMiddleware):
    async def process(self, context, call_next):
        for _ in range(3):
            try:
                await call_next()
            except ConnectionError:
                continue


class Twice(FunctionMiddleware):
    """Asks twice at once."""

    async def process(self, context, call_next):
        await asyncio.gather(call_next(), call_next())


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("ours_first", [False, True])
@pytest.mark.parametrize(
    ("other", "fault"),
    [(Sorry, "lose-answer"), (Tries, "lose-answer"), (Tries, None), (Twice, None)],
)
def test_a_middleware_that_asks_again_or_makes_a_result_of_an_error_is_told_what_is_known(
    other, fault, ours_first, guarded, desk, guard, bank
):
    mine, function = EffectOnce(guard, contracts=CONTRACTS), refund_of(bank, fault, fault, fault)
    if guarded:
        function = guard.tool(kind="write", volatile=["reason"])(function)

    middleware = [*mine, other()] if ours_first else [other(), *mine]
    ran = desk.run(desk.tool(function), *LINES, middleware=middleware)

    assert len(bank.ledger()) == 1
    assert ran.codes == [InDoubt.code] if fault else ran.said == ["rcpt_1"]


def test_a_refusal_is_told_in_the_words_of_whoever_stands_behind_us(desk, guard, bank):
    middleware = [*EffectOnce(guard, contracts=CONTRACTS), Sorry()]

    assert desk.run(desk.tool(refund_of(bank, "refuse")), *LINES, middleware=middleware).said == [
        "that did not work"
    ]
    assert desk.run(desk.tool(refund_of(bank)), *LINES, forget=True).codes == ["REPLAYED_FAILURE"]


@pytest.mark.parametrize("guarded", [False, True])
def test_a_doubt_that_somebody_around_us_has_other_words_for_is_still_the_same_effect(
    guarded, desk, guard, bank
):
    function = refund_of(bank, "lose-answer")
    if guarded:
        function = guard.tool(kind="write", volatile=["reason"])(function)

    middleware = [Friendly(), *EffectOnce(guard, contracts=CONTRACTS)]
    ran = desk.run(desk.tool(function), one("a"), one("b"), one("c"), DONE, middleware=middleware)

    assert ran.said == ["that did not work"] * 3
    assert len(bank.ledger()) == 1


def test_a_copy_of_a_tool_that_was_run_is_run_as_itself(desk, guard, bank):
    first = desk.tool(refund_of(bank))
    desk.run(first, *LINES)
    second = copy.copy(first)
    second.func = lambda payment_id, reason, amount_minor=100: "another"

    assert desk.run(second, one("b", "pay_8"), DONE, forget=True).said == ["another"]


def test_media_are_replayed_as_media(desk, guard, bank):
    async def refund(payment_id: str, reason: str) -> list[Content]:
        """Refund a payment."""
        image = Content.from_data(b"\x89PNG", "image/png")
        return [Content.from_text(bank.pay(payment_id, 100)["receipt"]), image]

    for name in ("a", "b"):
        desk.run(desk.tool(refund), one(name), DONE, forget=True)

        [result] = [
            part
            for message in desk.response.messages
            for part in message.contents
            if part.type == "function_result"
        ]
        assert [(item.type, item.text, item.uri) for item in result.items] == [
            ("text", "rcpt_1", None),
            ("data", None, "data:image/png;base64,iVBORw=="),
        ]
    assert len(bank.ledger()) == 1


def test_an_agent_that_is_a_tool_is_no_effect_and_its_tools_are(desk, guard, bank):
    for name in ("a", "b"):
        mine = EffectOnce(guard, contracts=CONTRACTS, scope=lambda context: "chat-42/clerk")
        clerk = Agent(
            Script(one(name), DONE), name="clerk", tools=[tool(refund_of(bank))], middleware=mine
        )
        asks = [Ask("outer", {"task": "refund pay_7"})]
        ran = desk.run(clerk.as_tool(name="refund", arg_name="task"), asks, DONE, forget=True)
        assert ran.told == [("outer", "done")]
        assert clerk.client.lines == []

    assert len(bank.ledger()) == 1


# ---------------------------------------------------------------- tools of an MCP server


def of_server(started):
    return MCPStdioTool("bank", **started)


def test_a_tool_of_a_server_lands_once(desk, bank):
    a_tool_of_a_server_lands_once(desk, of_server, bank)


@LOSES
def test_a_lost_answer_of_a_server_is_a_doubt(ends, desk, bank):
    a_lost_answer_of_a_server_is_a_doubt(desk, of_server, bank, ends)
