"""asgi-idempotency-header, a middleware of Starlette, on Redis; the app runs in this process. It
keeps answers that are JSON and lets the key go after others. As shipped, the tool's error leaves
the app, as it does in the README's. Best configured: the app answers errors, with JSON where the
answer should be kept (400, or 502 for what may have happened), with text where the key should be
free for the next try.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncebench.adapters._loop import running_loop
from oncebench.adapters._retries import nothing_happened, refused
from oncebench.kit import Says, Setup, Told

NAME = "asgi-idempotency-header"
KIND = "library"
REQUIRES = ("asgi-idempotency-header==0.2.0", "fastapi", "redis>=4.2,<5")
SERVERS = ("redis",)
README = "README, Setup and Quick summary of behaviours"
LACKS = {
    "asks": "it has no way to ask a service (README, Configuration)",
    "conflict": "requests with the same key are interpreted as the same (README, Enforce UUID)",
}


def open(setup: Setup) -> Callable[..., Any]:
    import httpx
    from idempotency_header_middleware import IdempotencyHeaderMiddleware
    from idempotency_header_middleware.backends import RedisBackend
    from redis.asyncio import Redis
    from starlette.applications import Starlette
    from starlette.middleware import Middleware

    wait = running_loop()
    backend = RedisBackend(redis=Redis.from_url(setup.servers["redis"]))
    key: list[str | None] = [None]
    setup.key = lambda: key[0]

    def protect(tool: Callable[..., Any]) -> Callable[..., Any]:
        app = Starlette(
            routes=[_route(setup, tool)],
            middleware=[Middleware(IdempotencyHeaderMiddleware, backend=backend)],
        )
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        client = httpx.AsyncClient(transport=transport, base_url="http://app")

        def call(order: str, amount: int, note: str = "") -> Any:
            key[0] = f"{tool.__module__}:{order}"
            body = {"order": order, "amount": amount, "note": note}
            response = wait(client.post("/", json=body, headers={"Idempotency-Key": key[0]}))
            if response.status_code == 409:
                return Told("busy")
            if response.status_code == 502:
                return Told("unknown")
            response.raise_for_status()
            return response.json()

        return call

    return protect


def _route(setup: Setup, tool: Callable[..., Any]) -> Any:
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import JSONResponse, PlainTextResponse, Response
    from starlette.routing import Route

    async def endpoint(request: Any) -> Response:
        body = await request.json()
        try:
            return JSONResponse(await run_in_threadpool(tool, **body))
        except Exception as error:
            if not setup.best:
                raise
            if refused(error):
                return JSONResponse(str(error), 400)
            if setup.temperament == "keys" or nothing_happened(error):
                return PlainTextResponse(str(error), 503)
            return JSONResponse(str(error), 502)

    return Route("/", endpoint, methods=["POST"])


def said(error: Exception) -> Says:
    return "raised"
