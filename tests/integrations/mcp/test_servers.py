"""Servers of the MCP SDK and of FastMCP that protect themselves: one effect, counted by a bank
in another process.
"""

from __future__ import annotations

import functools
import sys

import anyio
import fastmcp
import pytest
from fastmcp.server.middleware import Middleware
from fastmcp.server.middleware.error_handling import RetryMiddleware
from fastmcp.tools.base import ToolResult
from mcp import Client
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult

from effectonce import Guard, Rejected, State, current_effect
from effectonce.integrations import fastmcp as for_fastmcp
from effectonce.integrations import mcp as for_mcp
from effectonce.testing.bank import Bank

CONVERSATION = "dev.effectonce/conversation"
KEY = "dev.effectonce/idempotency-key"
CONTRACTS = {
    "look": {"kind": "read"},
    "refused": {"errors": "nothing_done"},
    "often": {"again_s": 0},
}


@pytest.fixture
def bank(tmp_path):
    with Bank(tmp_path / "ledger", honours_keys=True) as bank:
        yield bank


@pytest.fixture
def guard(tmp_path):
    guard = Guard(f"sqlite:///{tmp_path / 'effects.db'}", spool=tmp_path / "spool")
    yield guard
    guard.close()


def tools(bank, gate):
    def refund(payment_id: str) -> dict:
        """Refund a payment."""
        return bank.pay(payment_id, 1)

    async def slow(payment_id: str) -> dict:
        """Refund at once, and answer when the gate is open."""
        entry = await anyio.to_thread.run_sync(lambda: bank.pay(payment_id, 1))
        await gate.wait()
        return entry

    def keyed(payment_id: str) -> dict:
        """Refund under the key of the effect."""
        return bank.pay(payment_id, 1, key=current_effect().downstream_key)

    def lost(payment_id: str) -> dict:
        """Refund, and lose the answer."""
        return bank.pay(payment_id, 1, fault="lose-answer")

    def refused(payment_id: str) -> dict:
        """Count how often it is asked, and refuse."""
        bank.pay(payment_id, 1)
        raise ValueError("not today")

    def often(payment_id: str) -> dict:
        """Refund; nobody takes the same call for a retry."""
        return bank.pay(payment_id, 1)

    def look(payment_id: str) -> dict:
        """How often was it paid?"""
        return bank.find(payment_id) or {"effects": 0}

    return [refund, slow, keyed, lost, refused, often, look]


def sdk_server(guard, functions):
    server = MCPServer(
        "bank", extensions=[for_mcp.EffectOnce(guard, contracts=CONTRACTS)] if guard else []
    )
    for function in functions:
        server.add_tool(function)
    return server


def fastmcp_server(guard, functions, *more):
    server = fastmcp.FastMCP("bank")
    for middleware in more:
        server.add_middleware(middleware)
    if guard:
        server.add_middleware(for_fastmcp.EffectOnce(guard, contracts=CONTRACTS))
    for function in functions:
        server.tool(function)
    return server


def fastmcp_client(server):
    return fastmcp.Client(server)


SERVERS = {
    "mcp, 2025-11-25": (sdk_server, lambda server: Client(server, mode="legacy")),
    "mcp, 2026-07-28": (sdk_server, lambda server: Client(server, mode="2026-07-28")),
    "fastmcp": (fastmcp_server, fastmcp_client),
}


@pytest.fixture(params=SERVERS)
def play(request, guard, bank):
    """Run a story with a client of a protected server; `protected=False` for the server as it is
    without us.
    """
    serve, connect = SERVERS[request.param]

    def run(story, *, protected=True):
        async def with_client():
            gate = anyio.Event()
            async with connect(serve(guard if protected else None, tools(bank, gate))) as client:
                return await story(client, gate)

        return anyio.run(with_client)

    return run


async def call(client, name, payment_id="p", **meta):
    """Whatever the client: the result, without raising what the tool reports."""
    more = {"raise_on_error": False} if "fastmcp" in type(client).__module__ else {}
    return await client.call_tool(name, {"payment_id": payment_id}, meta=meta or None, **more)


def effects(bank, payment_id="p"):
    return sum(entry["payment_id"] == payment_id for entry in bank.ledger())


def test_the_same_call_again_is_replayed_and_says_so(play, bank):
    async def story(client, _):
        return [await call(client, "refund") for _ in range(2)]

    first, again = play(story)

    assert effects(bank) == 1
    assert again.content[0].text == first.content[0].text
    assert again.meta["dev.effectonce/replayed"] is True
    assert "nothing was done again" in again.content[-1].text


def test_the_tools_are_what_they_are_without_us(play):
    async def story(client, _):
        listed = await client.list_tools()
        return [tool.model_dump() for tool in getattr(listed, "tools", listed)]

    assert play(story) == play(story, protected=False)


