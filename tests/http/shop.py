"""What the black-box tests run in uvicorn's workers: a shop whose effects are lines in a ledger
that outlives every process.

SHOP_STORE      the store's URL
SHOP_LEDGER     the ledger: "order pid downstream_key", a line for each time that the handler did it
"""

import asyncio
import os
from dataclasses import replace

import orjson

from effectonce import Guard, current_effect
from effectonce.http.server import IdempotencyMiddleware, Route
from effectonce.http.server.profiles import IETF, STRIPE_V1, STRIPE_V2

guard = Guard(os.environ["SHOP_STORE"], cache=0)
LEASE_S = 1.0


def tenant_of(scope):
    return next((value.decode() for name, value in scope["headers"] if name == b"x-tenant"), None)


def write_down(line):
    ledger = os.open(os.environ["SHOP_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(ledger, line.encode() + b"\n")
    os.close(ledger)


def pass_gate(path):
    """A FIFO: opens when somebody else opens it, too."""
    with open(path, "rb"):  # noqa: PTH123
        pass


async def sell(scope, receive, send):
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    asked, effect = orjson.loads(body), current_effect()
    if effect.connection is not None:
        done = effect.connection.execute("INSERT INTO bookings VALUES (1)")
        if asyncio.iscoroutine(done):
            await done
    write_down(f"{asked['order']} {os.getpid()} {effect.downstream_key}")
    if "gate" in asked:
        await asyncio.to_thread(pass_gate, asked["gate"])
    said = orjson.dumps({"order": asked["order"], "pid": os.getpid()})
    await send(
        {
            "type": "http.response.start",
            "status": 201,
            "headers": [(b"content-type", b"application/json")],
        }
    )
    await send({"type": "http.response.body", "body": said})


def shop(name, **settings):
    return IdempotencyMiddleware(
        sell, guard, tenant=tenant_of, name=name, lease_s=LEASE_S, memory_max=4096, **settings
    )


SHOPS = {
    "/ietf": shop("ietf", profile=replace(IETF, strict=False), body_max=1 << 20),
    "/waits": shop("waits", profile=replace(IETF, strict=False, wait_s=60)),
    "/v1": shop("v1", profile=STRIPE_V1),
    "/v2": shop("v2", profile=STRIPE_V2),
}
if guard.store.capabilities.transactions:
    SHOPS["/tx"] = shop(
        "tx", routes=[Route("/tx", downstream="transaction")], profile=replace(IETF, strict=False)
    )


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        return
    if scope["path"] == "/ready":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"%d" % os.getpid()})
        return
    await SHOPS[scope["path"]](scope, receive, send)
