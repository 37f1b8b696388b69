"""A raw ASGI client, and apps that count."""

import asyncio
from dataclasses import dataclass, field

import orjson

from effectonce import Guard, current_effect
from effectonce.effect import running
from effectonce.http.server import IdempotencyMiddleware

KEY = "8e03978e-40d5-43dd-bc93-6894a57f9324"


@dataclass
class Seen:
    """What a client got."""

    messages: list = field(default_factory=list)
    raised: BaseException | None = None

    @property
    def status(self):
        return next(
            (m["status"] for m in self.messages if m["type"] == "http.response.start"), None
        )

    @property
    def headers(self):
        start = next(m for m in self.messages if m["type"] == "http.response.start")
        return {name.decode(): value.decode() for name, value in start["headers"]}

    @property
    def body(self):
        return b"".join(m["body"] for m in self.messages if m["type"] == "http.response.body")

    @property
    def complete(self):
        ends = [
            m for m in self.messages if m["type"] == "http.response.body" and not m.get("more_body")
        ]
        return len(ends) == 1

    @property
    def json(self):
        return orjson.loads(self.body)

    @property
    def replayed(self):
        return self.headers.get("idempotent-replayed") == "true"


def a_scope(
    method="POST",
    path="/pay",
    *,
    key=KEY,
    headers=(),
    tenant="alice",
    query=b"",
    version="1.1",
    raw_path=b"",
):
    named = (
        {"content-type": "application/json"}
        | ({"x-tenant": tenant} if tenant else {})
        | dict(headers)
    )
    lines = [(name.encode(), value.encode("latin-1")) for name, value in named.items()]
    if key is not None:
        lines.append((b"idempotency-key", key if isinstance(key, bytes) else f'"{key}"'.encode()))
    scope = {
        "type": "http",
        "http_version": version,
        "method": method,
        "path": path,
        "query_string": query,
    }
    scope |= {"raw_path": raw_path} if raw_path else {}
    return scope | {"headers": lines}


async def ask(app, body=b'{"amount":1}', *, pieces=None, on_send=None, **scope):
    """One request. *on_send* sees every message before it counts as received; an OSError in it
    is a client that left.
    """
    seen, left = Seen(), list(pieces if pieces is not None else [body])

    async def receive():
        if not left:
            return {"type": "http.disconnect"}
        piece = left.pop(0)
        return (
            piece
            if isinstance(piece, dict)
            else {"type": "http.request", "body": piece, "more_body": bool(left)}
        )

    async def send(message):
        if on_send is not None:
            await on_send(message)
        seen.messages.append(message)

    try:
        await app(a_scope(**scope), receive, send)
    except Exception as error:
        seen.raised = error
    seen.unread = left
    return seen


def tenant_of(scope):
    return next((value.decode() for name, value in scope["headers"] if name == b"x-tenant"), None)


class Shop:
    """An app that counts its effects and answers by a script: a status, an exception, or a
    function of (scope, receive, send).
    """

    def __init__(self, *script):
        self.effects, self.script, self.bodies, self.started = 0, list(script), [], asyncio.Event()

    async def __call__(self, scope, receive, send):
        body = b""
        while (message := await receive()).get("more_body"):
            body += message["body"]
        self.bodies.append(body + message["body"])
        self.effects += 1
        if running.get() is not None:
            current_effect().downstream_key  # noqa: B018  # sent with what it does
        self.started.set()
        step = self.script.pop(0) if self.script else 201
        if isinstance(step, BaseException):
            raise step
        if callable(step):
            await step(scope, receive, send)
        else:
            await answer(send, step, b'{"effect":%d}' % self.effects)


async def answer(send, status, body, **headers):
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [(b"content-type", b"application/json"), *named],
        }
    )
    await send({"type": "http.response.body", "body": body})


def guarded(app, store="memory://", **settings):
    """The app behind the middleware."""
    guard = store if isinstance(store, Guard) else Guard(store, cache=0)
    return IdempotencyMiddleware(app, guard, **({"tenant": tenant_of} | settings))


def run(main):
    return asyncio.run(main())
