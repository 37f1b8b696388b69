"""Callers of a server that is protected from inside, over HTTP, and that sends no access token
of the SDK's.
"""

import asyncio
import contextlib

import httpx
import pytest
from fastmcp import FastMCP
from mcp.server.auth.provider import AccessToken
from mcp.server.mcpserver import MCPServer

from effectonce import Guard
from effectonce.integrations import fastmcp as for_fastmcp
from effectonce.integrations import mcp as for_mcp
from effectonce.mcp._in_server import Hosted
from effectonce.testing.bank import Bank
from tests.mcp_proxy.test_http import served

REPLAYED = "dev.effectonce/replayed"


def sdk_app(guard, pay, **options):
    server = MCPServer("bank", extensions=[for_mcp.EffectOnce(guard, **options)])
    server.add_tool(pay)
    return lambda stateless: server.streamable_http_app(
        stateless_http=stateless, json_response=True
    )


def fastmcp_app(guard, pay, **options):
    server = FastMCP("bank", middleware=[for_fastmcp.EffectOnce(guard, **options)])
    server.tool(pay)
    return lambda stateless: server.http_app(stateless_http=stateless, json_response=True)


class Stand:
    def __init__(self, app, guard, bank, opened):
        self._app, self._guard, self._bank, self._opened = app, guard, bank, opened

    def open(self, *, stateless, **options):
        def pay(order: str) -> str:
            return self._bank.pay(order, 1)["receipt"]

        self.url = self._opened.enter_context(
            served(self._app(self._guard, pay, **options)(stateless))
        )

    def post(self, method, params, **headers):
        named = {"accept": "application/json, text/event-stream"} | {
            name.replace("_", "-"): said for name, said in headers.items()
        }
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return httpx.post(self.url, json=message, headers=named, trust_env=False, timeout=30)

    def call(self, **headers):
        return self.post(
            "tools/call", {"name": "pay", "arguments": {"order": "o1"}}, **headers
        ).text

    def session(self):
        about = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "a", "version": "1"},
        }
        name = self.post("initialize", about).headers["mcp-session-id"]
        ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        asked = {"mcp-session-id": name, "accept": "application/json, text/event-stream"}
        httpx.post(self.url, json=ready, headers=asked, trust_env=False).raise_for_status()
        return name

    @property
    def effects(self):
        return len(self._bank.ledger())


@pytest.fixture(params=[sdk_app, fastmcp_app])
def stand(request, tmp_path):
    guard = Guard(f"sqlite:///{tmp_path / 'effects.db'}")
    with Bank(tmp_path / "ledger") as bank, contextlib.ExitStack() as opened:
        yield Stand(request.param, guard, bank, opened)
    guard.close()


@pytest.mark.parametrize("header", ["authorization", "x_api_key", "cookie"])
def test_a_caller_with_another_credential_is_not_shown_the_result(stand, header):
    stand.open(stateless=True)

    answers = [stand.call(**{header: who}) for who in ("alice", "bob", "alice")]

    assert [REPLAYED in answer for answer in answers] == [False, False, True], answers
    assert stand.effects == 2


def test_without_credentials_nothing_is_shared_between_sessions(stand):
    stand.open(stateless=False)
    first, second = stand.session(), stand.session()

    answers = [stand.call(mcp_session_id=name) for name in (first, second, first)]

    assert [REPLAYED in answer for answer in answers] == [False, False, True], answers
    assert stand.effects == 2


def test_a_call_of_which_it_is_not_known_who_makes_it_is_refused(stand):
    stand.open(stateless=True)

    answer = stand.call()

    assert "Nothing in this call says who makes it" in answer
    assert "tenant=" in answer
    assert stand.effects == 0


def test_the_server_may_say_that_all_are_one(stand):
    stand.open(stateless=True, tenant=lambda _: "")

    answers = [stand.call(), stand.call(x_api_key="another")]

    assert [REPLAYED in answer for answer in answers] == [False, True]
    assert stand.effects == 1


# ---------------------------------------------------------------- with an access token of the SDK's


def token(text, client_id="app", **said):
    return AccessToken(token=text, client_id=client_id, scopes=[], **said)


def caller(given):
    with contextlib.closing(Guard("memory://", secret=b"a secret of the guard")) as guard:
        return asyncio.run(Hosted(guard, "mcp", {}, {}).caller(given, None))


ANOTHER_ISSUER = {"iss": "https://another.example"}


@pytest.mark.parametrize(
    ("one", "another"),
    [
        (token("t1", subject="alice"), token("t2", subject="bob")),
        (token("t1"), token("t2")),
        (token("t1", subject="alice"), token("t2", subject="alice", claims=ANOTHER_ISSUER)),
        (token("t1", "app", subject="alice smith"), token("t2", "app alice", subject="smith")),
    ],
    ids=["another subject", "no subject", "another issuer", "the same words"],
)
def test_two_whom_their_tokens_tell_apart_are_two_callers(one, another):
    assert caller(one) != caller(another)


def test_a_subject_is_the_same_caller_with_a_renewed_token():
    before, renewed = (token(text, subject="alice", claims=ANOTHER_ISSUER) for text in ("t1", "t2"))

    assert caller(before) == caller(renewed)


def test_a_token_is_not_in_the_name_of_a_caller():
    assert "t1-secret" not in caller(token("t1-secret"))
