"""The contenders of middleware.py: one Starlette app, served by uvicorn, bare and behind each
middleware.

Run as a program, it serves one of them on a free port, which it prints. Every package is set up
as its documentation says. Local caches are off, except where the name says otherwise: what is
compared is the store behind it.
"""

from __future__ import annotations

import itertools
import logging
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

PATH = "/payments"
RAN = itertools.count(1)
App = Callable[..., Awaitable[None]]


async def pay(request: Request) -> JSONResponse:
    order = await request.json()
    return JSONResponse(
        {
            "id": f"pay_{next(RAN):08}",
            "order": order["order"],
            "amount": order["amount"],
            "status": "succeeded",
        }
    )


def bare(url: str) -> App:
    return Starlette(routes=[Route(PATH, pay, methods=["POST"])])


def ours(url: str, **cache: int) -> App:
    from effectonce import Guard  # noqa: PLC0415  # each server imports its own package only
    from effectonce.http.server import IdempotencyMiddleware  # noqa: PLC0415

    return IdempotencyMiddleware(bare(url), Guard(url, **cache), tenant=lambda _: "acme")


def idemkit(url: str) -> App:
    from idemkit import HttpConfig, IdempotencyMiddleware, RedisBackend  # noqa: PLC0415

    config = HttpConfig(scope=lambda _: "acme", use_local_cache=False)
    return IdempotencyMiddleware(bare(url), backend=RedisBackend(_client(url)), config=config)


def asgi_idempotency_header(url: str) -> App:
    from idempotency_header_middleware import IdempotencyHeaderMiddleware  # noqa: PLC0415
    from idempotency_header_middleware.backends import RedisBackend  # noqa: PLC0415

    return IdempotencyHeaderMiddleware(bare(url), backend=RedisBackend(_client(url)))


def _client(url: str) -> Any:
    from redis.asyncio import Redis  # noqa: PLC0415

    return Redis.from_url(url, max_connections=128)


CONTENDERS: dict[str, Callable[[str], App]] = {
    "bare": bare,
    "ours": lambda url: ours(url, cache=0),
    "ours, cached": ours,
    "idemkit": idemkit,
    "asgi-idempotency-header": asgi_idempotency_header,
}


def main() -> None:
    who, url = sys.argv[1:]
    logging.disable(logging.WARNING)
    app = CONTENDERS[who](url)
    # As a socket of TCP by name: asyncio switches Nagle's algorithm off only for those, and a
    # response in two writes would wait 40 ms.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    listening.listen(256)
    print(listening.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, access_log=False, log_level="error", lifespan="off")).run(
        sockets=[listening]
    )


if __name__ == "__main__":
    main()
