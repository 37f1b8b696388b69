"""Frameworks of WSGI, behind the one middleware: Django by its own ASGI handler, anything else
through an adapter.
"""

import os
import subprocess
import sys
from pathlib import Path

import httpx
import orjson
import pytest
from a2wsgi import WSGIMiddleware

from effectonce import current_effect
from tests.http.helpers import KEY, guarded, run
from tests.servers._process import free_port, until

ROOT = Path(__file__).parents[2]


@pytest.fixture
def django(tmp_path):
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        "--app-dir",
        str(ROOT / "examples"),
        "django_app:app",
        "--port",
        str(port),
    ]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=tmp_path, env=os.environ, stdout=log, stderr=log)

    def ready():
        assert process.poll() is None, (tmp_path / "log").read_text()
        return "running on" in (tmp_path / "log").read_text()

    try:
        until(ready, "Django")
        yield f"http://127.0.0.1:{port}/payments", tmp_path / "payments.log"
    finally:
        process.kill()
        process.wait()


def test_the_django_example_pays_once_and_tells_the_bank_the_key(django):
    url, ledger = django
    headers = {
        "authorization": "Bearer alice-secret",
        "idempotency-key": '"8e03978e-40d5-43dd-bc93-6894a57f9324"',
    }

    first, again = (
        httpx.post(url, headers=headers, json={"order": "ord_7", "amount_minor": 1400})
        for _ in range(2)
    )
    other = httpx.post(url, headers=headers, json={"order": "ord_7", "amount_minor": 1})
    bob = httpx.post(
        url,
        headers=headers | {"authorization": "Bearer bob-secret"},
        json={"order": "b", "amount_minor": 1},
    )

    assert (first.status_code, again.content) == (201, first.content)
    assert again.headers["idempotent-replayed"] == "true"
    assert (other.status_code, bob.status_code) == (422, 201)
    lines = [line.split() for line in ledger.read_text().splitlines()]
    assert [order for order, _, _ in lines] == ["ord_7", "b"]
    assert len({key for _, _, key in lines}) == 2


class WsgiShop:
    """A WSGI app, as Flask makes one."""

    def __init__(self):
        self.done = []

    def __call__(self, environ, start_response):
        asked = orjson.loads(environ["wsgi.input"].read())
        self.done.append((asked["order"], current_effect().downstream_key))
        start_response("201 Created", [("Content-Type", "application/json")])
        return [b'{"paid":', b"true}"]


def test_a_wsgi_app_behind_an_adapter_runs_once_and_knows_its_effect():
    async def main():
        shop = WsgiShop()
        app = guarded(WSGIMiddleware(shop))
        headers = {"x-tenant": "alice", "idempotency-key": f'"{KEY}"'}
        asked = {"headers": headers, "json": {"order": "x" * 500_000}}
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://shop"
        ) as client:
            first, again = await client.post("/pay", **asked), await client.post("/pay", **asked)

        assert (first.status_code, first.content) == (201, b'{"paid":true}')
        assert (again.status_code, again.content, again.headers["idempotent-replayed"]) == (
            201,
            first.content,
            "true",
        )
        assert len(shop.done) == 1
        assert shop.done[0][1]

    run(main)
