"""Requests that nobody would write by hand. `EFFECTONCE_FUZZ=100000` makes so many in the long tier."""

import asyncio
import os
import random
import tracemalloc

import pytest

from effectonce import Guard
from effectonce.http.server import Route
from effectonce.stores.memory import MemoryStore
from tests.http.helpers import Seen, a_scope, ask, guarded, run

REQUESTS = int(os.environ.get("EFFECTONCE_FUZZ", "4000"))
OURS = {400, 401, 413}  # refused before anything is claimed
KEYS = [f"8e03978e-40d5-43dd-bc93-6894a57f93{n:02}" for n in range(40)]
BODIES = [
    b"",
    b"{}",
    b"null",
    b'{"a":1}',
    b'{ "a" : 1.0 }',
    b'{"a":1,"a":2}',
    b"[" * 2000,
    b"\xff\x00",
    b"NaN",
    b"-1e-99999999999999999999",
    b"1e400",
    b"9" * 3000,
    b"x" * 3000,
    b'{"a":"\\ud800"}',
]
TYPES = [
    "application/json",
    "application/json; charset=utf-8",
    "text/plain",
    "multipart/form-data; boundary=x",
    "multipart/form-data",
    "",
    ";",
    "\xff",
]
PIECES = ['"', "\\", ";", "=", " ", ",", "a", "\t", "\x00", "\xfc", ":", "%", "?1", "é"]


def a_key(rng):
    match rng.randrange(6):
        case 0:
            return None
        case 1:
            return "".join(rng.choices(PIECES, k=rng.randrange(12))).encode("latin-1", "replace")
        case 2:
            return rng.randbytes(rng.randrange(300))
        case 3:
            return rng.choice(KEYS).encode()
        case _:
            return f'"{rng.choice(KEYS)}"'.encode()


def a_request(rng):
    body = rng.choice(BODIES) if rng.random() < 0.8 else rng.randbytes(rng.randrange(5000))
    cuts = sorted(rng.randrange(len(body) + 1) for _ in range(rng.randrange(4)))
    pieces = [body[start:end] for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    if rng.random() < 0.05:
        pieces = [
            {"type": "http.request", "body": body[:9], "more_body": True},
            {"type": "http.disconnect"},
        ]
    headers = {"content-type": rng.choice(TYPES)}
    if rng.random() < 0.2:
        headers["content-length"] = rng.choice(
            ["0", "-1", "many", "9" * 5000, str(len(body)), "", "4001"]
        )
    if rng.random() < 0.1:
        headers["content-encoding"] = rng.choice(["gzip", "\xff"])
    return {
        "method": rng.choice(["POST", "PATCH", "PUT", "GET", "\x00"]),
        "path": rng.choice(["/pay", "/pay/7", "/pay/\u00fc", "/pay/\ud800", "/../", "", "/pay\n"]),
        "key": a_key(rng),
        "tenant": rng.choice(["alice", "bob", None]),
        "query": rng.choice([b"", b"a=1", b"\xff"]),
        "headers": headers,
        "pieces": pieces,
    }


@pytest.mark.parametrize("requests", [1200, pytest.param(REQUESTS, marks=pytest.mark.long)])
@pytest.mark.parametrize("profile", ["ietf", "stripe_v1", "stripe_v2"])
def test_whatever_is_sent_is_answered_and_a_refused_request_claims_nothing(profile, requests):
    # the same ones in every run
    rng, guard, ran = random.Random(profile), Guard(MemoryStore(), cache=0), []

    async def app(scope, receive, send):
        ran.append(scope["method"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    async def main():
        middleware = guarded(
            app,
            guard,
            profile=profile,
            body_max=4000,
            memory_max=1000,
            routes=[Route("/pay"), Route("/pay/*"), Route("/*")],
        )
        for _ in range(requests // 3):
            request, claimed, before = a_request(rng), sum(guard.counts().values()), len(ran)
            seen = await ask(middleware, **request)
            left = isinstance(request["pieces"][-1], dict)
            assert seen.raised is None, request
            assert seen.complete or (left and seen == Seen()), request
            if seen.complete:
                assert seen.status < 500, (request, seen.body)
            if not seen.complete or seen.status in OURS:
                assert (sum(guard.counts().values()), len(ran)) == (claimed, before), request
            elif seen.status == 200 and not seen.replayed:
                assert len(ran) == before + 1
            else:
                assert len(ran) == before

    run(main)
    assert guard.counts().get("completed", 0) > 20


def test_memory_is_bounded_however_much_is_sent():
    async def app(scope, receive, send):
        size = 0
        while (message := await receive())["more_body"]:
            size += len(message["body"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(500):
            await send({"type": "http.response.body", "body": b"y" * 65_536, "more_body": True})
        await send({"type": "http.response.body", "body": b"%d" % (size + len(message["body"]))})

    async def main():
        middleware = guarded(app, body_max=64 << 20, memory_max=65_536, response_max=65_536)
        ended = []

        async def drop(message):
            ended.append(message.get("body", b"")[-20:])
            message["body"] = b""

        left = [500]

        async def receive():
            left[0] -= 1
            return {"type": "http.request", "body": b"x" * 65_536, "more_body": left[0] > 0}

        tracemalloc.start()
        await middleware(a_scope(headers={"content-type": "text/plain"}), receive, drop)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return ended[-1], peak

    end, peak = asyncio.run(main())

    sent = 500 * 65_536
    assert end == b"%d" % sent
    assert peak < sent / 4, "what other threads of this process do is counted, too"