def test_a_call_that_is_given_up_goes_on_and_the_next_one_gets_its_result(play, bank):
    async def story(client, gate):
        async with anyio.create_task_group() as group:
            group.start_soon(functools.partial(call, client, "slow"))
            while effects(bank) == 0:  # noqa: ASYNC110  # another process makes it true
                await anyio.sleep(0.01)
            group.cancel_scope.cancel()
        gate.set()
        return await call(client, "slow")

    again = play(story)

    assert effects(bank) == 1
    assert again.meta["dev.effectonce/replayed"] is True


def test_calls_at_the_same_time_are_one_and_another_conversation_is_its_own(play, bank):
    async def story(client, _):
        async with anyio.create_task_group() as group:
            for conversation in ("a", "a", "a", "b"):
                group.start_soon(
                    functools.partial(call, client, "refund", **{CONVERSATION: conversation})
                )

    play(story)

    assert effects(bank) == 2


def test_a_key_of_the_clients_says_what_is_the_same(play, bank):
    async def story(client, _):
        for key in ("k1", "k1", "k2"):
            await call(client, "refund", **{KEY: key})
        return await call(client, "refund", "q", **{KEY: "k1"})

    other = play(story)

    assert (effects(bank), effects(bank, "q")) == (2, 0)
    assert other.meta["dev.effectonce/error"]["code"] == "KEY_CONFLICT"


def test_a_lost_answer_is_a_doubt_that_tells_the_model_what_to_do(play, bank):
    async def story(client, _):
        return [await call(client, "lost") for _ in range(2)]

    results = play(story)

    assert effects(bank) == 1
    assert [result.is_error for result in results] == [True, True]
    assert {result.meta["dev.effectonce/error"]["code"] for result in results} == {
        "OUTCOME_UNKNOWN"
    }
    assert "Do not call again" in results[1].content[0].text


def test_what_a_person_settled_is_a_result_as_the_tool_would_give_it(play, bank, guard):
    async def story(client, _):
        await client.list_tools()  # from now on it knows what the tool should give
        await call(client, "lost")
        (doubt,) = guard.in_doubt()
        guard.confirm(
            doubt.request.key, result={"receipt": "rcpt_1"}, by="ada", reason="it is in the ledger"
        )
        return await call(client, "lost")

    result = play(story)

    assert (result.is_error, result.structured_content) == (False, {"receipt": "rcpt_1"})
    assert result.content[0].text == '{"receipt":"rcpt_1"}'
    assert effects(bank) == 1


def test_an_error_that_means_that_nothing_was_done_may_be_repeated(play, bank):
    async def story(client, _):
        return [await call(client, "refused") for _ in range(2)]

    results = play(story)

    assert effects(bank) == 2
    assert [
        (result.is_error, (result.meta and "dev.effectonce/error" in result.meta) or False)
        for result in results
    ] == [(True, False)] * 2


def test_a_letter_of_a_server_says_that_its_client_has_to_ask_again(play, bank, guard):
    async def story(client, _):
        await call(client, "refused")
        (letter,) = guard.dead_letters.list()
        return letter, await guard.dead_letters.aredrive(letter.key, by="ada", reason="again")

    letter, redriven = play(story)

    assert redriven.what == "skipped"
    assert "Let the client make the same call again" in redriven.why
    assert effects(bank) == 1
    assert [each.reference for each in guard.dead_letters.list()] == [letter.reference]


def test_a_read_passes_and_a_wish_runs_again(play, bank):
    async def story(client, _):
        for name in ("often", "often", "look", "look"):
            last = await call(client, name)
        return last

    last = play(story)

    assert effects(bank) == 2
    assert '"effects":2' in last.content[0].text.replace(" ", "").replace("\n", "")


def test_a_tool_hands_on_the_key_of_its_effect(play, bank):
    async def story(client, _):
        await call(client, "keyed")

    play(story)

    assert bank.ledger()[0]["key"].startswith("eo_")


class Sorry(Middleware):
    """Makes a result of every error."""

    async def on_call_tool(self, context, call_next):
        try:
            return await call_next(context)
        except Exception:
            return ToolResult(content="that did not work, try again")


class Twice(Middleware):
    """Asks for a tool twice at once."""

    async def on_call_tool(self, context, call_next):
        answers = []

        async def ask():
            answers.append(await call_next(context))

        async with anyio.create_task_group() as both:
            both.start_soon(ask)
            both.start_soon(ask)
        return answers[0]


