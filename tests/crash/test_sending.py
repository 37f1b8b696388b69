"""A process that is killed before `sending()` sent nothing, and its call runs again without a
person; one that is killed later may have.

Only for tools that declare `separate_dispatch`, or send through protected clients and declare so.
The workers are real processes, really killed; the bank that counts is another one.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading

import pytest
from aiohttp import web

from effectonce.testing.bank import Bank
from tests.crash.tiers import on_stores

WORKER = """
import asyncio, json, os, signal, sys
from effectonce import EffectOnceError, Guard, Retry, current_effect
from effectonce.testing.bank import Teller

url, port, colour, die_at, separate = sys.argv[1:]
guard = Guard(url, cache=0)
contract = dict(kind="write", lease_s=0.2, wait_s=5, name="pay", retry=Retry(attempts=1))
if colour in ("sync", "async"):
    contract["separate_dispatch"] = separate == "separate"
else:
    import httpx
    from effectonce.http.client import protect

    contract["through"] = "protected"


def reached(point):
    if point == die_at:
        os.kill(os.getpid(), signal.SIGKILL)


def send(invoice):
    reached("inside")
    with Teller(int(port)) as teller:
        receipt = teller.pay(invoice, 5)["receipt"]
    reached("done")
    return receipt


def pay(invoice: str) -> str:
    reached("before")
    with current_effect().sending():
        return send(invoice)


async def apay(invoice: str) -> str:
    reached("before")
    async with current_effect().sending():
        return send(invoice)


def parts(payment):
    reached("inside")  # the first byte of the request has left by now
    yield payment


def pay_by_client(invoice: str) -> str:
    reached("before")
    client = httpx.Client() if colour == "past" else protect(httpx.Client())
    payment = json.dumps({"payment_id": invoice, "amount_minor": 5}).encode()
    length = {"content-length": str(len(payment))}
    answer = client.post(f"http://127.0.0.1:{port}/payments", content=parts(payment), headers=length)
    reached("done")
    return answer.json()["receipt"]


async def aparts(payment):
    for part in parts(payment):
        yield part


async def apay_by_client(invoice: str) -> str:
    reached("before")
    client = httpx.AsyncClient() if colour == "async past" else protect(httpx.AsyncClient())
    payment = json.dumps({"payment_id": invoice, "amount_minor": 5}).encode()
    length = {"content-length": str(len(payment))}
    answer = await client.post(f"http://127.0.0.1:{port}/payments", content=aparts(payment), headers=length)
    reached("done")
    return answer.json()["receipt"]


async def abuy_over_a_websocket(invoice: str) -> str:
    import aiohttp

    async with aiohttp.ClientSession() as made:
        session = protect(made)
        async with session.ws_connect(f"http://127.0.0.1:{port}/buy") as socket:
            await socket.send_str(invoice)
            receipt = await socket.receive_str()
            reached("done")
            return receipt


async def acall():
    with guard.step("chat", "pay"):
        by_name = {"async": apay, "async websocket": abuy_over_a_websocket}
        return await guard.tool(**contract)(by_name.get(colour, apay_by_client))("inv_1")


def call():
    if colour.startswith("async"):
        return asyncio.run(acall())
    with guard.step("chat", "pay"):
        return guard.tool(**contract)(pay if colour == "sync" else pay_by_client)("inv_1")


try:
    said = call()
except EffectOnceError as error:
    said = type(error).__name__
states = guard.counts()
print(json.dumps([said, states]))
"""


@pytest.fixture
def bank(tmp_path):
    with Bank(tmp_path / "ledger.jsonl") as bank:
        yield bank


class Counter:
    """A shop where one buys over a WebSocket. It runs in a thread of its own."""

    def __init__(self):
        self.bought, self._loop = [], asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self):
        self._thread.start()
        self._in_its_thread(self._open())
        return self

    def __exit__(self, *error):
        self._in_its_thread(self._runner.cleanup())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _in_its_thread(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _open(self):
        app = web.Application()
        app.add_routes([web.get("/buy", self._serve)])
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]

    async def _serve(self, request):
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            self.bought.append(message.data)
            await socket.send_str("receipt")
        return socket


class Worker:
    def __init__(self, url, bank, colour, *, separate=True):
        self.of = [url, str(bank.port), colour]
        self.separate = "separate" if separate else "at once"

    def dies(self, point):
        ran = self._run(point)
        assert ran.returncode == -signal.SIGKILL, ran.stderr

    def says(self):
        ran = self._run("")
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)

    def _run(self, point):
        command = [sys.executable, "-c", WORKER, *self.of, point, self.separate]
        return subprocess.run(
            command, env=os.environ, capture_output=True, text=True, check=False, timeout=60
        )


both_colours = pytest.mark.parametrize("colour", ["sync", "async"])


@pytest.mark.cover(1)
@both_colours
def test_killed_before_sending_it_runs_again_without_a_person(url, bank, colour):
    worker = Worker(url, bank, colour)
    for _ in range(2):
        worker.dies("before")

    assert worker.says() == ["rcpt_1", {"completed": 1}]
    assert worker.says() == ["rcpt_1", {"completed": 1}]
    assert len(bank.ledger()) == 1


@pytest.mark.cover(1)
@both_colours
@pytest.mark.parametrize(("point", "effects"), [("inside", 0), ("done", 1)])
def test_killed_after_that_it_is_a_doubt(url, bank, colour, point, effects):
    worker = Worker(url, bank, colour)
    worker.dies("before")
    worker.dies(point)

    assert worker.says() == ["InDoubt", {"in_doubt": 1}]
    assert len(bank.ledger()) == effects


@pytest.mark.cover(1)
@both_colours
def test_without_a_separate_dispatch_it_is_a_doubt_at_every_point(url, bank, colour):
    worker = Worker(url, bank, colour, separate=False)
    worker.dies("before")

    assert worker.says() == ["InDoubt", {"in_doubt": 1}]
    assert len(bank.ledger()) == 0


@pytest.mark.cover(1)
@pytest.mark.parametrize("client", ["through", "past", "async through", "async past"])
def test_a_protected_client_says_by_itself_when_it_sends(url, bank, client):
    """Also one that goes past it, whatever the tool declares: a new socket is seen in time."""
    worker = Worker(url, bank, client)
    for _ in range(2):
        worker.dies("before")

    worker.dies("inside")

    assert worker.says() == ["InDoubt", {"in_doubt": 1}]
    assert len(bank.ledger()) == 0


@pytest.mark.cover(1)
@pytest.mark.parametrize("client", ["through", "async through"])
def test_what_a_protected_client_sends_is_not_sent_again_after_a_crash(url, bank, client):
    worker = Worker(url, bank, client)
    worker.dies("before")
    worker.dies("done")

    assert worker.says() == ["InDoubt", {"in_doubt": 1}]
    assert len(bank.ledger()) == 1


@on_stores("sqlite")
def test_what_is_bought_over_a_websocket_is_not_bought_again(url):
    with Counter() as counter:
        worker = Worker(url, counter, "async websocket")
        worker.dies("done")

        said = worker.says()

    assert said == ["InDoubt", {"in_doubt": 1}]
    assert counter.bought == ["inv_1"]
