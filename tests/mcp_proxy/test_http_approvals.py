"""A call that needs an approval, through the proxy over streamable HTTP: the official client asks
its person, in both eras of the protocol.
"""

from __future__ import annotations

import asyncio

import anyio
import httpx
import pytest
from mcp import Client

from effectonce import Guard
from effectonce._core.ops import Search
from effectonce.mcp._contracts import Contracts
from effectonce.mcp.http import McpHttpProxy
from tests.mcp_proxy.test_approvals import YES, Person, code
from tests.mcp_proxy.test_http import ERAS, World, served

REFUND = {"payment_id": "p"}
TOOLS = {"refund": {"kind": "irreversible", "approval": True}}
JSON = {"accept": "application/json, text/event-stream"}


@pytest.fixture
def form():
    return "stream"


@pytest.fixture
def world(stage, form):
    """The server answers with a stream of events, or with one document."""
    world = World(stage.bank, stage.folder / "gate")
    guard = Guard(f"sqlite:///{stage.folder / 'effects.db'}", spool=stage.folder / "spool")
    app = world.server.streamable_http_app(json_response=form == "document")
    contracts = Contracts(name="bank", tools=TOOLS)
    with (
        served(app) as direct,
        served(McpHttpProxy(guard, contracts, direct, one_caller=True)) as url,
    ):
        world.url, world.guard, world.effects = url, guard, stage.effects
        yield world
    guard.close()


def called(world, era, person):
    async def story():
        async with Client(world.url, mode=era, elicitation_callback=person) as client:
            return await client.call_tool("refund", REFUND)

    return asyncio.run(story())


def approval(world):
    (record,) = [r for r in world.guard.store.apply(Search(limit=10)) if r.request.terms.approval]
    return record


@pytest.mark.parametrize("form", ["stream", "document"])
@pytest.mark.parametrize("era", ERAS)
def test_the_person_at_the_client_approves_and_it_is_sent_once(world, era):
    person = Person(("accept", YES))

    result = called(world, era, person)

    assert (result.is_error, world.effects("p")) == (False, 1)
    assert '"payment_id": "p"' in person.asked[0].message
    assert approval(world).evidence[-1].outcome == b"ada: it came back"


@pytest.mark.parametrize("era", ERAS)
def test_a_client_that_cannot_ask_gets_the_reference(world, era):
    result = called(world, era, None)

    (wish,) = world.guard.approvals.waiting()
    assert code(result) == "APPROVAL_NEEDED"
    assert result.meta["dev.effectonce/error"]["operation"] == wish.effect.reference
    world.guard.approvals.approve(wish.key, by="grace", reason="at the desk")
    again = called(world, era, Person())  # no question any more
    assert (again.is_error, world.effects("p")) == (False, 1)


def test_a_client_that_goes_while_it_is_asked_leaves_a_call_that_waits(world):
    asked = anyio.Event()

    class Gone(Person):
        async def __call__(self, context, params):
            asked.set()
            await anyio.sleep_forever()

    async def story():
        async with (
            Client(world.url, mode="legacy", elicitation_callback=Gone()) as client,
            anyio.create_task_group() as group,
        ):
            group.start_soon(client.call_tool, "refund", REFUND)
            await asked.wait()
            group.cancel_scope.cancel()

    anyio.run(story)

    assert len(world.guard.approvals.waiting()) == 1
    again = called(world, "legacy", Person(("accept", YES)))
    assert (again.is_error, world.effects("p")) == (False, 1)


def test_another_session_cannot_answer(world):
    """The question is asked in one session: an answer from another one is not ours."""
    asked = anyio.Event()
    names = []

    class Slow(Person):
        async def __call__(self, context, params):
            names.append(context.request_id)
            asked.set()
            await stranger()
            return await super().__call__(context, params)

    async def stranger():
        answer = {"action": "accept", "content": YES | {"by": "mallory"}}
        message = {"jsonrpc": "2.0", "id": names[0], "result": answer}
        async with httpx.AsyncClient() as http:
            headers = JSON | {"mcp-session-id": "0" * 32}
            await http.post(world.url, json=message, headers=headers)

    result = called(world, "legacy", Slow(("accept", YES)))

    assert result.is_error is False
    assert approval(world).evidence[-1].outcome == b"ada: it came back"
