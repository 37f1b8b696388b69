"""The API behind the gateway: it counts what it really does in a ledger, and can be told to
honour keys.

API_LEDGER      a line for each effect: "order key"
API_HONOURS     "1": an effect under a key that was seen before is not done again, in whichever
process
"""

import asyncio
import os
from pathlib import Path

import orjson

LEDGER = Path(os.environ["API_LEDGER"])
HONOURS = os.environ.get("API_HONOURS") == "1"


def pass_gate(path):
    with open(path, "rb"):  # noqa: PTH123
        pass


def done_before(key):
    try:
        os.close(os.open(LEDGER.with_name(f"key-{key}"), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return True
    return False


def do(asked, key):
    if HONOURS and done_before(key):
        return
    ledger = os.open(LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(ledger, f"{asked['order']} {key}\n".encode())
    os.close(ledger)


async def break_off(send, sent):
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"100")]}
    )
    await send({"type": "http.response.body", "body": b"x" * sent, "more_body": True})
    os._exit(9)


async def endless(receive, send):
    """A stream without end: a line in the ledger when the one who listened is gone."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    left = asyncio.ensure_future(receive())
    while not left.done():
        await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})
        await asyncio.sleep(0)
    do({"order": "left"}, "-")


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        return None
    body, more = b"", True
    while more:
        message = await receive()
        assert message["type"] == "http.request", "the body was cut off"
        body, more = body + message.get("body", b""), message.get("more_body", False)
    headers = [(name.decode(), value.decode("latin-1")) for name, value in scope["headers"]]
    asked = orjson.loads(body) if scope["method"] == "POST" and body[:1] == b"{" else {}
    if asked:
        do(asked, dict(headers).get("x-key") or dict(headers).get("idempotency-key"))
        if "gate" in asked:
            await asyncio.to_thread(pass_gate, asked["gate"])
        if asked.get("dies"):
            os._exit(9)
        if "breaks" in asked:
            await break_off(send, asked["breaks"])
    if scope["path"] == "/base/endless":
        return await endless(receive, send)
    if scope["path"] == "/base/hold":
        do({"order": "held"}, "-")
        await receive()
        return None
    if scope["path"].startswith("/base/fails"):
        asked = {"status": 500}
    seen = {
        "target": scope["raw_path"].decode(),
        "query": scope["query_string"].decode(),
        "headers": headers,
        "size": len(body),
        "client_port": scope["client"][1],
    }
    said = [
        (b"content-type", b"application/json"),
        (b"connection", b"x-private"),
        (b"x-private", b"1"),
        (b"x-shop", b"7"),
    ]
    said += [(b"retry-after", str(asked["retry_after"]).encode())] if "retry_after" in asked else []
    await send({"type": "http.response.start", "status": asked.get("status", 200), "headers": said})
    await send({"type": "http.response.body", "body": orjson.dumps(seen)})
    return None
