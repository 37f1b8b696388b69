"""Keys and fingerprints as they are stored, at each of the four ways in. A release that changes
one of these forgets every effect.
"""

from pathlib import Path

import anyio
import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from mcp import Client
from mcp.server import MCPServer

from effectonce import Guard
from effectonce._core.ops import Search
from effectonce.http.server import IdempotencyMiddleware
from effectonce.integrations import mcp
from effectonce.integrations.langchain import EffectOnce
from effectonce.stores.memory import MemoryStore
from tests.http.helpers import ask
from tests.integrations.agents.langchain_models import Scripted, asks

ARGUMENTS = {"payment_id": "pay_7", "amount_minor": 100, "reason": "läte"}


def by_a_tool(guard):
    @guard.tool(kind="write", volatile=["reason"])
    def refund(payment_id: str, amount_minor: int, reason: str = "") -> str:
        return "rcpt_1"

    @guard.workflow(identity=["payment_id"])
    def both(run, payment_id: str) -> str:
        return run.step("refund", refund, payment_id, 1)

    with guard.step("chat-42", "refund", tenant="acme"):
        refund(**ARGUMENTS)
    with guard.step("chat-42"):
        refund(**ARGUMENTS)
    with guard.sequence("account/42", 1):
        refund(**ARGUMENTS)
    guard.call(refund, ARGUMENTS, key=("u1", "weekly", 12))
    both("pay_7")


def by_an_agent(guard):
    @tool
    def refund(payment_id: str, amount_minor: int, reason: str = "") -> str:
        """Refund a payment."""
        return "rcpt_1"

    lines = [asks("a", **ARGUMENTS), asks("b", **ARGUMENTS), AIMessage("done")]
    once = EffectOnce(guard, contracts={"refund": {"kind": "write", "volatile": ["reason"]}})
    agent = create_agent(
        Scripted(lines=lines), [refund], middleware=[once], checkpointer=InMemorySaver()
    )
    agent.invoke(
        {"messages": [HumanMessage("refund it")]}, {"configurable": {"thread_id": "chat-42"}}
    )


def by_mcp(guard):
    server = MCPServer(
        "bank",
        extensions=[
            mcp.EffectOnce(guard, contracts={"refund": {"kind": "write"}}, tenant=lambda _: "acme")
        ],
    )

    @server.tool()
    def refund(payment_id: str, amount_minor: int, reason: str = "") -> str:
        return "rcpt_1"

    async def story():
        async with Client(server) as client:
            await client.call_tool(
                "refund", ARGUMENTS, meta={"dev.effectonce/conversation": "chat-42"}
            )
            await client.call_tool("refund", ARGUMENTS, meta={"dev.effectonce/key": "k-1"})

    anyio.run(story)


def by_http(guard):
    async def app(scope, receive, send):
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 201, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    protected = IdempotencyMiddleware(app, guard, tenant=lambda scope: "alice")

    async def story():
        await ask(protected, b'{"amount": 1, "to": "b\\u00e4nk"}', query=b"a=1&b=2")
        await ask(
            protected,
            b"amount=1",
            path="/refunds/7",
            key="0f5cbd0e-6d36-4a8e-9c53-0c0d4e2f1a77",
            headers={"content-type": "text/plain"},
        )

    anyio.run(story)


# way, secret, key, fingerprint
GOLDEN = Path(__file__).with_name("golden_identities.txt").read_text().splitlines()


@pytest.mark.parametrize(
    ("named", "secret"), [("plain", b""), ("keyed", b"a secret of at least thirty-two b")]
)
@pytest.mark.parametrize("way", [by_a_tool, by_an_agent, by_mcp, by_http])
def test_what_identifies_an_effect_stays_as_it_is(way, named, secret):
    guard = Guard(MemoryStore(), secret=secret)
    way(guard)

    which = f"{way.__name__} {named}"
    found = [
        f"{which} {record.request.key} {record.request.fingerprint}"
        for record in guard.store.apply(Search())
    ]
    assert sorted(found) == [line for line in GOLDEN if line.startswith(f"{which} ")]
