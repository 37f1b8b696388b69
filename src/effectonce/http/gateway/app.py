"""A gateway: the middleware, the policy and the store in front of an API, for callers in any
language.

A request passes these doors, in this order, and whatever is refused at one of them was not sent:

    is it for this API?     a path, and a host of the list; no absolute form, no CONNECT: there is
                            no way to any other upstream
    is it what it says?     no header that it is judged by is removed on the way, or written so that
                            the API takes another for it
    whose is it?            every request has a tenant, those without a key included
    is it too large?        413, before anything is read if the client says so itself
    once                    the middleware: see `server/middleware.py`
    and on                  the upstream, under its policy: see `upstream.py`
"""

from __future__ import annotations

from urllib.parse import unquote

from effectonce.http.gateway.headers import judged_by, refused_header
from effectonce.http.gateway.settings import (
    TENANT,
    Settings,
    Tenants,
    TenantSettings,
    UpstreamSettings,
    read_settings,
)
from effectonce.http.gateway.tenant_isolation import Bulkheads
from effectonce.http.server import IdempotencyMiddleware
from effectonce.http.server.problems import (
    BodyTooLarge,
    BrokenOff,
    Gone,
    TooManyAtOnce,
    TooSlow,
    Unreached,
    problem,
)
from effectonce.http.server.profiles import Trouble
from effectonce.http.server.responses import Message, Receive, Scope, Send, last, refusal
from effectonce.http.server.spooled_body import BodyLimits

__all__ = ["Gateway", "Settings", "TenantSettings", "UpstreamSettings", "read_settings"]

MEMORY_MAX = 1 << 18
TO_WRITE_S = 30.0  # for the outcome of a request that took as long as it may
_NO_METHODS = frozenset({"CONNECT", "TRACE"})


class Gateway:
    """A reverse proxy for one API (ASGI): serve it with uvicorn and h11 or `effectonce gateway`."""

    def __init__(self, settings: Settings) -> None:
        # with httpx, which only a gateway needs
        from effectonce.http.gateway.upstream import HttpUpstream  # noqa: PLC0415

        self.settings, self.guard = settings, settings.a_guard()
        self._hosts = frozenset(host.lower() for host in settings.hosts)
        self._judged_by = judged_by(settings)
        self._tenant, self._profile = Tenants(settings.tenants), settings.a_profile()
        policy = settings.a_retry()
        bulkheads = Bulkheads(policy, settings.a_breaker(), settings.a_budget, self.guard.store)
        limits = BodyLimits(settings.body_max, settings.body_piece_s, settings.body_s)
        self._upstream = HttpUpstream(settings.upstream, bulkheads, limits, memory_max=MEMORY_MAX)
        self._app = IdempotencyMiddleware(
            self._upstream,
            self.guard,
            tenant=lambda scope: scope[TENANT],
            routes=settings.some_routes(),
            methods=settings.methods,
            profile=self._profile,
            name="gateway",
            headers=settings.headers,
            body_max=settings.body_max,
            body_piece_s=settings.body_piece_s,
            body_s=settings.body_s,
            response_max=settings.response_max,
            memory_max=MEMORY_MAX,
            lease_s=settings.lease_s,
            deadline_s=policy.deadline_s + TO_WRITE_S,
            docs=settings.docs,
            quota=settings.a_quota(),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "http":
                await self._serve(scope, receive, send)
            case "lifespan":
                await self._live(receive, send)
            case _:
                await send({"type": "websocket.close", "code": 1003})

    async def _live(self, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await self._upstream.close()
        self.guard.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = refused_target(scope, self._hosts)
        if refused is None and refused_header(scope["headers"], self._judged_by):
            refused = "HEADER_REFUSED"
        scope[TENANT] = self._tenant(scope)
        if refused is not None:
            await problem(refused).deliver(send)
        elif scope[TENANT] is None:
            await self._say(Trouble.NOT_AUTHENTICATED, send)
        elif _announced(scope) > self.settings.body_max:
            await self._say(Trouble.BODY_TOO_LARGE, send)
        else:
            await self._pass(scope, receive, send)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def tell(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, tell)
        except Unreached as error:
            code = "TOO_MANY_AT_ONCE" if isinstance(error, TooManyAtOnce) else "UPSTREAM_UNREACHED"
            after_s: float = self._profile.retry_after_s
            if error.retry_after_s is not None:
                after_s = error.retry_after_s
            await problem(code, retry_after_s=after_s).deliver(send)
        except BrokenOff:
            if started:
                raise  # the server breaks off as well: no client takes it for the whole answer
            await problem("UPSTREAM_BROKE_OFF").deliver(send)
        except BodyTooLarge:
            await self._say(Trouble.BODY_TOO_LARGE, send)
        except TooSlow:
            slow = refusal(self._profile, Trouble.BODY_TOO_SLOW, docs=self.settings.docs)
            await last(slow, scope).deliver(send)
        except Gone:
            pass  # the client that would be answered is gone

    async def _say(self, trouble: Trouble, send: Send) -> None:
        detail = ""
        if trouble is Trouble.BODY_TOO_LARGE:
            detail = f"At most {self.settings.body_max} bytes are allowed."
        await refusal(self._profile, trouble, detail, self.settings.docs).deliver(send)


def refused_target(scope: Scope, hosts: frozenset[str]) -> str | None:
    """Why this request is not for the API behind us; None: it is."""
    path = scope["path"]
    strange = any(char in "\\#" or not char.isprintable() for char in path)
    climbs = _climbs(path) or _climbs(unquote(path))
    no_path = scope["method"].upper() in _NO_METHODS or not path.startswith("/")
    if no_path or strange or climbs:
        return "TARGET_REFUSED"
    named = [value.decode("latin-1").lower() for name, value in scope["headers"] if name == b"host"]
    if len(named) != 1 or not {named[0], _without_port(named[0])} & hosts:
        return "WRONG_HOST"
    return None


def _climbs(path: str) -> bool:
    """Has it a segment of dots once parameters and spaces are off? `..;` is `..` to some APIs."""
    return any(segment.partition(";")[0].strip() in (".", "..") for segment in path.split("/"))


def _without_port(host: str) -> str:
    name, _, port = host.rpartition(":")
    return name if name and port.isdigit() else host


def _announced(scope: Scope) -> int:
    announced = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    return int(announced[:20])
