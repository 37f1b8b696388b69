"""Inside Starlette and FastAPI: their middleware around us and inside us, their streams, files
and background tasks.
"""

import asyncio
import re
from pathlib import Path as File
from typing import Annotated

import fastapi
import httpx
import pytest
from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, AuthenticationBackend, SimpleUser
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import (
    FileResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Mount
from starlette.routing import Route as Path

from effectonce import Guard, current_effect
from effectonce.http.server import IdempotencyMiddleware, Route
from effectonce.stores.memory import MemoryStore
from effectonce.stores.sqlite import SqliteStore
from tests.http.helpers import KEY, ask, run, tenant_of

HEADERS = {"idempotency-key": f'"{KEY}"', "x-tenant": "alice"}


class PassOn(BaseHTTPMiddleware):
    """What it sends has always more to come."""

    async def dispatch(self, request, call_next):
        return await call_next(request)


class Counted:
    """A Starlette app with one endpoint, and how often it ran."""

    def __init__(self, respond, *, outside=(), inside=(), profile="ietf", tenant=tenant_of):
        self.effects, self.respond = 0, respond
        ours = Middleware(
            IdempotencyMiddleware,
            guard=Guard(MemoryStore(), cache=0),
            tenant=tenant,
            profile=profile,
        )
        self.app = Starlette(
            routes=[Path("/pay", self.pay, methods=["POST"])], middleware=[*outside, ours, *inside]
        )

    async def pay(self, request):
        await request.body()
        self.effects += 1
        return self.respond(self.effects)


def asked(app, times=2, **request):
    async def main():
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            headers = HEADERS | request.pop("headers", {})
            return [
                await client.post("/pay", headers=headers, **({"json": {"amount": 1}} | request))
                for _ in range(times)
            ]

    return asyncio.run(main())


async def pieces():
    for piece in (b"one ", b"two ", b"three"):
        yield piece


RESPONSES = {
    "json": lambda n: JSONResponse({"effect": n}, 201),
    "empty": lambda n: Response(status_code=204),
    "redirect": lambda n: RedirectResponse("/pay/7", 303),
    "stream": lambda n: StreamingResponse(pieces(), media_type="text/plain"),
    "file": lambda n: FileResponse(__file__),
    "large": lambda n: PlainTextResponse("x" * 5000 + str(n)),
}
AROUND = {
    "alone": {},
    "gzip outside": {"outside": [Middleware(GZipMiddleware, minimum_size=10)]},
    "gzip inside": {"inside": [Middleware(GZipMiddleware, minimum_size=10)]},
    "base outside": {"outside": [Middleware(PassOn)]},
    "base inside": {"inside": [Middleware(PassOn)]},
    "everything": {
        "outside": [Middleware(PassOn), Middleware(GZipMiddleware)],
        "inside": [Middleware(GZipMiddleware), Middleware(PassOn)],
    },
}


@pytest.mark.cover(1)
@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("response", RESPONSES)
def test_every_response_is_replayed_behind_any_middleware(response, around):
    counted = Counted(RESPONSES[response], **AROUND[around])

    first, again = asked(counted.app)

    assert counted.effects == 1
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert again.headers["idempotent-replayed"] == "true"
    assert again.headers.get("location") == first.headers.get("location")
    assert again.headers.get("content-type") == first.headers.get("content-type")


def test_a_client_that_leaves_while_it_uploads_is_no_error_of_a_layer_outside():
    """Starlette's base class takes a request without a response for a mistake, and says so in a
    traceback.
    """
    counted = Counted(RESPONSES["json"], outside=[Middleware(PassOn)])

    seen = run(
        lambda: ask(counted.app, pieces=[{"type": "http.request", "body": b"{", "more_body": True}])
    )

    assert (seen.raised, seen.status, counted.effects) == (None, 400, 0)


def test_whom_starlette_has_authenticated_is_known_and_everybody_else_is_refused():
    """By the resolver of the how-to."""

    class Tokens(AuthenticationBackend):
        async def authenticate(self, connection):
            token = connection.headers.get("authorization")
            return None if token is None else (AuthCredentials(), SimpleUser(token))

    page = (File(__file__).parents[2] / "docs" / "howto" / "safe-http-api.md").read_text()
    exec(re.search(r"^def signed_in\(scope\):\n(?:    .+\n)+", page, re.MULTILINE)[0], made := {})
    outside = [Middleware(AuthenticationMiddleware, backend=Tokens())]
    counted = Counted(RESPONSES["json"], outside=outside, tenant=made["signed_in"])

    known = [
        asked(counted.app, 1, headers={"authorization": who})[0]
        for who in ("alice", "alice", "bob")
    ]
    (unknown,) = asked(counted.app, 1)

    assert [answer.headers.get("idempotent-replayed") for answer in known] == [None, "true", None]
    assert (unknown.status_code, unknown.json()["code"], counted.effects) == (
        401,
        "NOT_AUTHENTICATED",
        2,
    )


def test_what_was_compressed_for_one_client_is_not_replayed_to_another_that_cannot_read_it():
    counted = Counted(RESPONSES["large"], **AROUND["gzip inside"])

    first, again = (
        *asked(counted.app, 1, headers={"accept-encoding": "gzip"}),
        *asked(counted.app, 1, headers={"accept-encoding": "identity"}),
    )

    assert first.content == again.content == b"x" * 5000 + b"1"
    assert "content-encoding" not in again.headers


def test_a_background_task_runs_once_and_after_the_response_is_recorded():
    states = []

    def respond(n):
        return JSONResponse(
            {}, background=BackgroundTask(lambda: states.append(counted.guard_counts()))
        )

    counted = Counted(respond)
    guard = counted.app.user_middleware[0].kwargs["guard"]
    counted.guard_counts = lambda: {
        str(state): count for state, count in guard.counts().items() if count
    }

    asked(counted.app)

    assert states == [{"completed": 1}]


def test_an_error_in_the_app_is_the_servers_500_and_is_replayed_by_stripes_first_rules_alone():
    def respond(n):
        raise RuntimeError("after the effect")

    ietf, stripe = Counted(respond), Counted(respond, profile="stripe_v1")

    first, in_doubt = asked(ietf.app)
    same = asked(stripe.app)

    assert {(s.status_code, s.text) for s in (first, *same)} == {(500, "Internal Server Error")}
    assert (in_doubt.status_code, in_doubt.json()["code"]) == (500, "OUTCOME_UNKNOWN")
    assert same[1].headers["idempotent-replayed"] == "true"
    assert (ietf.effects, stripe.effects) == (1, 1)


def fastapi_app(guard):
    app = fastapi.FastAPI()
    app.add_middleware(IdempotencyMiddleware, guard=guard, tenant=tenant_of)
    app.effects = []

    @app.post("/pay", status_code=201)
    def pay(amount: Annotated[int, fastapi.Body(embed=True)]):  # in a thread of its own
        app.effects.append(current_effect().downstream_key)
        return {"effect": len(app.effects), "amount": amount}

    return app


def test_fastapi_a_sync_handler_knows_its_effect():
    app = fastapi_app(Guard(MemoryStore(), cache=0))

    first, again = asked(app)

    assert first.json() == again.json() == {"effect": 1, "amount": 1}
    assert len(app.effects) == 1
    assert app.effects[0].startswith("eo_")


def test_fastapi_a_request_that_does_not_validate_is_not_stored_and_keeps_its_key_to_itself():
    app = fastapi_app(Guard(MemoryStore(), cache=0))

    wrong, again = asked(app, json={"amount": "many"})
    (corrected,) = asked(app, 1)

    assert [
        (s.status_code, "detail" in s.json(), "idempotent-replayed" in s.headers)
        for s in (wrong, again)
    ] == [(422, True, False)] * 2
    assert (corrected.status_code, corrected.json()["code"], app.effects) == (
        422,
        "KEY_CONFLICT",
        [],
    )


def test_fastapi_a_sync_handler_writes_in_the_transaction_of_its_request(tmp_path):
    guard = Guard(SqliteStore(tmp_path / "shop.db"), cache=0)
    app = fastapi.FastAPI()
    app.add_middleware(
        IdempotencyMiddleware,
        guard=guard,
        tenant=tenant_of,
        routes=[Route("/pay", downstream="transaction")],
    )

    @app.post("/pay")
    def pay() -> int:
        connection = current_effect().connection
        connection.execute("CREATE TABLE IF NOT EXISTS bookings (amount INTEGER)")
        connection.execute("INSERT INTO bookings VALUES (1)")
        return connection.execute("SELECT count(*) FROM bookings").fetchone()[0]

    first, again = asked(app)
    guard.close()

    assert (first.text, again.text, again.headers["idempotent-replayed"]) == ("1", "1", "true")


def test_a_form_with_a_new_boundary_is_the_same_request():
    counted = Counted(RESPONSES["json"])
    files = {"file": ("a.txt", b"contents", "text/plain")}

    first, again = (
        asked(counted.app, 1, json=None, files=files)[0],
        asked(counted.app, 1, json=None, files=files)[0],
    )
    (other,) = asked(counted.app, 1, json=None, files={"file": ("a.txt", b"other", "text/plain")})

    assert first.request.headers["content-type"] != again.request.headers["content-type"]
    assert (again.headers["idempotent-replayed"], other.status_code) == ("true", 422)


@pytest.mark.parametrize("path", ["/pay", "/api/pay"])
def test_a_route_is_found_where_its_app_is_mounted_and_where_the_server_has_a_root_path(path):
    def shop():
        done = []

        async def pay(_request):
            done.append(1)
            return PlainTextResponse(str(len(done)), status_code=201)

        ours = Middleware(
            IdempotencyMiddleware,
            guard=Guard(MemoryStore(), cache=0),
            tenant=tenant_of,
            routes=[Route(path)],
        )
        return Starlette(routes=[Path("/pay", pay, methods=["POST"])], middleware=[ours])

    async def twice(app, root):
        transport = httpx.ASGITransport(app, root_path=root)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return [(await client.post("/api/pay", headers=HEADERS)).text for _ in range(2)]

    assert asyncio.run(twice(Starlette(routes=[Mount("/api", shop())]), "")) == ["1", "1"]
    assert asyncio.run(twice(shop(), "/api")) == ["1", "1"]