@pytest.mark.parametrize("ours_first", [False, True])
@pytest.mark.parametrize(
    ("other", "tool", "without_us"),
    [
        (lambda: RetryMiddleware(max_retries=2, base_delay=0.001), "lost", 3),
        (Sorry, "lost", 1),
        (Twice, "refund", 2),
    ],
)
def test_middleware_on_either_side_of_us_does_it_once(
    other, tool, without_us, ours_first, guard, bank
):
    async def run(*middleware, payment_id):
        server = fastmcp.FastMCP("bank")
        for each in middleware:
            server.add_middleware(each)
        for function in tools(bank, anyio.Event()):
            server.tool(function, output_schema=None)
        async with fastmcp_client(server) as client:
            return (
                (await call(client, tool, payment_id, **{CONVERSATION: "chat-42"})).content[0].text
            )

    ours = for_fastmcp.EffectOnce(guard, contracts=CONTRACTS)
    anyio.run(functools.partial(run, other(), payment_id="without us"))
    told = anyio.run(
        functools.partial(
            run, *((ours, other()) if ours_first else (other(), ours)), payment_id="with us"
        )
    )

    assert (effects(bank, "without us"), effects(bank, "with us")) == (without_us, 1)
    assert (tool == "refund") != ("OUTCOME_UNKNOWN" in told)


def test_a_server_that_is_protected_twice_does_it_once(guard, bank):
    async def run(tool, payment_id):
        server = fastmcp.FastMCP("bank")
        for _ in range(2):
            server.add_middleware(for_fastmcp.EffectOnce(guard, contracts=CONTRACTS))
        for function in tools(bank, anyio.Event()):
            server.tool(function, output_schema=None)
        async with fastmcp_client(server) as client:
            return (
                (await call(client, tool, payment_id, **{CONVERSATION: "chat-42"})).content[0].text
            )

    assert "rcpt_1" in anyio.run(run, "refund", "pay_7")
    assert "OUTCOME_UNKNOWN" in anyio.run(run, "lost", "pay_8")
    assert [effects(bank, payment) for payment in ("pay_7", "pay_8")] == [1, 1]
    assert guard.counts() == {State.COMPLETED: 1, State.IN_DOUBT: 1}


def test_an_error_that_means_that_nothing_was_done_is_told_in_the_words_of_whoever_stands_further_in(
    guard, bank
):
    server = fastmcp.FastMCP("bank")
    server.add_middleware(
        for_fastmcp.EffectOnce(guard, contracts={"refuse": {"errors": "nothing_done"}})
    )
    server.add_middleware(Sorry())

    @server.tool(output_schema=None)
    def refuse(payment_id: str) -> str:
        """Refuse."""
        raise Rejected("not today")

    async def story():
        async with fastmcp_client(server) as client:
            return await call(client, "refuse")

    assert anyio.run(story).content[0].text == "that did not work, try again"
    assert guard.in_doubt() == ()


def test_a_round_that_asks_for_input_is_no_result(guard, bank):
    server = MCPServer("bank", extensions=[for_mcp.EffectOnce(guard)])

    @server.tool()
    def ask(payment_id: str, ctx: Context) -> InputRequiredResult | str:
        """Refund, if the user is sure."""
        if ctx.input_responses is None:
            schema = {"type": "object", "properties": {"sure": {"type": "boolean"}}}
            sure = ElicitRequest(
                params=ElicitRequestFormParams(message="Sure?", requested_schema=schema)
            )
            return InputRequiredResult(input_requests={"sure": sure})
        return bank.pay(payment_id, 1)["receipt"]

    async def sure(context, params):
        return ElicitResult(action="accept", content={"sure": True})

    async def story():
        async with Client(server, mode="2026-07-28", elicitation_callback=sure) as client:
            return [await call(client, "ask") for _ in range(2)]

    first, again = anyio.run(story)

    assert effects(bank) == 1
    assert first.content[0].text == again.content[0].text == "rcpt_1"
    assert again.meta["dev.effectonce/replayed"] is True


def test_tenants_do_not_share_effects(guard, bank):
    whose = iter(["alice", "bob", "alice"])
    server = MCPServer(
        "bank", extensions=[for_mcp.EffectOnce(guard, tenant=lambda ctx: next(whose))]
    )
    server.add_tool(tools(bank, None)[0])

    async def story():
        async with Client(server) as client:
            for _ in range(3):
                await call(client, "refund")

    anyio.run(story)

    assert effects(bank) == 2


@pytest.mark.parametrize(
    ("module", "package"),
    [(for_mcp, "mcp.server.extension"), (for_fastmcp, "fastmcp.server.middleware")],
)
def test_without_the_package_it_says_how_to_install_it(guard, monkeypatch, module, package):
    monkeypatch.setitem(sys.modules, package, None)

    with pytest.raises(ImportError, match="pip install 'effectonce"):
        module.EffectOnce(guard)
