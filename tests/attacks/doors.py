"""The doors that are fuzzed, each a server in a process of its own: `python -m
tests.attacks.doors DOOR PORT FOLDER`.

What is really done is a line in the ledger, "tenant order", and no process takes it back. Every
answer names the tenant that it is for.
"""

import json
import os
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import uvicorn

from effectonce import Guard, InDoubt
from effectonce.cli._uvicorn import run_server
from effectonce.stores.sqlite import connection

TENANTS = ("alice", "bob", "carol")
DOORS = ("middleware", "gateway", "mcp", "dashboard")


def tenant_of(scope):
    return next(
        (value.decode("latin-1") for name, value in scope["headers"] if name == b"x-tenant"), None
    )


class Shop:
    """Does what it is asked to do, for whom it is asked."""

    def __init__(self, folder):
        self._ledger = os.open(folder / "ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def do(self, tenant, order):
        os.write(self._ledger, f"{tenant} {order}\n".encode())

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        tenant, order = tenant_of(scope), _order(body)
        if order is not None and scope["method"] in ("POST", "PATCH"):
            self.do(tenant, order)
        said = json.dumps({"for": tenant, "order": order}).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(said)).encode()),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": said})


def _order(body):
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        return None
    order = asked.get("order") if isinstance(asked, dict) else None
    return order if isinstance(order, int) else None


def middleware(folder):
    from effectonce.http.server import IdempotencyMiddleware
    from effectonce.http.server.profiles import IETF

    guard = Guard(f"sqlite:///{folder / 'effects.db'}", spool=folder / "spool")
    return IdempotencyMiddleware(
        Shop(folder), guard, tenant=tenant_of, profile=replace(IETF, strict=False), body_max=1 << 16
    )


def gateway(folder):
    from effectonce.http.gateway.app import Gateway, read_settings
    from tests.servers._process import free_port

    port = free_port()
    behind = uvicorn.Server(
        uvicorn.Config(Shop(folder), port=port, log_level="error", access_log=False)
    )
    threading.Thread(target=behind.run, daemon=True).start()
    said = {
        "upstream": {"url": f"http://127.0.0.1:{port}"},
        "store": f"sqlite:///{folder / 'effects.db'}",
        "hosts": ["shop"],
        "tenants": {"header": "x-tenant"},
        "key": {"strict": False},
        "spool": str(folder / "spool"),
        "body_max": 1 << 16,
    }
    return Gateway(read_settings(None, said))


def mcp(folder):
    from mcp.server.mcpserver import MCPServer

    from effectonce.mcp._contracts import Contracts
    from effectonce.mcp.http import McpHttpProxy
    from tests.servers._process import free_port

    shop, server, port = Shop(folder), MCPServer("shop", log_level="CRITICAL"), free_port()

    def pay(tenant: str, order: int) -> dict:
        """Pay for an order."""
        shop.do(tenant, order)
        return {"for": tenant, "order": order}

    server.add_tool(pay)
    behind = uvicorn.Server(
        uvicorn.Config(
            server.streamable_http_app(stateless_http=True, json_response=True),
            port=port,
            log_level="error",
            access_log=False,
        )
    )
    threading.Thread(target=behind.run, daemon=True).start()
    guard = Guard(f"sqlite:///{folder / 'effects.db'}", spool=folder / "spool")
    return McpHttpProxy(guard, Contracts(), f"http://127.0.0.1:{port}/mcp")


def dashboard(folder):
    from effectonce.dashboard import Access, app

    guard = Guard(f"sqlite:///{folder / 'effects.db'}", spool=folder / "spool")
    for tenant in TENANTS:

        @guard.tool(kind="write", name=f"pay_{tenant}")
        def pay(order: int) -> None:
            raise ConnectionResetError

        with guard.step(f"for {tenant}", "pay", tenant=tenant), pytest.raises(InDoubt) as doubt:
            pay(1)
        with (folder / "references").open("a") as references:
            references.write(f"{doubt.value.effect.reference}\n")

    def access(request):
        tenant = request.headers.get("x-tenant")
        return Access(tenant, acts=True, tenant=tenant) if tenant in TENANTS else None

    return app(guard, access=access)


if __name__ == "__main__":
    door, port, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    connection.PAGES_KIB = 1 << 10  # the rest of what a process keeps shows only beside few pages
    made = globals()[door](folder)
    run_server(made, lifespan="off" if door == "middleware" else "on", port=port)
